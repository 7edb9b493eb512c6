"""C calls with all their arguments checked and ready.

Engines bind a step once and run it many times, which then costs well below a microsecond; `NativeKernels` makes a call
and runs it at once. The arrays that a call was bound to stay alive with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels import arguments
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.arguments import ANY, CODES, FLOAT, INT, REALS, check, check_images, check_output, code_of
from mpnet.kernels.interface import ACTIVATIONS, ConvShape, PackedConv
from mpnet.spec.precision import PRECISIONS, STORED_TYPES, Precision
from mpnet.spec.quantization import ROUNDINGS

Floats = NDArray[np.float32]

PRECISION_CODE: dict[str, int] = {
    name: getattr(lib, f"MP_{name.upper()}") for name in PRECISIONS if hasattr(lib, f"MP_{name.upper()}")
}
_TYPE_CODE: dict[np.dtype[Any], int] = {t.dtype: getattr(lib, f"MP_TYPE_{t.c_name}") for t in STORED_TYPES.values()}
_C_ARRAY = {np.dtype(np.float32): "float[]", np.dtype(np.int32): "int32_t[]", np.dtype(np.int8): "int8_t[]"}


def pointer(array: NDArray[Any]) -> Any:
    """The address, for `void *`; keeps the array alive."""
    return ffi.from_buffer("char[]", array)


def _typed(array: NDArray[Any] | None) -> Any:
    """The address, for a pointer to the array's own type; keeps the array alive. NULL for None."""
    return ffi.NULL if array is None else ffi.from_buffer(_C_ARRAY[array.dtype], array)


@dataclass(eq=False)
class Call:
    """function(*arguments) returns an mp_status, or None from NumPy.

    x_at: position of the input's pointer among the arguments; -1: it is `conv_args.in`; None: no tensor is read.
    keep: what must stay alive beside the arguments.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    x_at: int | None = None
    conv_args: Any = None
    keep: tuple[Any, ...] = field(default=(), repr=False)

    def set_input(self, x: NDArray[Any]) -> None:
        """Let the next call read another array of the same type and shape, which the caller keeps alive."""
        if self.x_at is None:
            return
        if self.x_at < 0:
            setattr(self.conv_args, "in", pointer(x))
        else:
            before, after = self.arguments[: self.x_at], self.arguments[self.x_at + 1 :]
            self.arguments = (*before, pointer(x), *after)


@dataclass(frozen=True, eq=False)
class ImageScales:
    """How int8 images map to reals, one value per image; filled before the calls that read them run."""

    scale: Floats
    inv_scale: Floats
    zero_point: NDArray[np.int32]
    offset: Floats


def _per_image(scales: ImageScales | None, images: int, what: str, *fields: str) -> list[Any]:
    """The addresses of these fields."""
    if scales is None:
        raise KernelError(f"{what} is missing; int8 tensors need scale and zero point")
    arrays = [getattr(scales, name) for name in fields]
    for name, array in zip(fields, arrays, strict=True):
        check(array, f"{what}.{name}", INT if name == "zero_point" else FLOAT, (images,))
    return [_typed(array) for array in arrays]


@dataclass(frozen=True, eq=False)
class NativePackedConv:
    """Packed weights of one table, with the memory that holds them."""

    shape: ConvShape
    precision: Precision
    size_bytes: int
    isa: str
    data: NDArray[np.uint8] = field(repr=False)
    c_shape: Any = field(repr=False)
    scratch_bytes: dict[tuple[bool, int], int] = field(repr=False, default_factory=dict)


@dataclass(eq=False)
class Level:
    """One ISA level: its name and its C table."""

    name: str
    table: Any = field(repr=False)


class Binder:
    """Makes calls for one table of kernels and one number of threads. All calls share one scratch memory, so they must
    not run at the same time. What is not said here stands at the method of the same name of `Kernels`.

    Raises: KernelError that names the argument that does not fit.
    """

    def __init__(self, kernels: Level, threads: int) -> None:
        self._kernels = kernels
        self._table = kernels.table
        self._threads = arguments.check_threads(threads)
        self._convolutions: list[Any] = []
        self._scratch_bytes = 64
        self._scratch: NDArray[np.uint8] | None = None

    def finish(self, memory: Callable[[int], NDArray[np.uint8]] = arguments.aligned) -> None:
        """Give the convolutions their scratch memory; call once, after the last binding."""
        self._scratch = memory(self._scratch_bytes)
        for args in self._convolutions:
            args.scratch = pointer(self._scratch)
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
        """Scales instead of quants; it can run after `finish`."""
        if not isinstance(packed, NativePackedConv) or packed.isa != self._kernels.name:
            raise KernelError(f"these weights were not packed by ISA level {self._kernels.name}; call its pack_conv")
        shape, precision = packed.shape, packed.precision
        images = len(x) if np.ndim(x) else 0
        check(x, "x", (precision.stored.dtype,), (images, shape.in_h, shape.in_w, shape.in_channels))
        height, width = arguments.pooled_size(shape, out) if pool else (shape.out_h, shape.out_w)
        check(out, "out", ANY, (images, height, width, shape.out_channels))
        check_output(out, x)
        check(bias, "bias", FLOAT, (shape.out_channels,))
        given: dict[str, Any] = {}
        if precision.carries_scale:
            scale, zero_point, offset = _per_image(in_scales, images, "in_quant", "scale", "zero_point", "offset")
            if weight_scale is None:
                raise KernelError("weight_scale is missing; an int8 convolution needs one value per output channel")
            check(weight_scale, "weight_scale", FLOAT, (shape.out_channels,))
            given = {"weight_scale": _typed(weight_scale), "in_scale": scale, "in_zero_point": zero_point,
                     "in_offset": offset}
        if out.dtype in CODES:
            inv_scale, zero_point = _per_image(out_scales, images, "out_quant", "inv_scale", "zero_point")
            arguments.check_codes(out_low, out_high)
            given |= {"out_inv_scale": inv_scale, "out_zero_point": zero_point, "out_low": out_low,
                      "out_high": out_high, "out_rounding": code_of(out_rounding, ROUNDINGS, "rounding")}
        if ranges is not None:
            if pool and out.dtype in CODES:
                raise KernelError("ranges are not measured of pooled int8 results; their scale is known")
            check(ranges, "ranges", FLOAT, (images, 2))
            check_output(ranges, x, out)
        if pool:
            given |= {"pool_h": height, "pool_w": width}
        data = pointer(packed.data)
        args = ffi.new("mp_conv_args *", {
            "shape": packed.c_shape[0], "precision": PRECISION_CODE[precision.name], "packed": data,
            "activation": code_of(activation, ACTIVATIONS, "activation"), "images": images, "threads": self._threads,
            "in": pointer(x), "out": pointer(out), "out_type": _TYPE_CODE[out.dtype], "bias": _typed(bias),
            "ranges": _typed(ranges), **given,
        })
        size = packed.scratch_bytes.get((pool, self._threads))
        if size is None:
            size = lib.mp_conv_scratch_bytes(self._table, data, pool, self._threads)
            packed.scratch_bytes[pool, self._threads] = size
        self._scratch_bytes = max(self._scratch_bytes, size)
        self._convolutions.append(args)
        # A struct does not keep alive what it points to.
        keep = (packed, x, out, bias, weight_scale, in_scales, ranges, out_scales, self)
        return Call(lib.mp_conv, (self._table, args), -1, args, keep)

    def _call(self, function: Callable[..., Any], x: NDArray[Any], *rest: Any) -> Call:
        """function(table, x, *rest, threads)."""
        return Call(function, (self._table, pointer(x), *rest, self._threads), 1)

    def value_range(self, x: NDArray[Any], ranges: Floats) -> Call:
        """ranges: (n, 2), filled."""
        check(x, "x", REALS)
        if x.size == 0 or x.ndim < 1:
            raise KernelError(f"x has shape {x.shape}; an empty tensor has no range")
        check(ranges, "ranges", FLOAT, (len(x), 2))
        return self._call(lib.mp_value_range, x, _TYPE_CODE[x.dtype], len(x), x.size // len(x), _typed(ranges))

    def quantize(
        self, x: NDArray[Any], out: NDArray[np.int8], scales: ImageScales | None, rounding: str, low: int, high: int
    ) -> Call:
        """Scales instead of a quant."""
        check_images(x, "x", REALS)
        check(out, "out", CODES, x.shape)
        check_output(out, x)
        arguments.check_codes(low, high)
        return self._call(
            lib.mp_quantize, x, _TYPE_CODE[x.dtype], _typed(out), len(x), x.size // len(x),
            *_per_image(scales, len(x), "quant", "inv_scale", "zero_point"),
            code_of(rounding, ROUNDINGS, "rounding"), low, high,
        )

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], scales: ImageScales | None) -> Call:
        """Scales instead of a quant."""
        check_images(x, "x", CODES)
        check(out, "out", REALS, x.shape)
        check_output(out, x)
        return self._call(
            lib.mp_dequantize, x, pointer(out), _TYPE_CODE[out.dtype], len(x), x.size // len(x),
            *_per_image(scales, len(x), "quant", "scale", "zero_point", "offset"),
        )

    def cast(self, x: NDArray[Any], out: NDArray[Any]) -> Call:
        """Between any two stored types of reals."""
        check(x, "x", REALS)
        check(out, "out", REALS, x.shape)
        check_output(out, x)
        return self._call(lib.mp_cast, x, _TYPE_CODE[x.dtype], pointer(out), _TYPE_CODE[out.dtype], x.size)

    def maxpool(self, x: NDArray[Any], out: NDArray[Any], size: int, stride: int, padding: int) -> Call:
        """padding: of both sides together."""
        check_images(x, "x", ANY)
        if min(size, stride) < 1 or padding < 0 or max(size, stride, padding) > 1 << 24:
            raise KernelError(f"maxpool: size {size}, stride {stride}, padding {padding} make no sense")
        n, h, w, c = x.shape
        out_h, out_w = (h + padding - size) // stride + 1, (w + padding - size) // stride + 1
        if out_h < 1 or out_w < 1:
            raise KernelError(f"maxpool: a window of {size} does not fit into {h}x{w} padded by {padding}")
        check(out, "out", (x.dtype,), (n, out_h, out_w, c))
        check_output(out, x)
        return self._call(
            lib.mp_maxpool, x, pointer(out), _TYPE_CODE[x.dtype], n, h, w, c, out_h, out_w, size, stride, padding
        )

    def avgpool(self, x: NDArray[Any], out: NDArray[Any]) -> Call:
        """Global mean per channel."""
        check_images(x, "x", REALS)
        n, h, w, c = x.shape
        check(out, "out", (x.dtype,), (n, 1, 1, c))
        check_output(out, x)
        return self._call(lib.mp_avgpool, x, pointer(out), _TYPE_CODE[x.dtype], n, h, w, c)

    def upsample(self, x: NDArray[Any], out: NDArray[Any], factor: int) -> Call:
        """Nearest neighbour."""
        check_images(x, "x", ANY)
        if not 1 <= factor <= 1 << 16:
            raise KernelError(f"upsample: factor {factor} makes no sense")
        n, h, w, c = x.shape
        check(out, "out", (x.dtype,), (n, h * factor, w * factor, c))
        check_output(out, x)
        return self._call(lib.mp_upsample, x, pointer(out), _TYPE_CODE[x.dtype], n, h, w, c, factor)

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> list[Call]:
        """Along channels; one call per input."""
        if not inputs:
            raise KernelError("concat: there are no inputs")
        check_images(out, "out", ANY)
        check_output(out, *inputs)
        calls, at, width = [], 0, out.shape[3]
        for i, x in enumerate(inputs):
            check_images(x, f"input {i}", (out.dtype,))
            if x.shape[:3] != out.shape[:3]:
                raise KernelError(
                    f"concat: input {i} has shape {x.shape}, out {out.shape}; they differ before channels"
                )
            channels = x.shape[3]
            calls.append(self._call(
                lib.mp_concat_part, x, pointer(out), _TYPE_CODE[x.dtype], out.size // width, channels, width, at
            ))
            at += channels
        if at != width:
            raise KernelError(f"concat: the inputs have {at} channels, out has {width}")
        return calls

    def add(self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], activation: str) -> Call:
        """activation(a + b)."""
        check(a, "a", REALS)
        check(b, "b", (a.dtype,), a.shape)
        check(out, "out", REALS, a.shape)
        check_output(out, a, b)
        return self._call(
            lib.mp_add, a, pointer(b), pointer(out), _TYPE_CODE[a.dtype], _TYPE_CODE[out.dtype],
            code_of(activation, ACTIVATIONS, "activation"), a.size,
        )
