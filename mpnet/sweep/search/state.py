# SPDX-License-Identifier: MIT
"""The state of a sweep while it runs, which live views draw."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mpnet.sweep.problem.packed_trials import PackedTrials
from mpnet.sweep.search.failed import FailedTrials


@dataclass
class SweepState:
    """The progress of a sweep, which live views draw.

    failed_trials: configurations without figures. trials: all trials so far, by configuration.
    total:    configurations that were asked for so far: all of them for strategies that know beforehand.
    stage:    the part of the strategy that total ends with, '' where it is all of them.
    ruled_out: configurations that need no trial, since they cannot be on the front.
    computed: trials that this process computed; settled: these and what it ruled out. macs: executed for them, all images.
    start_time: time.monotonic() of the start; committed: of the last commit.
    exhausted_budget: `trials` or `seconds` when a budget ended the sweep.
    preparing: what runs before the first trial, '' for nothing.
    """

    failed_trials: FailedTrials
    trials: PackedTrials = field(default_factory=PackedTrials)
    total: int = 0
    stage: str = ""
    ruled_out: int = 0
    computed: int = 0
    settled: int = 0
    macs: float = 0.0
    start_time: float = field(default_factory=time.monotonic)
    committed: float = 0.0
    exhausted_budget: str | None = None
    preparing: str = ""

    @property
    def finished_count(self) -> int:
        """Count the configurations that need nothing more: measured, ruled out or failed."""
        return len(self.trials) + self.ruled_out + len(self.failed_trials)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.start_time

    @property
    def per_second(self) -> float:
        """Return the configurations settled per second, up to the last commit: between commits nobody knows better."""
        return self.settled / max(self.committed - self.start_time, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Estimate the seconds left of the stage, without one of all trials, at this rate; None as long as there is none."""
        if not self.settled:
            return None
        return max(0.0, (self.total - self.finished_count) / self.per_second - (time.monotonic() - self.committed))
