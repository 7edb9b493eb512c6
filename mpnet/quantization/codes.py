# SPDX-License-Identifier: MIT
"""The map from codes to reals, and the codes of a convolution's sums, where something stands between them and the result.

No engine has LeakyReLU inside a convolution of codes, so sums are rounded to 8 bits before it. Negative sums shrink to a
tenth: a code spent on them is worth a hundredth of what it is worth above 0. So their lower bound is not the least sum
that may occur, but the one with the least error *after* LeakyReLU.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple

import numpy as np

from mpnet.quantization.elementary import exp
from mpnet.quantization.scheme import ActivationScheme, range_to_params

Ranges = Mapping[int, tuple[float, float]]
LEAKY_SLOPE = 0.1
CODED_ACTIVATIONS = ("linear", "relu", "relu6", "leaky")
"""Those that a full int8 convolution can have without leaving int8."""
_SLOPE = LEAKY_SLOPE
BEYOND = 2
"""How far beyond calibrated ranges sums of 16 bits reach where mpnet does not cut them: a bit of sixteen for other images."""
# How many standard deviations the largest of an image's activations usually lies from their mean.
_REACH = 5.0
_CANDIDATES = np.arange(1, 101, dtype=np.float64) / 100


class Codes(NamedTuple):
    """The map from int8 or int16 values of an activation to reals: (q - zero_point) * scale."""

    scale: float
    zero_point: int
    bits: int = 8

    @property
    def is_wide(self) -> bool:
        """Return whether they have 16 bits, and so lie around zero."""
        return self.bits == 16

    @property
    def least(self) -> int:
        """Return the least code."""
        return -(1 << (self.bits - 1))

    @property
    def largest(self) -> int:
        """Return the largest code."""
        return -1 - self.least


def codes_of(scheme: ActivationScheme, low: float, high: float) -> Codes:
    """Return the codes of a range."""
    params = range_to_params(low, high, scheme)
    return Codes(params.scale, params.zero_point, scheme.bits)


def range_of(codes: Codes) -> tuple[float, float]:
    """Return the reals that codes span."""
    return (codes.least - codes.zero_point) * codes.scale, (codes.largest - codes.zero_point) * codes.scale


def spanned_by_sums(codes: Codes, calibrated: tuple[float, float]) -> tuple[float, float]:
    """Return the range of a result, which has `codes`, that sums before LeakyReLU should reach.

    Codes of 16 bits lie around zero, where a tenth of them would be left for what is below it.
    """
    return (BEYOND * calibrated[0], calibrated[1]) if codes.is_wide else range_of(codes)


def leaky_sums(codes: Codes, calibrated: tuple[float, float]) -> Codes:
    """Return the codes of sums before LeakyReLU, whose results have `codes` and were found in a range."""
    low, high = sums_before("leaky", *spanned_by_sums(codes, calibrated), bits=codes.bits) or range_of(codes)
    return codes_of(ActivationScheme().of_bits(codes.bits), low, high)


def sums_before(activation: str, low: float, high: float, bits: int = 8) -> tuple[float, float] | None:
    """Return the range of sums whose results lie in [low, high]; None for an activation that cannot be turned round.

    bits: of their codes; from 16 on no sum is cut.
    """
    if activation == "leaky" and bits > 8:
        return min(low, 0.0) / _SLOPE, max(high, 0.0)
    if activation == "leaky":
        return leaky_bound(min(low, 0.0) / _SLOPE, max(high, 0.0)), max(high, 0.0)
    return (low, high) if activation in CODED_ACTIVATIONS else None


def leaky_bound(low: float, high: float) -> float:
    """Return the lower bound of sums from [low, high], low <= 0 <= high, with the least squared error after LeakyReLU.

    Sums are taken as normal, with their extremes `_REACH` deviations from the mean. With step s = (high - bound) / 255, p and
    n the shares of sums above 0 and from the bound to 0: error = s^2 / 12 (p + slope^2 n) + slope^2 E[(bound - x)^2 below].
    """
    if low >= 0.0 or high <= 0.0:
        return low
    mean, deviation = (low + high) / 2, (high - low) / (2 * _REACH)
    x = np.linspace(low, high, 4001)
    density = exp(-(((x - mean) / deviation) ** 2) / 2)
    density /= density.sum()
    above = density[x > 0].sum()

    def error(bound: float) -> float:
        step = (high - bound) / 255
        cut = x < bound
        rounding = step**2 / 12 * (above + _SLOPE**2 * (1 - above - density[cut].sum()))
        return float(rounding + _SLOPE**2 * (density[cut] * (bound - x[cut]) ** 2).sum())

    return float(min((share * low for share in _CANDIDATES), key=error))
