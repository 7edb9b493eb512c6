"""Thin wrappers around the C tables: they check types, shapes and layout, and turn status codes into errors.

cffi releases the GIL during each call; scratch memory belongs to the calling thread, so one NativeKernels may be
used from several threads at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.arguments import (
    ROUNDINGS,
    aligned,
    check,
    check_codes,
    check_images,
    check_output,
    check_quant,
    check_threads,
    code_of,
    inverse_of,
    pooled_size,
)
from mpnet.kernels.interface import ACTIVATIONS, ConvShape, PackedConv, TensorQuant
from mpnet.spec.precision import Precision

_PRECISION_CODE = {
    "fp32": lib.MP_FP32,
    "fp16": lib.MP_FP16,
    "int8": lib.MP_INT8,
    "fp32_winograd": lib.MP_FP32_WINOGRAD,
    "fp16_half": lib.MP_FP16_HALF,
}
_TYPE_CODE = {"float32": lib.MP_TYPE_F32, "float16": lib.MP_TYPE_F16, "int8": lib.MP_TYPE_I8}
_C_TYPE = {"float32": "float *", "int32": "int32_t *", "int8": "int8_t *"}
_local = threading.local()


def _scratch(size_bytes: int) -> NDArray[np.uint8]:
    """The calling thread's scratch memory, grown when needed."""
    buffer: NDArray[np.uint8] | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size_bytes:
        buffer = aligned(size_bytes)
        _local.buffer = buffer
    return buffer


def _pointer(array: NDArray[Any]) -> Any:
    """The address of an array's data, as `void *`."""
    return ffi.cast("void *", array.ctypes.data)


def _typed(array: NDArray[Any]) -> Any:
    return ffi.cast(_C_TYPE[array.dtype.name], array.ctypes.data)


def _shape_struct(shape: ConvShape) -> Any:
    values = (
        shape.in_h,
        shape.in_w,
        shape.in_channels,
        shape.out_channels,
        shape.size,
        shape.stride,
        shape.padding,
        shape.dilation,
        shape.groups,
    )
    if any(not isinstance(v, (int, np.integer)) or abs(v) >= 2**31 for v in values):
        raise KernelError(f"convolution {shape}: sizes must be integers below 2^31")
    return ffi.new("mp_conv_shape *", [int(v) for v in values])


@dataclass(frozen=True)
class NativePackedConv:
    """Packed weights of one table, with the memory that holds them."""

    shape: ConvShape
    precision: Precision
    size_bytes: int
    isa: str
    data: NDArray[np.uint8] = field(repr=False)
    c_shape: Any = field(repr=False)
    scratch_bytes: dict[tuple[bool, int], int] = field(repr=False, default_factory=dict)


class NativeKernels:
    """The C kernels of one ISA level; see `mpnet.kernels.interface.Kernels` for what each method does.

    Get one from `mpnet.kernels.isa.kernels`. Raises KernelError for arguments that do not fit, NonFiniteError (also an
    EngineError) when a result is NaN or infinite; out is then unspecified.
    """

    def __init__(self, name: str, table: Any) -> None:
        self.name = name
        self._table = table

    def __repr__(self) -> str:
        return f"NativeKernels({self.name!r})"

    @property
    def table(self) -> Any:
        """The C table behind it, for measurements of the machine."""
        return self._table

    def precisions(self) -> tuple[str, ...]:
        """Names of the precisions that this level's convolutions have."""
        return tuple(name for name, code in _PRECISION_CODE.items() if lib.mp_table_has(self._table, code))

    def _raise(self, status: int, what: str) -> None:
        if status == lib.MP_NONFINITE:
            raise NonFiniteError(f"{what}: a result is NaN or infinite")
        reasons = {
            lib.MP_BAD_ARGUMENT: "an argument is out of range",
            lib.MP_BAD_SHAPE: "this shape cannot be computed",
            lib.MP_OVERFLOW: "its sums could leave int32, or a weight is -128; int8 weights must lie in [-127, 127]"
            " and at most 66311 products may be summed",
            lib.MP_UNSUPPORTED: f"ISA level {self.name} does not have this precision",
        }
        raise KernelError(f"{what}: {reasons.get(status, f'status {status}')}")

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: NDArray[Any]) -> NativePackedConv:
        """See Kernels.pack_conv."""
        what = f"convolution {shape} in {precision.name}"
        c_shape = _shape_struct(shape)
        code = _PRECISION_CODE.get(precision.name)
        if code is None:
            raise KernelError(f"no kernels for precision {precision.name!r}")
        status = lib.mp_check_conv(self._table, c_shape, code)
        if status != lib.MP_OK:
            self._raise(status, what)
        check(
            weights,
            "weights",
            ("int8",) if precision.name == "int8" else ("float32",),
            (shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size),
        )
        size = lib.mp_pack_bytes(self._table, c_shape, code, _pointer(weights))
        data = aligned(size)
        status = lib.mp_pack_conv(self._table, c_shape, code, _pointer(weights), _pointer(data), size)
        if status != lib.MP_OK:
            self._raise(status, what)
        return NativePackedConv(shape, precision, size, self.name, data, c_shape)

    def conv(
        self,
        packed: PackedConv,
        x: NDArray[Any],
        out: NDArray[Any],
        *,
        bias: NDArray[np.float32],
        activation: str = "linear",
        weight_scale: NDArray[np.float32] | None = None,
        in_quant: TensorQuant | None = None,
        out_quant: TensorQuant | None = None,
        out_rounding: str = "half_to_even",
        out_low: int = -128,
        out_high: int = 127,
        ranges: NDArray[np.float32] | None = None,
        pool: bool = False,
        threads: int = 1,
    ) -> None:
        """See Kernels.conv."""
        if not isinstance(packed, NativePackedConv) or packed.isa != self.name:
            raise KernelError(f"these weights were not packed by ISA level {self.name}; call its pack_conv")
        shape, precision = packed.shape, packed.precision
        images = x.shape[0] if isinstance(x, np.ndarray) and x.ndim else 0
        check(x, "x", (precision.storage,), (images, shape.in_h, shape.in_w, shape.in_channels))
        height, width = pooled_size(shape, out) if pool else (shape.out_h, shape.out_w)
        check(out, "out", tuple(_TYPE_CODE), (images, height, width, shape.out_channels))
        check(bias, "bias", ("float32",), (shape.out_channels,))
        check_output(out, x)
        args = ffi.new("mp_conv_args *")
        args.shape = packed.c_shape[0]
        args.precision = _PRECISION_CODE[precision.name]
        args.activation = code_of(activation, ACTIVATIONS, "activation")
        args.out_type = _TYPE_CODE[out.dtype.name]
        args.images = images
        args.threads = check_threads(threads)
        args.packed = _pointer(packed.data)
        setattr(args, "in", _pointer(x))
        args.out = _pointer(out)
        args.bias = _typed(bias)
        if precision.name == "int8":
            quant = check_quant(in_quant, images, "in_quant")
            if weight_scale is None:
                raise KernelError("weight_scale is missing; an int8 convolution needs one value per output channel")
            check(weight_scale, "weight_scale", ("float32",), (shape.out_channels,))
            args.weight_scale = _typed(weight_scale)
            args.in_scale = _typed(quant.scale)
            args.in_zero_point = _typed(quant.zero_point)
            args.in_offset = _typed(quant.offset)
        if out.dtype == np.int8:
            quant = check_quant(out_quant, images, "out_quant")
            check_codes(out_low, out_high)
            inv_scale = inverse_of(quant.scale, "out_quant")
            args.out_inv_scale = _typed(inv_scale)
            args.out_zero_point = _typed(quant.zero_point)
            args.out_rounding = code_of(out_rounding, ROUNDINGS, "rounding")
            args.out_low, args.out_high = out_low, out_high
            if (quant.offset != 0).any():
                raise KernelError(
                    "out_quant.offset is not 0; such codes are made by a quantise step, not in a convolution"
                )
        if ranges is not None:
            check(ranges, "ranges", ("float32",), (images, 2))
            check_output(ranges, x, out)
            args.ranges = _typed(ranges)
        if pool:
            args.pool_h, args.pool_w = height, width
        size = packed.scratch_bytes.get((pool, threads))
        if size is None:
            size = lib.mp_conv_scratch_bytes(self._table, args.packed, pool, threads)
            packed.scratch_bytes[pool, threads] = size
        scratch = _scratch(size)
        args.scratch = _pointer(scratch)
        args.scratch_bytes = scratch.size
        status = lib.mp_conv(self._table, args)
        if status != lib.MP_OK:
            self._raise(status, "convolution")

    def value_range(self, x: NDArray[Any], *, threads: int = 1) -> NDArray[np.float32]:
        """See Kernels.value_range."""
        check(x, "x", ("float32", "float16"))
        if x.ndim < 1 or x.size == 0:
            raise KernelError(f"x has shape {x.shape}; an empty tensor has no range")
        ranges = np.empty((x.shape[0], 2), np.float32)
        status = lib.mp_value_range(
            self._table,
            _pointer(x),
            _TYPE_CODE[x.dtype.name],
            x.shape[0],
            x.size // x.shape[0],
            _typed(ranges),
            check_threads(threads),
        )
        if status == lib.MP_NONFINITE:
            raise NonFiniteError("a tensor to be quantised holds NaN or infinity")
        if status != lib.MP_OK:
            self._raise(status, "value_range")
        return ranges

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
        """See Kernels.quantize. quant.offset must be 0."""
        check_images(x, "x", ("float32", "float16"))
        check(out, "out", ("int8",), x.shape)
        check_output(out, x)
        check_quant(quant, x.shape[0], "quant")
        check_codes(low, high)
        if (quant.offset != 0).any():
            raise KernelError("quant.offset is not 0; use the quantise step of the mode that made it")
        inv_scale = inverse_of(quant.scale, "quant")
        status = lib.mp_quantize(
            self._table,
            _pointer(x),
            _TYPE_CODE[x.dtype.name],
            _typed(out),
            x.shape[0],
            x.size // x.shape[0],
            _typed(inv_scale),
            _typed(quant.zero_point),
            code_of(rounding, ROUNDINGS, "rounding"),
            low,
            high,
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "quantize")

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], quant: TensorQuant, *, threads: int = 1) -> None:
        """See Kernels.dequantize."""
        check_images(x, "x", ("int8",))
        check(out, "out", ("float32", "float16"), x.shape)
        check_output(out, x)
        check_quant(quant, x.shape[0], "quant")
        status = lib.mp_dequantize(
            self._table,
            _typed(x),
            _pointer(out),
            _TYPE_CODE[out.dtype.name],
            x.shape[0],
            x.size // x.shape[0],
            _typed(quant.scale),
            _typed(quant.zero_point),
            _typed(quant.offset),
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "dequantize")

    def cast(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.cast."""
        check(x, "x", ("float32", "float16"))
        check(out, "out", ("float32", "float16"), x.shape)
        check_output(out, x)
        status = lib.mp_cast(
            self._table,
            _pointer(x),
            _TYPE_CODE[x.dtype.name],
            _pointer(out),
            _TYPE_CODE[out.dtype.name],
            x.size,
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "cast")

    def maxpool(
        self, x: NDArray[Any], out: NDArray[Any], *, size: int, stride: int, padding: int, threads: int = 1
    ) -> None:
        """See Kernels.maxpool."""
        check_images(x, "x", tuple(_TYPE_CODE))
        if min(size, stride) < 1 or padding < 0 or max(size, stride, padding) > 1 << 24:
            raise KernelError(f"maxpool: size {size}, stride {stride}, padding {padding} make no sense")
        n, h, w, c = x.shape
        out_h, out_w = (h + padding - size) // stride + 1, (w + padding - size) // stride + 1
        if out_h < 1 or out_w < 1:
            raise KernelError(f"maxpool: a window of {size} does not fit into {h}x{w} padded by {padding}")
        check(out, "out", (x.dtype.name,), (n, out_h, out_w, c))
        check_output(out, x)
        status = lib.mp_maxpool(
            self._table,
            _pointer(x),
            _pointer(out),
            _TYPE_CODE[x.dtype.name],
            n,
            h,
            w,
            c,
            out_h,
            out_w,
            size,
            stride,
            padding,
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "maxpool")

    def avgpool(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.avgpool."""
        check_images(x, "x", ("float32", "float16"))
        n, h, w, c = x.shape
        check(out, "out", (x.dtype.name,), (n, 1, 1, c))
        check_output(out, x)
        status = lib.mp_avgpool(
            self._table, _pointer(x), _pointer(out), _TYPE_CODE[x.dtype.name], n, h, w, c, check_threads(threads)
        )
        if status != lib.MP_OK:
            self._raise(status, "avgpool")

    def upsample(self, x: NDArray[Any], out: NDArray[Any], *, factor: int, threads: int = 1) -> None:
        """See Kernels.upsample."""
        check_images(x, "x", tuple(_TYPE_CODE))
        if not 1 <= factor <= 1 << 16:
            raise KernelError(f"upsample: factor {factor} makes no sense")
        n, h, w, c = x.shape
        check(out, "out", (x.dtype.name,), (n, h * factor, w * factor, c))
        check_output(out, x)
        status = lib.mp_upsample(
            self._table,
            _pointer(x),
            _pointer(out),
            _TYPE_CODE[x.dtype.name],
            n,
            h,
            w,
            c,
            factor,
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "upsample")

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.concat."""
        if not inputs:
            raise KernelError("concat: there are no inputs")
        check_images(out, "out", tuple(_TYPE_CODE))
        check_output(out, *inputs)
        for i, x in enumerate(inputs):
            check_images(x, f"input {i}", (out.dtype.name,))
            if x.shape[:3] != out.shape[:3]:
                raise KernelError(
                    f"concat: input {i} has shape {x.shape}, out {out.shape}; they differ before channels"
                )
        total = sum(x.shape[3] for x in inputs)
        if total != out.shape[3]:
            raise KernelError(f"concat: the inputs have {total} channels, out has {out.shape[3]}")
        pixels, at = out.size // out.shape[3], 0
        for x in inputs:
            status = lib.mp_concat_part(
                self._table,
                _pointer(x),
                _pointer(out),
                _TYPE_CODE[x.dtype.name],
                pixels,
                x.shape[3],
                out.shape[3],
                at,
                check_threads(threads),
            )
            if status != lib.MP_OK:
                self._raise(status, "concat")
            at += x.shape[3]

    def add(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *, activation: str = "linear", threads: int = 1
    ) -> None:
        """See Kernels.add."""
        check(a, "a", ("float32", "float16"))
        check(b, "b", (a.dtype.name,), a.shape)
        check(out, "out", ("float32", "float16"), a.shape)
        check_output(out, a, b)
        status = lib.mp_add(
            self._table,
            _pointer(a),
            _pointer(b),
            _pointer(out),
            _TYPE_CODE[a.dtype.name],
            _TYPE_CODE[out.dtype.name],
            code_of(activation, ACTIVATIONS, "activation"),
            a.size,
            check_threads(threads),
        )
        if status != lib.MP_OK:
            self._raise(status, "add")
