# SPDX-License-Identifier: MIT
"""Random numbers whose sequence is fixed for ever: SplitMix64 in plain 64-bit integer arithmetic.

NumPy promises the stream of its bit generators but not that of its distributions; the scenes need both, so
every draw here is a few integer operations on a counter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
# The increment and the two multipliers of SplitMix64 (Steele, Lea, Flood 2014).
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def mix64(value: int) -> int:
    """Return the SplitMix64 finaliser of one 64-bit integer."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


class Stream:
    """A counter-based source of random integers; equal seeds give equal sequences everywhere."""

    def __init__(self, seed: int) -> None:
        self._state = mix64(seed + _GAMMA)

    def word(self) -> int:
        """Return the next 64 random bits."""
        self._state = (self._state + _GAMMA) & _MASK
        return mix64(self._state)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words: uint64, shape (count,)."""
        steps = np.arange(1, count + 1, dtype=np.uint64)
        z = steps * np.uint64(_GAMMA) + np.uint64(self._state)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
        self._state = (self._state + count * _GAMMA) & _MASK
        result: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
        return result

    def octets(self, count: int) -> NDArray[np.uint8]:
        """Return `count` random bytes in a fixed (little-endian) order: uint8, shape (count,)."""
        raw = self.words((count + 7) // 8).astype("<u8")
        return raw.view(np.uint8)[:count]

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound); its bias is below bound / 2**32."""
        return ((self.word() >> 32) * bound) >> 32

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of 100 draws."""
        return self.below(100) < percent
