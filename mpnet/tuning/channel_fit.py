# SPDX-License-Identifier: MIT
"""Least squares of a gain and an offset for each channel: what brings one tensor nearest to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError
from mpnet.quantization.equalise import FoldedConvolution

_LARGEST_GAIN = 2.0
"""A fit that wants more than twice, or less than half, of a channel follows noise."""


@dataclass(frozen=True, eq=False)
class ChannelCorrection:
    """target = gain * values + offset, float32 (channels,)."""

    gain: NDArray[np.float32]
    offset: NDArray[np.float32]

    def applied_to(self, convolution: FoldedConvolution) -> FoldedConvolution:
        """Return the convolution whose result is corrected."""
        weights = convolution.weights * self.gain[:, None, None, None]
        bias = convolution.bias.astype(np.float64) * self.gain + self.offset
        return FoldedConvolution(weights.astype(np.float32), bias.astype(np.float32))


class ChannelFit:
    """Sums over images and positions that a fit of each channel needs."""

    def __init__(self, has_gain: bool = True) -> None:
        """Begin with no image. has_gain: whether a gain is fitted beside the offset; else it is 1."""
        self._has_gain = has_gain
        self._sums: NDArray[np.float64] | None = None
        self._count = 0

    def observe(self, target: NDArray[np.float32], values: NDArray[np.float32]) -> None:
        """Take in two tensors (n, h, w, c) of one shape. Raises: DataError for NaN or infinity."""
        wanted, given = (tensor.reshape(-1, tensor.shape[-1]).astype(np.float64) for tensor in (target, values))
        # Rows are added one after the other, so the sums are the same on every CPU.
        sums = np.stack(
            [(wanted - given).sum(axis=0), given.sum(axis=0), (given * wanted).sum(axis=0), (given * given).sum(axis=0)]
        )
        if not np.isfinite(sums).all():
            raise DataError("activations hold NaN or infinity")
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += len(wanted)

    def result(self) -> ChannelCorrection:
        """Return the gain and offset of each channel. Raises: DataError when nothing was observed."""
        if self._sums is None or self._count == 0:
            raise DataError("there is no image to tune on; name at least one")
        difference, given, product, square = self._sums / self._count
        covariance = product - given * (given + difference)
        variance = square - given * given
        gain = np.ones_like(given)
        if self._has_gain:
            # Sums of squares cancel: a channel that hardly varies keeps its gain.
            varies = variance > 1e-6 * square
            gain = np.divide(covariance, variance, out=gain, where=varies)
            gain = np.where((gain >= 1 / _LARGEST_GAIN) & (gain <= _LARGEST_GAIN), gain, 1.0)
        offset = given + difference - gain * given
        return ChannelCorrection(gain.astype(np.float32), offset.astype(np.float32))
