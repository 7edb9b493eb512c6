# SPDX-License-Identifier: MIT
"""Quantised files: pairs of QuantizeLinear and DequantizeLinear leave the graph, and what they say of tensors is kept.

Afterwards every tensor is one of reals; `Graph.codes` says how the file quantises it, `Graph.stored` holds the integers of
weights as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpnet.importing.evaluate import evaluate
from mpnet.importing.graph import Array, Codes, Graph, Node, Refused
from mpnet.importing.shapes import shapes_of

_QUANTIZE = ("QuantizeLinear", "com.microsoft.QuantizeLinear")
_DEQUANTIZE = ("DequantizeLinear", "com.microsoft.DequantizeLinear")
_INTEGER_NODES = ("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "QLinearAdd")
_MEASURED = "DynamicQuantizeLinear"
_POSITIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Clip")
_PASSING = (
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "ReduceMean",
    "Concat",
    "Resize",
    "Reshape",
    "Flatten",
    "Split",
    "Slice",
    "Add",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Pad",
)
_NEAR_6, _MAX_DEPTH = 0.05, 64
_LIMITS: dict[str, tuple[int, int]] = {"int8": (-128, 127), "uint8": (0, 255)}


def unquantise(graph: Graph) -> None:
    """Remove the pairs. Raises: FormatError naming a node whose integers mpnet does not have."""
    makers = graph.makers()
    renamed: dict[str, str] = {}
    left: list[Node] = []
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        if node.operator in _INTEGER_NODES or node.operator.startswith("com.microsoft.QLinear"):
            graph.refuse(node, "computes on integers itself; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        if node.operator in _QUANTIZE:
            renamed[node.output] = node.output
            continue
        if node.operator == _MEASURED:
            continue
        if node.operator not in _DEQUANTIZE:
            left.append(node)
            continue
        if node.inputs[0] in graph.constants:
            _constant(graph, node)
            continue
        maker = makers.get(node.inputs[0])
        if maker is not None and maker.operator == _MEASURED and node.inputs == maker.outputs:
            graph.measured.add(maker.inputs[0])
            graph.fates[node.name] = graph.fates[maker.name] = "a range that is measured on the image"
            renamed[node.output] = maker.inputs[0]
            continue
        if maker is None or maker.operator not in _QUANTIZE:
            graph.refuse(node, "reads integers that no QuantizeLinear makes; export the model with float inputs")
        codes, real = _codes(graph, maker), maker.inputs[0]
        graph.codes.setdefault(real, codes)
        graph.fates[node.name] = graph.fates[maker.name] = "the range of the tensor"
        if codes.scale.size == 1 and codes.zero_point[0] == codes.low and not _never_negative(graph, makers, real):
            # Quantisers leave out a Relu whose work the lowest code does.
            left.append(_clamp(node, real, codes))
            graph.codes[node.output] = codes
            continue
        renamed[node.output] = real
    graph.nodes = left
    # Zeros around a tensor are in every range; the padding may become the convolution's own.
    graph.measured.update(node.inputs[0] for node in left if node.operator == "Pad" and node.output in graph.measured)
    outputs = [renamed.get(name, name) for name in graph.outputs]
    for name in outputs:
        if name in makers and makers[name].operator in _QUANTIZE:
            graph.refuse(makers[name], "an output of integers; export the model with float outputs")
    graph.outputs = outputs
    graph.renamed.update({old: new for old, new in renamed.items() if old != new})
    for node in graph.nodes:
        shapes = shapes_of(graph, node)
        if shapes is not None:
            graph.shapes.update(zip(node.outputs, shapes, strict=False))


def _clamp(node: Node, real: str, codes: Codes) -> Node:
    top = float(codes.scale[0]) * (codes.high - codes.low)
    if abs(top - 6) < _NEAR_6:
        return Node("Clip", node.name, [real], [node.output], {"min": 0.0, "max": 6.0})
    return Node("Relu", node.name, [real], [node.output])


def _never_negative(graph: Graph, makers: dict[str, Node], name: str, depth: int = 0) -> bool:
    node = makers.get(name)
    if node is None:
        return name in graph.inputs
    if node.operator in _POSITIVE or node.operator in _DEQUANTIZE:
        return node.operator in _POSITIVE or _lowest_is_zero(graph, node)
    passing = node.operator in _PASSING and depth < _MAX_DEPTH
    given = [other for other in node.inputs if other and other not in graph.constants]
    return passing and all(_never_negative(graph, makers, other, depth + 1) for other in given)


def _lowest_is_zero(graph: Graph, node: Node) -> bool:
    zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return zero is not None and zero.dtype.name in _LIMITS and bool((zero == _LIMITS[zero.dtype.name][0]).all())


def _constant(graph: Graph, node: Node) -> None:
    stored = graph.constants[node.inputs[0]]
    given: list[Array | None] = [graph.constants.get(name) if name else None for name in node.inputs]
    if any(value is None and name for value, name in zip(given, node.inputs, strict=True)):
        graph.refuse(node, "its scale is computed when the model runs; calibrate it beforehand")
    try:
        [graph.constants[node.output]] = evaluate(Node("DequantizeLinear", node.name, [], [], node.attributes), given)
    except Refused as reason:
        graph.refuse(node, str(reason))
    graph.fates[node.name] = "constant"
    if stored.dtype.name in _LIMITS:
        graph.codes[node.output] = _codes(graph, node)
        graph.stored[node.output] = stored
    elif stored.dtype.name != "int32":  # biases are real numbers in mpnet
        graph.refuse(node, f"weights of {stored.dtype.name} are no precision of mpnet; quantise them to int8")


def _codes(graph: Graph, node: Node) -> Codes:
    """What a node says about its tensor."""
    scale = graph.constants.get(node.inputs[1])
    if scale is None:
        graph.refuse(node, "its scale is computed when the model runs; calibrate it beforehand")
    zero: Any = None
    if len(node.inputs) > 2 and node.inputs[2]:
        zero = graph.constants.get(node.inputs[2])
        if zero is None:
            graph.refuse(node, "its zero point is computed when the model runs; calibrate it beforehand")
    zero = np.zeros(scale.shape, np.uint8) if zero is None else zero
    kind = zero.dtype.name
    if kind not in _LIMITS:
        graph.refuse(node, f"values of {kind} are no precision of mpnet; quantise to int8 or uint8")
    if not np.isfinite(scale).all() or (scale <= 0).any() or zero.size not in (1, scale.size):
        graph.refuse(node, "its scale is no positive number; the file is damaged")
    low, high = _LIMITS[kind]
    axis = int(node.attributes.get("axis", 1))
    return Codes(scale.astype(np.float64).ravel(), np.broadcast_to(zero.astype(np.int64).ravel(), scale.size), low, high, axis)
