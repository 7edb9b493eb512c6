# SPDX-License-Identifier: MIT
"""The oracle of everything but convolutions: functions of csrc/mpnet.h, whose arguments they take, without the table."""

from __future__ import annotations

from itertools import pairwise
from typing import Callable, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.errors import NonFiniteError
from mpnet.kernels.arguments import CODES
from mpnet.kernels.interface import ACTIVATION_WORD, NORMALISATIONS, OPERANDS
from mpnet.kernels.reference_math import F32, activate, exp, fma, times_32
from mpnet.kernels.rounding import quantized, round_to_integers
from mpnet.model.quantization import ROUNDINGS
from mpnet.model.reals import narrowed, widened

Integers32 = NDArray[np.int32]
Int32Array = NDArray[np.int32]
_f32, _f64 = np.float32, np.float64
_Number = TypeVar("_Number", bound=np.number)


def per_image(values: NDArray[_Number], like: Array) -> NDArray[_Number]:
    """Return one value per image in a shape that broadcasts against `like`."""
    return values.reshape(-1, *([1] * (like.ndim - 1)))


def _least_code(dtype: DType) -> int:
    """Return the least number that a type of codes holds."""
    return -(1 << (8 * dtype.itemsize - 1))


def refuse_not_finite(x: Array, what: str) -> None:
    """Refuse values that are NaN or infinite. Raises: NonFiniteError."""
    if not np.isfinite(x).all():
        raise NonFiniteError(f"{what} is NaN or infinite")


def extremes(x: F32) -> F32:
    """Return (n, 2) [min, max] per image, without -0."""
    flat = x.reshape(len(x), -1)
    return np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1) + _f32(0)


def value_range(x: Array, dtype: DType, n: int, count: int, ranges: F32, *_: int) -> None:
    """Fill ranges (n, 2) with the minimum and maximum of each image."""
    refuse_not_finite(widened(x), "a tensor to be quantised")
    ranges[:] = extremes(widened(x))


def quantize(
    x: Array,
    dtype: DType,
    out: Array,
    out_dtype: DType,
    n: int,
    count: int,
    inv_scale: F32,
    zero_point: Int32Array,
    *rules: int,
) -> None:
    """Fill out with the codes of x, by the scale and zero point of each image."""
    rounding, low, high, *_ = rules
    inverse, zero = per_image(inv_scale, x), per_image(zero_point, x)
    out[:] = quantized(widened(x), inverse, zero, ROUNDINGS[rounding], low, high).astype(out_dtype)


def dequantize(
    x: Array,
    dtype: DType,
    out: Array,
    out_dtype: DType,
    n: int,
    count: int,
    scale: F32,
    zero_point: Int32Array,
    offset: F32,
    *_: int,
) -> None:
    """Fill out with the reals that the codes of x stand for."""
    steps = (x.astype(np.int32) - per_image(zero_point, x)).astype(np.float32)
    with np.errstate(over="ignore"):
        out[:] = narrowed(steps * per_image(scale, x) + per_image(offset, x), out_dtype)


def cast(x: Array, dtype: DType, out: Array, out_dtype: DType, *_: int) -> None:
    """Fill out with x in another type of reals."""
    out[:] = narrowed(widened(x), out_dtype)


def maxpool(x: Array, out: Array, dtype: DType, *sizes: int) -> None:
    """Fill out with the largest value of each window."""
    n, h, w, c, out_h, out_w, size, stride, padding, *_ = sizes
    is_code = dtype in CODES
    lowest = _least_code(dtype) if is_code else -np.inf
    before = padding // 2
    padded = np.full((n, h + padding + size, w + padding + size, c), lowest, dtype if is_code else np.float32)
    padded[:, before : before + h, before : before + w] = x if is_code else widened(x)
    result = np.full((n, out_h, out_w, c), lowest, padded.dtype)
    for y in range(size):
        for xx in range(size):
            value = padded[:, y : y + (out_h - 1) * stride + 1 : stride, xx : xx + (out_w - 1) * stride + 1 : stride]
            np.copyto(result, value, where=value > result)
    out[:] = result if is_code else narrowed(result, dtype)


def avgpool(x: Array, out: Array, dtype: DType, n: int, h: int, w: int, c: int, *_: int) -> None:
    """Fill out with the mean of each channel."""
    total = np.zeros((n, c), np.float32)
    for pixel in widened(x).reshape(n, h * w, c).transpose(1, 0, 2):
        total = total + pixel
    out[:] = narrowed(total / _f32(h * w), dtype).reshape(out.shape)


def upsample(x: Array, out: Array, dtype: DType, n: int, h: int, w: int, c: int, factor: int, *_: int) -> None:
    """Fill out with x, each pixel repeated `factor` times in both directions."""
    out[:] = x.repeat(factor, axis=1).repeat(factor, axis=2)


def copy_channels(
    x: Array, out: Array, dtype: DType, pixels: int, in_c: int, start: int, out_c: int, to: int, c: int, *_: int
) -> None:
    """Copy c channels of x from `start` into out from `to` on."""
    out[..., to : to + c] = x[..., start : start + c]


def add(a: Array, b: Array, out: Array, dtype: DType, out_dtype: DType, activation: int, *_: int) -> None:
    """Fill out with the activation of a + b."""
    with np.errstate(over="ignore"):
        out[:] = narrowed(activate(widened(a) + widened(b), ACTIVATION_WORD[activation]), out_dtype)


def map(x: Array, dtype: DType, out: Array, out_dtype: DType, activation: int, scale: float, shift: float, *_: int) -> None:
    """Fill out with the activation of x * scale + shift."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = widened(x) * _f32(scale)
        if shift != 0:
            value = value + _f32(shift)
        out[:] = narrowed(activate(value, ACTIVATION_WORD[activation]), out_dtype)


def combine(
    a: Array, b: Array, out: Array, dtype: DType, out_dtype: DType, activation: int, a_weight: F32, b_weight: F32, *sizes: int
) -> None:
    """Fill out with the activation of a * a_weight + b * b_weight, where b may have another size."""
    _, h, w, c, b_h, b_w, b_c, *_ = sizes
    skip, spread = max(b_w // w, 1), max(w // b_w, 1)
    shared = min(c, b_c)
    rows = [y for y in range(min(h, b_h)) if y * spread < h and y * skip < b_h]
    columns = [x for x in range(min(w, b_w)) if x * spread < w and x * skip < b_w]
    value = widened(a).copy()
    for y in rows:
        for x in columns:
            pixel = value[:, y * spread, x * spread] * a_weight
            other = widened(b)[:, y * skip, x * skip, :shared]
            pixel[:, :shared] = fma(other, b_weight[:shared], pixel[:, :shared])
            value[:, y * spread, x * spread] = pixel
    with np.errstate(over="ignore"):
        out[:] = narrowed(activate(value, ACTIVATION_WORD[activation]), out_dtype)


def multiply(a: Array, b: Array, out: Array, dtype: DType, out_dtype: DType, activation: int, kind: int, *sizes: int) -> None:
    """Fill out with the activation of a * b, where b may have one value per channel or per pixel."""
    images, h, w, c, *_ = sizes
    shape = {"same": (images, h, w, c), "per_channel": (images, 1, 1, c), "per_pixel": (images, h, w, 1)}[OPERANDS[kind]]
    with np.errstate(over="ignore"):
        product = widened(a) * widened(b).reshape(shape)
        out[:] = narrowed(activate(product, ACTIVATION_WORD[activation]), out_dtype)


def gather(
    x: Array, out: Array, dtype: DType, images: int, in_count: int, out_count: int, index: Int32Array, fill: Int32Array, *_: int
) -> None:
    """Fill out with the values of x at index, and `fill` where the index is below 0."""
    taken = x.reshape(images, in_count)[:, np.maximum(index, 0)]
    empty = fill[:, None].astype(dtype) if dtype in CODES else np.zeros((images, 1), dtype)
    out[:] = np.where(index < 0, empty, taken).reshape(out.shape)


def _running(values: NDArray[np.float64], start: float) -> NDArray[np.float64]:
    """Return (rows, 1) of start + the sum along rows, one after the other."""
    first = np.full((len(values), 1), start, _f64)
    return np.add.accumulate(np.concatenate([first, values], axis=1), axis=1)[:, -1:]


def _shares(x: F32, kind: str, p0: float) -> NDArray[np.float64]:
    top = x.max(axis=1, keepdims=True)
    if kind == "l2":
        wide = x.astype(_f64)
        return wide / np.sqrt(_running(wide * wide, 0.0))
    if kind == "layer":
        wide = x.astype(_f64)
        centred = wide - _running(wide, 0.0) / x.shape[1]
        return np.asarray(centred / np.sqrt(_running(centred * centred, 0.0) / x.shape[1] + float(_f32(p0))))
    if kind == "channels":
        parts = np.where(x > 0, x, _f32(0)).astype(_f64)
    elif kind == "softmax":
        parts = exp((x - top) / _f32(p0)).astype(_f64)
    else:
        parts = exp(x - top if kind == "channels_softmax_maxval" else x).astype(_f64)
    return np.asarray(parts / _running(parts, 0.0 if kind == "softmax" else float(_f32(0.0001))))


def natural_logarithm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the natural logarithm by the operations of mp_log."""
    bits = x.view(np.int64)
    exponent = (bits >> 52) - 1023
    m = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(_f64)
    high = m > 1.4142135623730951
    m, exponent = np.where(high, m * 0.5, m), exponent + high
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    total = np.full_like(s, 1.0 / 13.0)
    for odd in (11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        total = total * square + 1.0 / odd
    return np.asarray(2.0 * s * total + exponent * 0.6931471805599453)


def _local_response(x: F32, size: float, alpha: float, beta: float, kappa: float) -> F32:
    reach, alpha = int(size), float(_f32(alpha))
    wide = x.astype(_f64)
    squares = alpha * (wide * wide)
    norm = np.full(len(x), float(_f32(kappa)))
    for k in range(min(reach // 2, x.shape[1])):
        norm = norm + squares[:, k]
    result = np.empty_like(x)
    for k in range(x.shape[1]):
        gone, come = k - (reach - 1) // 2 - 1, k + reach // 2
        if k > 0 and gone >= 0:
            norm = norm - squares[:, gone]
        if k > 0 and come < x.shape[1]:
            norm = norm + squares[:, come]
        power = exp((-float(_f32(beta)) * natural_logarithm(norm)).astype(np.float32))
        # Darknet's sum can fall below 0, which has no power.
        result[:, k] = x[:, k] * np.where(norm > 0, power, _f32(np.nan))
    return result


def normalize(
    x: Array, out: Array, dtype: DType, kind: int, rows: int, length: int, starts: Int32Array, segments: int, *parameters: float
) -> None:
    """Fill out with the rows of x, normalised as `kind` says."""
    p0, p1, p2, p3, *_ = parameters
    name, wide = NORMALISATIONS[kind], widened(x).reshape(rows, length)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if name == "local_response":
            result = _local_response(wide, p0, p1, p2, p3)
        else:
            parts = [wide[:, a:b] for a, b in pairwise(starts.tolist())]
            result = np.concatenate([_shares(part, name, p0).astype(np.float32) for part in parts], axis=1)
        out[:] = narrowed(result, dtype).reshape(out.shape)


def attention(x: F32, out: F32, images: int, pixels: int, heads: int, key: int, value: int, areas: int, *rest: float) -> None:
    """Fill out with the attention of heads over the positions of each area."""
    scale, n = _f32(rest[0]), images * areas
    parts = np.split(x.reshape(n, pixels // areas, -1), [heads * key, 2 * heads * key], axis=2)
    q, k, v = (part.reshape(n, pixels // areas, heads, -1).transpose(0, 2, 1, 3) for part in parts)
    # (areas, heads, positions, positions, 8): the j-th sum has every eighth product from the j-th on.
    sums = np.zeros((*q.shape[:3], pixels // areas, 8), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for d in range(key):
            sums[..., d % 8] += q[:, :, :, None, d] * k[:, :, None, :, d]
        for half in (4, 2, 1):
            sums[..., :half] += sums[..., half : 2 * half]
        scores = sums[..., 0] * scale
        parts_of_one = exp(scores - scores.max(axis=-1, keepdims=True)).astype(_f64)
        total = np.add.accumulate(parts_of_one, axis=-1)[..., -1:]
        shares = (parts_of_one / total).astype(np.float32)
        result = np.zeros(v.shape, np.float32)
        for position in range(pixels // areas):
            result = result + shares[..., position, None] * v[:, :, None, position]
    out[:] = result.transpose(0, 2, 1, 3).reshape(out.shape)


def local_avgpool(x: Array, out: Array, dtype: DType, *sizes: int) -> None:
    """Fill out with the mean of the values of each window that lie inside x."""
    images, h, w, c, out_h, out_w, size, stride_x, stride_y, padding, *_ = sizes
    wide, before = widened(x), padding // 2
    for oy in range(out_h):
        for ox in range(out_w):
            top, left = oy * stride_y - before, ox * stride_x - before
            window = wide[:, max(top, 0) : min(top + size, h), max(left, 0) : min(left + size, w)]
            taps = window.reshape(images, -1, c)
            total = np.zeros((images, c), np.float32)
            for tap in range(taps.shape[1]):
                total = total + taps[:, tap]
            out[:, oy, ox] = narrowed(total / _f32(taps.shape[1]), dtype)


def channel_max(x: Array, out: Array, dtype: DType, pixels: int, c: int, out_c: int, *_: int) -> None:
    """Fill out with the largest of every out_c-th channel."""
    ordered = x if dtype in CODES else widened(x)
    result = ordered[..., :out_c].copy()
    for start in range(out_c, c, out_c):
        value = ordered[..., start : start + out_c]
        width = value.shape[-1]
        np.copyto(result[..., :width], value, where=value > result[..., :width])
    out[:] = result if dtype in CODES else narrowed(result, dtype)


def shuffle(x: Array, out: Array, dtype: DType, pixels: int, c: int, groups: int, *_: int) -> None:
    """Fill out with the channels of x, interleaved from its groups."""
    out[:] = x.reshape(pixels, groups, c // groups).swapaxes(1, 2).reshape(out.shape)


def rescale(
    x: Array, dtype: DType, out: Array, out_dtype: DType, zero_point: int, out_zero_point: int, low: int, high: int, *rest: int
) -> None:
    """Fill out with codes of x, rescaled to the result's scale."""
    multiplier, shift, below_multiplier, below_shift, *_ = rest
    steps = x.astype(np.int64) - zero_point
    below = steps < 0
    scaled = times_32(steps, np.where(below, below_multiplier, multiplier), np.where(below, below_shift, shift))
    out[:] = np.clip(scaled + out_zero_point, low, high)


def add_codes(
    a: Array,
    b: Array,
    out: Array,
    dtype: DType,
    zero_points: Int32Array,
    multipliers: Int32Array,
    shifts: Int32Array,
    low: int,
    high: int,
    *_: int,
) -> None:
    """Fill out with codes of the sum of a and b, by the integer rules of each scale."""
    left = 20 if out.dtype == np.int8 else 15
    terms = zip((a, b), zero_points, multipliers, shifts, strict=False)
    total = sum(times_32((x.astype(np.int64) - zero) << left, factor, shift) for x, zero, factor, shift in terms)
    out[:] = np.clip(times_32(total, multipliers[2], shifts[2]) + zero_points[2], low, high)


def quantize_by_division(x: F32, out: Array, dtype: DType, scale: float, zero_point: int, *_: int) -> None:
    """Fill out with the codes of x, divided by the scale and rounded half away from 0."""
    refuse_not_finite(x, "a tensor to be quantised")
    least = _least_code(dtype)
    steps: F32 = np.clip(x / _f32(scale), _f32(least - zero_point), _f32(-1 - least - zero_point))
    out[:] = round_to_integers(steps, "half_away").astype(np.int32) + zero_point


FUNCTIONS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        value_range, quantize, dequantize, cast, maxpool, avgpool, upsample, copy_channels, add, map, combine, multiply, gather,
        normalize, attention, local_avgpool, channel_max, shuffle, rescale, add_codes, quantize_by_division,
    )
}  # fmt: skip
"""By name in csrc/mpnet.h, without mp."""
