"""C calls with all their arguments ready, for engines that run the same steps many times.

`NativeKernels` checks and converts arguments on every call, which costs tens of microseconds; a `Call` is checked
once, when it is bound, and then costs well below one. The arrays that it was bound to stay alive with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels import arguments, native
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.interface import ACTIVATIONS, PackedConv

Floats = NDArray[np.float32]


_TYPE = {np.dtype(name): int(code) for name, code in native._TYPE_CODE.items()}
_C_ARRAY = {np.dtype(np.float32): "float[]", np.dtype(np.int32): "int32_t[]", np.dtype(np.int8): "int8_t[]"}
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16))
_FLOAT32 = (np.dtype(np.float32),)
_INT8 = (np.dtype(np.int8),)
_ANY = (*_FLOATS, *_INT8)


def _check(array: NDArray[Any], what: str, types: tuple[np.dtype[Any], ...], shape: tuple[int, ...]) -> None:
    """Raises KernelError unless array is C-contiguous, of one of the types and of the shape."""
    if array.dtype not in types or array.shape != shape or not array.flags.c_contiguous:
        wanted = " or ".join(str(one) for one in types)
        raise KernelError(f"{what} is {array.dtype} {array.shape}; it must be contiguous {wanted} {shape}")


def _pointer(array: NDArray[Any]) -> Any:
    """The address, for `void *`; keeps the array alive."""
    return ffi.from_buffer("char[]", array)


def _typed(array: NDArray[Any]) -> Any:
    """The address, for a pointer to the array's own type; keeps the array alive."""
    return ffi.from_buffer(_C_ARRAY[array.dtype], array)


@dataclass(eq=False)
class Call:
    """function(*arguments) returns an mp_status, or None from NumPy.

    x_at: position of the input's pointer among the arguments; -1: it is `conv_args.in`; None: no tensor is read.
    keep: what must stay alive.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    x_at: int | None = None
    conv_args: Any = None
    keep: tuple[Any, ...] = field(default=(), repr=False)

    def set_input(self, x: NDArray[Any]) -> None:
        """Let the next call read another array of the same type and shape, which the caller keeps alive."""
        pointer = _pointer(x)
        if self.x_at is None:
            return
        if self.x_at < 0:
            setattr(self.conv_args, "in", pointer)
        else:
            before, after = self.arguments[: self.x_at], self.arguments[self.x_at + 1 :]
            self.arguments = (*before, pointer, *after)


@dataclass(frozen=True, eq=False)
class ImageScales:
    """How int8 images map to reals, one value per image; filled before the calls that read them run."""

    scale: Floats
    inv_scale: Floats
    zero_point: NDArray[np.int32]
    offset: Floats


class Binder:
    """Makes calls for one table of kernels and one number of threads. All calls share one scratch memory, so they must
    not run at the same time."""

    def __init__(self, kernels: native.NativeKernels, threads: int) -> None:
        self._kernels = kernels
        self._table = kernels._table
        self._threads = arguments.check_threads(threads)
        self._convolutions: list[Any] = []
        self._scratch_bytes = 0
        self._scratch: NDArray[np.uint8] | None = None

    def finish(self) -> None:
        """Give the convolutions their scratch memory; call once, after the last binding."""
        self._scratch = arguments.aligned(max(self._scratch_bytes, 64))
        for args in self._convolutions:
            args.scratch = _pointer(self._scratch)
            args.scratch_bytes = self._scratch.size

    def conv(
        self,
        packed: PackedConv,
        x: NDArray[Any],
        out: NDArray[Any],
        *,
        bias: Floats,
        activation: str,
        weight_scale: Floats | None,
        in_scales: ImageScales | None,
        ranges: Floats | None,
        out_scales: ImageScales | None = None,
        out_rounding: str = "half_to_even",
        out_low: int = -128,
        out_high: int = 127,
        pool: bool = False,
    ) -> Call:
        """See Kernels.conv."""
        if not isinstance(packed, native.NativePackedConv) or packed.isa != self._kernels.name:
            raise KernelError(f"these weights were not packed by ISA level {self._kernels.name}")
        shape, precision = packed.shape, packed.precision
        images = x.shape[0]
        _check(x, "x", (np.dtype(precision.storage),), (images, shape.in_h, shape.in_w, shape.in_channels))
        height, width = arguments.pooled_size(shape, out) if pool else (shape.out_h, shape.out_w)
        _check(out, "out", _ANY, (images, height, width, shape.out_channels))
        _check(bias, "bias", _FLOAT32, (shape.out_channels,))
        args = ffi.new("mp_conv_args *")
        args.shape = packed.c_shape[0]
        args.precision = native._PRECISION_CODE[precision.name]
        args.activation = arguments.code_of(activation, ACTIVATIONS, "activation")
        args.out_type = _TYPE[out.dtype]
        args.images, args.threads = images, self._threads
        args.packed = _pointer(packed.data)
        setattr(args, "in", _pointer(x))
        args.out = _pointer(out)
        args.bias = _typed(bias)
        if precision.carries_scale:
            if weight_scale is None or in_scales is None:
                raise KernelError("an int8 convolution needs weight_scale and the scales of its input")
            _check(weight_scale, "weight_scale", _FLOAT32, (shape.out_channels,))
            args.weight_scale = _typed(weight_scale)
            args.in_scale = _typed(in_scales.scale)
            args.in_zero_point = _typed(in_scales.zero_point)
            args.in_offset = _typed(in_scales.offset)
        if out_scales is not None:
            args.out_inv_scale = _typed(out_scales.inv_scale)
            args.out_zero_point = _typed(out_scales.zero_point)
            args.out_rounding = arguments.code_of(out_rounding, arguments.ROUNDINGS, "rounding")
            args.out_low, args.out_high = out_low, out_high
        if ranges is not None:
            _check(ranges, "ranges", _FLOAT32, (images, 2))
            args.ranges = _typed(ranges)
        if pool:
            args.pool_h, args.pool_w = height, width
        size = lib.mp_conv_scratch_bytes(self._table, args.packed, pool, self._threads)
        self._scratch_bytes = max(self._scratch_bytes, size)
        self._convolutions.append(args)
        keep = (packed, x, out, bias, weight_scale, in_scales, ranges, out_scales, self)
        return Call(lib.mp_conv, (self._table, args), -1, args, keep)

    def value_range(self, x: NDArray[Any], ranges: Floats) -> Call:
        """See Kernels.value_range; ranges: (n, 2), filled."""
        _check(x, "x", _FLOATS, x.shape)
        _check(ranges, "ranges", _FLOAT32, (x.shape[0], 2))
        return Call(lib.mp_value_range, (
            self._table, _pointer(x), _TYPE[x.dtype], x.shape[0], x.size // x.shape[0],
            _typed(ranges), self._threads,
        ), 1, None, (x, ranges))

    def quantize(
        self, x: NDArray[Any], out: NDArray[np.int8], scales: ImageScales, rounding: str, low: int, high: int
    ) -> Call:
        """See Kernels.quantize."""
        _check(x, "x", _FLOATS, x.shape)
        _check(out, "out", _INT8, x.shape)
        return Call(lib.mp_quantize, (
            self._table, _pointer(x), _TYPE[x.dtype], _typed(out), x.shape[0],
            x.size // x.shape[0], _typed(scales.inv_scale), _typed(scales.zero_point),
            arguments.code_of(rounding, arguments.ROUNDINGS, "rounding"), low, high, self._threads,
        ), 1, None, (x, out, scales))

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], scales: ImageScales) -> Call:
        """See Kernels.dequantize."""
        _check(x, "x", _INT8, x.shape)
        _check(out, "out", _FLOATS, x.shape)
        return Call(lib.mp_dequantize, (
            self._table, _typed(x), _pointer(out), _TYPE[out.dtype], x.shape[0],
            x.size // x.shape[0], _typed(scales.scale), _typed(scales.zero_point),
            _typed(scales.offset), self._threads,
        ), 1, None, (x, out, scales))

    def cast(self, x: NDArray[Any], out: NDArray[Any]) -> Call:
        """See Kernels.cast."""
        _check(x, "x", _FLOATS, x.shape)
        _check(out, "out", _FLOATS, x.shape)
        return Call(lib.mp_cast, (
            self._table, _pointer(x), _TYPE[x.dtype], _pointer(out),
            _TYPE[out.dtype], x.size, self._threads,
        ), 1, None, (x, out))

    def maxpool(self, x: NDArray[Any], out: NDArray[Any], size: int, stride: int, padding: int) -> Call:
        """See Kernels.maxpool."""
        images, height, width, channels = x.shape
        _check(x, "x", _ANY, x.shape)
        _check(out, "out", (x.dtype,), (images, out.shape[1], out.shape[2], channels))
        return Call(lib.mp_maxpool, (
            self._table, _pointer(x), _pointer(out), _TYPE[x.dtype], images, height, width,
            channels, out.shape[1], out.shape[2], size, stride, padding, self._threads,
        ), 1, None, (x, out))

    def avgpool(self, x: NDArray[Any], out: NDArray[Any]) -> Call:
        """See Kernels.avgpool."""
        images, height, width, channels = x.shape
        _check(x, "x", _FLOATS, x.shape)
        _check(out, "out", (x.dtype,), (images, 1, 1, channels))
        return Call(lib.mp_avgpool, (
            self._table, _pointer(x), _pointer(out), _TYPE[x.dtype], images, height, width,
            channels, self._threads,
        ), 1, None, (x, out))

    def upsample(self, x: NDArray[Any], out: NDArray[Any], factor: int) -> Call:
        """See Kernels.upsample."""
        images, height, width, channels = x.shape
        _check(x, "x", _ANY, x.shape)
        _check(out, "out", (x.dtype,), (images, height * factor, width * factor, channels))
        return Call(lib.mp_upsample, (
            self._table, _pointer(x), _pointer(out), _TYPE[x.dtype], images, height, width,
            channels, factor, self._threads,
        ), 1, None, (x, out))

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> list[Call]:
        """See Kernels.concat; one call per input."""
        _check(out, "out", _ANY, out.shape)
        calls, at = [], 0
        for x in inputs:
            _check(x, "input", (out.dtype,), (*out.shape[:3], x.shape[3]))
            calls.append(Call(lib.mp_concat_part, (
                self._table, _pointer(x), _pointer(out), _TYPE[x.dtype],
                out.size // out.shape[3], x.shape[3], out.shape[3], at, self._threads,
            ), 1, None, (x, out)))
            at += x.shape[3]
        if at != out.shape[3]:
            raise KernelError(f"concat: the inputs have {at} channels, out has {out.shape[3]}")
        return calls

    def add(self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], activation: str) -> Call:
        """See Kernels.add."""
        _check(a, "a", _FLOATS, a.shape)
        _check(b, "b", (a.dtype,), a.shape)
        _check(out, "out", (a.dtype,), a.shape)
        return Call(lib.mp_add, (
            self._table, _pointer(a), _pointer(b), _pointer(out), _TYPE[a.dtype],
            _TYPE[out.dtype], arguments.code_of(activation, ACTIVATIONS, "activation"), a.size, self._threads,
        ), 1, None, (a, b, out))
