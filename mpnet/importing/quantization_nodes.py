# SPDX-License-Identifier: MIT
"""Quantised files: pairs of QuantizeLinear and DequantizeLinear leave the graph, and what they say of tensors is kept.

Afterwards every tensor is one of reals; `NodeGraph.quantization` says how the file quantises it, `NodeGraph.stored_integers`
holds the integers of weights as they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from mpnet.importing.fold import budget_of
from mpnet.importing.graph import QUANTIZED_TYPES, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.importing.operators import Budget, Call, evaluate, operator_of, result_shapes

_QUANTIZE = ("QuantizeLinear", "com.microsoft.QuantizeLinear")
_DEQUANTIZE = ("DequantizeLinear", "com.microsoft.DequantizeLinear")
_INTEGER_NODES = ("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "QLinearAdd")
_DYNAMIC = "DynamicQuantizeLinear"
_NEAR_6, _MAX_DEPTH = 0.05, 64


def unquantise(graph: NodeGraph) -> None:
    """Remove the pairs. Raises: FormatError naming a node whose integers mpnet does not have."""
    makers, budget = graph.makers(), budget_of(graph)
    aliases: dict[str, str] = {}
    left: list[Node] = []

    @cache
    def never_negative(name: str, depth: int) -> bool:
        node = makers.get(name)
        if node is None:
            return name in graph.inputs
        operator = operator_of(node)
        if operator.positive or node.operator in _DEQUANTIZE:
            return operator.positive or _lowest_is_zero(graph, node)
        tensors = [other for other in node.inputs if other and other not in graph.constants]
        return operator.keeps_sign and depth < _MAX_DEPTH and all(never_negative(other, depth + 1) for other in tensors)

    for node in graph.nodes:
        node.inputs = [aliases.get(name, name) for name in node.inputs]
        if node.operator in _INTEGER_NODES or node.operator.startswith("com.microsoft.QLinear"):
            graph.refuse(node, "computes on integers itself; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        if node.operator in _QUANTIZE or node.operator == _DYNAMIC:
            continue
        if node.operator not in _DEQUANTIZE:
            left.append(node)
            continue
        if node.inputs[:1] in ([], [""]):
            graph.refuse(node, "its input 0 is missing; the file is damaged")
        maker = makers.get(node.inputs[0])
        try:
            if node.inputs[0] in graph.constants:
                _constant(graph, node, budget)
                continue
            if maker is not None and maker.operator == _DYNAMIC and node.inputs == maker.outputs and maker.inputs:
                graph.dynamic_ranges.add(maker.inputs[0])
                graph.outcomes[node.name] = graph.outcomes[maker.name] = "a range that is measured on the image"
                aliases[node.output] = maker.inputs[0]
                continue
            if maker is None or maker.operator not in _QUANTIZE or maker.inputs[:1] in ([], [""]):
                raise Refused("reads integers that no QuantizeLinear makes; export the model with float inputs")
        except Refused as reason:
            graph.refuse(node, reason)
        parameters, real = _parameters(graph, maker), maker.inputs[0]
        graph.quantization.setdefault(real, parameters)
        graph.outcomes[node.name] = graph.outcomes[maker.name] = "the range of the tensor"
        lowest_is_zero = parameters.scale.size == 1 and parameters.zero_point[0] == parameters.low
        if lowest_is_zero and not never_negative(real, 0):
            # Quantisers leave out a Relu whose work the lowest code does.
            left.append(_clamp(node, real, parameters))
            graph.quantization[node.output] = parameters
            continue
        aliases[node.output] = real
    graph.nodes = left
    # Zeros around a tensor are in every range; the padding may become the convolution's own.
    graph.dynamic_ranges.update(
        node.inputs[0] for node in left if node.operator == "Pad" and node.output in graph.dynamic_ranges
    )
    graph.outputs = [aliases.get(name, name) for name in graph.outputs]
    for name in graph.outputs:
        if name in makers and makers[name].operator in (*_QUANTIZE, _DYNAMIC):
            graph.refuse(makers[name], "an output of integers; export the model with float outputs")
    graph.aliases.update(aliases)
    for node in graph.nodes:
        graph.shapes.update(zip(node.outputs, result_shapes(graph, node), strict=False))


def _clamp(node: Node, real: str, parameters: QuantizationParameters) -> Node:
    top = float(parameters.scale[0]) * (parameters.high - parameters.low)
    if abs(top - 6) < _NEAR_6:
        return Node("Clip", node.name, [real], [node.output], {"min": 0.0, "max": 6.0})
    return Node("Relu", node.name, [real], [node.output])


def _lowest_is_zero(graph: NodeGraph, node: Node) -> bool:
    zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return zero is not None and zero.dtype.name in QUANTIZED_TYPES and bool((zero == QUANTIZED_TYPES[zero.dtype.name][0]).all())


def _constant(graph: NodeGraph, node: Node, budget: Budget) -> None:
    stored = graph.constants[node.inputs[0]]
    call = Call.of(graph, node)
    if any(value is None and name for value, name in zip(call.arrays, node.inputs, strict=True)):
        raise Refused("its scale is computed when the model runs; calibrate it beforehand")
    call.node = replace(node, operator="DequantizeLinear")
    [graph.constants[node.output]] = evaluate(call, budget)
    graph.outcomes[node.name] = "constant"
    if stored.dtype.name in QUANTIZED_TYPES:
        graph.quantization[node.output] = _parameters(graph, node)
        graph.stored_integers[node.output] = stored
    elif stored.dtype.name != "int32":  # biases are real numbers in mpnet
        raise Refused(f"weights of {stored.dtype.name} are no precision of mpnet; quantise them to int8")


def _parameters(graph: NodeGraph, node: Node) -> QuantizationParameters:
    """What a QuantizeLinear or DequantizeLinear says about its tensor. Raises: FormatError."""
    call = Call.of(graph, node)
    for at, what in ((1, "scale"), (2, "zero point")):
        if call.given(at) and call.arrays[at] is None:
            graph.refuse(node, f"its {what} is computed when the model runs; calibrate it beforehand")
    try:
        scale, zero = call.array(1), call.constant(2)
        zero = np.zeros(scale.shape, np.uint8) if zero is None else zero
        if zero.dtype.name not in QUANTIZED_TYPES:
            raise Refused(f"values of {zero.dtype.name} are no precision of mpnet; quantise to int8 or uint8")
        return QuantizationParameters.checked(scale, zero, zero.dtype.name, call.integer("axis", 1))
    except Refused as reason:
        graph.refuse(node, reason)
