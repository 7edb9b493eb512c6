# SPDX-License-Identifier: MIT
"""Quantised files: pairs of QuantizeLinear and DequantizeLinear leave the graph, and what they say of tensors stays.

Afterwards every tensor is one of reals; `NodeGraph.quantization` says how the file quantises it, `NodeGraph.stored_integers`
holds the integers of weights as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from mpnet.importing.graph import QUANTIZED_TYPES, Array, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate, operator_of, result_shapes
from mpnet.importing.passes.fold import make_budget

_QUANTIZE = ("QuantizeLinear", "com.microsoft.QuantizeLinear")
_DEQUANTIZE = ("DequantizeLinear", "com.microsoft.DequantizeLinear")
_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_DYNAMIC = "DynamicQuantizeLinear"
_NEAR_6, _MAX_DEPTH = 0.05, 64
# What moves codes moves what they mean, since larger codes mean larger numbers.
_MOVES = ("MaxPool", "Slice", "Split", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


@dataclass(frozen=True)
class _Codes:
    """The meaning of a tensor of integers. real: the tensor of reals. maker: the node that quantises it, before any moves."""

    real: str
    maker: Node


def remove_quantization_nodes(graph: NodeGraph) -> None:
    """Remove the pairs. Raises: FormatError naming a node whose integers mpnet does not have."""
    _QuantizationRemover(graph).remove_pairs()


class _QuantizationRemover:
    """A graph while its integers leave it.

    codes: by tensor of integers. remaining: nodes that stay. replaced: ids of nodes that belong to a product of integers.
    integers: constants that nodes of the file quantise.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.budget = graph, make_budget(graph)
        self.makers, self.readers = graph.makers(), graph.readers()
        self.codes: dict[str, _Codes] = {}
        self.aliases: dict[str, str] = {}
        self.remaining: list[Node] = []
        self.replaced: set[int] = set()
        self.integers: set[str] = set()
        self.is_never_negative = cache(self._is_never_negative)

    def remove_pairs(self) -> None:
        """Go through the nodes in their order."""
        graph = self.graph
        for node in graph.nodes:
            node.inputs = [self.aliases.get(name, name) for name in node.inputs]
            if id(node) in self.replaced:
                continue
            try:
                self._convert_node(node)
            except Refused as reason:
                graph.refuse(node, reason)
        graph.nodes = self.remaining
        # Zeros around a tensor are in every range; the padding may become the convolution's own.
        for node in self.remaining:
            if node.operator == "Pad" and node.output in graph.dynamic_ranges:
                graph.dynamic_ranges.setdefault(node.inputs[0], graph.dynamic_ranges[node.output])
        graph.outputs = [self.aliases.get(name, name) for name in graph.outputs]
        for name in graph.outputs:
            if name in self.codes:
                graph.refuse(self.codes[name].maker, "an output of integers; export the model with float outputs")
        graph.aliases.update(self.aliases)
        for node in graph.nodes:
            graph.shapes.update(zip(node.outputs, result_shapes(graph, node), strict=False))

    def _convert_node(self, node: Node) -> None:
        first_input = node.inputs[0] if node.inputs else ""
        if node.operator in _QUANTIZE or node.operator == _DYNAMIC:
            if not first_input or len(node.outputs) != (3 if node.operator == _DYNAMIC else 1):
                raise Refused("its input 0 or a result is missing; the file is damaged")
            if first_input in self.graph.constants and node.operator in _QUANTIZE:
                _quantize_constant(self.graph, node, self.budget)
                self.integers.add(node.output)
            else:
                self.codes[node.output] = _Codes(first_input, node)
        elif node.operator in _DEQUANTIZE:
            self._dequantize(node)
        elif node.operator in _PRODUCTS:
            self._convert_product(node)
        elif node.operator.startswith("com.microsoft.QLinear"):
            raise Refused("computes on integers itself; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        elif node.operator in _MOVES and first_input in self.codes:
            codes = self.codes[first_input]
            node.inputs[0] = codes.real
            self.codes |= {output: _Codes(output, codes.maker) for output in node.outputs if output}
            self.remaining.append(node)
        elif node.operator == "Clip" and first_input in self.integers:
            self._clip_weights(node)
        elif node.operator == "Clip" and first_input in self.codes:
            self._clip_codes(node)
        elif node.operator == "Max" and first_input in self.codes:
            self.codes[node.output] = _Codes(self._convert_leaky(node), self.codes[first_input].maker)
        else:
            self.remaining.append(node)

    def _clip_weights(self, node: Node) -> None:
        """Compute the integers of weights that are kept between two, as trainers write a narrow range."""
        [self.graph.constants[node.output]] = evaluate(OperatorCall.in_graph(self.graph, node), self.budget)
        self.graph.outcomes[node.name] = "constant"
        self.integers.add(node.output)

    def _clip_codes(self, node: Node) -> None:
        """Take codes of activations that are kept between two where all but the lowest remain. Raises: Refused."""
        codes = self.codes[node.inputs[0]]
        parameters = _read_parameters(self.graph, codes.maker)
        call = OperatorCall.in_graph(self.graph, node)
        low, high = call.number("min", parameters.low, 1), call.number("max", parameters.high, 2)
        if high != parameters.high or low not in (parameters.low, parameters.low + 1):
            raise Refused(
                f"keeps integers from {low:g} to {high:g}, fewer than 8 bits have; train with all of them (reduce_range=False)"
            )
        self.codes[node.output] = codes
        self.graph.outcomes[node.name] = "the range of the tensor"

    def _dequantize(self, node: Node) -> None:
        graph = self.graph
        if node.inputs[:1] in ([], [""]):
            raise Refused("its input 0 is missing; the file is damaged")
        if node.inputs[0] in graph.constants:
            _dequantize_constant(graph, node, self.budget)
            return
        codes = self.codes.get(node.inputs[0])
        if codes is None:
            raise Refused("reads integers that no QuantizeLinear makes; export the model with float inputs")
        maker, real = codes.maker, codes.real
        mode = self._find_measuring(maker)
        if mode:
            if node.inputs[1:] != [*maker.inputs[1:], *maker.outputs[1:]]:
                raise Refused("its scale is not that of the integers; the file is damaged")
            graph.dynamic_ranges[real] = mode
            graph.outcomes[node.name] = graph.outcomes[maker.name] = "a range that is measured on the image"
            self.aliases[node.output] = real
            return
        parameters = _read_parameters(graph, maker)
        real, parameters = self._skip_clamp_of_lowest(real, parameters)
        graph.quantization.setdefault(real, parameters)
        graph.outcomes[node.name] = graph.outcomes[maker.name] = "the range of the tensor"
        lowest_is_zero = parameters.scale.size == 1 and parameters.zero_point[0] == parameters.low
        if lowest_is_zero and not self.is_never_negative(real, 0):
            # Quantisers leave out a Relu whose work the lowest code does.
            self.remaining.append(_make_clamp(node, real, parameters))
            graph.quantization[node.output] = parameters
            return
        self.aliases[node.output] = real

    def _is_never_negative(self, name: str, depth: int) -> bool:
        graph, node = self.graph, self.makers.get(name)
        if node is None:
            return name in graph.inputs
        operator = operator_of(node)
        if operator.positive or node.operator in _DEQUANTIZE:
            return operator.positive or _is_lowest_zero(graph, node)
        tensors = [name_of_input for name_of_input in node.inputs if name_of_input and name_of_input not in graph.constants]
        return (
            operator.keeps_sign
            and depth < _MAX_DEPTH
            and all(self.is_never_negative(name_of_input, depth + 1) for name_of_input in tensors)
        )

    def _find_number(self, name: str) -> float | None:
        """Return the value of a constant of one number; None for any other tensor."""
        array = self.graph.constants.get(name)
        return float(array.ravel()[0]) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None

    def _skip_clamp_of_lowest(self, real: str, parameters: QuantizationParameters) -> tuple[str, QuantizationParameters]:
        """Skip the Max that keeps the lowest code out, as symmetric codes from -127 to 127 have it."""
        node = self.makers.get(real)
        if node is None or node.operator != "Max" or len(node.inputs) != 2 or parameters.scale.size != 1:
            return real, parameters
        lowest, scale, zero = self._find_number(node.inputs[1]), float(parameters.scale[0]), int(parameters.zero_point[0])
        if lowest is None or abs(lowest / scale + zero - parameters.low - 1) > 1e-3:
            return real, parameters
        self.graph.outcomes[node.name] = "the range of the tensor"
        return node.inputs[0], replace(parameters, low=parameters.low + 1)

    def _find_measuring(self, maker: Node) -> str:
        """Return how a range is measured when the file runs, as `quantize_mode` says it; '' where it is fixed.

        Symmetric: Max(ReduceMax(Abs(x)) / 127, a small number) is the scale.
        """
        if maker.operator == _DYNAMIC:
            return "affine"
        chain, name = [], maker.inputs[1] if len(maker.inputs) > 1 else ""
        for operator in ("Max", "Div", "ReduceMax", "Abs"):
            node = self.makers.get(name)
            if node is None or node.operator != operator or not node.inputs or node.outputs[0] in self.graph.constants:
                return ""
            chain.append(node)
            name = node.inputs[0]
        if name != maker.inputs[0] or self._find_number(chain[1].inputs[-1]) != 127:
            return ""
        self.graph.outcomes |= dict.fromkeys((node.name for node in chain), "a range that is measured on the image")
        return "symmetric"

    def _convert_product(self, node: Node) -> None:
        """Replace a product of integers times both scales (ConvInteger, Cast, Mul by the scales' product) by one of reals."""
        codes = self.codes.get(node.inputs[0])
        mode = "" if codes is None else self._find_measuring(codes.maker)
        cast = self._find_only_reader(node.output)
        scaled = None if cast is None or cast.operator != "Cast" else self._find_only_reader(cast.output)
        if codes is None or not mode or cast is None or scaled is None or scaled.operator != "Mul" or len(node.inputs) < 2:
            raise Refused("computes on integers itself; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        factor = self.makers.get(next((name for name in scaled.inputs if name != cast.output), ""))
        scale_of_codes = codes.maker.outputs[1] if codes.maker.operator == _DYNAMIC else codes.maker.inputs[1]
        scales = [] if factor is None or factor.operator != "Mul" else [n for n in factor.inputs if n != scale_of_codes]
        scale = self.graph.constants.get(scales[0]) if len(scales) == 1 else None
        if factor is None or scale is None:
            raise Refused("its result is multiplied by other scales than those of its inputs; the file is damaged")
        names = [f"{node.output}/scale", f"{node.output}/weights"]
        self.graph.constants[names[0]] = scale.ravel()
        zero = [name for name in node.inputs[3:4] if name]
        axis = 0 if node.operator == "ConvInteger" else 1
        self._dequantize(
            Node("DequantizeLinear", f"{node.name}/weights", [node.inputs[1], names[0], *zero], names[1:], {"axis": axis})
        )
        self.graph.dynamic_ranges[codes.real] = mode
        self.replaced |= {id(cast), id(scaled), id(factor)}
        self.graph.outcomes |= {removed_node.name: f"a part of {node.name}" for removed_node in (cast, scaled, factor)}
        self.graph.outcomes[codes.maker.name] = "a range that is measured on the image"
        self.remaining.append(
            Node(_PRODUCTS[node.operator], node.name, [codes.real, names[1]], scaled.outputs, node.attributes)
        )

    def _find_only_reader(self, name: str) -> Node | None:
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.graph.outputs else None

    def _convert_leaky(self, node: Node) -> str:
        """Replace the larger of a convolution's result and of a share of it by a LeakyRelu; return its result.

        Raises: Refused.
        """
        branches = [self.codes[name] for name in node.inputs if name in self.codes]
        constants, makers = self.graph.constants, [self.makers.get(code_tensors.real) for code_tensors in branches]
        convolutions = [maker for maker in makers if maker is not None and maker.operator == "Conv"]
        if len(convolutions) == len(branches) == 2 and convolutions[0].inputs[:1] == convolutions[1].inputs[:1]:
            arrays = [
                [array for name in maker.inputs[1:] if (array := constants.get(name)) is not None] for maker in convolutions
            ]
            if {len(code_tensors) for code_tensors in arrays} == {len(maker.inputs) - 1 for maker in convolutions} != {0}:
                slope = self._find_ratio(*arrays)
                if slope is not None:
                    self.remaining.append(Node("LeakyRelu", node.name, [branches[0].real], [node.output], {"alpha": slope}))
                    return node.output
        raise Refused("the larger of integers has no form in a cfg; write the file with an activation of floats")

    @staticmethod
    def _find_ratio(first_arrays: list[Array], second_arrays: list[Array]) -> float | None:
        """Return the number from 0 to 1 that all values of the second list are, times those of the first.

        None: there is none.
        """
        first_values, second_values = (
            np.concatenate([np.ravel(x).astype(np.float64) for x in arrays]) for arrays in (first_arrays, second_arrays)
        )
        if first_values.size != second_values.size or not first_values.any():
            return None
        slope = float(np.float32(second_values @ first_values / (first_values @ first_values)))
        return slope if 0 < slope < 1 and np.allclose(second_values, slope * first_values, rtol=1e-5, atol=1e-7) else None


def _make_clamp(node: Node, real: str, parameters: QuantizationParameters) -> Node:
    top = float(parameters.scale[0]) * (parameters.high - parameters.low)
    if abs(top - 6) < _NEAR_6:
        return Node("Clip", node.name, [real], [node.output], {"min": 0.0, "max": 6.0})
    return Node("Relu", node.name, [real], [node.output])


def _is_lowest_zero(graph: NodeGraph, node: Node) -> bool:
    zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return zero is not None and zero.dtype.name in QUANTIZED_TYPES and bool((zero == QUANTIZED_TYPES[zero.dtype.name][0]).all())


def _quantize_constant(graph: NodeGraph, node: Node, budget: Budget) -> None:
    """Compute the integers of weights that a trainer's file holds as reals, as fake quantisation of weights is written."""
    parameters = _read_parameters(graph, node)
    call = OperatorCall.in_graph(graph, node)
    reals = call.array(0)
    sides = [1] * reals.ndim
    if parameters.scale.size > 1:
        axis = parameters.axis % reals.ndim
        if reals.shape[axis] != parameters.scale.size:
            raise Refused(f"has {parameters.scale.size} scales for {reals.shape[axis]} parts of a tensor; the file is damaged")
        sides[axis] = -1
    budget.spend(operator_of(node), call, [reals.shape])
    scale, zero = parameters.scale.astype(np.float32).reshape(sides), parameters.zero_point.reshape(sides)
    codes = np.clip(np.rint(reals.astype(np.float32) / scale) + zero, parameters.low, parameters.high)
    dtype = next(name for name, limits in QUANTIZED_TYPES.items() if limits == (parameters.low, parameters.high))
    graph.constants[node.output] = codes.astype(dtype)
    graph.outcomes[node.name] = "constant"


def _dequantize_constant(graph: NodeGraph, node: Node, budget: Budget) -> None:
    integers = graph.constants[node.inputs[0]]
    call = OperatorCall.in_graph(graph, node)
    if any(value is None and name for value, name in zip(call.arrays, node.inputs, strict=True)):
        raise Refused("its scale is computed when the model runs; calibrate it beforehand")
    if integers.dtype == np.int8 and (call.constant(2) is None or not call.array(2).any()):
        # Codes are symmetric here: with the -128 that torch.ao's scales give, a channel's other integers would all change.
        call.arrays = [np.maximum(integers, -127).astype(np.int8), *call.arrays[1:]]
    call.node = replace(node, operator="DequantizeLinear")
    [graph.constants[node.output]] = evaluate(call, budget)
    graph.outcomes[node.name] = "constant"
    if integers.dtype.name in QUANTIZED_TYPES:
        graph.quantization[node.output] = _read_parameters(graph, node)
        graph.stored_integers[node.output] = integers
    elif integers.dtype.name != "int32":  # biases are real numbers in mpnet
        raise Refused(f"weights of {integers.dtype.name} are no precision of mpnet; quantise them to int8")


def _read_parameters(graph: NodeGraph, node: Node) -> QuantizationParameters:
    """Return what a QuantizeLinear or DequantizeLinear says about its tensor. Raises: FormatError."""
    call = OperatorCall.in_graph(graph, node)
    for index, described in ((1, "scale"), (2, "zero point")):
        if call.has_input(index) and call.arrays[index] is None:
            graph.refuse(node, f"its {described} is computed when the model runs; calibrate it beforehand")
    try:
        scale, zero = call.array(1), call.constant(2)
        integers = call.arrays[0]
        zero = np.zeros(scale.shape, np.uint8 if integers is None else integers.dtype) if zero is None else zero
        if zero.dtype.name not in QUANTIZED_TYPES:
            raise Refused(f"values of {zero.dtype.name} are no precision of mpnet; quantise to int8, uint8 or int16")
        return QuantizationParameters.from_file(scale, zero, zero.dtype.name, call.integer("axis", 1))
    except Refused as reason:
        graph.refuse(node, reason)
