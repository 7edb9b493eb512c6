# SPDX-License-Identifier: MIT
"""The lowerings that a search of `trial.lowering_order` asks for, as configurations of a space."""

from __future__ import annotations

from typing import Mapping, Sequence

from mpnet.sweep.problem.problem import Problem, screened_noise
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import Trial
from mpnet.trial.lowering_order import Depths, MeasuredLowering


class SpaceLowerings:
    """The lowerings of a space's variables under one option set."""

    def __init__(self, problem: Problem, options: int) -> None:
        self._problem, self._options = problem, options
        self._codes = [problem.space.falling_codes(number) for number in range(len(problem.space.variables))]

    @property
    def lowest(self) -> Depths:
        """Return the lowering of every variable to its lowest precision."""
        return tuple(len(codes) - 1 for codes in self._codes)

    def configuration(self, depths: Depths) -> Assignment:
        """Return the configuration of a lowering."""
        codes = [codes[step] for codes, step in zip(self._codes, depths, strict=True)]
        return Assignment(self._problem.space.key_of(codes), self._options)

    def depths(self, key: str) -> Depths:
        """Return the lowering of a key."""
        codes = self._problem.space.codes_of(key)
        return tuple(falling.index(code) for falling, code in zip(self._codes, codes, strict=True))

    def collect(self, requested: Sequence[Depths], found: Mapping[Assignment, Trial]) -> dict[Depths, MeasuredLowering]:
        """Return noise and cost of the requested lowerings that have a trial."""
        trials = {depths: found.get(self.configuration(depths)) for depths in requested}
        return {
            depths: MeasuredLowering(screened_noise(trial), self._problem.cost(trial))
            for depths, trial in trials.items()
            if trial is not None
        }
