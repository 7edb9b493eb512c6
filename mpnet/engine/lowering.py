"""One layer at one precision, given the precisions of its input tensors: which conversions, which operations.

A plan of a whole network and a sweep's trie are both made of these; neither knows the rules itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from mpnet.engine.operations import (
    Add,
    AvgPool,
    Concat,
    Convolve,
    MaxPool,
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
    conversion_between,
)
from mpnet.engine.options import EngineOptions
from mpnet.errors import EngineError, PrecisionError
from mpnet.spec.network import (
    AvgpoolSpec,
    ConvolutionSpec,
    DropoutSpec,
    LayerSpec,
    MaxpoolSpec,
    NetworkSpec,
    RouteSpec,
    ShortcutSpec,
    UpsampleSpec,
    YoloSpec,
)
from mpnet.spec.precision import FP32, INT8, PRECISIONS, Precision


@dataclass(frozen=True)
class Lowering:
    """What one layer does, in this order.

    convert: per input, the conversion before the layer, or None.
    slices:  per input, the part of its channels that is taken, or None.
    main:    the operation on all inputs; None: the layer passes its only input on.
    after:   the conversion of the result, or None.
    result:  storage of the layer's result.
    """

    convert: tuple[Operation | None, ...]
    slices: tuple[Slice | None, ...]
    main: Operation | None
    after: Operation | None
    result: Precision

    @property
    def conversions(self) -> tuple[Operation, ...]:
        """All conversions, those before first."""
        return tuple(op for op in (*self.convert, self.after) if op is not None)


def storage(precision: Precision) -> Precision:
    """The registry row of how tensors of this precision lie in memory: variants share their base's."""
    return PRECISIONS[precision.base]


def layer_precision(layer: LayerSpec, own: Precision | None, inputs: Sequence[Precision]) -> Precision:
    """A layer's precision: its own, else the highest of its input tensors; [yolo] is fp32, weights default to fp32."""
    if isinstance(layer, YoloSpec):
        return FP32
    if isinstance(layer, ConvolutionSpec):
        return own or FP32
    return storage(own) if own is not None else max(inputs, key=lambda p: p.rank)


def result_storage(layer: LayerSpec, precision: Precision) -> Precision:
    """How the result of a layer at this precision is stored: an int8 convolution is de-scaled to fp32."""
    if isinstance(layer, ConvolutionSpec) and precision == INT8:
        return FP32
    return storage(precision)


def quantize_step(network: NetworkSpec, layer: int, tensor: int, options: EngineOptions) -> Quantize:
    """The quantisation of the result of layer `tensor` for its consumer `layer` (for itself when they are the same).

    Raises: PrecisionError when a calibrated range is asked for and missing.
    """
    how = options.of(layer)
    if not how.calibrated:
        return Quantize(how.activations)
    tensor = range_owner(network, tensor)
    if tensor not in options.ranges:
        name = "the picture" if tensor < 0 else f"the result of layer {tensor} ({network.layers[tensor].name})"
        raise PrecisionError(
            f"layer {layer} ({network.layers[layer].name}) asks for calibrated activations, but there is no range for "
            f"{name}; calibrate first or use dynamic"
        )
    low, high = options.ranges[tensor]
    return Quantize(how.activations, (float(low), float(high)))


def range_owner(network: NetworkSpec, tensor: int) -> int:
    """The layer that made the values of this result: dropout and routes of one whole layer pass them on."""
    while tensor >= 0:
        layer = network.layers[tensor]
        whole = isinstance(layer, RouteSpec) and len(layer.inputs) == 1 and layer.groups == 1
        if not whole and not isinstance(layer, DropoutSpec):
            break
        tensor = layer.inputs[0]
    return tensor


def lower_layer(
    network: NetworkSpec, index: int, precision: Precision, inputs: Sequence[Precision], options: EngineOptions
) -> Lowering:
    """What layer `index` does at `precision` when its input tensors are stored as `inputs`.

    Raises: PrecisionError for calibrated ranges that are missing.
    """
    layer = network.layers[index]
    wanted = storage(precision)
    # Sums of int8 tensors with scales of their own happen in fp32, and are quantised once, afterwards.
    through_fp32 = wanted == INT8 and (
        isinstance(layer, ShortcutSpec | AvgpoolSpec) or (isinstance(layer, RouteSpec) and len(layer.inputs) > 1)
    )
    target = FP32 if through_fp32 else wanted
    convert = tuple(
        None if source == target
        else conversion_between(source, target, quantize_step(network, index, tensor, options)) if target == INT8
        else conversion_between(source, target, Quantize())
        for tensor, source in zip(layer.inputs, inputs, strict=True)
    )
    after = quantize_step(network, index, index, options) if through_fp32 else None
    slices: tuple[Slice | None, ...] = (None,) * len(layer.inputs)
    main: Operation | None = None
    if isinstance(layer, ConvolutionSpec):
        how = options.of(index)
        main = Convolve(index, precision, how.weights, how.corrected) if wanted == INT8 else Convolve(index, precision)
    elif isinstance(layer, MaxpoolSpec):
        main = MaxPool(layer.size, layer.stride, layer.padding)
    elif isinstance(layer, AvgpoolSpec):
        main = AvgPool()
    elif isinstance(layer, UpsampleSpec):
        main = Upsample(layer.factor)
    elif isinstance(layer, ShortcutSpec):
        main = Add(layer.activation)
    elif isinstance(layer, YoloSpec):
        main = Yolo(network.yolos.index(layer) + 1)
    elif isinstance(layer, RouteSpec):
        if layer.groups > 1:
            widths = [network.shape_of(tensor)[2] // layer.groups for tensor in layer.inputs]
            slices = tuple(Slice(layer.group_id * width, (layer.group_id + 1) * width) for width in widths)
        main = Concat() if len(layer.inputs) > 1 else None
    elif not isinstance(layer, DropoutSpec):
        raise EngineError(f"{network.source}:{layer.line}: layer {index} [{layer.kind}] cannot be run")
    return Lowering(convert, slices, main, after, result_storage(layer, precision))
