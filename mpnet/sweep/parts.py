# SPDX-License-Identifier: MIT
"""Parts of units: what is computed and committed at once, so that an interruption costs seconds and not minutes.

A unit is claimed as a whole. Cut into parts, it repeats what its parts have in common, so parts grow with the time that the
sweep has taken.
"""

from __future__ import annotations

from bisect import bisect_right
from os.path import commonprefix
from typing import Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.sharing import forward_equivalents_of

PART_SECONDS = 5.0
"""A part should take no longer than this, or than PART_SHARE of the time that the sweep has taken."""
PART_SHARE = 0.1
FIRST_SHARE = 0.25
"""Of that time, what the first parts should take: they are cut by a guess, which a busy machine exceeds."""
LEAST_PASSES = 2
"""Work of the smallest part, in forward passes over all images: less than one of them is repeated, so at most a quarter."""


class Parts:
    """Says how much of a unit comes next.

    seconds_per_pass: of one forward pass over all images in one worker; 0 as long as that is unknown: units stay whole then.
    """

    def __init__(self, network: NetworkSpec, seconds_per_pass: float = 0.0) -> None:
        self._network = network
        self._guessed = {False, True}
        # Racing stops most configurations early, so its passes take less; the first of them are assumed to be whole.
        self._seconds = dict.fromkeys((False, True), seconds_per_pass)

    def first(self, keys: Sequence[str], elapsed: float, racing: bool) -> int:
        """How many of the keys of a unit, rising, come next.

        elapsed: seconds since the sweep began. racing: whether they are held against rivals.
        """
        share = FIRST_SHARE if racing in self._guessed else 1.0
        passes = max(LEAST_PASSES, share * max(PART_SECONDS, PART_SHARE * elapsed) / (self._seconds[racing] or 1e-300))
        if self._passes(keys) <= passes:
            return len(keys)
        most = bisect_right(range(1, len(keys)), passes, key=lambda count: self._passes(keys[:count]))
        # Where neighbours have least in common, least is repeated.
        cuts = range(max(1, most), most // 2, -1)
        return min(cuts, key=lambda cut: len(commonprefix(keys[cut - 1 : cut + 1])))

    def measured(self, keys: Sequence[str], racing: bool, seconds: float) -> None:
        """Note how long a part took."""
        if seconds > 0:
            self._guessed.discard(racing)
            self._seconds[racing] = seconds / self._passes(keys)

    def _passes(self, keys: Sequence[str]) -> float:
        """Work of keys that are computed together, in forward passes."""
        return float(forward_equivalents_of(self._network, keys))
