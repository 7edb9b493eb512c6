# SPDX-License-Identifier: MIT
"""The NumPy oracle: the contract of docs/arithmetic.md written down a second time, independently of the C core.

Slow and plain. All results have the bits that the C tables have: float32 fused multiply-adds are computed exactly in
float64 (product exact, sum rounded to odd, then to float32), so that no rounding happens twice.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Callable, Sequence, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType, StoredArray
from mpnet.errors import KernelError
from mpnet.kernels.arguments import CODES, ConvFields, KernelArgument
from mpnet.kernels.call import Call
from mpnet.kernels.device import Storage, Values, array_of
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ACTIVATION_WORD, ConvShape, PackedConv
from mpnet.kernels.reference_math import RealT, activate, fma, times_32, times_64
from mpnet.kernels.reference_operations import FUNCTIONS, cast, extremes, maxpool, per_image, quantize, refuse_not_finite
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.model.quantization import GROUP
from mpnet.model.reals import narrowed, widened

_f32 = np.float32
F32 = NDArray[np.float32]
_Number = TypeVar("_Number", bound=np.number)
_Sum = TypeVar("_Sum", bound=np.number)
INT8_MAX_DEPTH = 66311


class Fields(TypedDict, total=False):
    """Fields of mp_conv_args, with arrays for addresses."""

    out: StoredArray
    bias: F32
    weight_scale: F32
    in_scale: F32
    in_inv_scale: F32
    in_zero_point: NDArray[np.int32]
    in_offset: F32
    in_rounding: int
    in_low: int
    in_high: int
    out_inv_scale: F32
    out_zero_point: NDArray[np.int32]
    out_rounding: int
    out_low: int
    out_high: int
    activation: int
    converts: int
    sums: NDArray[np.int32]
    gives_sums: int
    integer_bias: NDArray[np.int32 | np.int64]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    leaky_multiplier: NDArray[np.int32]
    leaky_shift: NDArray[np.int32]
    leaky_low: int
    leaky_high: int
    ranges: F32
    pool_h: int
    pool_w: int


def _taps(shape: ConvShape, x: NDArray[_Number], group: int) -> NDArray[_Number]:
    """Return (depth, n, out_h, out_w): what each output multiplies, in depth order (ky, kx, c), 0 outside."""
    n, p, d, s = x.shape[0], shape.padding, shape.dilation, shape.stride
    cg = shape.in_channels // shape.groups
    padded = np.zeros((n, shape.in_h + 2 * p, shape.in_w + 2 * p, cg), x.dtype)
    padded[:, p : p + shape.in_h, p : p + shape.in_w] = x[..., group * cg : (group + 1) * cg]
    taps = [
        padded[:, ky * d : ky * d + (shape.out_h - 1) * s + 1 : s, kx * d : kx * d + (shape.out_w - 1) * s + 1 : s]
        for ky in range(shape.size)
        for kx in range(shape.size)
    ]
    result: NDArray[_Number] = np.stack(taps).transpose(0, 4, 1, 2, 3).reshape(shape.depth, n, shape.out_h, shape.out_w)
    return result


def _sums(
    packed: PackedConv, x: NDArray[_Number], add: Callable[[NDArray[_Number], F32, slice], NDArray[_Sum]]
) -> NDArray[_Sum]:
    """Return (n, out_h, out_w, out_channels): what add(taps, weights (depth, out channels), channels) makes of a group."""
    shape = packed.shape
    width = shape.out_channels // shape.groups
    result = []
    for group in range(shape.groups):
        channels = slice(group * width, (group + 1) * width)
        weights = packed.data[channels].transpose(2, 3, 1, 0).reshape(shape.depth, width)
        result.append(add(_taps(shape, x, group), weights, channels))
    return np.concatenate(result, axis=-1)


def summed_products(weights: Array) -> Sequence[int]:
    """List which products count, section 2: not those of empty outer rows and columns of taps that are at least half of all.

    weights: (out, in / groups, size, size).
    """
    channels, size = weights.shape[1:3]
    filled = np.argwhere(weights.any(axis=(0, 1)))
    (top, left), (bottom, right) = (filled.min(axis=0), filled.max(axis=0)) if len(filled) else np.full((2, 2), size - 1)
    if channels == 1 or 2 * (bottom + 1 - top) * (right + 1 - left) > size**2:
        return range(size * size * channels)
    kept = np.zeros((size, size, channels), bool)
    kept[top : bottom + 1, left : right + 1] = True
    counting: list[int] = np.flatnonzero(kept).tolist()
    return counting


def _chain_sums(packed: PackedConv, x: F32, bias: F32, summed: Sequence[int], kind: type[RealT]) -> NDArray[RealT]:
    """Compute the chains of section 2 in `kind`, which start from the bias. summed: the products that count."""

    def add(taps: F32, weights: F32, channels: slice) -> NDArray[RealT]:
        start = bias[channels].astype(kind)
        sums: NDArray[RealT] = np.broadcast_to(start, (*taps.shape[1:], len(start)))
        for depth in summed:
            sums = fma(taps[depth][..., None], weights[depth], sums, kind)
        return sums

    return _sums(packed, x, add)


def _chains(packed: PackedConv, x: Array, fields: Fields) -> F32:
    """Compute chains of fp32 sums from the bias."""
    return _chain_sums(packed, widened(x), fields["bias"], summed_products(packed.data), np.float32)


def _half_chains(packed: PackedConv, x: Array, fields: Fields) -> F32:
    """Compute chains of fp16 sums from zero; the bias is added in float32."""
    bias = fields["bias"]
    sums = _chain_sums(packed, widened(x), np.zeros_like(bias), range(packed.shape.depth), np.float16)
    return sums.astype(np.float32) + bias


def _integer_sums(packed: PackedConv, x: Array, fields: Fields) -> NDArray[np.int64]:
    """Return the exact sums of products of codes, (n, out_h, out_w, out_channels)."""
    steps = x.astype(np.int64) - per_image(fields["in_zero_point"], x)
    # In float64, which holds every one of these sums, as a product of matrices.
    products = _sums(packed, steps.astype(np.float64), lambda taps, w, _: np.tensordot(taps, w.astype(np.float64), axes=(0, 0)))
    sums: NDArray[np.int64] = products.astype(np.int64) + fields.get("sums", 0)
    return sums


def _integers(packed: PackedConv, x: Array, fields: Fields) -> F32:
    """Return the sums of integers, de-scaled."""
    bias, weight_scale, offset = fields["bias"], fields["weight_scale"], fields["in_offset"][:, None]
    sums = _integer_sums(packed, x, fields)
    weight_sums = packed.data.reshape(len(bias), -1).sum(axis=1, dtype=np.int32).astype(np.float32)
    shifted = np.where(offset != 0, fma(offset, weight_scale * weight_sums, bias), bias)
    scale = per_image(fields["in_scale"], x) * weight_scale
    value: F32 = fma(sums.astype(np.float32), scale, shifted[:, None, None, :])
    return value


def _integer_codes(packed: PackedConv, x: Array, fields: Fields) -> NDArray[np.int64]:
    """Turn sums of integers into codes, section 10."""
    sums = _integer_sums(packed, x, fields) + fields["integer_bias"]
    narrow = packed.precision.multiplies_bytes and fields["out"].dtype == np.int8
    scaled = times_32 if narrow else times_64
    zero_point = per_image(fields["out_zero_point"], x)
    steps = scaled(sums, fields["multiplier"], fields["shift"])
    if "leaky_multiplier" in fields:
        steps = np.clip(steps, fields["leaky_low"], fields["leaky_high"])
        below = (steps < 0).astype(int)
        steps = times_32(steps, fields["leaky_multiplier"][below], fields["leaky_shift"][below])
    codes: NDArray[np.int64] = np.clip(steps + zero_point, fields["out_low"], fields["out_high"])
    return codes


def uses_winograd(shape: ConvShape) -> bool:
    """Return whether the Winograd variants differ from their direct ones for this shape."""
    plain = shape.size == 3 and shape.stride == 1 and shape.dilation == 1 and shape.groups == 1
    return plain and shape.in_channels >= 16 and shape.out_channels >= 16


@dataclass(frozen=True)
class _Transforms:
    """Winograd's F(4x4, 3x3) at some points, section 2.

    rows, denominators: of weights, (6, 3) and (6,), in float64.
    transform_input:    float32 lines along the first axis, six to six.
    transform_output:   six to four.
    """

    rows: NDArray[np.float64]
    denominators: NDArray[np.float64]
    transform_input: Callable[[F32], F32]
    transform_output: Callable[[F32], F32]


def _transform_input(d: F32) -> F32:
    """Transform six lines along the first axis, fp32_winograd."""
    two, four, five = _f32(2), _f32(4), _f32(5)
    a, b, c, e = d[4] - d[2] * four, d[3] - d[1] * four, d[4] - d[2], (d[3] - d[1]) * two
    return np.stack([(d[0] * four - d[2] * five) + d[4], a + b, a - b, c + e, c - e, (d[1] * four - d[3] * five) + d[5]])


def _transform_output(m: F32) -> F32:
    """Transform six products along the first axis into four results, fp32_winograd."""
    p, q, r, s = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return np.stack([(m[0] + p) + r, q + s * _f32(2), p + r * _f32(4), (q + s * _f32(8)) + m[5]])


def _scaled_sum(factor: float, x: F32, y: F32) -> F32:
    """Return factor * x + y, rounded once."""
    return fma(_f32(factor), x, y)


def _transform_half_input(d: F32) -> F32:
    """Transform six lines along the first axis, fp16_half_winograd."""
    half_root, root = float(_f32(0.5**0.5)), float(_f32(2**0.5))
    a, b = _scaled_sum(-2, d[2], d[4]), _scaled_sum(-2, d[1], d[3])
    c, e = _scaled_sum(-0.5, d[2], d[4]), _scaled_sum(-0.5, d[1], d[3])
    first, last = _scaled_sum(-2.5, d[2], d[0]) + d[4], _scaled_sum(-2.5, d[3], d[1]) + d[5]
    inner = [_scaled_sum(factor, x, y) for factor, x, y in ((half_root, b, a), (-half_root, b, a), (root, e, c), (-root, e, c))]
    return np.stack([first, *inner, last])


def _transform_half_output(m: F32) -> F32:
    """Transform six products along the first axis into four results, fp16_half_winograd."""
    half_root, root = _f32(0.5**0.5), _f32(2**0.5)
    p, q, r, s = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    last = _scaled_sum(float(2 * root), s, _scaled_sum(float(half_root / 2), q, m[5]))
    return np.stack([(m[0] + p) + r, _scaled_sum(float(root), s, half_root * q), _scaled_sum(2, r, _f32(0.5) * p), last])


_WINOGRAD = _Transforms(
    np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], np.float64),
    np.array([4, -6, -6, 24, 24, 1], np.float64),
    _transform_input,
    _transform_output,
)
_ROOT = float(np.sqrt(2.0))
_HALF_WINOGRAD = _Transforms(
    np.array([[1, 0, 0], [1, _ROOT / 2, 0.5], [1, -_ROOT / 2, 0.5], [1, _ROOT, 2], [1, -_ROOT, 2], [0, 0, 1]], np.float64),
    np.array([1, -1.5, -1.5, 6, 6, 1], np.float64),
    _transform_half_input,
    _transform_half_output,
)


def transform_winograd_weights(weights: Array, kind: type[RealT]) -> F32:
    """Return weights (out, in, 3, 3) at each position, (6, 6, in, out), rounded to float32 and to `kind`, of the products."""
    transforms = _HALF_WINOGRAD if kind is np.float16 else _WINOGRAD
    rows, denominators = transforms.rows, transforms.denominators
    taps: NDArray[np.float64] = np.ascontiguousarray(weights.transpose(2, 3, 1, 0), np.float64)
    u = np.empty((6, 6, *taps.shape[2:]), np.float32)
    # A position at a time, in memory that is taken once: all of them as doubles are 8 times the weights.
    total, product = np.empty(taps.shape[2:]), np.empty(taps.shape[2:])
    for row in range(6):
        for column in range(6):
            total[...] = 0
            for y in range(3):
                for x in range(3):
                    total += np.multiply(taps[y, x], rows[row, y] * rows[column, x], out=product)
            u[row, column] = np.divide(total, denominators[row] * denominators[column], out=product)
    return u.astype(kind).astype(np.float32) if kind is not np.float32 else u


def _winograd_results(packed: PackedConv, x: F32, bias: F32, transforms: _Transforms, kind: type[RealT]) -> F32:
    """Convolve by Winograd's F(4x4, 3x3), section 2. kind: of products and their sums."""
    shape = packed.shape
    u = transform_winograd_weights(packed.data, kind)
    th, tw = -(-shape.out_h // 4), -(-shape.out_w // 4)
    padded = np.zeros((x.shape[0], th * 4 + 2, tw * 4 + 2, shape.in_channels), np.float32)
    p = shape.padding
    h, w = min(shape.in_h, padded.shape[1] - p), min(shape.in_w, padded.shape[2] - p)
    padded[:, p : p + h, p : p + w] = x[:, :h, :w]
    out = np.empty((x.shape[0], th * 4, tw * 4, shape.out_channels), np.float32)
    for ty in range(th):
        for tx in range(tw):
            d = padded[:, ty * 4 : ty * 4 + 6, tx * 4 : tx * 4 + 6].transpose(1, 2, 0, 3)
            lines = transforms.transform_input(transforms.transform_input(d).swapaxes(0, 1)).swapaxes(0, 1)
            v = lines.astype(kind).astype(np.float32)
            sums: NDArray[RealT] = np.zeros((6, 6, x.shape[0], shape.out_channels), kind)
            for c in range(shape.in_channels):
                sums = fma(v[..., c, None], u[:, :, None, c], sums, kind)
            m = sums.astype(np.float32)
            y4 = transforms.transform_output(transforms.transform_output(m).swapaxes(0, 1)).swapaxes(0, 1)
            out[:, ty * 4 : ty * 4 + 4, tx * 4 : tx * 4 + 4] = (y4 + bias).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(out[:, : shape.out_h, : shape.out_w])


def _winograd(packed: PackedConv, x: Array, fields: Fields) -> F32:
    """Compute fp32_winograd: chains where it is not used."""
    if not uses_winograd(packed.shape):
        return _chains(packed, x, fields)
    return _winograd_results(packed, widened(x), fields["bias"], _WINOGRAD, np.float32)


def _half_winograd(packed: PackedConv, x: Array, fields: Fields) -> F32:
    """Compute fp16_half_winograd: chains in halves where it is not used."""
    if not uses_winograd(packed.shape):
        return _half_chains(packed, x, fields)
    return _winograd_results(packed, widened(x), fields["bias"], _HALF_WINOGRAD, np.float16)


# What each precision makes of packed weights, x as stored and the fields: float32 before the activation.
# Precisions that only store weights in fewer bits do what their base does.
_RESULTS: dict[str, Callable[[PackedConv, Array, Fields], F32]] = {
    "fp32": _chains,
    "fp16": _chains,
    "int8": _integers,
    "fp32_winograd": _winograd,
    "fp16_half": _half_chains,
    "bf16": _chains,
    "int16": _integers,
    "fp16_half_winograd": _half_winograd,
}


def _result(precision: Precision) -> Callable[[PackedConv, Array, Fields], F32]:
    return _RESULTS[precision.base if precision.is_narrow else precision.name]


Rules = tuple[F32, NDArray[np.int32], int, int, int]


def _input_rules(fields: Fields) -> Rules:
    rules = fields["in_rounding"], fields["in_low"], fields["in_high"]
    return fields["in_inv_scale"], fields["in_zero_point"], *rules


def _output_rules(fields: Fields) -> Rules:
    rules = fields["out_rounding"], fields["out_low"], fields["out_high"]
    return fields["out_inv_scale"], fields["out_zero_point"], *rules


def _conv(x: Array, packed: PackedConv, fields: Fields) -> None:
    out, shape = fields["out"], packed.shape
    # A connected layer reads the same values as one pixel.
    x = x.reshape(len(x), shape.in_h, shape.in_w, shape.in_channels)
    if "converts" in fields:
        x = _converted(x, packed, fields)
    if "gives_sums" in fields:
        out[:] = _integer_sums(packed, x, fields)
        return
    if "multiplier" in fields:
        codes = _integer_codes(packed, x, fields).astype(out.dtype)
        if "pool_h" in fields:
            pooled = fields["pool_h"], fields["pool_w"]
            codes = codes[:, : 2 * pooled[0], : 2 * pooled[1]]
            maxpool(codes, out, out.dtype, *codes.shape, *pooled, 2, 2, 1)
        else:
            out[:] = codes
        return
    with np.errstate(over="ignore", invalid="ignore"):
        value = _result(packed.precision)(packed, x, fields)
        refuse_not_finite(value, "a convolution's result")
        value = activate(value, ACTIVATION_WORD[fields["activation"]])
    stored: Array = np.empty(value.shape, out.dtype)
    if out.dtype in CODES:
        quantize(value, value.dtype, stored, out.dtype, len(x), 0, *_output_rules(fields))
    else:
        stored = narrowed(value, out.dtype)
        refuse_not_finite(widened(stored), "a convolution's result")
    if "pool_h" in fields:
        # Padding 0 leaves an odd last line out.
        pooled = fields["pool_h"], fields["pool_w"]
        stored = stored[:, : 2 * pooled[0], : 2 * pooled[1]]
        maxpool(stored, out, out.dtype, *stored.shape, *pooled, 2, 2, 1)
        value = widened(out)
    else:
        out[:] = stored
    if "ranges" in fields:
        fields["ranges"][:] = extremes(value)


def _converted(x: Array, packed: PackedConv, fields: Fields) -> Array:
    """Return the input x as the precision reads it: codes, or reals of its stored type."""
    out = np.empty(x.shape, packed.precision.stored.dtype)
    if packed.precision.carries_scale:
        quantize(x, x.dtype, out, out.dtype, len(x), 0, *_input_rules(fields))
    else:
        cast(x, x.dtype, out, out.dtype)
    return out


def _are_codes(weights: Array, precision: Precision) -> bool:
    """Return whether weights are codes or, of narrow precisions, multiples of codes per tap and GROUP input channels."""
    filters, channels = weights.shape[:2]
    wide = weights.astype(np.int16).reshape(filters, channels, -1)
    if np.abs(wide).max() <= precision.largest_code:
        return True
    if not precision.is_narrow or channels == 1:
        return False
    return all(
        np.any(
            [
                (group % multiplier == 0).all(axis=1) & (np.abs(group).max(axis=1) <= multiplier * precision.largest_code)
                for multiplier in range(1, (1 << (8 - precision.weight_bits)) + 1)
            ],
            axis=0,
        ).all()
        for group in (wide[:, first : first + GROUP] for first in range(0, channels, GROUP))
    )


class ReferenceKernels(Kernels):
    """The oracle as kernels. threads is accepted and has no effect."""

    name = "numpy"

    def precisions(self) -> tuple[str, ...]:
        """Return the names of the precisions that it computes."""
        return tuple(name for name, row in PRECISIONS.items() if name in _RESULTS or row.is_narrow)

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> PackedConv:
        """Return the weights as given, rounded to the stored type."""
        if precision.name not in self.precisions():
            raise KernelError(f"the oracle does not compute {precision.name}")
        if precision.carries_scale:
            if not _are_codes(weights, precision):
                largest = precision.largest_code
                raise KernelError(f"a weight of {precision} leaves [{-largest}, {largest}]")
            if shape.depth > INT8_MAX_DEPTH:
                raise KernelError(f"{shape.depth} products could leave int32; at most {INT8_MAX_DEPTH} may be summed")
            return PackedConv(shape, precision, self.name, weights.nbytes, weights.copy())
        rounded = widened(narrowed(widened(weights), precision.stored.dtype))
        return PackedConv(shape, precision, self.name, weights.nbytes, rounded)

    def takes_sums(self, packed: PackedConv) -> bool:
        """Implement `Kernels.takes_sums`."""
        return packed.precision.multiplies_bytes

    def call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        """Implement `Kernels.call`."""
        return Call(FUNCTIONS[function], (array_of(x), *map(_array, rest)), 0)

    def conv_call(self, packed: PackedConv, x: Values, fields: ConvFields) -> Call:
        """Implement `Kernels.conv_call`."""
        arrays = typing.cast(Fields, {name: _array(value) for name, value in fields.items()})
        return Call(_conv, (array_of(x), packed, arrays), 0)


def _array(value: KernelArgument) -> Array | DType | int | float:
    """Return an argument with the array in place of a tensor."""
    return array_of(value) if isinstance(value, Storage) else value
