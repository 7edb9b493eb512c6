"""A plan's steps as C calls with all arguments ready, for one batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.execute import half_ranges, named_error
from mpnet.engine.memory import Arena, allocate
from mpnet.engine.operations import (
    Add,
    AvgPool,
    Cast,
    Concat,
    Convolve,
    ConvolvePool,
    ConvolveQuantize,
    Dequantize,
    MaxPool,
    Quantize,
    Slice,
    Upsample,
    Yolo,
    convolution_of,
)
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.errors import EngineError, KernelError, NonFiniteError, PrecisionError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.calls import Binder, Call, ImageScales
from mpnet.kernels.native import NativeKernels
from mpnet.messages import bytes_text
from mpnet.quantization import native as activations
from mpnet.quantization.rounding import ROUNDINGS
from mpnet.quantization.scheme import MODES, ActivationScheme
from mpnet.spec.precision import FP16


@dataclass(eq=False)
class _Quantized:
    """The mapping of an int8 slot: rows of PARAMS that a call fills, and what kernels read of them."""

    params: NDArray[Any]
    scales: ImageScales
    scheme: ActivationScheme


class BoundPlan:
    """Memory and calls for batches of `images`.

    heads: the results after `run`, (images, h, w, c) float32; overwritten by the next.
    calls: (step number, call), in the order of running.
    """

    def __init__(
        self, prepared: Prepared, kernels: NativeKernels, plan: Plan, arena: Arena, images: int, threads: int
    ) -> None:
        self._prepared = prepared
        self._plan = plan
        self._images = images
        self._threads = threads
        self._binder = Binder(kernels, threads)
        try:
            arrays, self._memory = allocate(arena, plan, images, prepared.arenas)
        except MemoryError:
            raise EngineError(
                f"a batch of {images} needs {bytes_text(arena.size_bytes * images)} for activations; use a smaller batch"
            ) from None
        # Stands for the picture until the first run, which reads the caller's array in place.
        self._picture = np.empty((images, *plan.network.in_shape), np.float32)
        self._arrays: list[Any] = [self._picture, *arrays[1:]]
        self._quantized: dict[int, _Quantized] = {}
        self._ranges: dict[int, NDArray[np.float32]] = {}
        self._measured = {
            step.inputs[0] for step in plan.steps
            if isinstance(step.operation, Quantize) and step.operation.range is None
        }
        self.calls: list[tuple[int, Call]] = []
        self._picture_calls: list[Call] = []
        for number, step in enumerate(plan.steps):
            try:
                for call in self._bind(step):
                    self.calls.append((number, call))
                    if 0 in step.inputs:
                        self._picture_calls.append(call)
            except (KernelError, PrecisionError) as error:
                raise named_error(plan.network, step.layer, error) from None
        self._binder.finish()
        for slot, number in plan.unchecked_outputs:
            check = self._binder.value_range(self._arrays[slot], np.zeros((images, 2), np.float32))
            self.calls.append((number, check))
            if slot == 0:
                self._picture_calls.append(check)
        self.heads: list[NDArray[np.float32]] = [self._arrays[slot] for slot in plan.outputs]

    def run(self, x: NDArray[np.float32]) -> None:
        """One forward pass of x, which is C-contiguous float32 of the bound shape. Raises: EngineError."""
        self.set_picture(x)
        number = 0
        try:
            for number, call in self.calls:
                status = call.function(*call.arguments)
                if status:
                    self._fail(number, call, status)
        except PrecisionError as error:
            raise named_error(self._plan.network, self._plan.steps[number].layer, error) from None

    def set_picture(self, x: NDArray[np.float32]) -> None:
        """Let the first steps read x in place; it must stay alive until `run` is over."""
        if x is not self._picture:
            for call in self._picture_calls:
                call.set_input(x)
            self._picture = x
            for position, slot in enumerate(self._plan.outputs):
                if slot == 0:
                    self.heads[position] = x

    def run_call(self, number: int, call: Call) -> None:
        """One of `calls`, for measurements."""
        status = call.function(*call.arguments)
        if status:
            self._fail(number, call, status)

    def _fail(self, number: int, call: Call, status: int) -> None:
        step = self._plan.steps[number]
        if status == lib.MP_NONFINITE:
            raise named_error(
                self._plan.network, step.layer, NonFiniteError(f"{step.operation.name}: a value is NaN or infinite")
            )
        if call.function is lib.mp_ranges_to_params:
            mode = self._quantized[step.output].scheme.mode
            raise PrecisionError(f"the range of its input is too narrow or too wide for mode {mode}; use affine")
        error = KernelError(f"{step.operation.name}: the kernel refused its arguments (status {status})")
        raise named_error(self._plan.network, step.layer, error)

    def _bind(self, step: Step) -> list[Call]:
        binder, operation = self._binder, step.operation
        sources = [self._arrays[slot] for slot in step.inputs]
        x, out = sources[0], self._arrays[step.output]
        if isinstance(operation, Convolve | ConvolveQuantize | ConvolvePool):
            return self._bind_convolve(step, operation, x, out)
        if isinstance(operation, Quantize):
            return self._bind_quantize(step, operation, x, out)
        if isinstance(operation, Dequantize):
            return self._bind_dequantize(step, x, out)
        if isinstance(operation, Cast):
            return [binder.cast(x, out)]
        if step.inputs[0] in self._quantized:
            self._quantized[step.output] = self._quantized[step.inputs[0]]
        if isinstance(operation, MaxPool):
            return [binder.maxpool(x, out, operation.size, operation.stride, operation.padding)]
        if isinstance(operation, AvgPool):
            return [binder.avgpool(x, out)]
        if isinstance(operation, Upsample):
            return [binder.upsample(x, out, operation.factor)]
        if isinstance(operation, Slice):
            return [_SliceCall(np.copyto, (out, x[..., operation.start : operation.stop]), keep=(operation,))]
        if isinstance(operation, Concat):
            return binder.concat(sources, out)
        if isinstance(operation, Add):
            return [binder.add(x, sources[1], out, operation.activation)]
        if isinstance(operation, Yolo):
            return []
        raise EngineError(f"operation {operation.name or operation!r} cannot be run")

    def _bind_convolve(
        self, step: Step, operation: Convolve | ConvolveQuantize | ConvolvePool, x: Any, out: Any
    ) -> list[Call]:
        main = convolution_of(operation)
        assert main is not None
        pool = isinstance(operation, ConvolvePool)
        if isinstance(operation, ConvolvePool):
            operation = operation.convolve
        ready = self._prepared.convolution(main)
        known = self._quantized.get(step.inputs[0])
        ranges = None
        target: dict[str, Any] = {}
        if isinstance(operation, ConvolveQuantize):
            own = self._fixed(operation.quantize)
            self._quantized[step.output] = own
            scheme = operation.quantize.scheme
            target = {
                "out_scales": own.scales, "out_rounding": scheme.rounding,
                "out_low": scheme.low, "out_high": scheme.high,
            }
        elif step.output in self._measured and not pool:  # the kernel measures what it does not pool
            ranges = self._ranges[step.output] = np.zeros((self._images, 2), np.float32)
        calls = [self._binder.conv(
            ready.packed, x, out, bias=ready.bias, activation=ready.activation, weight_scale=ready.weight_scale,
            in_scales=None if known is None else known.scales, ranges=ranges, pool=pool, **target,
        )]
        if ranges is not None and step.gives == FP16:
            calls.append(Call(_round_ranges, (ranges,)))
        return calls

    def _bind_quantize(self, step: Step, operation: Quantize, x: Any, out: Any) -> list[Call]:
        calls: list[Call] = []
        if operation.range is not None:
            own = self._fixed(operation)
        else:
            own = self._empty(operation.scheme)
            ranges = self._ranges.get(step.inputs[0])
            if ranges is None:
                ranges = self._ranges[step.inputs[0]] = np.zeros((self._images, 2), np.float32)
                calls.append(self._binder.value_range(x, ranges))
            calls += self._to_params(ranges, own)
        self._quantized[step.output] = own
        scheme = operation.scheme
        assert scheme.rounding is not None
        if scheme.is_tensorflow:
            calls.append(_PassedOn(_quantize_tensorflow, (x, own.params, out, self._threads)))
        else:
            calls.append(self._binder.quantize(x, out, own.scales, scheme.rounding, scheme.low, scheme.high))
        return calls

    def _bind_dequantize(self, step: Step, x: Any, out: Any) -> list[Call]:
        known = self._quantized[step.inputs[0]]
        if known.scheme.is_tensorflow:
            return [Call(_dequantize_tensorflow, (x, known.params, out, self._threads))]
        return [self._binder.dequantize(x, out, known.scales)]

    def _empty(self, scheme: ActivationScheme) -> _Quantized:
        params = np.zeros(self._images, activations.PARAMS)
        if self._images == 1:
            # One row: its fields already lie as arrays of one value.
            scales = ImageScales(params["scale"], params["inv_scale"], params["zero_point"], params["offset"])
        else:
            n = self._images
            scales = ImageScales(
                np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n, np.float32)
            )
        return _Quantized(params, scales, scheme)

    def _fixed(self, operation: Quantize) -> _Quantized:
        assert operation.range is not None
        own = self._empty(operation.scheme)
        ranges = np.repeat(np.array([operation.range], np.float32), self._images, axis=0)
        own.params[...] = activations.ranges_to_params(ranges, operation.scheme)
        _spread(own.params, own.scales)
        return own

    def _to_params(self, ranges: NDArray[np.float32], own: _Quantized) -> list[Call]:
        scheme = own.scheme
        words = ffi.new("mp_activation_scheme *", {
            "mode": MODES.index(scheme.mode),
            "rounding": ROUNDINGS.index(str(scheme.rounding)),
            "narrow_range": int(scheme.narrow_range),
            "ensure_minimum_range": scheme.ensure_minimum_range,
        })
        bad = ffi.new("size_t *")
        calls = [Call(lib.mp_ranges_to_params, (
            ffi.cast("float *", ranges.ctypes.data), self._images, words,
            ffi.cast("mp_quant_params *", own.params.ctypes.data), bad,
        ), keep=(ranges, own))]
        if self._images > 1:
            calls.append(Call(_spread, (own.params, own.scales)))
        return calls


class _PassedOn(Call):
    """A call whose input is an array, not a pointer."""

    def set_input(self, x: NDArray[Any]) -> None:
        self.arguments = (x, *self.arguments[1:])


class _SliceCall(Call):
    """np.copyto(out, part of x)."""

    def set_input(self, x: NDArray[Any]) -> None:
        part = self.keep[0]
        self.arguments = (self.arguments[0], x[..., part.start : part.stop])


def _spread(params: NDArray[Any], scales: ImageScales) -> None:
    """Rows of PARAMS into the arrays that the kernels read."""
    scales.scale[...] = params["scale"]
    scales.inv_scale[...] = params["inv_scale"]
    scales.zero_point[...] = params["zero_point"]
    scales.offset[...] = params["offset"]


def _round_ranges(ranges: NDArray[np.float32]) -> None:
    ranges[...] = half_ranges(ranges)


def _quantize_tensorflow(x: NDArray[Any], params: NDArray[Any], out: NDArray[np.int8], threads: int) -> None:
    activations.quantize_activations(x.astype(np.float32, copy=False), params, out, threads=threads)


def _dequantize_tensorflow(x: NDArray[np.int8], params: NDArray[Any], out: NDArray[Any], threads: int) -> None:
    out[...] = activations.dequantize_activations(x, params, tensorflow=True, threads=threads)
