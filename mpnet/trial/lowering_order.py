# SPDX-License-Identifier: MIT
"""The order in which layers are lowered: a nested chain of lowerings, found by the error at the heads, and exchanges around it.

Agreement on a few images is mostly a tie; the noise that lower precisions bring to the heads has no steps, and on few images
says as much of other images as agreement on four times as many (docs/decisions/0026). So the order is found by noise.

Nothing here runs a network: the generators yield lowerings that they want measured, and are sent what was measured. A
lowering (`Depths`) has one number per variable, 0 for its highest precision and one more for each lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Generator, Iterable, Mapping, Sequence, TypeVar

Depths = tuple[int, ...]
_Answer = TypeVar("_Answer")

RATIO = 0.8
"""From one target of the chain to the next: of what the cost is above its lowest."""
TARGETS = 24
"""So many targets before the lowest cost of all: the last is 0.5 % above it."""
MORE_NOISE = 2.0
"""A group of layers that together bring more than so often the noise that they bring alone is halved."""
CANDIDATES = 12
"""Layers that an exchange looks at on each side: those that bring most noise, and those that bring least."""
ROUNDS = 3
"""Exchanges at one cost."""
LEAST_GAIN = 0.01
"""Share of the noise that an exchange has to save to be worth another round."""


@dataclass(frozen=True)
class MeasuredLowering:
    """Noise and cost of one lowering.

    noise: over signal at the heads, the mean of the heads.
    cost:  of the whole lowering.
    """

    noise: float
    cost: float


Search = Generator[Sequence[Depths], Mapping[Depths, MeasuredLowering], _Answer]
"""Yields lowerings to measure; is sent what was measured, without those that failed."""


def follow(search: Search[_Answer], measure: Callable[[Sequence[Depths]], Mapping[Depths, MeasuredLowering]]) -> _Answer:
    """Follow a search to its end and return what it finds. measure: what it asks for, without those that failed."""
    try:
        requested = next(search)
        while True:
            requested = search.send(measure(requested))
    except StopIteration as stop:
        answer: _Answer = stop.value
        return answer


@dataclass
class _Effect:
    """The effect of lowering one variable by one step.

    noise:    that it adds.
    saving:   of cost.
    lowering: the one that it was measured from.
    """

    noise: float
    saving: float
    lowering: Depths

    @property
    def rank(self) -> tuple[bool, float]:
        """Rank what to lower first: least noise for what it saves; what saves nothing comes last."""
        return (self.saving <= 0, self.noise / self.saving if self.saving > 0 else self.noise)


@dataclass
class LoweringSearch:
    """A search for lowerings of little noise at every cost.

    lowest:        the largest number of each variable.
    measures:      of all lowerings that were measured. failures: lowerings that could not be.
    effects:       by variable and step, as last seen. first_effects: as first seen.
    blocked:       variables and steps that fail.
    """

    lowest: Depths
    measures: dict[Depths, MeasuredLowering] = field(default_factory=dict)
    failures: set[Depths] = field(default_factory=set)
    effects: dict[tuple[int, int], _Effect] = field(default_factory=dict)
    first_effects: dict[tuple[int, int], _Effect] = field(default_factory=dict)
    blocked: set[tuple[int, int]] = field(default_factory=set)

    def noise_of(self, lowering: Depths) -> float:
        """Return the noise of what was measured; infinite of what failed."""
        measure = self.measures.get(lowering)
        return math.inf if measure is None else measure.noise

    def rank(self, variable: int, step: int) -> tuple[bool, float]:
        """Rank a step of a variable in the order of lowering, as far as it was seen; what was not seen comes last."""
        effect = self.effects.get((variable, step))
        return (True, math.inf) if effect is None else effect.rank

    def search_chain(self) -> Search[list[Depths]]:
        """Search from all high to all low, each lowering with some more variables lowered than the one before.

        At each target cost the variables that come next are measured anew in the lowering that was reached, since what a
        layer brings depends on what is lowered already; the others keep what they were last seen to bring.
        """
        lowering: Depths = (0,) * len(self.lowest)
        yield from self._measure(
            [lowering, self.lowest, *(_move(lowering, v, 1) for v, steps in enumerate(self.lowest) if steps)]
        )
        if lowering not in self.measures:
            return []
        chain = [lowering]
        for target in self._list_targets(lowering):
            while self.measures[lowering].cost > target:
                next_lowering = yield from self._lower(lowering, target)
                if next_lowering is None:
                    return chain
                lowering = next_lowering
                chain.append(lowering)
        return chain

    def rank_alone(self) -> list[Depths]:
        """Rank variables at the same target costs by each step's effect where it was seen first, most others being high still.

        For after `chain`, of whose measures it is made. It has more noise; what that does to predictions is another matter.
        """
        lowering: Depths = (0,) * len(self.lowest)
        if lowering not in self.measures:
            return []
        cost, lowerings, moves = self.measures[lowering].cost, list[Depths](), list[tuple[tuple[bool, float], int, int]]()
        for variable, steps in enumerate(self.lowest):
            rank = (False, -math.inf)
            for step in range(steps):
                if (variable, step) not in self.first_effects:
                    break
                rank = max(rank, self.first_effects[variable, step].rank)
                moves.append((rank, variable, step))
        moves.sort()
        targets = self._list_targets(lowering)
        for _, variable, step in moves:
            lowering, cost = _move(lowering, variable, 1), cost - self.first_effects[variable, step].saving
            if targets and cost <= targets[0]:
                lowerings.append(lowering)
                targets = [target for target in targets if target < cost]
        return lowerings

    def interpolate(self, dear: Depths, cheap: Depths, ratio: float) -> list[Depths]:
        """Return steps from one lowering to a cheaper one that has all of its layers lowered, at costs that differ by a ratio.

        Steps that bring least noise for what they save come first. Nothing is asked for.
        """
        count = math.ceil(math.log(self.measures[dear].cost / max(self.measures[cheap].cost, 1e-300)) / -math.log(ratio)) - 1
        moves: list[tuple[tuple[bool, float], int, int]] = []
        for variable, (start, stop) in enumerate(zip(dear, cheap, strict=True)):
            rank = (False, -math.inf)
            for step in range(start, stop):
                rank = max(rank, self.rank(variable, step))
                moves.append((rank, variable, step))
        moves.sort()
        savings = [max(0.0, self.effects[v, s].saving) if (v, s) in self.effects else 0.0 for _, v, s in moves]
        depths, total_saving, lowerings = dear, 0.0, list[Depths]()
        for (_, variable, _), saving in zip(moves[:-1], savings, strict=False):
            depths, total_saving = _move(depths, variable, 1), total_saving + saving
            if total_saving * (count + 1) >= sum(savings) * (len(lowerings) + 1) and len(lowerings) < count:
                lowerings.append(depths)
        return lowerings

    def _list_targets(self, highest: Depths) -> list[float]:
        highest_cost = self.measures[highest].cost
        lowest_cost = self.measures[self.lowest].cost if self.lowest in self.measures else 0.0
        return [*(lowest_cost + (highest_cost - lowest_cost) * RATIO**step for step in range(1, TARGETS + 1)), lowest_cost]

    def _list_lowerable(self, lowering: Depths) -> list[int]:
        return [v for v, steps in enumerate(self.lowest) if lowering[v] < steps and (v, lowering[v]) not in self.blocked]

    def _order(self, lowering: Depths, variables: Iterable[int]) -> list[int]:
        """Return the variables that were measured at their step, those to lower first first."""
        measured_variables = [v for v in variables if (v, lowering[v]) in self.effects]
        return sorted(measured_variables, key=lambda v: (self.effects[v, lowering[v]].rank, v))

    def _group(self, lowering: Depths, order: Sequence[int], target: float) -> list[int]:
        """Take as many variables as it takes to come down to the target."""
        group, cost = [], self.measures[lowering].cost
        for variable in order:
            saving = self.effects[variable, lowering[variable]].saving
            if cost <= target or saving <= 0:
                break
            group.append(variable)
            cost -= saving
        return group

    def _lower(self, lowering: Depths, target: float) -> Search[Depths | None]:
        """Find the next lowering on the way to the target cost; None: nothing can be lowered."""
        unmeasured = [v for v in self._list_lowerable(lowering) if (v, lowering[v]) not in self.effects]
        yield from self._observe(lowering, unmeasured)
        size = len(self._group(lowering, self._order(lowering, self._list_lowerable(lowering)), target))
        nearest = self._order(lowering, self._list_lowerable(lowering))[: 2 * size + 4]
        yield from self._observe(lowering, [v for v in nearest if self.effects[v, lowering[v]].lowering != lowering])
        group = self._group(lowering, self._order(lowering, self._list_lowerable(lowering)), target)
        while group:
            next_lowering = _move(lowering, group, 1)
            yield from self._measure([next_lowering])
            separate_noise = sum(max(0.0, self.effects[v, lowering[v]].noise) for v in group)
            if next_lowering in self.measures and (
                len(group) == 1 or self.noise_of(next_lowering) - self.noise_of(lowering) <= MORE_NOISE * separate_noise + 1e-12
            ):
                return next_lowering
            if len(group) == 1:
                self.blocked.add((group[0], lowering[group[0]]))
                return lowering
            group = group[: len(group) // 2]
        return None

    def _observe(self, lowering: Depths, variables: Sequence[int]) -> Search[None]:
        """Measure what lowering each of the variables brings."""
        yield from self._measure([_move(lowering, v, 1) for v in variables])
        for variable in variables:
            single, start = self.measures.get(_move(lowering, variable, 1)), self.measures[lowering]
            if single is None:
                self.blocked.add((variable, lowering[variable]))
            else:
                effect = _Effect(single.noise - start.noise, start.cost - single.cost, lowering)
                self.effects[variable, lowering[variable]] = effect
                self.first_effects.setdefault((variable, lowering[variable]), effect)

    def exchange(self, start: Depths) -> Search[list[Depths]]:
        """Find depths of less noise that cost no more, best first: some variables raised for others that are lowered.

        What single variables change says which exchanges to measure; measures decide.
        """
        cost_limit, lowering, candidates = self.measures[start].cost, start, list[Depths]()
        for _ in range(ROUNDS):
            raised, lowered = yield from self._measure_single_changes(lowering)
            room = cost_limit - self.measures[lowering].cost
            exchanges = self._select_exchanges(lowering, raised, lowered, room)
            yield from self._measure(exchanges)
            affordable = [a for a in exchanges if a in self.measures and self.measures[a].cost <= cost_limit]
            candidates += affordable
            best = min(affordable, key=self.noise_of, default=lowering)
            if self.noise_of(best) > (1 - LEAST_GAIN) * self.noise_of(lowering):
                break
            lowering = best
        better = [a for a in dict.fromkeys(candidates) if self.noise_of(a) < self.noise_of(start)]
        return sorted(better, key=self.noise_of)

    def _measure_single_changes(
        self, lowering: Depths
    ) -> Search[tuple[dict[int, MeasuredLowering], dict[int, MeasuredLowering]]]:
        """Measure what raising and what lowering one variable gives, for the most promising ones."""
        raisable = [v for v, step in enumerate(lowering) if step]
        steps = {v: self.effects.get((v, lowering[v] - 1)) for v in raisable}
        raisable.sort(
            key=lambda v: -math.inf if (effect := steps[v]) is None or effect.saving <= 0 else -effect.noise / effect.saving
        )
        lowerable = self._order(lowering, self._list_lowerable(lowering))[:CANDIDATES]
        raisable = raisable[:CANDIDATES]
        yield from self._observe(lowering, [v for v in lowerable if self.effects[v, lowering[v]].lowering != lowering])
        yield from self._measure([_move(lowering, v, -1) for v in raisable])
        raised = {v: self.measures[a] for v in raisable if (a := _move(lowering, v, -1)) in self.measures}
        lowered = {v: self.measures[a] for v in lowerable if (a := _move(lowering, v, 1)) in self.measures}
        return raised, lowered

    def _select_exchanges(
        self, lowering: Depths, raised: Mapping[int, MeasuredLowering], lowered: Mapping[int, MeasuredLowering], room: float
    ) -> list[Depths]:
        """Return the exchanges that single changes promise most of, and the best of them together as far as they fit."""
        start = self.measures[lowering]
        steps = {
            (sign, v): (start.noise - measure.noise, measure.cost - start.cost)
            for sign, changes in ((-1, raised), (1, lowered))
            for v, measure in changes.items()
        }
        promised: list[tuple[float, tuple[tuple[int, int], ...]]] = []
        for raised_variable in raised:
            gain, price = steps[-1, raised_variable]
            if gain <= 0:
                continue
            if price <= room:
                promised.append((gain, ((-1, raised_variable),)))
            for lowered_variable in lowered:
                noise_change, cost_change = steps[1, lowered_variable]
                if gain + noise_change > 0 and price + cost_change <= room and lowered_variable != raised_variable:
                    promised.append((gain + noise_change, ((-1, raised_variable), (1, lowered_variable))))
        promised.sort(key=lambda exchange: -exchange[0])
        combination, changed_variables, cost = lowering, set[int](), 0.0
        combined = []
        for _, moves in promised:
            variables, price = {v for _, v in moves}, sum(steps[move][1] for move in moves)
            if not variables & changed_variables and cost + price <= room:
                changed_variables |= variables
                cost += price
                for sign, variable in moves:
                    combination = _move(combination, variable, sign)
                combined.append(combination)
        single = []
        for _, moves in promised[: CANDIDATES // 2]:
            exchange = lowering
            for sign, variable in moves:
                exchange = _move(exchange, variable, sign)
            single.append(exchange)
        return list(dict.fromkeys([*single, *combined]))

    def _measure(self, lowerings: Iterable[Depths]) -> Search[None]:
        """Ask for the measures of lowerings that have none."""
        unmeasured = [a for a in dict.fromkeys(lowerings) if a not in self.measures and a not in self.failures]
        if unmeasured:
            self.measures.update((yield unmeasured))
            self.failures.update(a for a in unmeasured if a not in self.measures)


def _move(lowering: Depths, variables: int | Sequence[int], steps: int) -> Depths:
    """Return the lowering with these variables lowered by so many steps."""
    depths = list(lowering)
    for variable in (variables,) if isinstance(variables, int) else variables:
        depths[variable] += steps
    return tuple(depths)
