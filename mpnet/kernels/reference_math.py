# SPDX-License-Identifier: MIT
"""What the oracle's functions share: exact fused multiply-adds, exp, activations, roundings, stored types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels.interface import ACTIVATIONS
from mpnet.model.layer import MAPPED_ACTIVATIONS

_f32 = np.float32
F32 = NDArray[np.float32]


def _round_odd(total: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """total + error rounded to odd in float64; a later rounding to fewer than 52 bits is then the only one."""
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    step = np.where(np.signbit(total) == np.signbit(error), 1, -1)
    moved: NDArray[np.int64] = bits + np.where((error != 0) & even, step, 0)
    return moved.view(np.float64)


def fma(a: Any, b: Any, c: Any, kind: Any = np.float32) -> Any:
    """a * b + c with one rounding to `kind` (float32, or float16 for halves)."""
    a, b, c = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        product = a * b
        total = product + c
        t = total - product
        error = (product - (total - t)) + (c - t)
        error = np.where(np.isfinite(total), error, 0.0)
        return _round_odd(np.ascontiguousarray(total), error).astype(kind)


def exp(x: F32) -> F32:
    """e^x, the operations of csrc/mp_math.h."""
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


def activate(x: F32, activation: str) -> F32:
    """docs/arithmetic.md, section 3."""
    one, two = _f32(1), _f32(2)
    if activation == "linear":
        return x
    if activation == "leaky":
        return np.where(x > 0, x, _f32(0.1) * x)
    if activation == "relu":
        return np.where(x > 0, x, _f32(0))
    if activation == "relu6":
        return np.where(x > 0, np.where(x < 6, x, _f32(6)), _f32(0))
    if activation == "logistic":
        return np.asarray(one / (one + exp(-x)))
    if activation == "swish":
        return np.asarray(x / (one + exp(-x)))
    if activation == "mish":
        e = exp(np.where(x < 20, x, _f32(20)))
        n = e * (e + two)
        return x * (n / (n + two))
    if activation in MAPPED_ACTIVATIONS:
        return np.asarray(_activate_mapped(x, activation))
    raise KernelError(f"unknown activation {activation!r}; known are {', '.join(ACTIVATIONS + MAPPED_ACTIVATIONS)}")


def _loggy(x: F32) -> F32:
    result: F32 = _f32(2) / (_f32(1) + exp(-x)) - _f32(1)
    return result


def _activate_mapped(x: F32, activation: str) -> Any:
    """The activations that only `map` has."""
    half, one, two, four = _f32(0.5), _f32(1), _f32(2), _f32(4)
    cent, mill = _f32(0.01), _f32(0.001)
    if activation == "loggy":
        return _loggy(x)
    if activation == "tanh":
        return _loggy(two * x)
    if activation == "relie":
        return np.where(x > 0, x, cent * x)
    if activation == "ramp":
        return np.where(x > 0, x, _f32(0)) + _f32(0.1) * x
    if activation == "plse":
        middle = _f32(0.125) * x + half
        return np.where(x < -4, cent * (x + four), np.where(x > 4, cent * (x - four) + one, middle))
    if activation == "elu":
        return np.where(x < 0, exp(x) - one, x)
    if activation == "selu":
        return np.where(x < 0, (_f32(1.0507) * _f32(1.6732)) * (exp(x) - one), _f32(1.0507) * x)
    if activation == "gelu":
        u = _f32(0.797885) * x + _f32(0.035677) * (x * x * x)
        return (half * x) * (one + _loggy(two * u))
    if activation == "stair":
        whole, steps = np.floor(x), np.floor(half * x)
        return np.where(whole > two * steps, (x - whole) + steps, steps)
    if activation == "hardtan":
        return np.where(x > 1, one, np.where(x < -1, -one, x))
    if activation == "lhtan":
        return np.where(x < 0, mill * x, np.where(x > 1, mill * (x - one) + one, x))
    if activation == "hard_mish":
        return np.where(x > 0, x, np.where(x > -2, half * (x * x) + x, _f32(0)))
    line = (one / _f32(6)) * x + half
    gate = np.where(line > 1, one, np.where(line < 0, _f32(0), line))
    return gate if activation == "hard_sigmoid" else x * gate
