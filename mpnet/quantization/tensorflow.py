# SPDX-License-Identifier: MIT
"""TensorFlow's quantize and dequantize, bit-equal to its CPU kernels on x86.

Every operation is one float32 rounding, nothing is fused; where TensorFlow computes in double, so does this module.
TensorFlow's threads treat denormal numbers as zero, on the way in and out; `flush` does the same.
Golden vectors made with TensorFlow itself (tools/make_tf_golden.py) hold it in place.
Source: docs/arithmetic.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import EllipsisType
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpnet.arrays import IntegerArray
from mpnet.errors import PrecisionError
from mpnet.kernels.rounding import round_to_integers
from mpnet.model.quantization import QUANTIZE_MODES

ROUND_MODES: dict[str, str] = {"HALF_AWAY_FROM_ZERO": "half_away", "HALF_TO_EVEN": "half_to_even"}


class _Named(Protocol):
    """One of TensorFlow's types."""

    @property
    def name(self) -> str:
        """Return its name, such as 'qint8'."""
        ...


_f32 = np.float32
_ZERO = np.float32(0)
_FLOAT_MAX = np.finfo(np.float32).max
# The largest float32 that int32 holds; MIN_FIRST clamps qint32 to it.
_INT32_TOP = np.float32(2147483520.0)
_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


@dataclass(frozen=True)
class QuantizedType:
    """One of TensorFlow's quantised types."""

    name: str
    storage: str
    lowest: int
    highest: int

    @property
    def signed(self) -> bool:
        """Return whether codes run below zero."""
        return self.lowest < 0

    @property
    def half(self) -> np.float32:
        """Return the number that MIN_COMBINED subtracts from codes of a signed type; 0 for unsigned ones."""
        return np.float32((self.highest - self.lowest + 1) // 2 if self.signed else 0)

    @property
    def steps(self) -> float:
        """Count the steps between the lowest and the highest code, as a double."""
        return float(self.highest - self.lowest)


QINT8 = QuantizedType("qint8", "int8", -128, 127)
QUINT8 = QuantizedType("quint8", "uint8", 0, 255)
QINT16 = QuantizedType("qint16", "int16", -32768, 32767)
QUINT16 = QuantizedType("quint16", "uint16", 0, 65535)
QINT32 = QuantizedType("qint32", "int32", -(2**31), 2**31 - 1)
TYPES: dict[str, QuantizedType] = {t.name: t for t in (QINT8, QUINT8, QINT16, QUINT16, QINT32)}
_BY_STORAGE = {t.storage: t for t in TYPES.values()}


def flush(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Flush denormals to zeros of their sign."""
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(_ZERO, x), x)


def flush_one(x: np.float32) -> np.float32:
    """Flush a number below the smallest normal one to 0, with its sign."""
    return np.copysign(_ZERO, x) if abs(x) < _SMALLEST_NORMAL else x


@dataclass(frozen=True)
class QuantizeFactors:
    """The factors of one range: the returned range, codes per real unit, and MIN_FIRST's rounded code of the minimum."""

    minimum: np.float32
    maximum: np.float32
    scale: np.float32
    minimum_code: np.float32


def quantize_factors(
    min_range: np.float32,
    max_range: np.float32,
    kind: QuantizedType,
    mode: str,
    narrow_range: bool,
    ensure_minimum_range: float,
) -> QuantizeFactors:
    """Return the range after adjustment and the scale, by TensorFlow's order of operations.

    ensure_minimum_range is rounded to float32 first, as TensorFlow's attribute is.
    """
    min_range, max_range = flush_one(min_range), flush_one(max_range)
    mn = min(_ZERO, min_range)
    code = _ZERO
    with np.errstate(all="ignore"):
        least = flush_one(max(_f32(1), max(abs(min_range), abs(max_range))) * _f32(ensure_minimum_range))
        mx = max(_ZERO, max(max_range, flush_one(mn + least)))
        span = np.float64(flush_one(mx - mn))
        if mode == "MIN_COMBINED":
            scale = flush_one(_f32(np.float64(kind.steps) / span))
        elif mode == "MIN_FIRST":
            scale = _ZERO if mx == mn else flush_one(_f32(np.float64(kind.steps) / span))
            code = np.float32(round_to_integers(np.asarray(mn * scale), "half_away"))
        else:
            low, high = _scaled_codes(kind, narrow_range)
            from_min = low / mn if low * mn > 0 else _FLOAT_MAX
            from_max = high / mx if high * mx > 0 else _FLOAT_MAX
            scale = flush_one(min(from_min, from_max))
            mn, mx = flush_one(low / scale), flush_one(high / scale)
    return QuantizeFactors(mn, mx, scale, code)


def dequantize_scale(
    min_range: np.float32, max_range: np.float32, kind: QuantizedType, mode: str, narrow_range: bool
) -> np.float32:
    """Return the real value of one code. The range is taken as it is."""
    low, high = _scaled_codes(kind, narrow_range)
    min_range, max_range = flush_one(min_range), flush_one(max_range)
    with np.errstate(all="ignore"):
        if mode == "MIN_COMBINED":
            scale = flush_one(max_range - min_range) / (high - _f32(kind.lowest))
        elif mode == "MIN_FIRST":
            scale = _f32(np.float64(flush_one(max_range - min_range)) / np.float64(kind.steps))
        elif kind.signed:
            scale = max(flush_one(min_range / low), flush_one(max_range / high))
        else:
            scale = max_range / high
    return flush_one(scale)


def _scaled_codes(kind: QuantizedType, narrow_range: bool) -> tuple[np.float32, np.float32]:
    return _f32(kind.lowest + (1 if narrow_range else 0)), _f32(kind.highest)


def quantize_slice(
    x: NDArray[np.float32], factors: QuantizeFactors, kind: QuantizedType, mode: str, rounding: str
) -> IntegerArray:
    """Quantize finite float32 x to codes, with the factors of its range."""
    x = flush(x)
    with np.errstate(all="ignore"):
        if mode == "MIN_FIRST":
            codes = round_to_integers(x * factors.scale, "half_away") - (factors.minimum_code - _f32(kind.lowest))
            codes = np.minimum(np.maximum(codes, _f32(kind.lowest)), min(_f32(kind.highest), _INT32_TOP))
        else:
            bounded = np.maximum(np.minimum(x, factors.maximum), factors.minimum)
            if mode == "SCALED":
                codes = round_to_integers(bounded * factors.scale, rounding)
            elif kind.signed:
                codes = round_to_integers(flush(bounded - factors.minimum) * factors.scale - kind.half, "half_away")
            else:
                codes = np.trunc(flush(bounded - factors.minimum) * factors.scale + _f32(0.5))
    return _to_integers(codes, kind)


def _to_integers(codes: NDArray[np.float32], kind: QuantizedType) -> IntegerArray:
    """Convert to integers as x86 does: what int32 cannot hold becomes its lowest value; then the low bits are kept."""
    holds = (codes >= _f32(-(2.0**31))) & (codes < _f32(2.0**31))
    integers = np.where(holds, codes, _f32(-(2.0**31))).astype(np.int32)
    return integers.astype(kind.storage)


def dequantize_slice(
    q: IntegerArray,
    min_range: np.float32,
    max_range: np.float32,
    kind: QuantizedType,
    mode: str,
    narrow_range: bool,
    *,
    per_tensor: bool = True,
) -> NDArray[np.float32]:
    """Dequantize codes to float32. per_tensor: one range holds for the whole tensor."""
    scale = dequantize_scale(min_range, max_range, kind, mode, narrow_range)
    min_range, max_range = flush_one(min_range), flush_one(max_range)
    real: NDArray[np.float32] = q.astype(np.float32)
    with np.errstate(all="ignore"):
        if mode == "MIN_COMBINED":
            real = flush((real + kind.half) * scale) + min_range
        elif mode == "MIN_FIRST":
            base = min_range
            if max_range != min_range:
                base = flush_one(np.float32(round_to_integers(np.asarray(min_range / scale), "half_away")) * scale)
            real = flush_one(base - flush_one(_f32(kind.lowest) * scale)) + flush(real * scale)
        else:
            if per_tensor and kind is QINT32:
                # For whole tensors TensorFlow goes from qint32 through float to int32, and the topmost 64 codes, which
                # float32 rounds to 2^31, come out as the lowest one. Its path for slices does not.
                real = np.where(real >= _f32(2.0**31), _f32(-(2.0**31)), real)
            real = real * scale
    return flush(real)


def quantize(
    x: ArrayLike,
    min_range: ArrayLike,
    max_range: ArrayLike,
    dtype: str | _Named,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> tuple[IntegerArray, NDArray[np.float32], NDArray[np.float32]]:
    """Return (codes, output_min, output_max) as tf.quantization.quantize does.

    x:            finite reals, taken as float32; any shape.
    min_range, max_range: one number each, or with axis one per slice, 1-D.
    dtype:        'qint8', 'quint8', 'qint16', 'quint16' or 'qint32'; the codes come as NumPy's int8 ... int32.
    Raises: PrecisionError for NaN, infinity, min > max, and the combinations that TensorFlow refuses.
    """
    kind = _type(dtype)
    _check_mode(mode)
    if round_mode not in ROUND_MODES:
        raise PrecisionError(f"quantize: unknown round_mode {round_mode!r}; known are {', '.join(ROUND_MODES)}")
    if round_mode == "HALF_TO_EVEN" and mode != "SCALED":
        raise PrecisionError(f"quantize: round_mode HALF_TO_EVEN works with mode SCALED only, not with {mode}")
    if not math.isfinite(ensure_minimum_range):
        raise PrecisionError(f"quantize: ensure_minimum_range is {ensure_minimum_range}; it must be finite")
    values = np.asarray(x, np.float32)
    if not np.isfinite(values).all():
        raise PrecisionError("quantize: the input holds NaN or infinity")
    codes = np.empty(values.shape, kind.storage)
    minima, maxima = [], []
    slices = _slices("quantize", values.shape, min_range, max_range, axis, mode)
    for part in slices:
        factors = quantize_factors(part.minimum, part.maximum, kind, mode, narrow_range, ensure_minimum_range)
        if not np.isfinite(factors.scale) or (mode == "MIN_COMBINED" and factors.scale == 0):
            # 0 * infinity: what TensorFlow makes of it differs between the body and the tail of its loops.
            remedy = "wide; scale it down" if factors.scale == 0 else "narrow; set ensure_minimum_range above 0"
            raise PrecisionError(f"quantize: the range [{part.minimum}, {part.maximum}]{part.name} is too {remedy}")
        codes[part.where] = quantize_slice(values[part.where], factors, kind, mode, ROUND_MODES[round_mode])
        minima.append(factors.minimum)
        maxima.append(factors.maximum)
    if len(slices) == 1:
        return codes, np.asarray(minima[0]), np.asarray(maxima[0])
    return codes, np.array(minima), np.array(maxima)


def dequantize(
    input: IntegerArray,
    min_range: ArrayLike,
    max_range: ArrayLike,
    mode: str = "MIN_COMBINED",
    axis: int | None = None,
    narrow_range: bool = False,
    dtype: str = "float32",
) -> NDArray[np.float32]:
    """Dequantize codes to float32 as tf.quantization.dequantize does.

    Feed it the range that quantize returned.

    input: int8, uint8, int16, uint16 or int32; its type says which quantised type it is.
    Raises: PrecisionError as quantize does.
    """
    _check_mode(mode)
    if np.dtype(dtype) != np.float32:
        raise PrecisionError(f"dequantize: dtype {dtype} is not offered; use float32")
    codes = np.asarray(input)
    if codes.dtype.name not in _BY_STORAGE:
        raise PrecisionError(f"dequantize: input is {codes.dtype.name}; it must be one of {', '.join(_BY_STORAGE)}")
    kind = _BY_STORAGE[codes.dtype.name]
    slices = _slices("dequantize", codes.shape, min_range, max_range, axis, mode)
    out = np.empty(codes.shape, np.float32)
    for part in slices:
        out[part.where] = dequantize_slice(
            codes[part.where], part.minimum, part.maximum, kind, mode, narrow_range, per_tensor=len(slices) == 1
        )
    return out


def _type(dtype: str | _Named) -> QuantizedType:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", str(dtype))
    if name not in TYPES:
        raise PrecisionError(f"quantize: unknown type {name!r}; known are {', '.join(TYPES)}")
    return TYPES[name]


def _check_mode(mode: str) -> None:
    if mode not in QUANTIZE_MODES:
        raise PrecisionError(f"unknown mode {mode!r}; known are {', '.join(QUANTIZE_MODES)}")


@dataclass(frozen=True)
class _Slice:
    """A part of a tensor with a range of its own. where: its index; name: for messages, '' for the whole tensor."""

    where: EllipsisType | tuple[slice | int, ...]
    name: str
    minimum: np.float32
    maximum: np.float32


def _slices(
    operation: str, shape: tuple[int, ...], min_range: ArrayLike, max_range: ArrayLike, axis: int | None, mode: str
) -> list[_Slice]:
    """Return the parts and their ranges, checked; one part is the whole tensor."""
    minima, maxima = np.asarray(min_range, np.float32), np.asarray(max_range, np.float32)
    if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
        raise PrecisionError(f"{operation}: min_range or max_range holds NaN or infinity")
    if axis is None:
        if minima.size != 1 or maxima.size != 1:
            raise PrecisionError(
                f"{operation}: without axis, min_range and max_range hold one number each, not {minima.size} and {maxima.size}"
            )
        count, axis = 1, 0
    else:
        if not -len(shape) <= axis < len(shape):
            raise PrecisionError(f"{operation}: axis {axis} does not exist in an input of {len(shape)} dimensions")
        axis %= len(shape)
        count = shape[axis]
        # TensorFlow's dequantize also takes a plain number where the axis has one slice.
        plain = operation == "dequantize" and count == 1 and minima.ndim == maxima.ndim == 0
        if not plain and (minima.shape != (count,) or maxima.shape != (count,)):
            raise PrecisionError(
                f"{operation}: with axis {axis}, min_range and max_range are 1-D of size {count}, "
                f"not of shape {minima.shape} and {maxima.shape}"
            )
        if count != 1 and mode == "MIN_FIRST":
            raise PrecisionError(f"{operation}: mode MIN_FIRST does not work per slice; leave axis out or use SCALED")
    parts = []
    for k, (low, high) in enumerate(zip(minima.reshape(-1), maxima.reshape(-1), strict=True)):
        where, name = (..., "") if count == 1 else ((slice(None),) * axis + (k,), f" in slice {k}")
        if high < low:
            raise PrecisionError(f"{operation}: min_range {low} > max_range {high}{name}; swap them")
        parts.append(_Slice(where, name, low, high))
    return parts
