# SPDX-License-Identifier: MIT
"""In which order layers are lowered: a nested chain of lowerings, found by the error at the heads, and exchanges around it.

Agreement on a few images is mostly a tie; the noise that lower precisions bring to the heads has no steps, and on few images
says as much of other images as agreement on four times as many (docs/decisions/0026). So the order is found by noise.

Nothing here runs a network: the generators yield lowerings that they want measured, and are sent what was measured. A
lowering (`Depths`) has one number per variable, 0 for its highest precision and one more for each lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generator, Iterable, Mapping, Sequence, TypeVar

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
class Measured:
    """noise: over signal at the heads, the mean of the heads. cost: of the whole lowering."""

    noise: float
    cost: float


Search = Generator[Sequence[Depths], Mapping[Depths, Measured], _Answer]
"""Yields lowerings to measure; is sent what was measured, without those that failed."""


@dataclass
class _Effect:
    """What lowering one variable by one step brings and saves. at: the lowering that it was measured from."""

    noise: float
    saving: float
    at: Depths

    @property
    def rank(self) -> tuple[bool, float]:
        """Rank what to lower first: least noise for what it saves; what saves nothing comes last."""
        return (self.saving <= 0, self.noise / self.saving if self.saving > 0 else self.noise)


@dataclass
class LoweringSearch:
    """Looks for lowerings of little noise at every cost.

    lowest: the largest number of each variable. measured: all that is known.
    effects: by variable and step, as last seen; first_effects: as first seen.
    blocked: variables and steps that fail.
    """

    lowest: Depths
    measured: dict[Depths, Measured] = field(default_factory=dict)
    failed: set[Depths] = field(default_factory=set)
    effects: dict[tuple[int, int], _Effect] = field(default_factory=dict)
    first_effects: dict[tuple[int, int], _Effect] = field(default_factory=dict)
    blocked: set[tuple[int, int]] = field(default_factory=set)

    def noise(self, lowering: Depths) -> float:
        """Return the noise of what was measured; infinite of what failed."""
        found = self.measured.get(lowering)
        return math.inf if found is None else found.noise

    def rank(self, variable: int, step: int) -> tuple[bool, float]:
        """Rank a step of a variable in the order of lowering, as far as it was seen; what was not seen comes last."""
        effect = self.effects.get((variable, step))
        return (True, math.inf) if effect is None else effect.rank

    def chain(self) -> Search[list[Depths]]:
        """Search from all high to all low, each lowering with some more variables lowered than the one before.

        At each target cost the variables that come next are measured anew in the lowering that was reached, since what a
        layer brings depends on what is lowered already; the others keep what they were last seen to bring.
        """
        here: Depths = (0,) * len(self.lowest)
        yield from self._measure([here, self.lowest, *(_moved(here, v, 1) for v, last in enumerate(self.lowest) if last)])
        if here not in self.measured:
            return []
        chain = [here]
        for target in self._targets(here):
            while self.measured[here].cost > target:
                following = yield from self._lowered(here, target)
                if following is None:
                    return chain
                here = following
                chain.append(here)
        return chain

    def ranked_alone(self) -> list[Depths]:
        """Rank variables at the same target costs by each step's effect where it was seen first, most others being high still.

        For after `chain`, of whose measures it is made. It has more noise; what that does to predictions is another matter.
        """
        here: Depths = (0,) * len(self.lowest)
        if here not in self.measured:
            return []
        cost, lowerings, moves = self.measured[here].cost, list[Depths](), list[tuple[tuple[bool, float], int, int]]()
        for variable, last in enumerate(self.lowest):
            rank = (False, -math.inf)
            for step in range(last):
                if (variable, step) not in self.first_effects:
                    break
                rank = max(rank, self.first_effects[variable, step].rank)
                moves.append((rank, variable, step))
        moves.sort()
        targets = self._targets(here)
        for _, variable, step in moves:
            here, cost = _moved(here, variable, 1), cost - self.first_effects[variable, step].saving
            if targets and cost <= targets[0]:
                lowerings.append(here)
                targets = [target for target in targets if target < cost]
        return lowerings

    def between(self, dear: Depths, cheap: Depths, ratio: float) -> list[Depths]:
        """Return steps from one lowering to a cheaper one that has all of its layers lowered, at costs that differ by a ratio.

        Steps that bring least noise for what they save come first. Nothing is asked for.
        """
        count = math.ceil(math.log(self.measured[dear].cost / max(self.measured[cheap].cost, 1e-300)) / -math.log(ratio)) - 1
        moves: list[tuple[tuple[bool, float], int, int]] = []
        for variable, (first, last) in enumerate(zip(dear, cheap, strict=True)):
            rank = (False, -math.inf)
            for step in range(first, last):
                rank = max(rank, self.rank(variable, step))
                moves.append((rank, variable, step))
        moves.sort()
        savings = [max(0.0, self.effects[v, s].saving) if (v, s) in self.effects else 0.0 for _, v, s in moves]
        depths, saved, found = dear, 0.0, list[Depths]()
        for (_, variable, _), saving in zip(moves[:-1], savings, strict=False):
            depths, saved = _moved(depths, variable, 1), saved + saving
            if saved * (count + 1) >= sum(savings) * (len(found) + 1) and len(found) < count:
                found.append(depths)
        return found

    def _targets(self, top: Depths) -> list[float]:
        most = self.measured[top].cost
        least = self.measured[self.lowest].cost if self.lowest in self.measured else 0.0
        return [*(least + (most - least) * RATIO**step for step in range(1, TARGETS + 1)), least]

    def _moves(self, here: Depths) -> list[int]:
        return [v for v, last in enumerate(self.lowest) if here[v] < last and (v, here[v]) not in self.blocked]

    def _order(self, here: Depths, variables: Iterable[int]) -> list[int]:
        """Return the variables that were measured at their step, those to lower first first."""
        known = [v for v in variables if (v, here[v]) in self.effects]
        return sorted(known, key=lambda v: (self.effects[v, here[v]].rank, v))

    def _group(self, here: Depths, order: Sequence[int], target: float) -> list[int]:
        """Take as many variables as it takes to come down to the target."""
        group, cost = [], self.measured[here].cost
        for variable in order:
            saving = self.effects[variable, here[variable]].saving
            if cost <= target or saving <= 0:
                break
            group.append(variable)
            cost -= saving
        return group

    def _lowered(self, here: Depths, target: float) -> Search[Depths | None]:
        """Find the next lowering on the way to the target cost; None: nothing can be lowered."""
        unknown = [v for v in self._moves(here) if (v, here[v]) not in self.effects]
        yield from self._observe(here, unknown)
        size = len(self._group(here, self._order(here, self._moves(here)), target))
        nearest = self._order(here, self._moves(here))[: 2 * size + 4]
        yield from self._observe(here, [v for v in nearest if self.effects[v, here[v]].at != here])
        group = self._group(here, self._order(here, self._moves(here)), target)
        while group:
            following = _moved(here, group, 1)
            yield from self._measure([following])
            alone = sum(max(0.0, self.effects[v, here[v]].noise) for v in group)
            if following in self.measured and (
                len(group) == 1 or self.noise(following) - self.noise(here) <= MORE_NOISE * alone + 1e-12
            ):
                return following
            if len(group) == 1:
                self.blocked.add((group[0], here[group[0]]))
                return here
            group = group[: len(group) // 2]
        return None

    def _observe(self, here: Depths, variables: Sequence[int]) -> Search[None]:
        """Measure what lowering each of the variables brings."""
        yield from self._measure([_moved(here, v, 1) for v in variables])
        for variable in variables:
            single, start = self.measured.get(_moved(here, variable, 1)), self.measured[here]
            if single is None:
                self.blocked.add((variable, here[variable]))
            else:
                effect = _Effect(single.noise - start.noise, start.cost - single.cost, here)
                self.effects[variable, here[variable]] = effect
                self.first_effects.setdefault((variable, here[variable]), effect)

    def exchange(self, start: Depths) -> Search[list[Depths]]:
        """Find depths of less noise that cost no more, best first: some variables raised for others that are lowered.

        What single variables change says which exchanges to measure; measures decide.
        """
        most, here, found = self.measured[start].cost, start, list[Depths]()
        for _ in range(ROUNDS):
            raised, lowered = yield from self._single_changes(here)
            room = most - self.measured[here].cost
            exchanges = self._exchanges(here, raised, lowered, room)
            yield from self._measure(exchanges)
            fitting = [a for a in exchanges if a in self.measured and self.measured[a].cost <= most]
            found += fitting
            best = min(fitting, key=self.noise, default=here)
            if self.noise(best) > (1 - LEAST_GAIN) * self.noise(here):
                break
            here = best
        better = [a for a in dict.fromkeys(found) if self.noise(a) < self.noise(start)]
        return sorted(better, key=self.noise)

    def _single_changes(self, here: Depths) -> Search[tuple[dict[int, Measured], dict[int, Measured]]]:
        """Measure what raising and what lowering one variable gives, for the most promising ones."""
        up = [v for v, step in enumerate(here) if step]
        steps = {v: self.effects.get((v, here[v] - 1)) for v in up}
        up.sort(key=lambda v: -math.inf if (known := steps[v]) is None or known.saving <= 0 else -known.noise / known.saving)
        down = self._order(here, self._moves(here))[:CANDIDATES]
        up = up[:CANDIDATES]
        yield from self._observe(here, [v for v in down if self.effects[v, here[v]].at != here])
        yield from self._measure([_moved(here, v, -1) for v in up])
        raised = {v: self.measured[a] for v in up if (a := _moved(here, v, -1)) in self.measured}
        lowered = {v: self.measured[a] for v in down if (a := _moved(here, v, 1)) in self.measured}
        return raised, lowered

    def _exchanges(
        self, here: Depths, raised: Mapping[int, Measured], lowered: Mapping[int, Measured], room: float
    ) -> list[Depths]:
        """Return the exchanges that single changes promise most of, and the best of them together as far as they fit."""
        now = self.measured[here]
        steps = {
            (sign, v): (now.noise - one.noise, one.cost - now.cost)
            for sign, changes in ((-1, raised), (1, lowered))
            for v, one in changes.items()
        }
        promised: list[tuple[float, tuple[tuple[int, int], ...]]] = []
        for up in raised:
            gain, price = steps[-1, up]
            if gain <= 0:
                continue
            if price <= room:
                promised.append((gain, ((-1, up),)))
            for down in lowered:
                lost, saved = steps[1, down]
                if gain + lost > 0 and price + saved <= room and down != up:
                    promised.append((gain + lost, ((-1, up), (1, down))))
        promised.sort(key=lambda one: -one[0])
        together, changed, cost = here, set[int](), 0.0
        combined = []
        for _, moves in promised:
            variables, price = {v for _, v in moves}, sum(steps[move][1] for move in moves)
            if not variables & changed and cost + price <= room:
                changed |= variables
                cost += price
                for sign, variable in moves:
                    together = _moved(together, variable, sign)
                combined.append(together)
        single = []
        for _, moves in promised[: CANDIDATES // 2]:
            one = here
            for sign, variable in moves:
                one = _moved(one, variable, sign)
            single.append(one)
        return list(dict.fromkeys([*single, *combined]))

    def _measure(self, lowerings: Iterable[Depths]) -> Search[None]:
        """Ask for what is not known."""
        missing = [a for a in dict.fromkeys(lowerings) if a not in self.measured and a not in self.failed]
        if missing:
            self.measured.update((yield missing))
            self.failed.update(a for a in missing if a not in self.measured)


def _moved(lowering: Depths, variables: int | Sequence[int], by: int) -> Depths:
    """Return the lowering with these variables lowered by so many steps."""
    moved = list(lowering)
    for variable in (variables,) if isinstance(variables, int) else variables:
        moved[variable] += by
    return tuple(moved)
