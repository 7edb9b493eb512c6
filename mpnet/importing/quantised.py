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
_INTEGER_NODES = ("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "DynamicQuantizeLinear", "QLinearAdd")
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
        if node.operator not in _DEQUANTIZE:
            left.append(node)
            continue
        if node.inputs[0] in graph.constants:
            _constant(graph, node)
            continue
        maker = makers.get(node.inputs[0])
        if maker is None or maker.operator not in _QUANTIZE:
            graph.refuse(node, "reads integers that no QuantizeLinear makes; export the model with float inputs")
        codes, real = _codes(graph, maker), maker.inputs[0]
        graph.codes.setdefault(real, codes)
        renamed[node.output] = real
        graph.fates[node.name] = graph.fates[maker.name] = "the range of the tensor"
    graph.nodes = left
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
