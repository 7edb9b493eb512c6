"""One operation at a time, each into memory of its own: what sweeps, traces and analyses are made of.

The result of an operation depends on nothing but its inputs; `Session` runs whole plans faster, to the same bits.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.lowering import Lowering, lower_layer
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
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
)
from mpnet.engine.options import DEFAULT_OPTIONS, EngineOptions
from mpnet.engine.prepare import Prepared, conv_shape
from mpnet.engine.quantize import cast_tensor, dequantize_tensor, quantize_tensor
from mpnet.engine.tensor import Tensor
from mpnet.errors import EngineError, KernelError, MpnetError, PrecisionError
from mpnet.spec.network import PICTURE, ConvolutionSpec, NetworkSpec
from mpnet.spec.precision import FP32, INT8, Precision


def execute(operation: Operation, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """The result of one operation on tensors of equal n.

    Raises: KernelError or PrecisionError; `run_layer` adds the layer's name.
    """
    kernels = prepared.kernels
    first = inputs[0]
    images, height, width, channels = first.data.shape
    if isinstance(operation, Convolve):
        return _convolve(operation, first, prepared, threads)
    if isinstance(operation, Quantize):
        return quantize_tensor(first, operation, kernels, threads)
    if isinstance(operation, Dequantize):
        return dequantize_tensor(first, operation, kernels, threads)
    if isinstance(operation, Cast):
        return cast_tensor(first, operation.target, kernels, threads)
    if isinstance(operation, ConvolveQuantize):
        middle = _convolve(operation.convolve, first, prepared, threads)
        return quantize_tensor(middle, operation.quantize, kernels, threads)
    if isinstance(operation, ConvolvePool):
        if isinstance(operation.convolve, Convolve):
            return _convolve(operation.convolve, first, prepared, threads, operation.pool)
        return execute(operation.pool, (execute(operation.convolve, inputs, prepared, threads),), prepared, threads)
    if isinstance(operation, Yolo):
        return first
    if isinstance(operation, Slice):
        part = np.ascontiguousarray(first.data[..., operation.start : operation.stop])
        return Tensor(part, first.precision, first.params)

    def empty(*shape: int) -> Tensor:
        # Values are only moved or compared: int8 keeps its scale.
        return Tensor(np.empty(shape, first.data.dtype), first.precision, first.params)

    if isinstance(operation, MaxPool):
        rest, stride = operation.padding - operation.size, operation.stride
        result = empty(images, (height + rest) // stride + 1, (width + rest) // stride + 1, channels)
        kernels.maxpool(
            first.data, result.data, size=operation.size, stride=stride, padding=operation.padding, threads=threads
        )
    elif isinstance(operation, AvgPool):
        result = empty(images, 1, 1, channels)
        kernels.avgpool(first.data, result.data, threads=threads)
    elif isinstance(operation, Upsample):
        result = empty(images, height * operation.factor, width * operation.factor, channels)
        kernels.upsample(first.data, result.data, factor=operation.factor, threads=threads)
    elif isinstance(operation, Concat):
        result = empty(images, height, width, sum(tensor.data.shape[3] for tensor in inputs))
        kernels.concat([tensor.data for tensor in inputs], result.data, threads=threads)
    elif isinstance(operation, Add):
        result = empty(images, height, width, channels)
        kernels.add(first.data, inputs[1].data, result.data, activation=operation.activation, threads=threads)
    else:
        raise EngineError(f"operation {operation.name or operation!r} cannot be run")
    return result


def _convolve(
    operation: Convolve, x: Tensor, prepared: Prepared, threads: int, pool: MaxPool | None = None
) -> Tensor:
    ready = prepared.convolution(operation)
    layer = prepared.network.layers[operation.layer]
    assert isinstance(layer, ConvolutionSpec)
    shape = conv_shape(layer)
    gives = FP32 if operation.precision == INT8 else x.precision
    height, width = shape.out_h, shape.out_w
    if pool is not None:
        height, width = (height + pool.padding) // 2, (width + pool.padding) // 2
    out = np.empty((x.images, height, width, shape.out_channels), gives.storage)
    # The kernel measures what it does not pool.
    ranges = np.empty((x.images, 2), np.float32) if pool is None else None
    prepared.kernels.conv(
        ready.packed, x.data, out, bias=ready.bias, activation=ready.activation, weight_scale=ready.weight_scale,
        in_quant=x.quant, ranges=ranges, pool=pool is not None, threads=threads,
    )
    return Tensor(out, gives, None, ranges if ranges is None or gives == FP32 else half_ranges(ranges))


def half_ranges(ranges: NDArray[np.float32]) -> NDArray[np.float32]:
    """The range of values that are rounded to half afterwards: rounding never changes their order."""
    return ranges.astype(np.float16).astype(np.float32)


def convert(tensor: Tensor, conversion: Operation | None, prepared: Prepared, threads: int = 1) -> Tensor:
    """The tensor converted, made once and kept with it."""
    if conversion is None:
        return tensor
    known = tensor.converted.get(conversion)
    if known is None:
        known = tensor.converted[conversion] = execute(conversion, (tensor,), prepared, threads)
    return known


def run_lowering(low: Lowering, inputs: Sequence[Tensor], prepared: Prepared, threads: int = 1) -> Tensor:
    """The result of one layer: conversions (kept with their tensors), slices, main operation, conversion after."""
    ready = [convert(tensor, op, prepared, threads) for op, tensor in zip(low.convert, inputs, strict=True)]
    ready = [
        tensor if part is None else execute(part, (tensor,), prepared, threads)
        for part, tensor in zip(low.slices, ready, strict=True)
    ]
    result = ready[0] if low.main is None else execute(low.main, ready, prepared, threads)
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
    low = lower_layer(prepared.network, index, precision, [tensor.precision for tensor in inputs], options)
    try:
        return run_lowering(low, inputs, prepared, threads)
    except (KernelError, PrecisionError) as error:
        raise named_error(prepared.network, index, error) from None


def named_error(network: NetworkSpec, index: int, error: MpnetError) -> EngineError:
    """The error with the layer's name in front."""
    where = "the picture" if index == PICTURE else f"layer {index} ({network.layers[index].name})"
    return EngineError(f"{network.source}: {where}: {error}")
