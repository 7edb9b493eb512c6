# SPDX-License-Identifier: MIT
"""Pixels that are repeated by moving values about: Keras 3 writes upsampling as Reshape and Tile over five axes."""

from __future__ import annotations

import math

import numpy as np

from mpnet.importing.evaluate import evaluate
from mpnet.importing.graph import Array, Graph, Node, Refused

_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Tile", "Expand")
_REPEATING = ("Tile", "Expand")
_LONGEST, _MAX_VALUES = 12, 1 << 24


def find_repeats(graph: Graph) -> None:
    """Put a Resize where a chain of nodes gives each pixel `factor` times along both axes: found by running it on numbers."""
    if not any(node.operator in _REPEATING for node in graph.nodes):
        return
    readers = graph.readers()
    gone: set[int] = set()
    for start in list(graph.nodes):
        shape = graph.shapes.get(start.inputs[0]) if start.inputs else None
        if (
            id(start) in gone
            or start.operator not in _MOVING
            or shape is None
            or len(shape) != 4
            or (math.prod(shape) > _MAX_VALUES)
        ):
            continue
        chain = _chain(graph, readers, start)
        factor, count = _factor(graph, chain, shape) if chain else (0, 0)
        if factor < 2:
            continue
        chain = chain[:count]
        last = chain[-1]
        scales = f"{last.output}/scales"
        graph.constants[scales] = np.array([1, 1, factor, factor], np.float32)
        graph.nodes[graph.nodes.index(last)] = Node(
            "Resize",
            last.name,
            [start.inputs[0], "", scales],
            [last.output],
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        )
        graph.shapes[last.output] = (1, shape[1], shape[2] * factor, shape[3] * factor)
        gone.update(id(node) for node in chain)
        for node in chain[:-1]:
            graph.nodes.remove(node)
            graph.fates[node.name] = f"a part of {last.name}, which repeats pixels"


def _chain(graph: Graph, readers: dict[str, list[Node]], start: Node) -> list[Node]:
    """The nodes from `start` on that only move values, each read by the next alone; [] where none repeats them."""
    chain = [start]
    while (
        len(chain) < _LONGEST
        and len(after := readers.get(chain[-1].output, [])) == 1
        and (chain[-1].output not in graph.outputs and after[0].operator in _MOVING and after[0].inputs[0] == chain[-1].output)
    ):
        chain.append(after[0])
    return chain if any(node.operator in _REPEATING for node in chain) else []


def _factor(graph: Graph, chain: list[Node], shape: tuple[int, ...]) -> tuple[int, int]:
    """(how often each pixel stands along an axis, after how many nodes); (0, 0): it is something else."""
    values: Array = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    x, found = values, (0, 0)
    for count, node in enumerate(chain, 1):
        given = [x, *(graph.constants.get(name) if name else None for name in node.inputs[1:])]
        try:
            if any(name and value is None for name, value in zip(node.inputs[1:], given[1:], strict=True)):
                break
            [x] = evaluate(node, given)
        except (Refused, ValueError):
            break
        if x.size > _MAX_VALUES:
            break
        factor = x.shape[2] // shape[2] if x.ndim == 4 else 0
        if factor > 1 and np.array_equal(x, values.repeat(factor, 2).repeat(factor, 3)):
            found = (factor, count)
    return found
