# SPDX-License-Identifier: MIT
"""Bias correction: rounding weights shifts a layer's mean output; the bias takes the expected shift back.

E[y'] - E[y] = sum over inputs of (w' - w) * E[x] for weights w rounded to w', with E[x] the mean of each input channel
over a calibration set. Zero padding is not counted: near the border the mean is a little smaller than assumed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import RealArray
from mpnet.errors import DataError, PrecisionError


class ChannelMeans:
    """Mean of each channel over images and positions."""

    def __init__(self) -> None:
        self._sum: NDArray[np.float64] | None = None
        self._count = 0.0

    def observe(self, batch: RealArray, weights: NDArray[np.float64] | None = None) -> None:
        """Take in (n, h, w, c) activations; weights: (n, h, w) how often each position counts, None: once.

        Raises: DataError for NaN or infinity, or other channels than before.
        """
        rows = np.asarray(batch).reshape(-1, batch.shape[-1])
        if weights is not None:
            rows = rows * weights.reshape(-1, 1)
        total = rows.sum(axis=0, dtype=np.float64)
        if not np.isfinite(total).all():
            raise DataError("activations hold NaN or infinity")
        if self._sum is not None and self._sum.shape != total.shape:
            raise DataError(f"activations have {total.size} channels after {self._sum.size}")
        self._sum = total if self._sum is None else self._sum + total
        self._count += len(rows) if weights is None else float(weights.sum())

    def result(self) -> NDArray[np.float64]:
        """Return (c,). Raises: DataError when nothing was observed."""
        if self._sum is None or self._count == 0:
            raise DataError("the calibration set is empty; give it at least one image")
        return np.asarray(self._sum / self._count)


def bias_shift(
    weights: NDArray[np.float32], rounded: NDArray[np.float32], means: NDArray[np.float64], groups: int = 1
) -> NDArray[np.float32]:
    """Return what to add to the bias: -sum of (rounded - weights) * means per output channel, in float64 in the inputs' order.

    weights, rounded: (out, in / groups, kh, kw), the second as the int8 codes stand for it; means: (in,).
    Raises: PrecisionError for shapes that do not fit.
    """
    out, per_group = weights.shape[:2]
    if rounded.shape != weights.shape or means.shape != (per_group * groups,) or out % groups:
        raise PrecisionError(
            f"bias correction: weights {weights.shape} in {groups} groups do not fit rounded {rounded.shape} "
            f"and means {means.shape}"
        )
    shift = (rounded.astype(np.float64) - weights.astype(np.float64)).reshape(out, per_group, -1)
    per_input = np.add.accumulate(shift, axis=2)[:, :, -1]
    of_filter = np.repeat(means.reshape(groups, per_group), out // groups, axis=0)
    expected = np.add.accumulate(per_input * of_filter, axis=1)[:, -1]
    return np.asarray(-expected, np.float32)
