# SPDX-License-Identifier: MIT
"""Patterns of a few nodes that become one: GELU as it is written with Erf, and rows of all pixels with channels last."""

from __future__ import annotations

import math

from mpnet.importing.graph import Node, NodeGraph


def recognize_gelu(graph: NodeGraph) -> None:
    """Put one node in place of x / 2 * (1 + erf(x / sqrt(2))), in the order in which programs write it."""
    makers, readers = graph.makers(), graph.readers()

    def find_number(node: Node | None) -> tuple[str, float]:
        """Return (the computed input, the number that multiplies it or is added) of a node with one number; else ('', 0)."""
        if node is None or len(node.inputs) != 2:
            return "", 0.0
        for index in (0, 1):
            number = graph.constants.get(node.inputs[1 - index])
            if number is not None and number.size == 1 and not (node.operator == "Div" and index == 1):
                value = float(number.ravel()[0])
                return node.inputs[index], 1 / value if node.operator == "Div" and value else value
        return "", 0.0

    def find_only_reader(name: str, operator: str) -> Node | None:
        """Return the only node that reads a tensor, where it is of that operator."""
        nodes = readers.get(name, [])
        return nodes[0] if len(nodes) == 1 and nodes[0].operator == operator else None

    replacements: dict[int, Node] = {}
    for erf in graph.nodes:
        if erf.operator != "Erf" or not erf.inputs:
            continue
        scaling, addition = makers.get(erf.inputs[0]), find_only_reader(erf.output, "Add")
        x, scale = find_number(scaling) if scaling is not None and scaling.operator in ("Mul", "Div") else ("", 0.0)
        adds_one = addition is not None and find_number(addition) == (erf.output, 1.0)
        product = find_only_reader(addition.output, "Mul") if addition is not None and adds_one else None
        if not x or abs(scale - math.sqrt(0.5)) > 1e-6 or product is None or addition is None:
            continue
        factor = next((name for name in product.inputs if name != addition.output), "")
        last_node, halving = product, makers.get(factor)
        halving_behind = find_only_reader(product.output, "Mul")
        if factor == x and halving_behind is not None and find_number(halving_behind) == (product.output, 0.5):
            last_node = halving_behind
        elif halving is None or halving.operator not in ("Mul", "Div") or find_number(halving) != (x, 0.5):
            continue
        replacements[id(last_node)] = Node("mpnet.Gelu", last_node.name, [x], [last_node.output])
    graph.nodes = [replacements.get(id(node), node) for node in graph.nodes]


def recognize_flatten(graph: NodeGraph) -> None:
    """Put one node in place of all values as one row, channels last, where fully connected layers alone read it."""
    makers, readers = graph.makers(), graph.readers()

    def is_dense(reader: Node, x: str) -> bool:
        has_weights = reader.inputs[:1] == [x] and len(reader.inputs) > 1 and reader.inputs[1] in graph.constants
        return has_weights and reader.operator in ("Gemm", "MatMul")

    for index, node in enumerate(graph.nodes):
        transpose = makers.get(node.inputs[0]) if node.operator in ("Reshape", "Flatten") and node.inputs else None
        if transpose is None or transpose.operator != "Transpose" or transpose.attributes.get("perm") != [0, 2, 3, 1]:
            continue
        if len(transpose.inputs) != 1 or len(node.outputs) != 1 or node.output in graph.outputs:
            continue
        shape, result = graph.shapes.get(transpose.inputs[0], ()), graph.shapes.get(node.output, ())
        if len(shape) != 4 or shape[0] != 1 or result != (1, math.prod(shape)):
            continue
        if all(is_dense(reader, node.output) for reader in readers.get(node.output, [])):
            graph.nodes[index] = Node("mpnet.FlattenLast", node.name, transpose.inputs, [node.output])
