# SPDX-License-Identifier: MIT
"""One layer at one precision, given the precisions of its input tensors: which conversions, which operations.

A plan of a whole network, its costs and a sweep's trie are all made of these; none of them knows the rules itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from mpnet.engine.integer import check_precisions, conversion_of, given_storage, operations_of
from mpnet.engine.operations import Conversion, Operation, Quantize, conversion_between
from mpnet.engine.options import EngineOptions, LayerQuantization
from mpnet.engine.rules import RULES
from mpnet.errors import EngineError, PrecisionError
from mpnet.model.layers import LayerSpec, Shape
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32, PRECISIONS, Precision, highest


@dataclass(frozen=True, eq=False)
class Lowering:
    """What `layer` does at a precision, in this order.

    convert: per input, the conversion before the layer, or None.
    slices:  per input, what is taken of it or how it is rearranged first, or None.
    main:    the operation on all inputs; None: the layer passes its only input on.
    rest:    operations on its result, one after the other.
    after:   the conversion of the result, or None.
    result:  how the layer's result is stored.
    shapes:  of the results of main and rest.
    """

    layer: LayerSpec
    precision: Precision
    convert: tuple[Conversion | None, ...]
    slices: tuple[Operation | None, ...]
    main: Operation | None
    rest: tuple[Operation, ...]
    after: Conversion | None
    result: Precision
    shapes: tuple[Shape, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations of the layer: main, then rest; empty where the layer passes its input on."""
        return () if self.main is None else (self.main, *self.rest)


def layer_precision(layer: LayerSpec, chosen: Precision | None, inputs: Sequence[Precision]) -> Precision:
    """A layer's precision: its own, else the highest of its input tensors; [yolo] is fp32, weights default to fp32."""
    if layer.always_fp32:
        return FP32
    if layer.has_weights:
        return chosen or FP32
    return chosen.tensor if chosen is not None else highest(inputs)


def result_storage(layer: LayerSpec, precision: Precision) -> Precision:
    """How the result of a layer at this precision is stored: an int8 convolution is de-scaled to fp32."""
    return _storages(_operations(layer, precision), precision.tensor)[1]


def quantised_afterwards(layer: LayerSpec) -> bool:
    """Whether some precision makes the layer compute in reals and quantise its result."""
    return any(_storages(_operations(layer, p), p.tensor)[0] is not p.tensor for p in PRECISIONS.values())


def makes_values(network: NetworkSpec, index: int) -> bool:
    """Whether a layer computes something: dropout and routes of one layer, or of a part of one, do not."""
    return bool(_operations(network.layers[index], FP32))


def range_owner(network: NetworkSpec, tensor: int) -> int:
    """The layer that made the values of this result: dropout and routes of one whole layer pass them on."""
    while tensor >= 0 and not makes_values(network, tensor):
        layer = network.layers[tensor]
        if any(_parts(network, layer)):
            break
        tensor = layer.inputs[0]
    return tensor


class Lowerings:
    """The lowerings of one network under one set of options, each made once. Equal conversions are one object.

    keyed: layers without weights that have a precision of their own.
    """

    def __init__(self, network: NetworkSpec, options: EngineOptions, keyed: Mapping[int, Precision] | None = None) -> None:
        self.network = network
        self._options = options
        self._keyed = dict(keyed or {})
        self._made: dict[tuple[int, Precision | None, tuple[Precision, ...], Precision | None], Lowering] = {}
        self._conversions: dict[Conversion, Conversion] = {}

    def of(
        self, index: int, wanted: Precision | None, inputs: tuple[Precision, ...], gives: Precision | None = None
    ) -> Lowering:
        """What layer `index` does when its input tensors are stored as `inputs`.

        wanted: its precision, None where it follows its inputs. gives: as `given` says; None: as it is.
        Raises: PrecisionError for calibrated ranges that are missing.
        """
        key = (index, wanted, inputs, gives)
        made = self._made.get(key)
        if made is None:
            chosen = wanted or self._keyed.get(index)
            if self._options.integer_only and not self.network.layers[index].has_weights:
                chosen = self._keyed.get(index)  # what plans say of the others holds where convolutions give reals
            precision = layer_precision(self.network.layers[index], chosen, inputs)
            made = self._made[key] = self._lower(index, precision, inputs, gives)
        return made

    def given(self, index: int, wanted: Mapping[int, Precision]) -> Precision | None:
        """What a layer gives because of those that read it; None: what it would give anyway.

        wanted: precisions of layers with weights, by index.
        """
        if not self._options.integer_only or index not in wanted or not wanted[index].carries_scale:
            return None
        return given_storage(self.network, wanted, self._keyed, index)

    def chosen(self, wanted: Sequence[Precision | None], first: Sequence[Lowering] = ()) -> list[Lowering]:
        """What every layer does, in order. wanted: each layer's precision, None where it follows its inputs.

        first: what the first layers do, where the same was wanted of them before; not in whole numbers alone, where what a
        layer gives follows from later ones. Raises: as `of`.
        """
        of_weights: dict[int, Precision] = {}
        if self._options.integer_only:
            of_weights = {layer.index: wanted[layer.index] or FP32 for layer in self.network.convolutions}
            check_precisions(self.network, of_weights | self._keyed)
        lowered = list(first)
        for layer in self.network.layers[len(lowered) :]:
            inputs = tuple([FP32 if i == NETWORK_INPUT else lowered[i].result for i in layer.inputs])
            lowered.append(self.of(layer.index, wanted[layer.index], inputs, self.given(layer.index, of_weights)))
        return lowered

    def _lower(self, index: int, precision: Precision, inputs: tuple[Precision, ...], gives: Precision | None) -> Lowering:
        layer, wanted = self.network.layers[index], precision.tensor
        if self._options.integer_only and wanted.carries_scale:
            return self._lower_whole(layer, precision, inputs, gives or wanted)
        operations = _operations(layer, precision, self._options.of(index))
        target, result = _storages(operations, wanted)
        convert = tuple(
            [
                None if source is target else self._conversion(index, tensor, source, target)
                for tensor, source in zip(layer.inputs, inputs, strict=True)
            ]
        )
        after = None if target is wanted else self._conversion(index, index, target, wanted)
        slices = _parts(self.network, layer)
        shapes = _shapes(self.network, layer, slices, operations)
        main = operations[0] if operations else None
        return Lowering(layer, precision, convert, slices, main, operations[1:], after, result, shapes)

    def _lower_whole(self, layer: LayerSpec, precision: Precision, inputs: tuple[Precision, ...], gives: Precision) -> Lowering:
        """In whole numbers alone."""
        network, options, wanted = self.network, self._options, precision.tensor
        convert = tuple(
            [
                self.one(conversion_of(network, options, layer, tensor, source, wanted))
                for tensor, source in zip(layer.inputs, inputs, strict=True)
            ]
        )
        operations = operations_of(network, options, layer, precision, gives)
        slices = _parts(network, layer)
        shapes = _shapes(network, layer, slices, operations)
        main = operations[0] if operations else None
        return Lowering(layer, precision, convert, slices, main, operations[1:], None, gives, shapes)

    def _conversion(self, layer: int, tensor: int, source: Precision, target: Precision) -> Conversion | None:
        """Of the result of layer `tensor` for its consumer `layer` (for itself when they are the same)."""
        quantize = None
        if target.carries_scale:
            how = self._options.of(layer)
            quantize = Quantize(how.codes_of(target), self._range(layer, tensor) if how.calibrated else None, target)
        return self.one(conversion_between(source, target, quantize))

    def _range(self, layer: int, tensor: int) -> tuple[float, float]:
        names, ranges = self.network.layers, self._options.ranges
        tensor = range_owner(self.network, tensor)
        if tensor not in ranges:
            name = "the image" if tensor < 0 else f"the result of layer {tensor} ({names[tensor].name})"
            raise PrecisionError(
                f"layer {layer} ({names[layer].name}) asks for calibrated activations, but there is no range for "
                f"{name}; calibrate first or use dynamic"
            )
        low, high = ranges[tensor]
        return float(low), float(high)

    def one(self, operation: Conversion | None) -> Conversion | None:
        """The object that stands for all conversions equal to this one."""
        return None if operation is None else self._conversions.setdefault(operation, operation)


def _operations(layer: LayerSpec, precision: Precision, how: LayerQuantization | None = None) -> tuple[Operation, ...]:
    rule = RULES.get(type(layer))
    if rule is None:
        raise EngineError(f"layer {layer.index} [{layer.kind}] cannot be run: mpnet.engine.rules has no rule for it")
    return rule.operations(layer, precision, how or LayerQuantization())


def _parts(network: NetworkSpec, layer: LayerSpec) -> tuple[Operation | None, ...]:
    slice_input = RULES[type(layer)].slice_input
    if slice_input is None:
        return (None,) * len(layer.inputs)
    return tuple([slice_input(layer, network.shape_of(tensor)) for tensor in layer.inputs])


def _shapes(
    network: NetworkSpec, layer: LayerSpec, slices: tuple[Operation | None, ...], operations: tuple[Operation, ...]
) -> tuple[Shape, ...]:
    given = [
        network.shape_of(tensor) if part is None else part.result_shape(network, [network.shape_of(tensor)])
        for tensor, part in zip(layer.inputs, slices, strict=True)
    ]
    shapes: list[Shape] = []
    for operation in operations:
        shapes.append(operation.result_shape(network, given))
        given = shapes[-1:]
    return tuple(shapes)


def _storages(operations: tuple[Operation, ...], wanted: Precision) -> tuple[Precision, Precision]:
    """How the inputs of a layer are stored, and its result, when tensors are wanted so.

    Where some operation cannot take codes, all of them work in what those widen to; the result is quantised once, afterwards.
    """
    stored: Precision | None = wanted
    for operation in operations:
        stored = None if stored is None else operation.gives(stored)
    return (wanted.widened, wanted) if stored is None else (wanted, stored)
