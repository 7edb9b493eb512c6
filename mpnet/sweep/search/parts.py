# SPDX-License-Identifier: MIT
"""Parts of units: what is computed and committed at once, so that an interruption costs seconds and not minutes.

A unit is claimed as a whole. The worker that had the part before keeps the tensors that the next one shares with it
(`kept_stem`), so parts take seconds. Where these do not fit in memory, or another worker comes next, they are computed again:
then parts grow with the time that the sweep has taken.
"""

from __future__ import annotations

from bisect import bisect_right
from os.path import commonprefix
from typing import Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.sharing import forward_equivalents_of

PART_SECONDS = 4.0
"""A part aims at this, so that it takes at most 5 s at a changing pace, or, where much is repeated, at PART_SHARE of the time
that the sweep has taken."""
PART_SHARE = 0.1
MUCH = 0.05
"""Share of the work that may be repeated so that parts take seconds."""
FIRST_SHARE = 0.25
"""Of that time, what the first parts should take: they are cut by a guess, which a busy machine exceeds."""
LEAST_PASSES = 2
"""Work of the smallest part where much is repeated, in forward passes over all images: at most a quarter is repeated then."""


class Parts:
    """Says how much of a unit comes next.

    seconds_per_pass: of one forward pass over all images in one worker; 0 as long as that is unknown: units stay whole then.
    """

    def __init__(self, network: NetworkSpec, seconds_per_pass: float = 0.0) -> None:
        self._network = network
        self._guessed = {False, True}
        # Racing stops most configurations early, so its passes take less; the first of them are assumed to be whole.
        self._seconds = dict.fromkeys((False, True), seconds_per_pass)
        self._executed = self._repeated = 0.0

    def first(self, keys: Sequence[str], elapsed: float, racing: bool, before: Sequence[str] = ()) -> int:
        """How many of the keys of a unit, rising, come next.

        elapsed: seconds since the sweep began. racing: whether they are held against rivals. before: the unit's keys
        that came before these.
        """
        repeats = racing or self._repeated > MUCH * self._executed
        share = FIRST_SHARE if racing in self._guessed else 1.0
        seconds = max(PART_SECONDS, PART_SHARE * elapsed) if repeats else PART_SECONDS
        passes = max(LEAST_PASSES if repeats else 0, share * seconds / (self._seconds[racing] or 1e-300))
        known = () if repeats else before[-1:]
        if self._passes(keys, known) <= passes:
            return len(keys)
        most = bisect_right(range(1, len(keys)), passes, key=lambda count: self._passes(keys[:count], known))
        # Where neighbours have least in common, least is repeated.
        cuts = range(max(1, most), most // 2, -1)
        return min(cuts, key=lambda cut: len(commonprefix(keys[cut - 1 : cut + 1])))

    def measured(
        self, keys: Sequence[str], racing: bool, seconds: float, before: Sequence[str] = (), saved: float = 0.0
    ) -> None:
        """Note how long a part took. before: as `first`. saved: share of its work that needed not be done."""
        executed = self._passes(keys) * (1 - saved)
        if not racing:
            self._executed += executed
            self._repeated += max(0.0, executed - self._passes(keys, before))
        if seconds > 0 and executed > 0:
            self._guessed.discard(racing)
            self._seconds[racing] = seconds / executed

    def _passes(self, keys: Sequence[str], before: Sequence[str] = ()) -> float:
        """Work of keys that are computed together, in forward passes; where all of those before is kept, what comes to it."""
        together = forward_equivalents_of(self._network, (*before, *keys))
        return float(together - forward_equivalents_of(self._network, before))
