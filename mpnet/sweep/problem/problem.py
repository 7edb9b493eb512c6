# SPDX-License-Identifier: MIT
"""The problem of a sweep: a space, the measures that count, the baseline, and limits on what may be chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Collection, Generator, Iterable, Mapping, Sequence

import numpy as np

from mpnet.config.experiment import ConstraintSection
from mpnet.config.measures import DROP, Measure, measure, objective
from mpnet.errors import ConfigError
from mpnet.model.precision import BY_CODE
from mpnet.sweep.problem.front import Points, Rivals, best_pairs, non_dominated, to_minimise
from mpnet.sweep.problem.space import Assignment, Space
from mpnet.sweep.store import Trial

Results = Mapping[Assignment, Trial]


@dataclass(frozen=True)
class Batch:
    """Configurations that a strategy asks for together.

    prune: only what may be on the front need be measured; the rest may be ruled out by upper bounds, see `sweep.race`.
    again: a later batch asks for these as well.
    screen: only the noise at the heads on a few of the images that select is wanted, see `screened_noise`; what is sent then is
            the screened configurations alone.
    stage:  what it is one part of several of, in words; '' where it is all that the strategy asks for, as far as it knows.
    """

    configurations: Collection[Assignment]
    prune: bool = False
    again: bool = False
    screen: bool = False
    stage: str = ""


Walk = Generator[Batch, Results, None]
"""What a strategy asks for, batch by batch; it is sent all that is known, or what a batch has screened."""


def screened_noise(trial: Trial) -> float:
    """Return a trial's or a screened noise over signal at the heads against the baseline's, the mean of the heads."""
    return float(10 ** (-trial.get("head_sqnr_db") / 10))


@dataclass(frozen=True)
class Problem:
    """Everything that a strategy may know.

    macs:       multiply-accumulates of each position of a key, for one image.
    objectives: the first quality among them is what rankings use; a constraint names its own measure.
    outputs:    positions of the layers that feed outputs.
    is_small:   measuring every configuration is cheap.
    """

    space: Space
    macs: tuple[int, ...]
    objectives: tuple[Measure, ...]
    constraints: ConstraintSection = field(default_factory=ConstraintSection)
    seed: int = 0
    trials: int | None = None
    sampler: str = "nsga2"
    outputs: frozenset[int] = frozenset()
    is_small: bool = False

    def __post_init__(self) -> None:
        if not any(o.higher for o in self.objectives):
            raise ConfigError("sweep.objectives: name at least one measure of accuracy, such as AP or agreement_AP")
        if all(o.higher for o in self.objectives):
            raise ConfigError("sweep.objectives: name at least one cost, such as bit_operations or weight_bytes")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the objectives, in their order."""
        return tuple(o.name for o in self.objectives)

    @property
    def front_name(self) -> str:
        """Describe what its front is of: objectives and choices, in words that do not depend on the order of either.

        What one of them rules out may well be on another's front.
        """
        choices = [f"{','.join(map(str, v.positions))}={''.join(sorted(v.codes))}" for v in self.space.variables]
        options = sorted(option_set.text for option_set in self.space.option_sets)
        return f"{' '.join(sorted(self.names))} of {' '.join(choices)} {options}"

    @property
    def quality_name(self) -> str:
        """Return the measure of accuracy that ranks."""
        return next(o.name for o in self.objectives if o.higher)

    @property
    def cost_name(self) -> str:
        """Return the cost that counts first."""
        return next(o.name for o in self.objectives if not o.higher)

    @property
    def baseline(self) -> str:
        """Return the key that everything is compared with: all layers as high as they may be."""
        return self.space.highest()

    def value(self, trial: Trial, name: str) -> float:
        """Return a trial's measure or cost, on the images that select. Raises: ConfigError when it was not measured."""
        value = trial.get(name)
        if math.isnan(value):
            raise ConfigError(f"sweep.objectives: {name} was not measured for {trial.key}; {measure(name).remedy}")
        return value

    def quality(self, trial: Trial) -> float:
        """Return the first measure of accuracy."""
        return self.value(trial, self.quality_name)

    def quality_in(self, trials: Results, configuration: Assignment) -> float:
        """Return the first measure of accuracy of a configuration that was asked for; -inf when it failed."""
        return self.quality(trials[configuration]) if configuration in trials else -math.inf

    def cost(self, trial: Trial) -> float:
        """Return the first cost."""
        return self.value(trial, self.cost_name)

    def points(self, trials: Sequence[Trial]) -> Points:
        """Return (n, objectives) as measured."""
        return np.array([[self.value(t, o.name) for o in self.objectives] for t in trials]).reshape(
            len(trials), len(self.objectives)
        )

    def pairs(self, trials: Sequence[Trial]) -> Points:
        """Return (n, 2) of the first quality and the first cost of the trials on the front of these two."""
        return best_pairs(np.array([[self.quality(t), self.cost(t)] for t in trials]).reshape(len(trials), 2))

    def rivals(self, trials: Iterable[Trial], previous: Rivals | None = None) -> Rivals:
        """Return the front of the trials, against which configurations without a trial are held.

        trials: all, or those that came after the front `previous`.
        """
        points = to_minimise(self.points(list(trials)), self.objectives)
        if previous is not None:
            points = np.vstack([np.reshape(previous.points, (-1, points.shape[1])), points])
        front = np.unique(points[non_dominated(points)], axis=0)
        return Rivals(self.names, tuple(tuple(map(float, point)) for point in front))

    def front(self, trials: Sequence[Trial]) -> list[int]:
        """Return the indices of the trials that no other one dominates, the first objective best first."""
        return [int(i) for i in non_dominated(to_minimise(self.points(trials), self.objectives))]

    def saving(self, key: str, variable: int, code: str) -> float:
        """Return the bits of weights saved by giving a variable another code, weighed by MACs: what harm is set against."""
        positions = self.space.variables[variable].positions
        return float(sum(self.macs[p] * (BY_CODE[key[p]].weight_bits - BY_CODE[code].weight_bits) for p in positions))

    def meets(self, trial: Trial, baseline: Trial) -> bool:
        """Return whether a trial keeps all constraints, accuracy being compared with the baseline's."""
        return not any(excess > 0 for _, excess in self.excesses(trial, baseline))

    def excesses(self, trial: Trial, baseline: Trial) -> list[tuple[str, float]]:
        """Return how far a trial is beyond each limit, by the limit's key, in the measure's unit; at most 0 where it is met.

        Each limit on accuracy is about the measure that its name says, whatever the objectives are.
        """
        limits = self.constraints
        excesses = []
        for key, name, limit in (
            ("ap_drop", "AP", limits.ap_drop),
            *((key, key.removesuffix(DROP), limit) for key, limit in limits.drops.items()),
        ):
            if limit is not None:
                excesses.append((key, self.value(baseline, name) - self.value(trial, name) - limit))
        if limits.ap_drop_relative is not None:
            baseline_value = self.value(baseline, "AP")
            excesses.append(
                ("ap_drop_relative", baseline_value - self.value(trial, "AP") - limits.ap_drop_relative * baseline_value)
            )
        return excesses + [(name, self.value(trial, name) - limit) for name, limit in limits.at_most.items()]

    def nearest(self, trials: Iterable[Trial], baseline: Trial) -> Trial | None:
        """Return the trial that is least beyond the limits: by the worst excess, as a share of what it limits."""
        sizes = {key: max(abs(excess), 1e-12) for key, excess in self.excesses(baseline, baseline)}

        def worst(trial: Trial) -> float:
            return max((excess / sizes[key] for key, excess in self.excesses(trial, baseline)), default=0.0)

        return min(trials, key=lambda t: (worst(t), -self.quality(t), t.key), default=None)

    def best(self, trials: Iterable[Trial], baseline: Trial) -> Trial | None:
        """Return the cheapest trial that keeps all constraints, the more accurate one among equals; None when none does.

        Without any constraint on accuracy the most accurate one is best, the cheaper one among equals.
        """
        accuracy_first = not self.constraints.on_accuracy
        fitting = [t for t in trials if self.meets(t, baseline)]
        if accuracy_first:
            return min(fitting, key=lambda t: (-self.quality(t), self.cost(t), t.key), default=None)
        return min(fitting, key=lambda t: (self.cost(t), -self.quality(t), t.key), default=None)


def objectives_of(names: Sequence[str]) -> tuple[Measure, ...]:
    """Return objectives by name. Raises ConfigError for an unknown or repeated one."""
    if len(set(names)) != len(names):
        raise ConfigError(f"sweep.objectives: {', '.join(names)} names one twice")
    return tuple(objective(name) for name in names)
