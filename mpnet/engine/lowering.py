"""One layer at one precision, given the precisions of its input tensors: which conversions, which operations.

A plan of a whole network, its costs and a sweep's trie are all made of these; none of them knows the rules itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Sequence

from mpnet.engine.operations import (
    Add,
    AvgPool,
    Concat,
    Conversion,
    Convolve,
    MaxPool,
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
    conversion_between,
)
from mpnet.engine.options import EngineOptions, LayerQuantization
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
from mpnet.spec.precision import FP32, PRECISIONS, Precision


@dataclass(frozen=True)
class _Rule:
    """What a kind of layer does.

    main: the operation on all inputs for (layer, precision, how it is quantised); None: it passes its only input on.
    part: what it takes of an input of so many channels; None: all of it.
    """

    main: Callable[[Any, Precision, LayerQuantization], Operation | None]
    part: Callable[[Any, int], Slice | None] = lambda layer, channels: None


def _convolve(layer: ConvolutionSpec, precision: Precision, how: LayerQuantization) -> Convolve:
    if precision.carries_scale:
        return Convolve(layer.index, precision, how.weights, how.corrected)
    return Convolve(layer.index, precision)


def _part(layer: RouteSpec, channels: int) -> Slice | None:
    width = channels // layer.groups
    return Slice(layer.group_id * width, (layer.group_id + 1) * width) if layer.groups > 1 else None


_RULES: dict[type[LayerSpec], _Rule] = {
    ConvolutionSpec: _Rule(_convolve),
    MaxpoolSpec: _Rule(lambda layer, *_: MaxPool(layer.size, layer.stride, layer.padding)),
    AvgpoolSpec: _Rule(lambda *_: AvgPool()),
    UpsampleSpec: _Rule(lambda layer, *_: Upsample(layer.factor)),
    RouteSpec: _Rule(lambda layer, *_: Concat() if len(layer.inputs) > 1 else None, _part),
    ShortcutSpec: _Rule(lambda layer, *_: Add(layer.activation)),
    DropoutSpec: _Rule(lambda *_: None),
    YoloSpec: _Rule(lambda *_: Yolo()),
}


@dataclass(frozen=True, eq=False)
class Lowering:
    """What `layer` does at a precision, in this order.

    convert: per input, the conversion before the layer, or None.
    slices:  per input, the part of its channels that is taken, or None.
    main:    the operation on all inputs; None: the layer passes its only input on.
    after:   the conversion of the result, or None.
    result:  how the layer's result is stored.
    """

    layer: LayerSpec
    precision: Precision
    convert: tuple[Conversion | None, ...]
    slices: tuple[Slice | None, ...]
    main: Operation | None
    after: Conversion | None
    result: Precision


def layer_precision(layer: LayerSpec, own: Precision | None, inputs: Sequence[Precision]) -> Precision:
    """A layer's precision: its own, else the highest of its input tensors; [yolo] is fp32, weights default to fp32."""
    if layer.always_fp32:
        return FP32
    if layer.has_weights:
        return own or FP32
    return own.tensor if own is not None else max(inputs, key=lambda p: p.rank)


def result_storage(layer: LayerSpec, precision: Precision) -> Precision:
    """How the result of a layer at this precision is stored: an int8 convolution is de-scaled to fp32."""
    return _storages(_main(layer, precision), precision)[1]


def quantised_afterwards(layer: LayerSpec) -> bool:
    """Whether some precision makes the layer compute in reals and quantise its result."""
    return any(_computes_wider(_main(layer, precision), precision) for precision in PRECISIONS.values())


def makes_values(network: NetworkSpec, index: int) -> bool:
    """Whether a layer computes something: dropout and routes of one layer, or of a part of one, do not."""
    return _main(network.layers[index], FP32) is not None


def range_owner(network: NetworkSpec, tensor: int) -> int:
    """The layer that made the values of this result: dropout and routes of one whole layer pass them on."""
    while tensor >= 0 and not makes_values(network, tensor):
        layer = network.layers[tensor]
        if any(_parts(network, layer)):
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
    main = _main(layer, precision, options.of(index))
    target, result = _storages(main, precision)
    convert = tuple(
        None if source is target else conversion_between(source, target, _quantize(network, index, i, target, options))
        for i, source in zip(layer.inputs, inputs, strict=True)
    )
    after = _quantize(network, index, index, result, options) if _computes_wider(main, precision) else None
    return Lowering(layer, precision, convert, _parts(network, layer), main, after, result)


class Lowerings:
    """The lowerings of one network under one set of options, each made once. Equal conversions are one object.

    own: layers without weights that have a precision of their own.
    """

    def __init__(
        self, network: NetworkSpec, options: EngineOptions, own: Mapping[int, Precision] | None = None
    ) -> None:
        self.network = network
        self._options = options
        self._own = dict(own or {})
        self._made: dict[tuple[int, Precision | None, tuple[Precision, ...]], Lowering] = {}
        self._conversions: dict[Conversion, Conversion] = {}

    def of(self, index: int, wanted: Precision | None, inputs: tuple[Precision, ...]) -> Lowering:
        """What layer `index` does; wanted: its precision, None where it follows its inputs. Raises: as lower_layer."""
        key = (index, wanted, inputs)
        made = self._made.get(key)
        if made is None:
            own = wanted or self._own.get(index)
            precision = layer_precision(self.network.layers[index], own, inputs)
            low = lower_layer(self.network, index, precision, inputs, self._options)
            made = self._made[key] = replace(
                low, convert=tuple(self.one(op) for op in low.convert), after=self.one(low.after)
            )
        return made

    def one(self, operation: Conversion | None) -> Conversion | None:
        """The object that stands for all conversions equal to this one."""
        return None if operation is None else self._conversions.setdefault(operation, operation)


def _main(layer: LayerSpec, precision: Precision, how: LayerQuantization | None = None) -> Operation | None:
    rule = _RULES.get(type(layer))
    if rule is None:
        raise EngineError(f"layer {layer.index} [{layer.kind}] cannot be run: mpnet.engine.lowering has no rule for it")
    return rule.main(layer, precision, how or LayerQuantization())


def _parts(network: NetworkSpec, layer: LayerSpec) -> tuple[Slice | None, ...]:
    part = _RULES[type(layer)].part
    return tuple(part(layer, network.shape_of(tensor)[2]) for tensor in layer.inputs)


def _computes_wider(main: Operation | None, precision: Precision) -> bool:
    """Sums of codes with scales of their own happen in reals, and are quantised once, afterwards."""
    return main is not None and main.gives(precision.tensor) is None


def _storages(main: Operation | None, precision: Precision) -> tuple[Precision, Precision]:
    """How the inputs of an operation are stored, and its result when it is converted as the layer's precision asks."""
    wanted = precision.tensor
    if main is None:
        return wanted, wanted
    gives = main.gives(wanted)
    return (wanted.widened, wanted) if gives is None else (wanted, gives)


def _quantize(
    network: NetworkSpec, layer: int, tensor: int, target: Precision, options: EngineOptions
) -> Quantize | None:
    """The quantisation of the result of layer `tensor` for its consumer `layer` (for itself when they are the same).

    None for a target of reals. Raises: PrecisionError when a calibrated range is asked for and missing.
    """
    if not target.carries_scale:
        return None
    how = options.of(layer)
    if not how.calibrated:
        return Quantize(how.activations, None, target)
    tensor = range_owner(network, tensor)
    if tensor not in options.ranges:
        name = "the picture" if tensor < 0 else f"the result of layer {tensor} ({network.layers[tensor].name})"
        raise PrecisionError(
            f"layer {layer} ({network.layers[layer].name}) asks for calibrated activations, but there is no range for "
            f"{name}; calibrate first or use dynamic"
        )
    low, high = options.ranges[tensor]
    return Quantize(how.activations, (float(low), float(high)), target)
