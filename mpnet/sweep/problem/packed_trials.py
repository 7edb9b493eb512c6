# SPDX-License-Identifier: MIT
"""The trials of a sweep, packed: there may be millions."""

from __future__ import annotations

from array import array
from itertools import islice
from typing import Iterator, Mapping

from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import Trial


class PackedTrials(Mapping[Assignment, Trial]):
    """Trials by configuration, in the order in which they came; each look-up makes its trial anew.

    Most trials of a sweep have values of the same names: of these 8 bytes a value are kept, beside the key. With 20 values that
    is about 300 bytes a trial, a fifth of what objects take.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        # Keys stand for configurations under the first option set. Trials with values of other names are kept as they are.
        self._contents: dict[str | Assignment, bytes | Trial] = {}

    def add(self, configuration: Assignment, trial: Trial) -> None:
        """Take a trial in, or another one of a configuration in its place."""
        names = tuple(trial.values)
        if not self._contents:
            self._names = names
        packed = array("d", trial.values.values()).tobytes()
        self._contents[_compact(configuration)] = packed if names == self._names else trial

    @staticmethod
    def concatenate(*mappings: Mapping[Assignment, Trial]) -> PackedTrials:
        """Return the trials of all mappings, one mapping after the other."""
        joined = PackedTrials()
        for trials in mappings:
            for configuration, trial in trials.items():
                joined.add(configuration, trial)
        return joined

    def iterate_from(self, count: int) -> Iterator[Trial]:
        """Return the trials that came after the first `count`, which are not unpacked again."""
        return (self[configuration] for configuration in islice(self, count, None))

    def __getitem__(self, configuration: Assignment) -> Trial:
        packed = self._contents[_compact(configuration)]
        if isinstance(packed, Trial):
            return packed
        return Trial(configuration.key, dict(zip(self._names, memoryview(packed).cast("d"), strict=True)))

    def __iter__(self) -> Iterator[Assignment]:
        return (Assignment(stored_key) if isinstance(stored_key, str) else stored_key for stored_key in self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Assignment) and _compact(configuration) in self._contents


def _compact(configuration: Assignment) -> str | Assignment:
    return configuration if configuration.options else configuration.key
