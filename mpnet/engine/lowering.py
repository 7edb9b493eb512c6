# SPDX-License-Identifier: MIT
"""One layer at one precision, given the precisions of its input tensors: which conversions, which operations.

A plan of a whole network, its costs and a sweep's trie are all made of these; none of them knows the rules itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from mpnet.engine.integer import check_precisions, conversion_of, operations_of, storage_for_readers
from mpnet.engine.operations import Conversion, Operation, Quantize, conversion_between
from mpnet.engine.options import EngineOptions, LayerQuantization
from mpnet.engine.rules import RULES
from mpnet.errors import EngineError, PrecisionError
from mpnet.model.layers import LayerSpec, Shape
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32, PRECISIONS, Precision, highest


@dataclass(frozen=True, eq=False)
class Lowering:
    """The conversions and operations of `layer` at a precision, in this order.

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
        """Return all operations of the layer: main, then rest; empty where the layer passes its input on."""
        return () if self.main is None else (self.main, *self.rest)


def layer_precision(layer: LayerSpec, requested: Precision | None, inputs: Sequence[Precision]) -> Precision:
    """Return a layer's precision: its own, else the highest of its input tensors; [yolo] is fp32, weights default to fp32."""
    if layer.always_fp32:
        return FP32
    if layer.has_weights:
        return requested or FP32
    return requested.tensor if requested is not None else highest(inputs)


def result_storage(layer: LayerSpec, precision: Precision) -> Precision:
    """Return how the result of a layer at this precision is stored: an int8 convolution is de-scaled to fp32."""
    return _storages(_operations(layer, precision), precision.tensor)[1]


def is_quantized_afterwards(layer: LayerSpec) -> bool:
    """Return whether some precision makes the layer compute in reals and quantise its result."""
    return any(_storages(_operations(layer, p), p.tensor)[0] is not p.tensor for p in PRECISIONS.values())


def makes_values(network: NetworkSpec, index: int) -> bool:
    """Return whether a layer computes something: dropout and routes of one layer, or of a part of one, do not."""
    return bool(_operations(network.layers[index], FP32))


def range_owner(network: NetworkSpec, tensor: int) -> int:
    """Find the layer that made the values of this result: dropout and routes of one whole layer pass them on."""
    while tensor >= 0 and not makes_values(network, tensor):
        layer = network.layers[tensor]
        if any(_input_slices(network, layer)):
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
        self._lowerings: dict[tuple[int, Precision | None, tuple[Precision, ...], Precision | None], Lowering] = {}
        self._conversions: dict[Conversion, Conversion] = {}

    def lower(
        self, index: int, requested: Precision | None, inputs: tuple[Precision, ...], output_precision: Precision | None = None
    ) -> Lowering:
        """Return what layer `index` does when its input tensors are stored as `inputs`.

        requested:        its precision, None where it follows its inputs.
        output_precision: as `storage_for_readers` says; None: as it is.
        Raises: PrecisionError for calibrated ranges that are missing.
        """
        key = (index, requested, inputs, output_precision)
        lowering = self._lowerings.get(key)
        if lowering is None:
            assigned = requested or self._keyed.get(index)
            if self._options.integer_only and not self.network.layers[index].has_weights:
                assigned = self._keyed.get(index)  # what plans say of the others holds where convolutions give reals
            precision = layer_precision(self.network.layers[index], assigned, inputs)
            lowering = self._lowerings[key] = self._lower(index, precision, inputs, output_precision)
        return lowering

    def storage_for_readers(self, index: int, requested: Mapping[int, Precision]) -> Precision | None:
        """Return how a layer stores its result because of those that read it; None: as it would anyway.

        requested: precisions of layers with weights, by index.
        """
        if not self._options.integer_only or index not in requested or not requested[index].carries_scale:
            return None
        return storage_for_readers(self.network, requested, self._keyed, index)

    def lower_all(self, requested: Sequence[Precision | None], earlier: Sequence[Lowering] = ()) -> list[Lowering]:
        """Return what every layer does, in order. requested: each layer's precision, None where it follows its inputs.

        earlier: what the first layers do, where the same was requested of them before; not in whole numbers alone, where what a
        layer gives follows from later ones. Raises: as `lower`.
        """
        of_weights: dict[int, Precision] = {}
        if self._options.integer_only:
            of_weights = {layer.index: requested[layer.index] or FP32 for layer in self.network.convolutions}
            check_precisions(self.network, of_weights | self._keyed)
        lowered = list(earlier)
        for layer in self.network.layers[len(lowered) :]:
            inputs = tuple([FP32 if i == NETWORK_INPUT else lowered[i].result for i in layer.inputs])
            lowered.append(
                self.lower(layer.index, requested[layer.index], inputs, self.storage_for_readers(layer.index, of_weights))
            )
        return lowered

    def _lower(
        self, index: int, precision: Precision, inputs: tuple[Precision, ...], output_precision: Precision | None
    ) -> Lowering:
        layer, tensor_precision = self.network.layers[index], precision.tensor
        if self._options.integer_only and tensor_precision.carries_scale:
            return self._lower_integer(layer, precision, inputs, output_precision or tensor_precision)
        operations = _operations(layer, precision, self._options.of(index))
        target, result = _storages(operations, tensor_precision)
        convert = tuple(
            [
                None if source is target else self._conversion(index, tensor, source, target)
                for tensor, source in zip(layer.inputs, inputs, strict=True)
            ]
        )
        conversion_after = None if target is tensor_precision else self._conversion(index, index, target, tensor_precision)
        slices = _input_slices(self.network, layer)
        shapes = _shapes(self.network, layer, slices, operations)
        main = operations[0] if operations else None
        return Lowering(layer, precision, convert, slices, main, operations[1:], conversion_after, result, shapes)

    def _lower_integer(
        self, layer: LayerSpec, precision: Precision, inputs: tuple[Precision, ...], output_precision: Precision
    ) -> Lowering:
        """Lower a layer that computes in whole numbers alone."""
        network, options, wanted = self.network, self._options, precision.tensor
        convert = tuple(
            [
                self.intern(conversion_of(network, options, layer, tensor, source, wanted))
                for tensor, source in zip(layer.inputs, inputs, strict=True)
            ]
        )
        operations = operations_of(network, options, layer, precision, output_precision)
        slices = _input_slices(network, layer)
        shapes = _shapes(network, layer, slices, operations)
        main = operations[0] if operations else None
        return Lowering(layer, precision, convert, slices, main, operations[1:], None, output_precision, shapes)

    def _conversion(self, layer: int, tensor: int, source: Precision, target: Precision) -> Conversion | None:
        """Return the conversion of the result of layer `tensor` for its reader `layer` (for itself when they are the same)."""
        quantize = None
        if target.carries_scale:
            layer_options = self._options.of(layer)
            quantize = Quantize(
                layer_options.codes_of(target), self._range(layer, tensor) if layer_options.calibrated else None, target
            )
        return self.intern(conversion_between(source, target, quantize))

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

    def intern(self, operation: Conversion | None) -> Conversion | None:
        """Return the object that stands for all conversions equal to this one."""
        return None if operation is None else self._conversions.setdefault(operation, operation)


def _operations(
    layer: LayerSpec, precision: Precision, layer_options: LayerQuantization | None = None
) -> tuple[Operation, ...]:
    rule = RULES.get(type(layer))
    if rule is None:
        raise EngineError(f"layer {layer.index} [{layer.kind}] cannot be run: mpnet.engine.rules has no rule for it")
    return rule.operations(layer, precision, layer_options or LayerQuantization())


def _input_slices(network: NetworkSpec, layer: LayerSpec) -> tuple[Operation | None, ...]:
    slice_input = RULES[type(layer)].slice_input
    if slice_input is None:
        return (None,) * len(layer.inputs)
    return tuple([slice_input(layer, network.shape_of(tensor)) for tensor in layer.inputs])


def _shapes(
    network: NetworkSpec, layer: LayerSpec, slices: tuple[Operation | None, ...], operations: tuple[Operation, ...]
) -> tuple[Shape, ...]:
    operands = [
        network.shape_of(tensor) if slice_input is None else slice_input.result_shape(network, [network.shape_of(tensor)])
        for tensor, slice_input in zip(layer.inputs, slices, strict=True)
    ]
    shapes: list[Shape] = []
    for operation in operations:
        shapes.append(operation.result_shape(network, operands))
        operands = shapes[-1:]
    return tuple(shapes)


def _storages(operations: tuple[Operation, ...], requested: Precision) -> tuple[Precision, Precision]:
    """Return how the inputs of a layer and its result are stored, when tensors are wanted so.

    Where some operation cannot take codes, all of them work in what those widen to; the result is quantised once, afterwards.
    """
    stored_as: Precision | None = requested
    for operation in operations:
        stored_as = None if stored_as is None else operation.output_precision(stored_as)
    return (requested.widened, requested) if stored_as is None else (requested, stored_as)
