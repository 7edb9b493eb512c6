# SPDX-License-Identifier: MIT
"""The size of the chunks that are computed and committed at once, so that an interruption costs seconds and not minutes.

A unit is claimed as a whole, and computed in chunks. The worker that had the previous chunk caches the tensors that the next
one shares with it (`stem_cache`), so chunks take seconds. Where these do not fit in memory, or another worker comes next, they
are computed again: then chunks grow with the time that the sweep has taken.
"""

from __future__ import annotations

from bisect import bisect_right
from os.path import commonprefix
from typing import Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.sharing import forward_equivalents_of

CHUNK_SECONDS = 4.0
"""A chunk aims at this, so that it takes at most 5 s at a changing pace, or, where much is repeated, at CHUNK_SHARE of the time
that the sweep has taken."""
CHUNK_SHARE = 0.1
MAX_REPEATED_SHARE = 0.05
"""Share of the work that may be repeated so that chunks take seconds."""
FIRST_SHARE = 0.25
"""Of that time, what the first chunks should take: they are cut by a guess, which a busy machine exceeds."""
LEAST_PASSES = 2
"""Work of the smallest chunk where much is repeated, in forward passes over all images: at most a quarter is repeated then."""


class ChunkSizes:
    """The sizes of chunks: how much of a unit comes next.

    seconds_per_pass: of one forward pass over all images in one worker; 0 as long as that is unknown: units stay whole then.
    """

    def __init__(self, network: NetworkSpec, seconds_per_pass: float = 0.0) -> None:
        self._network = network
        # Whether passes of chunks that race, and of those that do not, are still a guess.
        self._guessed = {False, True}
        # Racing stops most configurations early, so its passes take less; the first of them are assumed to be whole.
        self._seconds_per_pass = dict.fromkeys((False, True), seconds_per_pass)
        self._executed = self._repeated = 0.0

    def choose(self, keys: Sequence[str], elapsed: float, is_racing: bool, previous: Sequence[str] = ()) -> int:
        """Return how many of the keys of a unit, rising, the next chunk has.

        elapsed: seconds since the sweep began. is_racing: whether they are held against rivals. previous: the unit's keys that
        came before these.
        """
        repeats = is_racing or self._repeated > MAX_REPEATED_SHARE * self._executed
        share = FIRST_SHARE if is_racing in self._guessed else 1.0
        seconds = max(CHUNK_SECONDS, CHUNK_SHARE * elapsed) if repeats else CHUNK_SECONDS
        passes = max(LEAST_PASSES if repeats else 0, share * seconds / (self._seconds_per_pass[is_racing] or 1e-300))
        cached = () if repeats else previous[-1:]
        if self._passes(keys, cached) <= passes:
            return len(keys)
        limit = bisect_right(range(1, len(keys)), passes, key=lambda count: self._passes(keys[:count], cached))
        # Where neighbours have least in common, least is repeated.
        counts = range(max(1, limit), limit // 2, -1)
        return min(counts, key=lambda count: len(commonprefix(keys[count - 1 : count + 1])))

    def learn(
        self, keys: Sequence[str], is_racing: bool, seconds: float, previous: Sequence[str] = (), saved_share: float = 0.0
    ) -> None:
        """Note how long a chunk took. previous: as `choose`. saved_share: of its work, that needed not be done."""
        executed = self._passes(keys) * (1 - saved_share)
        if not is_racing:
            self._executed += executed
            self._repeated += max(0.0, executed - self._passes(keys, previous))
        if seconds > 0 and executed > 0:
            self._guessed.discard(is_racing)
            self._seconds_per_pass[is_racing] = seconds / executed

    def _passes(self, keys: Sequence[str], cached: Sequence[str] = ()) -> float:
        """Return the work of keys that are computed together, in forward passes, beyond that of the cached ones."""
        together = forward_equivalents_of(self._network, (*cached, *keys))
        return float(together - forward_equivalents_of(self._network, cached))
