# SPDX-License-Identifier: MIT
"""Configurations that are screened: noise at the heads on a few images, which has no steps as agreement has.

What was screened lies in the store's notes, so that a sweep that goes on takes the way that it took before.
"""

from __future__ import annotations

import json
from typing import Collection, Iterable, Mapping, Sequence

from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import Trial, TrialStore

SCREENING_IMAGES = 24
"""On 36 images noise says as much of other images as agreement on 145 (docs/decisions/0026)."""


class ScreenedTrials:
    """Noise and costs of the screened configurations of one sweep, by option set and key."""

    def __init__(self, store: TrialStore, contexts: Sequence[int], costs: Collection[str]) -> None:
        """Take what the store has.

        contexts: the store's context of each option set. costs: names of the costs that everything screened has to have.
        """
        self._store, self._notes = store, [f"screened/{context}:{SCREENING_IMAGES}" for context in contexts]
        self._needed = {"head_sqnr_db", *costs}
        self._values: dict[int, dict[str, dict[str, float]]] = {}

    def _values_of(self, options: int) -> dict[str, dict[str, float]]:
        """Return what is known under an option set, read from the store at first."""
        if options not in self._values:
            stored = self._store.read_figures(self._notes[options])
            self._values[options] = {key: values for key, values in stored.items() if self._needed <= values.keys()}
        return self._values[options]

    def missing(self, configurations: Iterable[Assignment]) -> list[Assignment]:
        """Return those that were not screened yet."""
        return [c for c in configurations if c.key not in self._values_of(c.options)]

    def find(self, configurations: Iterable[Assignment]) -> Mapping[Assignment, Trial]:
        """Return those that were screened, with noise and costs."""
        return {c: Trial(c.key, values) for c in configurations if (values := self._values_of(c.options).get(c.key))}

    def add(self, options: int, trials: Iterable[Trial]) -> None:
        """Take in what a worker screened."""
        self._values_of(options).update((trial.key, dict(trial.values)) for trial in trials)

    def save(self) -> None:
        """Write everything into the store."""
        for options, values in self._values.items():
            if values:
                self._store.set_note(self._notes[options], json.dumps(values))


def split_screening(configurations: Iterable[Assignment], workers: int) -> list[WorkChunk]:
    """Return the configurations in one chunk for each worker at most.

    Single changes of one configuration share little but the configuration itself, so that spreading them costs nothing.
    """
    by_options: dict[int, set[str]] = {}
    for configuration in configurations:
        by_options.setdefault(configuration.options, set()).add(configuration.key)
    chunks = []
    for options, distinct in sorted(by_options.items()):
        keys = sorted(distinct)
        count = max(1, min(workers, len(keys)))
        chunks += [WorkChunk(options, tuple(keys[first::count]), is_screening=True) for first in range(count)]
    return chunks
