"""The one clock: warm-up, repetitions, turns. Whatever mpnet times, it times here."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from math import inf
from typing import Callable, Iterable

from mpnet.progress import Advance, unseen

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Milliseconds of one piece of work, in the order in which they were taken."""

    ms: tuple[float, ...]

    @property
    def min_ms(self) -> float:
        """The least: what disturbs a measurement only ever adds to it."""
        return min(self.ms)

    @property
    def median_ms(self) -> float:
        """The median."""
        return statistics.median(self.ms)


def once(work: Work) -> float:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begin)


def in_turn(
    *works: Work, repeats: int, warm_up: int = 1, settled: bool = False, least: int = 1, seconds: float = inf,
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
    taken: list[list[float]] = [[] for _ in works]
    begin, done = time.perf_counter(), 0
    while done < repeats and (done < least or time.perf_counter() - begin < seconds):
        for work, own in zip(works, taken, strict=True):
            if settled:
                work()
            own.append(once(work))
        done += 1
        advance(len(works))
    return [Times(tuple(own)) for own in taken]


def together(parts: Iterable[Times]) -> Times:
    """What pieces of work take one after the other, round by round."""
    return Times(tuple(map(sum, zip(*(part.ms for part in parts), strict=True))))
