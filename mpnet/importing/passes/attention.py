# SPDX-License-Identifier: MIT
"""Attention that is written as products of matrices around a softmax: what each factor holds is found by moving numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate

Places = NDArray[np.int32]
_MOVING = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Split", "Slice", "Gather")
_INPUTS = {"Softmax": 1, "MatMul": 2, **dict.fromkeys(_MOVING, 1)}
# Moves of all values together take some seconds at most.
_LONGEST, _MAX_VALUES, _MAX_WORK = 24, 1 << 24, 1 << 32


def find_attention(graph: NodeGraph) -> None:
    """Put one node in place of each softmax(queries x keys) x values whose factors come from tensors (1, c, h, w) of one size,
    before it one that puts the channels, of several tensors side by side, into the order of an [attention] layer. What is
    written otherwise stays as it is."""
    # Of a damaged file the rest of the import says what is wrong.
    whole = all(len(node.inputs) >= _INPUTS.get(node.operator, 0) for node in graph.nodes)
    if whole and any(node.operator == "Softmax" for node in graph.nodes):
        finder = _Finder(graph)
        for node in list(graph.nodes):
            if node.operator == "Softmax":
                finder.replace(node)
        finder.finish()


@dataclass(frozen=True)
class _Moved:
    """A tensor that has values of `source` (1, c, h, w): where they stand there, and the number that multiplies them."""

    source: str
    places: Places
    factor: float = 1.0


class _Finder:
    """What is found in a graph; `finish` changes the graph."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.makers, self.readers = graph, graph.makers(), graph.readers()
        self.budget = Budget(_MAX_WORK, 1 << 62)
        self.new: dict[str, list[Node]] = {}
        self.ordered: dict[str, tuple[str, list[int]]] = {}
        self._moved: dict[str, _Moved | None] = {}

    def replace(self, softmax: Node) -> None:
        """Look at one softmax. Nothing happens where it is no attention."""
        shape = self.graph.shapes.get(softmax.output, ())
        if len(shape) < 3 or softmax.attributes.get("axis", -1) not in (-1, len(shape) - 1):
            return
        self._moved = {}  # places of one attention after the other: those of all together would take gigabytes
        scores, scale = self._scaled(softmax.inputs[0])
        product = self.makers.get(scores)
        mean, turned = self._mean(softmax.output)
        if product is None or product.operator != "MatMul" or mean is None:
            return
        queries, keys = (self.moved(name) for name in product.inputs[:2])
        values = self.moved(mean.inputs[0 if turned else 1])
        if queries is None or keys is None or values is None:
            return
        sources = list(dict.fromkeys((queries.source, keys.source, values.source)))
        shapes = [self.graph.shapes[name] for name in sources]
        height, width = shapes[0][2:]
        if any(shape[2:] != (height, width) for shape in shapes):
            return
        # Places in all of them, one behind the other.
        before = dict(zip(sources, np.cumsum([0, *map(math.prod, shapes)], dtype=np.int32), strict=False))
        factors = [part.places + before[part.source] for part in (queries, keys, values)]
        factors[1] = np.swapaxes(factors[1], -1, -2)
        factors[2] = np.swapaxes(factors[2], -1, -2) if turned else factors[2]
        for last, order in self._results(mean, (height, width)):
            found = _attention(factors, order[[1, 0, 2]] if turned else order, height * width)
            if found is not None and abs(values.factor - 1) < 1e-6 and self.ordered.keys().isdisjoint(sources):
                channels, heads, areas = found
                key = factors[0].shape[-1]
                scale *= queries.factor * keys.factor
                usual = abs(scale * math.sqrt(key) - 1) < 1e-6
                joined, whole = f"{last.output}/queries_keys_values", sources[0]
                if len(sources) == 1:
                    self.ordered[whole] = joined, channels
                else:
                    whole = f"{last.output}/factors"
                    self._put(Node("Concat", f"{last.name}/factors", sources, [whole], {"axis": 1}), last)
                    self.graph.shapes[whole] = (1, sum(shape[1] for shape in shapes), height, width)
                self._put(Node("mpnet.Channels", f"{last.name}/order", [whole], [joined], {"order": channels}), last)
                self.graph.shapes[joined] = (1, len(channels), height, width)
                attributes = {"heads": heads, "key": key, "areas": areas, "scale": 0.0 if usual else scale}
                self._put(Node("mpnet.Attention", last.name, [joined], [last.output], attributes), last)
                for part in (product, softmax, mean):
                    self.graph.outcomes[part.name] = f"a part of {last.name}, which is attention"
                return

    def _put(self, node: Node, instead: Node) -> None:
        self.new.setdefault(instead.name, []).append(node)

    def _scaled(self, name: str) -> tuple[str, float]:
        """The tensor that a product with numbers begins with, and their product."""
        factor = 1.0
        for _ in range(_LONGEST):
            number = self._number(self.makers.get(name))
            if number is None:
                break
            at, value = number
            name, factor = self.makers[name].inputs[at], factor * value
        return name, factor

    def _number(self, node: Node | None) -> tuple[int, float] | None:
        """(which input is computed, the number that multiplies it)."""
        if node is None or node.operator not in ("Mul", "Div") or len(node.inputs) != 2:
            return None
        for at in (0, 1):
            constant = self.graph.constants.get(node.inputs[1 - at])
            if constant is not None and constant.size == 1 and (node.operator == "Mul" or at == 0):
                value = float(constant.ravel()[0])
                if not math.isfinite(value) or value == 0:
                    return None
                return at, value if node.operator == "Mul" else 1 / value
        return None

    def _mean(self, shares: str) -> tuple[Node | None, bool]:
        """The product of the values with the shares, and whether the shares are turned and come second."""
        turned = False
        for _ in range(2):
            readers = self.readers.get(shares, [])
            if len(readers) != 1:
                break
            [reader] = readers
            if reader.operator == "MatMul" and reader.inputs[int(turned)] == shares:
                return reader, turned
            rank = len(self.graph.shapes.get(shares, ()))
            swapped = [*range(rank - 2), rank - 1, rank - 2]
            if reader.operator != "Transpose" or reader.attributes.get("perm") != swapped:
                break
            shares, turned = reader.output, True
        return None, False

    def _results(self, mean: Node, sides: tuple[int, int]) -> list[tuple[Node, Places]]:
        """Tensors (1, c, h, w) that only move what a product gives: the node, and (factor's rows first) for each of
        (places of a row, the row, the group), by (channel, pixel)."""
        shape = self.graph.shapes.get(mean.output)
        if shape is None or math.prod(shape) > _MAX_VALUES:
            return []
        rows, columns = shape[-2:]
        x: Array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        found, node = [], mean
        for _ in range(_LONGEST):
            readers = self.readers.get(node.output, [])
            if len(readers) != 1 or readers[0].operator not in _MOVING or node.output in self.graph.outputs:
                break
            [node] = readers
            moved = self._evaluated(node, x)
            if moved is None or len(moved) != 1:
                break
            [x] = moved
            if x.ndim == 4 and x.shape[0] == 1 and x.shape[2:] == sides and x.size == math.prod(shape):
                flat = x.reshape(x.shape[1], -1)
                row, column, group = flat // columns % rows, flat % columns, flat // (rows * columns)
                found.append((node, np.stack([row, column, group])))
        return found

    def moved(self, name: str, depth: int = 0) -> _Moved | None:
        """Where the values of a tensor stand in the first tensor (1, c, h, w) before it that is not made by moving values."""
        if name not in self._moved:
            self._moved[name] = self._trace(name, depth)
        return self._moved[name]

    def _trace(self, name: str, depth: int) -> _Moved | None:
        node, shape = self.makers.get(name), self.graph.shapes.get(name)
        if shape is None or depth > _LONGEST or math.prod(shape) > _MAX_VALUES:
            return None
        number = self._number(node)
        if node is not None and number is not None:
            before = self.moved(node.inputs[number[0]], depth + 1)
            return None if before is None else _Moved(before.source, before.places, before.factor * number[1])
        if node is None or node.operator not in _MOVING:
            if len(shape) != 4 or shape[0] != 1:
                return None
            return _Moved(name, np.arange(math.prod(shape), dtype=np.int32).reshape(shape))
        before = self.moved(node.inputs[0], depth + 1)
        results = None if before is None else self._evaluated(node, before.places)
        if before is None or results is None:
            return None
        return _Moved(before.source, results[node.outputs.index(name)], before.factor)

    def _evaluated(self, node: Node, x: Array) -> list[Array] | None:
        constants = [self.graph.constants.get(name) if name else None for name in node.inputs[1:]]
        try:
            return evaluate(OperatorCall(node, [x, *constants]), self.budget)
        except Refused:
            return None

    def finish(self) -> None:
        """Change the graph."""
        if not self.new:
            return
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.new.get(node.name) or [self._selected(node)]
        self.graph.nodes = nodes
        self.graph.order()

    def _selected(self, node: Node) -> Node:
        """The node, or where it gives channels of a tensor that an attention reads: these channels of the ordered tensor."""
        shape = self.graph.shapes.get(node.output, ())
        one_image = len(shape) == 4 and shape[0] == 1
        if node.operator not in _MOVING or not one_image or len(node.outputs) > 1 or node.inputs[0] in self.ordered:
            return node
        self._moved = {}
        moved = self.moved(node.output)
        if moved is None or moved.source not in self.ordered or shape[2:] != self.graph.shapes[moved.source][2:]:
            return node
        pixels = shape[2] * shape[3]
        channels = moved.places.reshape(shape[1], pixels)
        joined, order = self.ordered[moved.source]
        taken = (channels[:, 0] // pixels).tolist()
        whole = np.array(taken)[:, None] * pixels + np.arange(pixels)
        if abs(moved.factor - 1) > 1e-6 or not np.array_equal(channels, whole) or not set(taken) <= set(order):
            return node
        places = [order.index(channel) for channel in taken]
        return Node("mpnet.Channels", node.name, [joined], [node.output], {"order": places})


def _attention(factors: list[Places], result: Places, pixels: int) -> tuple[list[int], int, int] | None:
    """(the source's channels in the order of an [attention] layer, heads, areas); None: something else.

    factors: queries, keys and values, (..., positions, channels), as places in the source of so many pixels. result: which
    (row, column, group) of the product of shares and values stands at (channel, pixel).
    """
    positions, (row, column, group) = factors[0].shape[-2], result
    groups = math.prod(factors[0].shape[:-2])
    if any(part.shape[:-1] != factors[0].shape[:-1] for part in factors) or factors[0].shape[-1] != factors[1].shape[-1]:
        return None
    parts = [part.reshape(groups, positions, -1) for part in factors]
    first = parts[0][:, 0, 0] % pixels
    pixel = first[:, None] + np.arange(positions)
    channels = [part[:, 0] // pixels for part in parts]
    whole = [ch[:, None] * pixels + pixel[:, :, None] for ch in channels]
    if pixels % positions or (first % positions).any() or not all(map(np.array_equal, parts, whole)):
        return None
    places, values = np.arange(pixels), parts[2].shape[2]
    if len(result[0]) % values or not (np.array_equal(first[group] + row, np.broadcast_to(places, group.shape))):
        return None
    heads = len(result[0]) // values
    head_of_group = np.full(groups, -1)
    head_of_group[group] = (np.arange(heads * values) // values)[:, None]
    leaders = group[::values, 0]
    ordered = [ch[leaders] for ch in channels[:2]] + [channels[2][group[:, 0], column[:, 0]].reshape(heads, values)]
    same = all(np.array_equal(ch, part[head_of_group]) for ch, part in zip(channels[:2], ordered, strict=False))
    if not same or not np.array_equal(channels[2][group, column], np.broadcast_to(ordered[2].reshape(-1, 1), group.shape)):
        return None
    return [int(channel) for part in ordered for channel in part.ravel()], heads, pixels // positions
