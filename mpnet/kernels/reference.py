"""The NumPy oracle: the contract of docs/arithmetic.md written down a second time, independently of the C core.

Slow and plain. All results have the bits that the C tables have: float32 fused multiply-adds are computed exactly in
float64 (product exact, sum rounded to odd, then to float32), so that no rounding happens twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels.arguments import pooled_size
from mpnet.kernels.interface import ACTIVATIONS, ConvShape, PackedConv, TensorQuant
from mpnet.spec.precision import Precision

_f32 = np.float32
F32 = NDArray[np.float32]
INT8_MAX_DEPTH = 66311


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
    raise KernelError(f"unknown activation {activation!r}; known are {', '.join(ACTIVATIONS)}")


def round_whole(x: F32, rounding: str) -> F32:
    """x rounded to whole numbers by a named rule."""
    if rounding == "half_to_even":
        return np.rint(x)
    if rounding == "half_away":
        return np.trunc(x + np.copysign(np.nextafter(_f32(0.5), _f32(0)), x))
    if rounding == "truncate":
        return np.trunc(x)
    raise KernelError(f"unknown rounding {rounding!r}; known are half_to_even, half_away, truncate")


def _per_image(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    return values.reshape(-1, *([1] * (like.ndim - 1)))


def _quantize(x: F32, quant: TensorQuant, rounding: str, low: int, high: int) -> NDArray[np.int8]:
    inverse, zero = _per_image(_f32(1) / quant.scale, x), _per_image(quant.zero_point, x)
    with np.errstate(over="ignore"):
        t = x * inverse
    t = np.minimum(np.maximum(t, (low - zero).astype(np.float32)), (high - zero).astype(np.float32))
    codes: NDArray[np.int8] = (round_whole(t, rounding).astype(np.int32) + zero).astype(np.int8)
    return codes


def _finite(x: NDArray[Any], what: str) -> None:
    if not np.isfinite(x).all():
        raise NonFiniteError(f"{what} is NaN or infinite")


def uses_winograd(shape: ConvShape) -> bool:
    """Whether fp32_winograd differs from fp32 for this shape."""
    plain = shape.size == 3 and shape.stride == 1 and shape.dilation == 1 and shape.groups == 1
    return plain and shape.in_channels >= 16 and shape.out_channels >= 16


def _winograd_input(d: F32) -> F32:
    """Six lines along the first axis -> six transformed ones."""
    two, four, five = _f32(2), _f32(4), _f32(5)
    a, b, c, e = d[4] - d[2] * four, d[3] - d[1] * four, d[4] - d[2], (d[3] - d[1]) * two
    return np.stack(
        [(d[0] * four - d[2] * five) + d[4], a + b, a - b, c + e, c - e, (d[1] * four - d[3] * five) + d[5]]
    )


def _winograd_output(m: F32) -> F32:
    """Six products along the first axis -> four results."""
    p, q, r, s = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return np.stack([(m[0] + p) + r, q + s * _f32(2), p + r * _f32(4), (q + s * _f32(8)) + m[5]])


@dataclass(frozen=True)
class ReferencePackedConv:
    """Weights as given, rounded to half for fp16."""

    shape: ConvShape
    precision: Precision
    size_bytes: int
    weights: NDArray[Any] = field(repr=False)


class ReferenceKernels:
    """The oracle behind the interface of `mpnet.kernels.interface.Kernels`. threads is accepted and has no effect."""

    name = "numpy"

    def precisions(self) -> tuple[str, ...]:
        """Names of the precisions that it computes."""
        return ("fp32", "fp16", "int8", "fp32_winograd", "fp16_half")

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: NDArray[Any]) -> ReferencePackedConv:
        """See Kernels.pack_conv."""
        if precision.name not in self.precisions():
            raise KernelError(f"the oracle does not compute {precision.name}")
        if precision.name == "int8":
            if weights.min() < -127:
                raise KernelError("an int8 weight is -128; they must lie in [-127, 127]")
            if shape.depth > INT8_MAX_DEPTH:
                raise KernelError(f"{shape.depth} products could leave int32; at most {INT8_MAX_DEPTH} may be summed")
        if precision.base == "fp16":
            weights = weights.astype(np.float16).astype(np.float32)
        return ReferencePackedConv(shape, precision, weights.nbytes, weights.copy())

    def _taps(self, shape: ConvShape, x: NDArray[Any], group: int) -> NDArray[Any]:
        """(depth, n, out_h, out_w): what each output multiplies, in depth order (ky, kx, c), 0 outside."""
        n, p, d, s = x.shape[0], shape.padding, shape.dilation, shape.stride
        cg = shape.in_channels // shape.groups
        padded = np.zeros((n, shape.in_h + 2 * p, shape.in_w + 2 * p, cg), x.dtype)
        padded[:, p : p + shape.in_h, p : p + shape.in_w] = x[..., group * cg : (group + 1) * cg]
        taps = [
            padded[:, ky * d : ky * d + (shape.out_h - 1) * s + 1 : s, kx * d : kx * d + (shape.out_w - 1) * s + 1 : s]
            for ky in range(shape.size)
            for kx in range(shape.size)
        ]
        result: NDArray[Any] = np.stack(taps).transpose(0, 4, 1, 2, 3).reshape(shape.depth, n, shape.out_h, shape.out_w)
        return result

    def _sums(self, packed: ReferencePackedConv, x: NDArray[Any], start: F32) -> NDArray[Any]:
        """(n, out_h, out_w, out_channels): the chains of section 2, or exact integers."""
        shape = packed.shape
        kg = shape.out_channels // shape.groups
        result = []
        for group in range(shape.groups):
            taps = self._taps(shape, x, group)
            weights = packed.weights[group * kg : (group + 1) * kg].transpose(2, 3, 1, 0).reshape(shape.depth, kg)
            if packed.precision.name == "int8":
                sums: NDArray[Any] = np.tensordot(taps.astype(np.int64), weights.astype(np.int64), axes=(0, 0))
            else:
                kind = np.float16 if packed.precision.name == "fp16_half" else np.float32
                sums = np.broadcast_to(start[group * kg : (group + 1) * kg], (*taps.shape[1:], kg)).astype(kind)
                for tap, weight in zip(taps, weights, strict=True):
                    sums = fma(tap[..., None], weight, sums, kind)
            result.append(sums)
        return np.concatenate(result, axis=-1)

    def _winograd(self, packed: ReferencePackedConv, x: F32, bias: F32) -> F32:
        """F(4x4, 3x3), section 2, fp32_winograd."""
        shape = packed.shape
        rows = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], np.float64)
        denominator = np.array([4, -6, -6, 24, 24, 1], np.float64)
        total = np.zeros((6, 6, shape.in_channels, shape.out_channels))
        weights = packed.weights.astype(np.float64)
        for y in range(3):
            for xx in range(3):
                total += (rows[:, y, None] * rows[None, :, xx])[:, :, None, None] * weights[:, :, y, xx].T
        u = (total / (denominator[:, None] * denominator[None, :])[:, :, None, None]).astype(np.float32)
        th, tw = -(-shape.out_h // 4), -(-shape.out_w // 4)
        padded = np.zeros((x.shape[0], th * 4 + 2, tw * 4 + 2, shape.in_channels), np.float32)
        p = shape.padding
        h, w = min(shape.in_h, padded.shape[1] - p), min(shape.in_w, padded.shape[2] - p)
        padded[:, p : p + h, p : p + w] = x[:, :h, :w]
        out = np.empty((x.shape[0], th * 4, tw * 4, shape.out_channels), np.float32)
        for ty in range(th):
            for tx in range(tw):
                d = padded[:, ty * 4 : ty * 4 + 6, tx * 4 : tx * 4 + 6].transpose(1, 2, 0, 3)
                v = _winograd_input(_winograd_input(d).swapaxes(0, 1)).swapaxes(0, 1)
                m = np.zeros((6, 6, x.shape[0], shape.out_channels), np.float32)
                for c in range(shape.in_channels):
                    m = fma(v[..., c, None], u[:, :, None, c], m)
                y4 = _winograd_output(_winograd_output(m).swapaxes(0, 1)).swapaxes(0, 1)
                out[:, ty * 4 : ty * 4 + 4, tx * 4 : tx * 4 + 4] = (y4 + bias).transpose(2, 0, 1, 3)
        return np.ascontiguousarray(out[:, : shape.out_h, : shape.out_w])

    def conv(
        self,
        packed: PackedConv,
        x: NDArray[Any],
        out: NDArray[Any],
        *,
        bias: F32,
        activation: str = "linear",
        weight_scale: F32 | None = None,
        in_quant: TensorQuant | None = None,
        out_quant: TensorQuant | None = None,
        out_rounding: str = "half_to_even",
        out_low: int = -128,
        out_high: int = 127,
        ranges: F32 | None = None,
        pool: bool = False,
        threads: int = 1,
    ) -> None:
        """See Kernels.conv."""
        assert isinstance(packed, ReferencePackedConv)
        if pool:
            height, width = pooled_size(packed.shape, out)
            whole = np.empty((len(x), packed.shape.out_h, packed.shape.out_w, packed.shape.out_channels), out.dtype)
            self.conv(
                packed, x, whole, bias=bias, activation=activation, weight_scale=weight_scale, in_quant=in_quant,
                out_quant=out_quant, out_rounding=out_rounding, out_low=out_low, out_high=out_high,
            )
            # Padding 0 leaves an odd last line out.
            self.maxpool(np.ascontiguousarray(whole[:, : 2 * height, : 2 * width]), out, size=2, stride=2, padding=1)
            if ranges is not None:
                ranges[:] = self.value_range(out)
            return
        name = packed.precision.name
        with np.errstate(over="ignore", invalid="ignore"):
            if name == "int8":
                assert in_quant is not None
                assert weight_scale is not None
                zero = _per_image(in_quant.zero_point, x)
                sums = self._sums(packed, x.astype(np.int32) - zero, bias).astype(np.int32).astype(np.float32)
                weight_sums = packed.weights.reshape(len(bias), -1).sum(axis=1, dtype=np.int32).astype(np.float32)
                offset = in_quant.offset[:, None]
                shifted = np.where(offset != 0, fma(offset, weight_scale * weight_sums, bias), bias)
                value = fma(sums, _per_image(in_quant.scale, x) * weight_scale, shifted[:, None, None, :])
            elif name == "fp16_half":
                value = self._sums(packed, x.astype(np.float32), np.zeros_like(bias)).astype(np.float32) + bias
            elif name == "fp32_winograd" and uses_winograd(packed.shape):
                value = self._winograd(packed, x, bias)
            else:
                value = self._sums(packed, x.astype(np.float32), bias)
            _finite(value, "a convolution's result")
            value = activate(value, activation)
            if ranges is not None:
                flat = value.reshape(len(value), -1)
                ranges[:] = np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1) + _f32(0)
            if out.dtype == np.int8:
                assert out_quant is not None
                out[:] = _quantize(value, out_quant, out_rounding, out_low, out_high)
            else:
                out[:] = value.astype(out.dtype)
                _finite(out, "a convolution's result")

    def value_range(self, x: NDArray[Any], *, threads: int = 1) -> F32:
        """See Kernels.value_range."""
        _finite(x, "a tensor to be quantised")
        flat = x.reshape(len(x), -1).astype(np.float32)
        return np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1) + _f32(0)

    def quantize(
        self,
        x: NDArray[Any],
        out: NDArray[np.int8],
        quant: TensorQuant,
        *,
        rounding: str = "half_to_even",
        low: int = -128,
        high: int = 127,
        threads: int = 1,
    ) -> None:
        """See Kernels.quantize."""
        out[:] = _quantize(x.astype(np.float32), quant, rounding, low, high)

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], quant: TensorQuant, *, threads: int = 1) -> None:
        """See Kernels.dequantize."""
        whole = (x.astype(np.int32) - _per_image(quant.zero_point, x)).astype(np.float32)
        with np.errstate(over="ignore"):
            out[:] = (whole * _per_image(quant.scale, x) + _per_image(quant.offset, x)).astype(out.dtype)

    def cast(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.cast."""
        with np.errstate(over="ignore"):
            out[:] = x.astype(out.dtype)

    def maxpool(
        self, x: NDArray[Any], out: NDArray[Any], *, size: int, stride: int, padding: int, threads: int = 1
    ) -> None:
        """See Kernels.maxpool."""
        n, h, w, c = x.shape
        lowest = -128 if x.dtype == np.int8 else -np.inf
        before = padding // 2
        padded = np.full((n, h + padding + size, w + padding + size, c), lowest, x.dtype)
        padded[:, before : before + h, before : before + w] = x
        out_h, out_w = out.shape[1:3]
        out[:] = lowest
        for y in range(size):
            for xx in range(size):
                value = padded[
                    :, y : y + (out_h - 1) * stride + 1 : stride, xx : xx + (out_w - 1) * stride + 1 : stride
                ]
                np.copyto(out, value, where=value > out)

    def avgpool(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.avgpool."""
        n, h, w, c = x.shape
        total = np.zeros((n, c), np.float32)
        for pixel in x.reshape(n, h * w, c).transpose(1, 0, 2):
            total = total + pixel.astype(np.float32)
        out[:] = (total / _f32(h * w)).astype(out.dtype).reshape(out.shape)

    def upsample(self, x: NDArray[Any], out: NDArray[Any], *, factor: int, threads: int = 1) -> None:
        """See Kernels.upsample."""
        out[:] = x.repeat(factor, axis=1).repeat(factor, axis=2)

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.concat."""
        out[:] = np.concatenate(inputs, axis=3)

    def add(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *, activation: str = "linear", threads: int = 1
    ) -> None:
        """See Kernels.add."""
        with np.errstate(over="ignore"):
            out[:] = activate(a.astype(np.float32) + b.astype(np.float32), activation).astype(out.dtype)
