# SPDX-License-Identifier: MIT
"""Elementary functions and products of matrices in float64 with the same bits on every CPU, for what they decide.

Libraries round these functions as they like: NumPy's own for AVX-512 differ from the C library's in the last bit, and a BLAS
adds in the order that suits a CPU. Here every step is an addition, a product, a quotient, a square root or a power of two,
which IEEE 754 rounds in one way. Arrays have any shape; what has no value is NaN, and what is too large is infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""ln 2 in two parts, the first of which is exact times any exponent."""
_HALF_PI = 1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21
"""pi / 2 in three parts, each of which is exact times whole numbers up to 2^20."""
_LOG_TERMS, _EXP_TERMS, _SINE_TERMS = 12, 14, 10
"""Terms of the series after which what is left lies below the last place."""
_MOST_FACTORS = 64
"""Whole exponents up to this magnitude multiply; others go by the logarithm."""


def log(x: Reals) -> Reals:
    """Return the natural logarithm, within 3 units in the last place."""
    mantissa, exponent = np.frexp(np.where((x > 0) & np.isfinite(x), x, 1.0))
    small = mantissa < np.sqrt(0.5)
    mantissa, exponent = np.where(small, 2 * mantissa, mantissa), exponent - small
    s = (mantissa - 1) / (mantissa + 1)  # ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...)
    square, series = s * s, np.zeros_like(s)
    for term in range(_LOG_TERMS, 0, -1):
        series = (series + 1 / (2 * term + 1)) * square
    value = exponent * _LN2_HIGH + (2 * s + (2 * s * series + exponent * _LN2_LOW))
    return np.where(x > 0, np.where(np.isinf(x), x, value), np.where(x == 0, -np.inf, np.nan))


def exp(x: Reals) -> Reals:
    """Return the exponential function, within 2 units in the last place; 0 below -700."""
    bounded = np.clip(np.where(np.isnan(x), 0.0, x), -800.0, 800.0)
    twos = np.rint(bounded / _LN2)
    rest = (bounded - twos * _LN2_HIGH) - twos * _LN2_LOW
    series = np.zeros_like(rest)
    for term in range(_EXP_TERMS, 0, -1):
        series = (series + 1) * (rest / term)
    with np.errstate(over="ignore"):
        value = np.ldexp(1 + series, twos.astype(np.int64))
    return np.where(np.isnan(x), x, np.where(x < -700.0, 0.0, value))


def sin(x: Reals) -> Reals:
    """Return the sine of angles in radians, within 4 units in the last place of 1; NaN beyond 2^20, where no angle is left."""
    return _wave(x, 0)


def cos(x: Reals) -> Reals:
    """Return the cosine, as exact as `sin`."""
    return _wave(x, 1)


def _wave(x: Reals, quarter: int) -> Reals:
    turns = np.rint(np.where(np.abs(x) <= 2.0**20, x, 0.0) / (_HALF_PI[0] + _HALF_PI[1]))
    rest = ((x - turns * _HALF_PI[0]) - turns * _HALF_PI[1]) - turns * _HALF_PI[2]
    quarters = (turns.astype(np.int64) + quarter) % 4
    with np.errstate(all="ignore"):
        value = np.where(quarters % 2 == 1, _series(-rest * rest, 1), rest * _series(-rest * rest, 2))
    return np.where(np.abs(x) <= 2.0**20, np.where(quarters >= 2, -value, value), np.nan)


def _series(square: Reals, first: int) -> Reals:
    """Return 1 + square / (first (first + 1)) (1 + square / ((first + 2) (first + 3)) (1 + ...))."""
    series = np.ones_like(square)
    for term in range(first + 2 * (_SINE_TERMS - 1), 0, -2):
        series = 1 + square / (term * (term + 1)) * series
    return series


def tanh(x: Reals) -> Reals:
    """Return the hyperbolic tangent, within 4 units in the last place."""
    near = np.where(np.abs(x) < 1, x, 0.0)
    return np.where(
        np.abs(x) < 1,
        near * _series(near * near, 2) / _series(near * near, 1),
        np.copysign(1 - 2 / (exp(2 * np.abs(x)) + 1), x),
    )


def logistic(x: Reals) -> Reals:
    """Return 1 / (1 + exp(-x)), within 3 units in the last place; 0 below -700."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + exp(-x)))


def power(x: Reals, exponent: Reals) -> Reals:
    """Return x ** exponent.

    Whole exponents up to 64 are products, one half is the square root; others are within |exponent ln x| + 3 units in the last
    place.
    """
    x, exponent = np.broadcast_arrays(x, exponent)
    is_integer = (exponent == np.rint(exponent)) & (np.abs(exponent) <= _MOST_FACTORS)
    factors = np.where(is_integer, np.abs(exponent), 0.0).astype(np.int64)
    product, square = np.ones(x.shape), np.array(x, np.float64)
    with np.errstate(all="ignore"):
        while factors.any():
            product = np.where(factors % 2 == 1, product * square, product)
            factors, square = factors // 2, square * square
        product = np.where(exponent < 0, 1 / product, product)
        odd = np.isfinite(exponent) & (np.abs(exponent) % 2 == 1)
        size = np.where(exponent == 0.5, np.sqrt(np.abs(x)), exp(exponent * log(np.abs(x))))
        signed = np.where((x < 0) & (exponent != np.rint(exponent)), np.nan, np.where(odd, np.copysign(size, x), size))
    return np.where(is_integer, product, signed)


def matmul(a: Reals, b: Reals) -> Reals:
    """Multiply matrices, (..., m, k) and (..., k, n) as NumPy does: each value sums its k products one after the other."""
    sides = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*sides, a.shape[-2], b.shape[-1]))
    for k in range(a.shape[-1]):
        total += a[..., :, k, None] * b[..., None, k, :]
    return total
