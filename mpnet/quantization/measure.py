# SPDX-License-Identifier: MIT
"""The error of a tensor beside the one that it should be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import RealArray
from mpnet.errors import DataError

_WIDE = Context(prec=30)


@dataclass(frozen=True)
class TensorError:
    """The difference of a tensor from its reference.

    elements:     values compared.
    sqnr_db:      10 log10(sum of reference^2 / sum of error^2); infinite for no error, -infinite for a zero reference.
    cosine:       of the angle between both as vectors; 1 when both are zero, 0 when one is.
    rmse:         root of the mean squared error. mean_error, max_abs_error: of (tensor - reference).
    rmse_per_scale: rmse in steps of the quantised tensor; rounding alone gives 1 / sqrt(12) = 0.289; None without
                  scale.
    saturated:    share of the codes at the lowest or the highest code in use. None without codes.
    minimum, maximum: of the reference.
    """

    elements: int
    sqnr_db: float
    cosine: float
    rmse: float
    mean_error: float
    max_abs_error: float
    rmse_per_scale: float | None
    saturated: float | None
    minimum: float
    maximum: float


class ErrorMeter:
    """A meter of the difference of many batches, each with its own scale."""

    def __init__(self) -> None:
        self._elements = 0
        self._signal = self._noise = self._other = self._dot = self._error = self._noise_steps = 0.0
        self._largest = 0.0
        self._codes = self._at_ends = 0
        self._scaled = False
        self._minimum, self._maximum = math.inf, -math.inf

    def observe(
        self,
        tensor: RealArray,
        reference: RealArray,
        *,
        scale: float | None = None,
        codes: NDArray[np.int8] | None = None,
        low: int = -128,
        high: int = 127,
    ) -> None:
        """Take in a pair of equal shape. scale: real value of a step; codes: the int8 codes, ends low and high.

        Raises: DataError for shapes that differ, and for NaN or infinity.
        """
        if tensor.shape != reference.shape:
            raise DataError(f"tensors of shapes {tensor.shape} and {reference.shape} cannot be compared")
        if tensor.size == 0:
            return
        x, r = tensor.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
        error = x - r
        if not np.isfinite(error).all():
            raise DataError("tensors hold NaN or infinity")
        noise = float(np.square(error).sum())
        self._elements += x.size
        self._signal += float(np.square(r).sum())
        self._other += float(np.square(x).sum())
        self._dot += float((x * r).sum())
        self._noise += noise
        self._error += float(error.sum())
        self._largest = max(self._largest, float(np.abs(error).max()))
        self._minimum = min(self._minimum, float(r.min()))
        self._maximum = max(self._maximum, float(r.max()))
        if scale is not None:
            self._scaled = True
            self._noise_steps += noise / (scale * scale)
        if codes is not None:
            self._codes += codes.size
            self._at_ends += int(np.count_nonzero((codes == low) | (codes == high)))

    def result(self) -> TensorError:
        """Return the error of the tensor. Raises: DataError when nothing was observed."""
        if self._elements == 0:
            raise DataError("no tensors were compared; give at least one image")
        n = self._elements
        norms = math.sqrt(self._signal) * math.sqrt(self._other)
        both_zero = self._signal == 0 and self._other == 0
        return TensorError(
            elements=n,
            sqnr_db=sqnr_db(self._signal, self._noise),
            cosine=1.0 if both_zero else self._dot / norms if norms > 0 else 0.0,
            rmse=math.sqrt(self._noise / n),
            mean_error=self._error / n,
            max_abs_error=self._largest,
            rmse_per_scale=math.sqrt(self._noise_steps / n) if self._scaled else None,
            saturated=self._at_ends / self._codes if self._codes else None,
            minimum=self._minimum,
            maximum=self._maximum,
        )


def sqnr_db(signal: float, noise: float) -> float:
    """Return the signal to quantisation noise in dB, from sums of squares."""
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    return decibels(signal / noise)


def decibels(ratio: float) -> float:
    """Return 10 log10 of a ratio above 0, rounded once: logarithms of C libraries differ in the last bit between CPUs."""
    return float(10 * _WIDE.log10(Decimal(ratio)))


def sparkline(counts: Sequence[int]) -> str:
    """Draw the histogram in one line of a terminal."""
    bars = " ▁▂▃▄▅▆▇█"
    top = max(counts, default=0)
    if top == 0:
        return " " * len(counts)
    # The square root keeps small bins visible beside the peak at zero that activations have.
    return "".join(bars[0 if c == 0 else 1 + min(7, int(7.999 * math.sqrt(c / top)))] for c in counts)


def spread_of_channels(magnitudes: NDArray[np.float64]) -> float:
    """Return the largest over the median of channels' magnitudes; channels that are always zero do not count. 1 without any."""
    alive = magnitudes[magnitudes > 0]
    return float(alive.max() / np.median(alive)) if len(alive) else 1.0
