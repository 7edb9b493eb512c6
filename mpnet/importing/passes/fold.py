# SPDX-License-Identifier: MIT
"""Constant folding: what depends on constants alone is computed once; nodes that pass a tensor on, and dead ends, go."""

from __future__ import annotations

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate, operator_of, result_shapes

_FLOATS = (1, 10, 11, 16)  # of TensorProto: casts among these change nothing that mpnet keeps
# What computing constants may take besides what the file's own constants take: about a second, and 256 MB.
_MAX_VALUES, _MAX_BYTES = 1 << 28, 1 << 28
_QUANTIZED = ("DequantizeLinear", "QuantizeLinear")


def make_budget(graph: NodeGraph) -> Budget:
    """Return a budget for what is computed of constants: in proportion to those of the file, and not without end."""
    constant_bytes = sum(array.nbytes for array in graph.constants.values())
    return Budget(_MAX_VALUES + 2 * constant_bytes, _MAX_BYTES + 2 * constant_bytes)


def fold(graph: NodeGraph) -> None:
    """Order the nodes, find shapes, replace what is constant. Raises: FormatError."""
    graph.order()
    graph.shapes.update(graph.inputs)
    remaining: list[Node] = []
    outputs, aliases, budget = set(graph.outputs), graph.aliases, make_budget(graph)
    cast_integers: dict[str, Array] = {}
    for node in graph.nodes:
        try:
            operator_of(node).check_inputs(node)
        except Refused as reason:
            graph.refuse(node, reason)
        node.inputs = [aliases.get(name, name) for name in node.inputs]
        if _is_pass_through(node, graph) and not (node.output in outputs and node.inputs[0] in graph.inputs):
            aliases[node.output] = node.inputs[0]
            graph.outcomes[node.name] = "passes its input on"
            continue
        is_constant = all(not name or name in graph.constants for name in node.inputs)
        is_constant = is_constant or (node.operator == "Shape" and node.inputs[0] in graph.shapes)
        # Weights keep their integers until mpnet.importing.passes.quantization_nodes has seen them.
        if is_constant and operator_of(node).evaluate is not None and node.operator not in _QUANTIZED:
            try:
                results = evaluate(OperatorCall.in_graph(graph, node), budget)
            except Refused as reason:
                graph.refuse(node, reason)
            graph.constants.update(zip(node.outputs, results, strict=False))
            _keep_integers(graph, node, cast_integers)
            graph.outcomes[node.name] = "constant"
            continue
        graph.shapes.update(zip(node.outputs, result_shapes(graph, node), strict=False))
        remaining.append(node)
    graph.nodes = remaining
    graph.outputs = [aliases.get(name, name) for name in graph.outputs]


def _keep_integers(graph: NodeGraph, node: Node, cast_integers: dict[str, Array]) -> None:
    """Note that a constant is int8 numbers times a scale for each first index.

    cast_integers: what a Cast read, by its result.
    """
    if node.operator == "Cast" and graph.constants[node.inputs[0]].dtype == np.int8:
        cast_integers[node.output] = graph.constants[node.inputs[0]]
    elif node.operator == "Mul" and node.inputs[0] in cast_integers:
        integers, scale = cast_integers[node.inputs[0]], graph.constants[node.inputs[1]]
        one_each = scale.size == 1 or scale.shape == (*integers.shape[:1], *[1] * (integers.ndim - 1))
        if integers.shape == graph.constants[node.output].shape and one_each and np.isfinite(scale).all() and (scale > 0).all():
            graph.quantization[node.output] = QuantizationParameters.from_file(scale, np.zeros(1), "int8", 0)
            graph.stored_integers[node.output] = integers


def _is_pass_through(node: Node, graph: NodeGraph) -> bool:
    if node.inputs[:1] in ([], [""]) or node.inputs[0] in graph.constants:
        return False
    if node.operator == "Cast":
        return node.attributes.get("to") in _FLOATS and node.inputs[0] in graph.shapes
    return node.operator in ("Identity", "Dropout")


def remove_unread_nodes(graph: NodeGraph) -> None:
    """Remove the nodes that no output depends on."""
    outcomes = dict.fromkeys((node.name for node in graph.nodes), "nothing reads it")
    graph.nodes = graph.reaching(graph.outputs)
    for node in graph.nodes:
        outcomes.pop(node.name, None)
    graph.outcomes |= outcomes
