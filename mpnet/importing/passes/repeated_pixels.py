# SPDX-License-Identifier: MIT
"""Chains of nodes that move values about, found by running a chain on numbers.

Keras 3 repeats pixels by Reshape and Tile over five axes, ShuffleNet orders channels anew by Reshape, Transpose, Reshape.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate

_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Tile", "Expand")
_REPEATING = ("Tile", "Expand")
_LONGEST, _MAX_VALUES, _MAX_SHUFFLED = 12, 1 << 24, 2048


def recognize_repeats(graph: NodeGraph) -> None:
    """Put a Resize in place of a chain of nodes that gives each pixel `factor` times along both axes.

    A chain that gives the channels in another order becomes a channel shuffle.
    """
    readers, outputs, budget = graph.readers(), set(graph.outputs), Budget(1 << 28, 1 << 62)
    replacements: dict[int, Node | None] = {}
    for start in graph.nodes:
        shape = graph.shapes.get(start.inputs[0]) if start.inputs else None
        if id(start) in replacements or start.operator not in _MOVING or shape is None or len(shape) != 4 or 0 in shape:
            continue
        chain = _follow_chain(outputs, readers, start)
        if not any(node.operator in _REPEATING for node in chain) and not _may_shuffle(graph, chain):
            continue
        budget.values -= math.prod(shape)
        if math.prod(shape) > _MAX_VALUES or budget.values < 0:
            continue
        factor, count, order = _recognize_move(graph, chain, shape, budget)
        if count == 0:
            continue
        last_node = chain[count - 1]
        if order is not None:
            for node in chain[: count - 1]:
                replacements[id(node)] = None
                graph.outcomes[node.name] = f"a part of {last_node.name}, which orders channels anew"
            graph.shapes[last_node.output] = shape
            replacements[id(last_node)] = _make_channel_order(graph, last_node, start.inputs[0], order)
            continue
        scales = f"{last_node.output}/scales"
        graph.constants[scales] = np.array([1, 1, factor, factor], np.float32)
        graph.shapes[last_node.output] = (1, shape[1], shape[2] * factor, shape[3] * factor)
        for node in chain[: count - 1]:
            replacements[id(node)] = None
            graph.outcomes[node.name] = f"a part of {last_node.name}, which repeats pixels"
        replacements[id(last_node)] = Node(
            "Resize",
            last_node.name,
            [start.inputs[0], "", scales],
            [last_node.output],
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        )
    nodes = [replacements.get(id(node), node) for node in graph.nodes]
    graph.nodes = [node for node in nodes if node is not None]


def _make_channel_order(graph: NodeGraph, last_node: Node, x: str, order: Array) -> Node:
    """Return the node that gives the channels of `x` in this order.

    A channel shuffle, or a 1x1 convolution where it is none.
    """
    channels = np.arange(len(order))
    groups = len(order) // max(1, int(order[1 % len(order)]))
    if len(order) % groups == 0 and np.array_equal(order, channels.reshape(groups, -1).T.ravel()):
        return Node("mpnet.Shuffle", last_node.name, [x], [last_node.output], {"groups": groups})
    weights = f"{last_node.output}/order"
    graph.constants[weights] = (order[:, None] == channels).astype(np.float32)[:, :, None, None]
    return Node("Conv", last_node.name, [x, weights], [last_node.output])


def _follow_chain(outputs: set[str], readers: dict[str, list[Node]], start: Node) -> list[Node]:
    """Return the nodes from `start` on that only move values, each read by the next alone."""
    chain = [start]
    while (
        len(chain) < _LONGEST
        and len(readers_of_last := readers.get(chain[-1].output, [])) == 1
        and (
            chain[-1].output not in outputs
            and readers_of_last[0].operator in _MOVING
            and readers_of_last[0].inputs[0] == chain[-1].output
        )
    ):
        chain.append(readers_of_last[0])
    return chain


def _may_shuffle(graph: NodeGraph, chain: list[Node]) -> bool:
    """Return whether channels are split into groups, and these exchanged."""
    return any(
        node.operator == "Reshape" and next_node.operator == "Transpose" and len(graph.shapes.get(node.output, ())) in (3, 5)
        for node, next_node in pairwise(chain[:4])
    )


def _recognize_move(
    graph: NodeGraph, chain: list[Node], shape: tuple[int, ...], budget: Budget
) -> tuple[int, int, Array | None]:
    """Return (how often a pixel stands along an axis, after how many nodes, the order of channels); 0 nodes: neither."""
    values: Array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    x, result = values, (0, 0, None)
    for count, node in enumerate(chain, 1):
        constants = [graph.constants.get(name) if name else None for name in node.inputs[1:]]
        try:
            [x] = evaluate(OperatorCall(node, [x, *constants]), budget)
        except Refused:
            break
        if x.shape == shape and count > 2 and shape[1] <= _MAX_SHUFFLED:
            order = x[0, :, 0, 0] // math.prod(shape[2:])
            if np.array_equal(x, values[:, order]):
                return 1, count, order
        factor = x.shape[2] // shape[2] if x.ndim == 4 else 0
        is_larger_image = x.ndim == 4 and x.shape == (*shape[:2], shape[2] * factor, shape[3] * factor)
        if factor > 1 and is_larger_image and np.array_equal(x, values.repeat(factor, 2).repeat(factor, 3)):
            result = (factor, count, None)
    return result
