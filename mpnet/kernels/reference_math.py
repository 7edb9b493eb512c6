# SPDX-License-Identifier: MIT
"""Arithmetic that the oracle's functions share: exact fused multiply-adds, exp, activations, roundings, stored types."""

from __future__ import annotations

from typing import Callable, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpnet.errors import KernelError

_f32 = np.float32
F32 = NDArray[np.float32]
Integers = NDArray[np.signedinteger] | np.signedinteger | int
RealT = TypeVar("RealT", np.float32, np.float16)


def _round_odd(total: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return total + error rounded to odd in float64; a later rounding to fewer than 52 bits is then the only one."""
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    step = np.where(np.signbit(total) == np.signbit(error), 1, -1)
    moved: NDArray[np.int64] = bits + np.where((error != 0) & even, step, 0)
    return moved.view(np.float64)


@overload
def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike, kind: type[np.float32] = ...) -> F32: ...
@overload
def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike, kind: type[RealT]) -> NDArray[RealT]: ...
def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike, kind: type[np.floating] = np.float32) -> NDArray[np.floating]:
    """Return a * b + c with one rounding to `kind` (float32, or float16 for halves)."""
    a, b, c = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        product = a * b
        total = product + c
        t = total - product
        error = (product - (total - t)) + (c - t)
        error = np.where(np.isfinite(total), error, 0.0)
        return _round_odd(np.ascontiguousarray(total), error).astype(kind)


def exp(x: F32) -> F32:
    """Compute e^x by the operations of csrc/mp_math.h."""
    x = np.where(x > _f32(88.37626), _f32(88.37626), x)
    x = np.where(x < _f32(-87.33654), _f32(-87.33654), x)
    magic = _f32(12582912.0)
    shifted = fma(x, float.fromhex("0x1.715476p+0"), magic)
    n = shifted - magic
    r = fma(n, -float.fromhex("0x1.62e4p-1"), x)
    r = fma(n, -float.fromhex("0x1.7f7d1cp-20"), r)
    p = fma(float.fromhex("0x1.6a23cep-10"), r, float.fromhex("0x1.123a2p-7"))
    for coefficient in ("0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "0x1p+0", "0x1p+0"):
        p = fma(p, r, float.fromhex(coefficient))
    bits = (shifted.view(np.uint32) << np.uint32(23)) + np.uint32(0x3F800000)
    result: F32 = p * bits.view(np.float32)
    return result


def _loggy(x: F32) -> F32:
    result: F32 = _TWO / (_ONE + exp(-x)) - _ONE
    return result


def _mish(x: F32) -> F32:
    e = exp(np.where(x < 20, x, _f32(20)))
    n = e * (e + _TWO)
    result: F32 = x * (n / (n + _TWO))
    return result


def _plse(x: F32) -> F32:
    low, high = _CENT * (x + _f32(4)), _CENT * (x - _f32(4)) + _ONE
    result: F32 = np.where(x < -4, low, np.where(x > 4, high, _f32(0.125) * x + _HALF))
    return result


def _gelu(x: F32) -> F32:
    u = _f32(0.797885) * x + _f32(0.035677) * (x * x * x)
    result: F32 = (_HALF * x) * (_ONE + _loggy(_TWO * u))
    return result


def _gelu_erf(x: F32) -> F32:
    y = np.minimum(np.abs(x), _f32(16))
    t = _ONE / ((_f32(0.3275911) * _f32(0.70710678)) * y + _ONE)
    tail = _f32(1.061405429) * t + _f32(-1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        tail = tail * t + _f32(coefficient)
    share = (tail * t) * exp((y * y) * _f32(-0.5))
    result: F32 = np.where(x > 0, x, _ZERO) - (_HALF * y) * share
    return result


def _stair(x: F32) -> F32:
    floors, half_floors = np.floor(x), np.floor(_HALF * x)
    result: F32 = np.where(floors > _TWO * half_floors, (x - floors) + half_floors, half_floors)
    return result


def _hard_sigmoid(x: F32) -> F32:
    line = (_ONE / _f32(6)) * x + _HALF
    result: F32 = np.where(line > 1, _ONE, np.where(line < 0, _ZERO, line))
    return result


_ZERO, _CENT, _MILL, _HALF, _ONE, _TWO = map(_f32, (0, 0.01, 0.001, 0.5, 1, 2))
_ACTIVATIONS: dict[str, Callable[[F32], F32]] = {
    "linear": lambda x: x,
    "leaky": lambda x: np.where(x > 0, x, _f32(0.1) * x),
    "relu": lambda x: np.where(x > 0, x, _ZERO),
    "relu6": lambda x: np.where(x > 0, np.where(x < 6, x, _f32(6)), _ZERO),
    "logistic": lambda x: _ONE / (_ONE + exp(-x)),
    "mish": _mish,
    "swish": lambda x: x / (_ONE + exp(-x)),
    "loggy": _loggy,
    "tanh": lambda x: _loggy(_TWO * x),
    "relie": lambda x: np.where(x > 0, x, _CENT * x),
    "ramp": lambda x: np.where(x > 0, x, _ZERO) + _f32(0.1) * x,
    "plse": _plse,
    "elu": lambda x: np.where(x < 0, exp(x) - _ONE, x),
    "selu": lambda x: np.where(x < 0, (_f32(1.0507) * _f32(1.6732)) * (exp(x) - _ONE), _f32(1.0507) * x),
    "gelu": _gelu,
    "stair": _stair,
    "hardtan": lambda x: np.where(x > 1, _ONE, np.where(x < -1, -_ONE, x)),
    "lhtan": lambda x: np.where(x < 0, _MILL * x, np.where(x > 1, _MILL * (x - _ONE) + _ONE, x)),
    "hard_mish": lambda x: np.where(x > 0, x, np.where(x > -2, _HALF * (x * x) + x, _ZERO)),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x),
    "gelu_erf": _gelu_erf,
    "sqrt": lambda x: np.sqrt(np.where(x < 0, _ZERO, x)),
}
"""The formulas of docs/arithmetic.md, section 3, by name."""


def activate(x: F32, activation: str) -> F32:
    """Apply an activation to float32 values of any shape. Raises: KernelError for an unknown one."""
    if activation not in _ACTIVATIONS:
        raise KernelError(f"unknown activation {activation!r}; known are {', '.join(_ACTIVATIONS)}")
    return np.asarray(_ACTIVATIONS[activation](x))


def times_32(x: Integers, multiplier: Integers, shift: Integers) -> NDArray[np.int64]:
    """Multiply whole numbers by multiplier * 2^(shift - 31), section 10: rounded half up, then half away from zero."""
    left, right = np.maximum(shift, 0).astype(np.int64), np.maximum(-np.asarray(shift), 0).astype(np.int64)
    high = (((np.asarray(x, np.int64) << left) * multiplier + (1 << 30)) >> 31).astype(np.int64)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return np.asarray(np.where(high < 0, -((-high + half) >> right), (high + half) >> right))


def times_64(x: NDArray[np.int64], multiplier: NDArray[np.int32], shift: NDArray[np.int32]) -> NDArray[np.int64]:
    """Multiply sums of more than 32 bits by the multiplier's upper 16 bits and shift them, rounded half up."""
    factor = np.where(multiplier < 0x7FFF0000, (multiplier.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF)
    right = 15 - shift.astype(np.int64)
    return np.asarray((x * factor + (np.int64(1) << (right - 1))) >> right)
