# SPDX-License-Identifier: MIT
"""A histogram whose range grows with the data, exactly: it depends on the values alone, not on their batches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import RealArray
from mpnet.errors import DataError

# Bins on each side of zero. The widest value lies in the outer half of them, so a bin is at most 1/4096 of it.
HALF_BINS = 8192


class GrowingHistogram:
    """Counts of values in bins of width 2^k, the edge of two bins at zero.

    When a value lies outside, the width doubles and pairs of bins merge: dividing by a power of two is exact in
    floating point, so merging gives the same counts as starting with the wider bins.
    """

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(2 * HALF_BINS, np.int64)
        self.exponent: int | None = None
        self.minimum = math.inf
        self.maximum = -math.inf

    @property
    def total(self) -> int:
        """Return the number of values that were counted."""
        return int(self.counts.sum())

    def observe(self, x: RealArray) -> None:
        """Count the values of an array of any shape. Raises: DataError for NaN or infinity."""
        values = np.asarray(x, np.float32).ravel()
        if values.size == 0:
            return
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DataError("activations hold NaN or infinity")
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self._grow(max(-low, high))
        # All zero so far: they lie in the bin above zero, whatever its width.
        scale = 1.0 if self.exponent is None else math.ldexp(1.0, -self.exponent)
        bins = np.floor(values.astype(np.float64) * scale).astype(np.int64)
        self.counts += np.bincount(bins + HALF_BINS, minlength=2 * HALF_BINS)

    def _grow(self, magnitude: float) -> None:
        if magnitude == 0:
            return
        # The least k with magnitude < HALF_BINS * 2^k: frexp gives magnitude < 2^e.
        needed = math.frexp(magnitude)[1] - (HALF_BINS.bit_length() - 1)
        if self.exponent is None:
            self.exponent = needed
        while self.exponent < needed:
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(2 * HALF_BINS, np.int64)
            self.counts[HALF_BINS // 2 : HALF_BINS + HALF_BINS // 2] = merged
            self.exponent += 1

    @property
    def width(self) -> float:
        """Return the width of a bin, in the values' unit."""
        return math.ldexp(1.0, self.exponent) if self.exponent is not None else 1.0

    def edges(self) -> NDArray[np.float64]:
        """Return the 2 * HALF_BINS + 1 edges of the bins."""
        return np.arange(-HALF_BINS, HALF_BINS + 1).astype(np.float64) * np.float64(self.width)

    def filled(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return (centres, counts) of the bins that hold something; centres do not leave [minimum, maximum]."""
        where = np.flatnonzero(self.counts)
        centres = (where.astype(np.float64) - HALF_BINS + 0.5) * self.width
        inside: NDArray[np.float64] = np.clip(centres, self.minimum, self.maximum)
        return inside, self.counts[where]

    def magnitudes(self) -> NDArray[np.int64]:
        """Return the counts by magnitude, HALF_BINS bins from zero up."""
        return self.counts[HALF_BINS:] + self.counts[:HALF_BINS][::-1]
