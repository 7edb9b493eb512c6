# SPDX-License-Identifier: MIT
"""The operators of ONNX that an import knows, and what is asked of them. A new operator is one record in one of the modules."""

from __future__ import annotations

import numpy as np

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, NodeGraph, Refused
from mpnet.importing.operators import elementwise, moves, windows
from mpnet.importing.operators.record import DOES_NOT_FIT, MAX_RANK, Budget, Call, Lifter, Operator, Shape

OPERATORS: dict[str, Operator] = {**elementwise.OPERATORS, **windows.OPERATORS, **moves.OPERATORS}
_UNKNOWN = Operator(inputs=(0, MAX_OPERANDS))
_MAX_SIDE = 1 << 30


def operator_of(node: Node) -> Operator:
    """The record of a node's operator; that of an unknown one can nothing."""
    return OPERATORS.get(node.operator, _UNKNOWN)


def _shapes(call: Call) -> list[Shape]:
    operator = operator_of(call.node)
    if operator.shape is not None:
        result = operator.shape(call)
        shapes = result if isinstance(result, list) else [result]
    elif operator.evaluate is not None:
        # An array of that shape that takes one byte: moves of it take none.
        phantom = np.broadcast_to(np.zeros((), np.int8), call.shape())
        made = operator.evaluate(Call(call.node, [phantom, *call.arrays[1:]], [phantom.shape, *call.shapes[1:]]))
        shapes = [array.shape for array in (made if isinstance(made, list) else [made])]
    else:
        raise Refused("its shape is not known")
    if any(len(shape) > MAX_RANK or any(side < 0 or side > _MAX_SIDE for side in shape) for shape in shapes):
        raise Refused(f"a result of shape {list(shapes[0])[:8]}")
    return [tuple(int(side) for side in shape) for shape in shapes]


def result_shapes(graph: NodeGraph, node: Node) -> list[Shape]:
    """The shapes of a node's results, [] where they are not known."""
    if node.operator not in OPERATORS:
        return []
    try:
        return _shapes(Call.of(graph, node))
    except (Refused, *DOES_NOT_FIT):
        return []


def evaluate(call: Call, budget: Budget) -> list[Array]:
    """The results of a node whose inputs are all known. Their size is looked at before anything is computed.

    Raises: Refused for operators that are not evaluated, for what does not fit, and for what exceeds the budget.
    """
    operator = operator_of(call.node)
    if operator.evaluate is None:
        raise Refused("is not evaluated")
    try:
        budget.spend(operator, call, _shapes(call))
        result = operator.evaluate(call)
    except DOES_NOT_FIT as error:
        raise Refused(f"cannot be computed ({str(error)[:200] or 'out of memory'}); the file is damaged") from None
    results = result if isinstance(result, list) else [result]
    budget.hold(call, results)
    return results


def lift(graph: NodeGraph) -> Lifter:
    """Everything that is computed of the image by operations that layers have; what is behind them is left out."""
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
            operator.lift(lifter, Call.of(graph, node))
        except Refused as reason:
            lifter.layers.reasons[node.name] = str(reason)
    return lifter


__all__ = ["OPERATORS", "Budget", "Call", "evaluate", "lift", "operator_of", "result_shapes"]
