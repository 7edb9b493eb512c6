# SPDX-License-Identifier: MIT
"""One operation at a time, each into memory of its own: what sweeps, traces and analyses are made of.

An operation is bound and its calls run once; `Session` binds whole plans and runs them often, to the same bits.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.bind import named_error, run_call
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import (
    Context,
    Conversion,
    Convolve,
    Operation,
    PreparedConvolution,
    PreparedWeights,
    conversion_steps,
)
from mpnet.engine.options import DEFAULT_OPTIONS, EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.errors import KernelError, MpnetError, PrecisionError
from mpnet.kernels.call import ImageScales, scratch
from mpnet.model.precision import Precision


def execute(operation: Operation, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """The result of one operation on tensors of equal n.

    Raises: KernelError or PrecisionError; `run_layer` adds the layer's name.
    """
    first = inputs[0]
    if operation.is_head:
        return first
    gives = operation.gives(first.precision)
    if gives is None:
        raise KernelError(f"{operation.name} does not take tensors of {first.precision}")
    shape = operation.result_shape(prepared.network, [tensor.shape for tensor in inputs])
    result = Tensor(np.empty((first.images, *shape), gives.stored.dtype), gives)
    context = Context.of(prepared, threads)
    try:
        calls = context.bind(operation, inputs, result)
        # Nothing of it outlives the calls, so the thread's scratch memory serves all operations.
        context.binder.finish(scratch)
        for call in calls:
            run_call(operation, call)
    except MpnetError:
        first.ranges = None  # bound, but perhaps not measured
        raise
    return result


def convolve(
    operation: Convolve,
    ready: PreparedConvolution,
    x: NDArray[Any],
    out: NDArray[Any],
    scales: ImageScales | None,
    prepared: PreparedWeights,
    threads: int,
    *,
    ranges: NDArray[np.float32] | None = None,
    sums: NDArray[np.int32] | None = None,
) -> None:
    """Fill out with a convolution by some of an operation's weights; arguments as `Binder.conv` takes them.

    Raises: KernelError, of values that are not finite as well.
    """
    binder = Context.of(prepared, threads).binder
    call = binder.conv(
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
    binder.finish(scratch)
    run_call(operation, call)


def convert(tensor: Tensor, conversion: Conversion | None, prepared: Prepared, threads: int = 1) -> Tensor:
    """The tensor converted, made once and kept with it."""
    for step in () if conversion is None else conversion_steps(tensor.precision, conversion):
        known = tensor.converted.get(step)
        if known is None:
            known = tensor.converted[step] = execute(step, (tensor,), prepared, threads)
        tensor = known
    return tensor


def run_lowering(low: Lowering, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """The result of one layer: conversions (kept with their tensors), slices, operations, conversion after."""
    ready = [convert(tensor, op, prepared, threads) for op, tensor in zip(low.convert, inputs, strict=True)]
    ready = [
        tensor if part is None else execute(part, (tensor,), prepared, threads)
        for part, tensor in zip(low.slices, ready, strict=True)
    ]
    result = ready[0]
    for number, operation in enumerate(low.operations):
        result = execute(operation, [result] if number else ready, prepared, threads)
    return convert(result, low.after, prepared, threads)


def run_layer(
    index: int,
    precision: Precision,
    inputs: Sequence[Tensor],
    prepared: Prepared,
    options: EngineOptions = DEFAULT_OPTIONS,
    threads: int = 1,
) -> Tensor:
    """The result of layer `index` at `precision` for these input tensors (in the order of the layer's `inputs`).

    A yolo layer gives the fp32 tensor that enters box decoding.
    Raises: EngineError that names the layer.
    """
    low = Lowerings(prepared.network, options).of(index, precision, tuple(tensor.precision for tensor in inputs))
    try:
        return run_lowering(low, inputs, prepared, threads)
    except (KernelError, PrecisionError) as error:
        raise named_error(prepared.network, index, error) from None
