# SPDX-License-Identifier: MIT
"""One operation at a time, each into memory of its own: what sweeps, traces and analyses are made of.

An operation is bound and its calls run once; `Session` binds whole plans and runs them often, to the same bits.
"""

from __future__ import annotations

from typing import Sequence

from mpnet.engine.bind import make_failure, named_error, run_call
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import (
    Context,
    Conversion,
    Convolve,
    Operation,
    PreparedConvolution,
    PreparedWeights,
    Transfer,
    conversion_steps,
)
from mpnet.engine.options import DEFAULT_OPTIONS, EngineOptions
from mpnet.engine.placement import is_supported
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.errors import KernelError, MpnetError, PrecisionError
from mpnet.kernels.call import Call
from mpnet.kernels.device import HOST, Storage
from mpnet.kernels.scales import ImageScales
from mpnet.model.precision import Precision


def execute(operation: Operation, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """Run one operation on tensors of equal n.

    Raises: KernelError or PrecisionError; `run_layer` adds the layer's name.
    """
    first = inputs[0]
    if operation.is_head:
        return first
    if prepared.kernels.device is not HOST:
        prepared = prepared_for(operation, first, prepared)
    device = prepared.kernels.device
    if any([tensor.storage.device is not device for tensor in inputs]):
        inputs = [on_device(tensor, prepared) for tensor in inputs]
    output_precision = operation.output_precision(first.precision)
    if output_precision is None:
        raise KernelError(f"{operation.name} does not take tensors of {first.precision}")
    shape = operation.result_shape(prepared.network, [tensor.shape for tensor in inputs])
    context = Context.of(prepared, threads)
    result = Tensor(device.allocate((first.images, *shape), output_precision.stored.dtype), output_precision)
    try:
        calls = context.bind(operation, inputs, result)
        # Nothing of it outlives the calls, so the thread's scratch memory serves all operations.
        context.binder.finish(at_once=True)
        run_calls(operation, calls, context)
    except MpnetError:
        inputs[0].ranges = None  # bound, but perhaps not measured
        raise
    return result


def run_calls(operation: Operation, calls: Sequence[Call], context: Context) -> None:
    """Run calls of an operation and wait until all have run. Raises: KernelError, PrecisionError."""
    for call in calls:
        run_call(operation, call)
    failure = context.device.finish()
    if failure is not None:
        raise make_failure(operation, *failure)


def prepared_for(operation: Operation, x: Tensor, prepared: Prepared) -> Prepared:
    """Return the weights for the kernels that run an operation on x: of their device, or of the CPU where it must."""
    if prepared.kernels.device is HOST:
        return prepared
    by_tensorflow = x.code_map is not None and x.code_map.is_tensorflow
    return prepared if is_supported(operation, x.precision, prepared.kernels, by_tensorflow=by_tensorflow) else prepared.on_host


def on_device(tensor: Tensor, prepared: Prepared) -> Tensor:
    """Return the tensor where these kernels read it; a copy on another device is made once and kept with it."""
    device = prepared.kernels.device
    if tensor.storage.device is device:
        return tensor
    transfer = Transfer(device.name)
    copy = tensor.converted.get(transfer)
    if copy is None:
        copy = Tensor(device.allocate(tensor.storage.shape, tensor.storage.dtype), tensor.precision)
        for call in transfer.bind(Context.of(prepared, 1), [tensor], copy):
            run_call(transfer, call)
        tensor.converted[transfer] = copy
    return copy


def convolve(
    operation: Convolve,
    ready: PreparedConvolution,
    x: Storage,
    out: Storage,
    scales: ImageScales | None,
    prepared: PreparedWeights,
    threads: int,
    *,
    ranges: Storage | None = None,
    sums: Storage | None = None,
) -> None:
    """Fill out with a convolution by some of an operation's weights; arguments as `Binder.conv` takes them.

    Raises: KernelError, of values that are not finite as well.
    """
    context = Context.of(prepared, threads)
    call = context.binder.conv(
        ready.packed,
        x,
        out,
        bias=ready.bias,
        activation=ready.activation,
        weight_scale=ready.weight_scale,
        in_quant=scales,
        ranges=ranges,
        sums=sums,
    )
    context.binder.finish(at_once=True)
    run_calls(operation, [call], context)


def convert(tensor: Tensor, conversion: Conversion | None, prepared: Prepared, threads: int = 1) -> Tensor:
    """Convert a tensor, once; the result is kept with it."""
    for step in () if conversion is None else conversion_steps(tensor.precision, conversion):
        converted = tensor.converted.get(step)
        if converted is None:
            converted = tensor.converted[step] = execute(step, (tensor,), prepared, threads)
        tensor = converted
    return tensor


def run_lowering(lowering: Lowering, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """Run one layer: conversions (kept with their tensors), slices, operations, conversion after."""
    ready = [convert(tensor, op, prepared, threads) for op, tensor in zip(lowering.convert, inputs, strict=True)]
    ready = [
        tensor if slice_input is None else execute(slice_input, (tensor,), prepared, threads)
        for slice_input, tensor in zip(lowering.slices, ready, strict=True)
    ]
    result = ready[0]
    for number, operation in enumerate(lowering.operations):
        result = execute(operation, [result] if number else ready, prepared, threads)
    return convert(result, lowering.after, prepared, threads)


def run_layer(
    index: int,
    precision: Precision,
    inputs: Sequence[Tensor],
    prepared: Prepared,
    options: EngineOptions = DEFAULT_OPTIONS,
    threads: int = 1,
) -> Tensor:
    """Run layer `index` at `precision` for these input tensors (in the order of the layer's `inputs`).

    A yolo layer gives the fp32 tensor that enters box decoding.
    Raises: EngineError that names the layer.
    """
    lowering = Lowerings(prepared.network, options).lower(index, precision, tuple(tensor.precision for tensor in inputs))
    try:
        return run_lowering(lowering, inputs, prepared, threads)
    except (KernelError, PrecisionError) as error:
        raise named_error(prepared.network, index, error) from None
