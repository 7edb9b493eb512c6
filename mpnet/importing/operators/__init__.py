# SPDX-License-Identifier: MIT
"""The operators of ONNX that an import knows, and how they are asked. A new operator is one record in one of the modules."""

from __future__ import annotations

import numpy as np

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, NodeGraph, Refused
from mpnet.importing.operators import elementwise, moves, windows
from mpnet.importing.operators.record import DOES_NOT_FIT, MAX_RANK, Budget, Lifter, Operator, OperatorCall, Shape

OPERATORS: dict[str, Operator] = {**elementwise.OPERATORS, **windows.OPERATORS, **moves.OPERATORS}
_UNKNOWN = Operator(inputs=(0, MAX_OPERANDS))
_MAX_SIDE = 1 << 30


def operator_of(node: Node) -> Operator:
    """Return the record of a node's operator; an unknown operator's record says nothing."""
    return OPERATORS.get(node.operator, _UNKNOWN)


def _compute_shapes(call: OperatorCall) -> list[Shape]:
    operator = operator_of(call.node)
    if operator.shape is not None:
        result = operator.shape(call)
        shapes = result if isinstance(result, list) else [result]
    elif operator.evaluate is not None:
        # An array of that shape that takes one byte: moves of it take none.
        phantom = np.broadcast_to(np.zeros((), np.int8), call.shape())
        results = operator.evaluate(OperatorCall(call.node, [phantom, *call.arrays[1:]], [phantom.shape, *call.shapes[1:]]))
        shapes = [array.shape for array in (results if isinstance(results, list) else [results])]
    else:
        raise Refused("its shape is not known")
    if any(len(shape) > MAX_RANK or any(side < 0 or side > _MAX_SIDE for side in shape) for shape in shapes):
        raise Refused(f"a result of shape {list(shapes[0])[:8]}")
    return [tuple(int(side) for side in shape) for shape in shapes]


def result_shapes(graph: NodeGraph, node: Node) -> list[Shape]:
    """Return the shapes of a node's results, [] where they are not known."""
    if node.operator not in OPERATORS:
        return []
    try:
        return _compute_shapes(OperatorCall.in_graph(graph, node))
    except (Refused, *DOES_NOT_FIT):
        return []


def evaluate(call: OperatorCall, budget: Budget) -> list[Array]:
    """Return the results of a node whose inputs are all known. Their size is looked at before anything is computed.

    Raises: Refused for operators that are not evaluated, for what does not fit, and for what exceeds the budget.
    """
    operator = operator_of(call.node)
    if operator.evaluate is None:
        raise Refused("is not evaluated")
    try:
        budget.spend(operator, call, _compute_shapes(call))
        result = operator.evaluate(call)
    except DOES_NOT_FIT as error:
        raise Refused(f"cannot be computed ({str(error)[:200] or 'out of memory'}); the file is damaged") from None
    results = result if isinstance(result, list) else [result]
    budget.hold(call, results)
    return results


def lift(graph: NodeGraph) -> Lifter:
    """Turn the nodes that depend on the image into operations of layers, as far as layers have them.

    A node that has no such form, and what reads its results, is left out; `LayerGraph.reasons` says why.
    """
    lifter = Lifter(graph)
    shapes = lifter.layers.shapes
    for node in graph.nodes:
        if not any(name in shapes for name in node.inputs):
            continue
        if any(name and name not in shapes and name not in graph.constants for name in node.inputs):
            continue  # reads something behind the layers
        try:
            operator = operator_of(node)
            if operator.lift is None:
                raise Refused("has no form in a cfg; name tensors before it with --heads, or export the model without it")
            operator.lift(lifter, OperatorCall.in_graph(graph, node))
        except Refused as reason:
            lifter.layers.reasons[node.name] = str(reason)
    return lifter


__all__ = ["OPERATORS", "Budget", "OperatorCall", "evaluate", "lift", "operator_of", "result_shapes"]
