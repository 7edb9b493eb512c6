# SPDX-License-Identifier: MIT
"""The one clock: warm-up, repetitions, turns. Whatever mpnet times, it times here."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from math import inf
from typing import Callable, Iterable

from mpnet.progress import Advance, unseen

Work = Callable[[], object]


NOISY = 1.3
"""Median over least time above which a machine was too busy for the figure to mean anything."""
IDLE_CORES = 0.3
"""What other programs may take of the cores beyond those that a measurement leaves free."""
_TICKS_SECONDS = 0.05  # the system counts in hundredths of a second; shorter measurements learn nothing from it


@dataclass(frozen=True)
class Times:
    """Milliseconds of one piece of work, in the order in which they were taken.

    others: cores that other programs kept busy meanwhile, on average; 0 where the system does not say.
    """

    ms: tuple[float, ...]
    others: float = 0.0

    @property
    def min_ms(self) -> float:
        """Return the least time: what disturbs a measurement only ever adds to it."""
        return min(self.ms)

    @property
    def median_ms(self) -> float:
        """Return the median of the times."""
        return statistics.median(self.ms)

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """Return the bounds (low, high) of the middle half of the times."""
        if len(self.ms) < 2:
            return self.ms[0], self.ms[0]
        low, _, high = statistics.quantiles(self.ms, n=4, method="inclusive")
        return low, high

    def doubt(self, threads: int, cores: int) -> str:
        """Say why the times should not be believed; '' where nothing speaks against them."""
        if self.median_ms > NOISY * self.min_ms:
            return f"the median is {self.median_ms / self.min_ms:.1f} times the least"
        if self.others + threads > cores + IDLE_CORES:
            return f"other programs kept {self.others:.1f} of {cores} cores busy"
        return ""


class _Others:
    """The number of cores that other programs keep busy, from the system's own count of time."""

    def __init__(self) -> None:
        self._begin, self._busy, self._process_seconds = time.perf_counter(), _busy_seconds(), time.process_time()

    def cores(self) -> float:
        """Return the cores that other programs kept busy, on average since the beginning; 0 where it is not known."""
        seconds, busy = time.perf_counter() - self._begin, _busy_seconds()
        if self._busy is None or busy is None or seconds < _TICKS_SECONDS:
            return 0.0
        return max(0.0, (busy - self._busy - (time.process_time() - self._process_seconds)) / seconds)


def _busy_seconds() -> float | None:
    """Return the seconds that all cores were busy since the machine started, as Linux counts; None elsewhere."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, soft, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft + steal) / float(os.sysconf("SC_CLK_TCK"))


def once(work: Work) -> float:
    """Time one call, in milliseconds."""
    begin = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begin)


def in_turn(
    *works: Work,
    repeats: int,
    warm_up: int = 1,
    settled: bool = False,
    least: int = 1,
    seconds: float = inf,
    advance: Advance = unseen,
) -> list[Times]:
    """Time pieces of work round by round, so that whatever disturbs the machine meets all alike.

    repeats: rounds; after `seconds` no further one begins, once there are `least`.
    warm_up: calls of each before the first round. settled: each runs once, untimed, before each of its calls, so that
             what the others left in the caches does not count.
    advance: gets the pieces timed, after each round.
    """
    for work in works:
        for _ in range(warm_up):
            work()
    measured_ms: list[list[float]] = [[] for _ in works]
    others = _Others()
    begin, rounds_done = time.perf_counter(), 0
    while rounds_done < repeats and (rounds_done < least or time.perf_counter() - begin < seconds):
        for work, times in zip(works, measured_ms, strict=True):
            if settled:
                work()
            times.append(once(work))
        rounds_done += 1
        advance(len(works))
    busy = others.cores()
    return [Times(tuple(times), busy) for times in measured_ms]


def together(pieces: Iterable[Times]) -> Times:
    """Return the times of several pieces of work run one after the other, round by round."""
    pieces = list(pieces)
    rounds = zip(*(piece.ms for piece in pieces), strict=True)
    return Times(tuple(map(sum, rounds)), max((piece.others for piece in pieces), default=0.0))
