# SPDX-License-Identifier: MIT
"""What a graph computes of constants alone is computed once; nodes that pass a tensor on, and dead ends, go."""

from __future__ import annotations

import numpy as np

from mpnet.importing.evaluate import can_evaluate, evaluate
from mpnet.importing.graph import Graph, Node, Refused
from mpnet.importing.shapes import shapes_of

_FLOATS = (1, 10, 11, 16)  # of TensorProto: casts among these change nothing that mpnet keeps
_MAX_CONSTANT_VALUES = 1 << 29
_QUANTISED = ("DequantizeLinear", "QuantizeLinear")


def fold(graph: Graph) -> None:
    """Order the nodes, find shapes, replace what is constant. Raises: FormatError."""
    graph.order()
    graph.shapes.update(graph.inputs)
    left: list[Node] = []
    renamed = graph.renamed
    values = sum(array.size for array in graph.constants.values())
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        if _passes_on(node, graph):
            renamed[node.output] = node.inputs[0]
            graph.fates[node.name] = "passes its input on"
            continue
        if node.operator == "Shape" and node.inputs[0] in graph.shapes:
            shape = graph.shapes[node.inputs[0]]
            graph.constants[node.output] = np.array(
                shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64
            )
            graph.fates[node.name] = "constant"
            continue
        given = [graph.constants.get(name) if name else None for name in node.inputs]
        # Weights keep their integers until mpnet.importing.quantised has seen them.
        ready = all(value is not None or not name for value, name in zip(given, node.inputs, strict=True))
        if ready and can_evaluate(node) and node.operator not in _QUANTISED:
            try:
                results = evaluate(node, given)
            except Refused as reason:
                graph.refuse(node, str(reason))
            values += sum(result.size for result in results)
            if values > _MAX_CONSTANT_VALUES:
                graph.refuse(node, "makes the constants larger than mpnet holds; export a smaller model")
            graph.constants.update(zip(node.outputs, results, strict=False))
            graph.fates[node.name] = "constant"
            continue
        shapes = shapes_of(graph, node)
        if shapes is not None:
            graph.shapes.update(zip(node.outputs, shapes, strict=False))
        left.append(node)
    graph.nodes = left
    graph.outputs = [renamed.get(name, name) for name in graph.outputs]


def _passes_on(node: Node, graph: Graph) -> bool:
    if (
        node.inputs[:1] in ([], [""])
        or node.inputs[0] in graph.constants
        or (node.output in graph.outputs and (node.inputs[0] in graph.inputs))
    ):
        return False
    if node.operator == "Cast":
        return node.attributes.get("to") in _FLOATS and node.inputs[0] in graph.shapes
    return node.operator in ("Identity", "Dropout")


def reaching(nodes: list[Node], wanted: list[str]) -> list[Node]:
    """Those of the nodes, which are in order, that some wanted tensor depends on."""
    needed = set(wanted)
    found = []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(name for name in node.inputs if name)
            found.append(node)
    return found[::-1]
