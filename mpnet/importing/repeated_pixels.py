# SPDX-License-Identifier: MIT
"""Pixels that are repeated by moving values about: Keras 3 writes upsampling as Reshape and Tile over five axes."""

from __future__ import annotations

import math

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import Budget, Call, evaluate

_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Tile", "Expand")
_REPEATING = ("Tile", "Expand")
_LONGEST, _MAX_VALUES = 12, 1 << 24


def find_repeats(graph: NodeGraph) -> None:
    """Put a Resize where a chain of nodes gives each pixel `factor` times along both axes: found by running it on numbers."""
    if not any(node.operator in _REPEATING for node in graph.nodes):
        return
    readers, outputs, budget = graph.readers(), set(graph.outputs), Budget(1 << 28, 1 << 62)
    resizes: dict[int, Node | None] = {}
    for start in graph.nodes:
        shape = graph.shapes.get(start.inputs[0]) if start.inputs else None
        if id(start) in resizes or start.operator not in _MOVING or shape is None or len(shape) != 4 or 0 in shape:
            continue
        chain = _chain(outputs, readers, start)
        budget.values -= math.prod(shape) if chain else 0
        if math.prod(shape) > _MAX_VALUES or budget.values < 0:
            continue
        factor, count = _factor(graph, chain, shape, budget) if chain else (0, 0)
        if factor < 2:
            continue
        last = chain[count - 1]
        scales = f"{last.output}/scales"
        graph.constants[scales] = np.array([1, 1, factor, factor], np.float32)
        graph.shapes[last.output] = (1, shape[1], shape[2] * factor, shape[3] * factor)
        for node in chain[: count - 1]:
            resizes[id(node)] = None
            graph.outcomes[node.name] = f"a part of {last.name}, which repeats pixels"
        resizes[id(last)] = Node(
            "Resize",
            last.name,
            [start.inputs[0], "", scales],
            [last.output],
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        )
    nodes = [resizes.get(id(node), node) for node in graph.nodes]
    graph.nodes = [node for node in nodes if node is not None]


def _chain(outputs: set[str], readers: dict[str, list[Node]], start: Node) -> list[Node]:
    """The nodes from `start` on that only move values, each read by the next alone; [] where none repeats them."""
    chain = [start]
    while (
        len(chain) < _LONGEST
        and len(after := readers.get(chain[-1].output, [])) == 1
        and (chain[-1].output not in outputs and after[0].operator in _MOVING and after[0].inputs[0] == chain[-1].output)
    ):
        chain.append(after[0])
    return chain if any(node.operator in _REPEATING for node in chain) else []


def _factor(graph: NodeGraph, chain: list[Node], shape: tuple[int, ...], budget: Budget) -> tuple[int, int]:
    """(how often each pixel stands along an axis, after how many nodes); (0, 0): it is something else."""
    values: Array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    x, result = values, (0, 0)
    for count, node in enumerate(chain, 1):
        constants = [graph.constants.get(name) if name else None for name in node.inputs[1:]]
        try:
            [x] = evaluate(Call(node, [x, *constants]), budget)
        except Refused:
            break
        factor = x.shape[2] // shape[2] if x.ndim == 4 else 0
        fits = x.ndim == 4 and x.shape == (*shape[:2], shape[2] * factor, shape[3] * factor)
        if factor > 1 and fits and np.array_equal(x, values.repeat(factor, 2).repeat(factor, 3)):
            result = (factor, count)
    return result
