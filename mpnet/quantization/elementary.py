# SPDX-License-Identifier: MIT
"""Logarithm and exponential of float64 with the same bits on every CPU, for what they decide.

Libraries round these functions as they like: NumPy's own for AVX-512 differ from the C library's in the last bit. Here every
step is an addition, a product, a quotient or a power of two, which IEEE 754 rounds in one way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""ln 2 in two parts, the first of which is exact times any exponent."""
_LOG_TERMS, _EXP_TERMS = 12, 14
"""Terms of the series after which what is left lies below the last place."""


def log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The natural logarithm of positive, finite numbers, within 3 units in the last place."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < np.sqrt(0.5)
    mantissa, exponent = np.where(small, 2 * mantissa, mantissa), exponent - small
    s = (mantissa - 1) / (mantissa + 1)  # ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...)
    square, series = s * s, np.zeros_like(s)
    for term in range(_LOG_TERMS, 0, -1):
        series = (series + 1 / (2 * term + 1)) * square
    return np.asarray(exponent * _LN2_HIGH + (2 * s + (2 * s * series + exponent * _LN2_LOW)))


def exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The exponential function of numbers up to 700, within 2 units in the last place; 0 below -700."""
    twos = np.rint(np.maximum(x, -800.0) / _LN2)
    rest = (x - twos * _LN2_HIGH) - twos * _LN2_LOW
    series = np.zeros_like(rest)
    for term in range(_EXP_TERMS, 0, -1):
        series = (series + 1) * (rest / term)
    return np.where(x < -700.0, 0.0, np.ldexp(1 + series, twos.astype(np.int64)))
