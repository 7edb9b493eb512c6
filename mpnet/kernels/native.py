"""The C kernels behind the interface `Kernels`: each call is made (mpnet.kernels.calls) and run at once.

cffi releases the GIL during each call; scratch memory belongs to the calling thread, so one NativeKernels may be
used from several threads at once.
"""

from __future__ import annotations

import math
import threading
from dataclasses import astuple
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.arguments import FLOAT, aligned, check
from mpnet.kernels.calls import PRECISION_CODE, Binder, Call, ImageScales, Level, NativePackedConv, pointer
from mpnet.kernels.interface import ConvShape, PackedConv, TensorQuant
from mpnet.spec.precision import Precision

_local = threading.local()


def scratch(size_bytes: int) -> NDArray[np.uint8]:
    """The calling thread's scratch memory, grown when needed."""
    buffer: NDArray[np.uint8] | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size_bytes:
        buffer = _local.buffer = aligned(size_bytes)
    return buffer


def _shape_struct(shape: ConvShape) -> Any:
    values = astuple(shape)
    if any(not isinstance(v, (int, np.integer)) or abs(v) >= 2**31 for v in values):
        raise KernelError(f"convolution {shape}: sizes must be integers below 2^31")
    return ffi.new("mp_conv_shape *", [int(v) for v in values])


def _scales(quant: TensorQuant | None, what: str, *, written: bool = False) -> ImageScales | None:
    """The quant with its reciprocal. written: codes are made with it, not read. Raises: KernelError for bad values."""
    if quant is None:
        return None
    scale, zero_point, offset = quant.scale, quant.zero_point, quant.offset
    # Lists: batches are small, and NumPy takes a microsecond for each question.
    if not all(0 < s < math.inf for s in scale.tolist()) or not all(map(math.isfinite, offset.tolist())):
        raise KernelError(f"{what} has scale {scale} and offset {offset}; scales must be finite and above 0")
    if not all(-128 <= z <= 127 for z in zero_point.tolist()):
        raise KernelError(f"{what} has zero point {zero_point}; it must be in [-128, 127]")
    with np.errstate(over="ignore"):
        inverse: NDArray[np.float32] = np.float32(1) / scale
    if written and not np.isfinite(inverse).all():
        raise KernelError(f"{what}.scale is {scale}; its reciprocal must be finite")
    if written and offset.any():
        raise KernelError(f"{what}.offset is not 0; such codes are made by the quantise step of the mode that made it")
    return ImageScales(scale, inverse, zero_point, offset)


class NativeKernels(Level):
    """The C kernels of one ISA level; see `mpnet.kernels.interface.Kernels` for what each method does.

    Get one from `mpnet.kernels.isa.kernels`. Raises KernelError for arguments that do not fit, NonFiniteError (also an
    EngineError) when a result is NaN or infinite; out is then unspecified.
    """

    def precisions(self) -> tuple[str, ...]:
        """Names of the precisions that this level's convolutions have."""
        return tuple(name for name, code in PRECISION_CODE.items() if lib.mp_table_has(self.table, code))

    def _check(self, status: int, what: str) -> None:
        """Raises what a status other than MP_OK means."""
        if status == lib.MP_OK:
            return
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

    def _run(self, call: Call, what: str) -> None:
        self._check(call.function(*call.arguments), what)

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: NDArray[Any]) -> NativePackedConv:
        """See Kernels.pack_conv."""
        what = f"convolution {shape} in {precision.name}"
        c_shape = _shape_struct(shape)
        code = PRECISION_CODE.get(precision.name)
        if code is None:
            raise KernelError(f"no kernels for precision {precision.name!r}")
        self._check(lib.mp_check_conv(self.table, c_shape, code), what)
        types = (precision.stored.dtype,) if precision.carries_scale else FLOAT
        in_group = shape.in_channels // shape.groups
        check(weights, "weights", types, (shape.out_channels, in_group, shape.size, shape.size))
        size = lib.mp_pack_bytes(self.table, c_shape, code, pointer(weights))
        data = aligned(size)
        self._check(lib.mp_pack_conv(self.table, c_shape, code, pointer(weights), pointer(data), size), what)
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
        binder = Binder(self, threads)
        call = binder.conv(
            packed, x, out, bias=bias, activation=activation, weight_scale=weight_scale,
            in_scales=_scales(in_quant, "in_quant"), out_scales=_scales(out_quant, "out_quant", written=True),
            out_rounding=out_rounding, out_low=out_low, out_high=out_high, ranges=ranges, pool=pool,
        )
        binder.finish(scratch)
        self._run(call, "convolution")

    def value_range(self, x: NDArray[Any], *, threads: int = 1) -> NDArray[np.float32]:
        """See Kernels.value_range."""
        ranges = np.empty((*np.shape(x)[:1], 2), np.float32)
        call = Binder(self, threads).value_range(x, ranges)
        status = call.function(*call.arguments)
        if status == lib.MP_NONFINITE:
            raise NonFiniteError("a tensor to be quantised holds NaN or infinity")
        self._check(status, "value_range")
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
        scales = _scales(quant, "quant", written=True)
        self._run(Binder(self, threads).quantize(x, out, scales, rounding, low, high), "quantize")

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], quant: TensorQuant, *, threads: int = 1) -> None:
        """See Kernels.dequantize."""
        self._run(Binder(self, threads).dequantize(x, out, _scales(quant, "quant")), "dequantize")

    def cast(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.cast."""
        self._run(Binder(self, threads).cast(x, out), "cast")

    def maxpool(
        self, x: NDArray[Any], out: NDArray[Any], *, size: int, stride: int, padding: int, threads: int = 1
    ) -> None:
        """See Kernels.maxpool."""
        self._run(Binder(self, threads).maxpool(x, out, size, stride, padding), "maxpool")

    def avgpool(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.avgpool."""
        self._run(Binder(self, threads).avgpool(x, out), "avgpool")

    def upsample(self, x: NDArray[Any], out: NDArray[Any], *, factor: int, threads: int = 1) -> None:
        """See Kernels.upsample."""
        self._run(Binder(self, threads).upsample(x, out, factor), "upsample")

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any], *, threads: int = 1) -> None:
        """See Kernels.concat."""
        for call in Binder(self, threads).concat(inputs, out):
            self._run(call, "concat")

    def add(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *, activation: str = "linear", threads: int = 1
    ) -> None:
        """See Kernels.add."""
        self._run(Binder(self, threads).add(a, b, out, activation), "add")
