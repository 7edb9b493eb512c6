# SPDX-License-Identifier: MIT
"""Attention that is written as products of matrices around a softmax. What each factor holds is found by moving numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate
from mpnet.importing.passes.patches import Patches, list_patches

Positions = NDArray[np.int32]
_MOVING = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Split", "Slice", "Gather")
_INPUTS = {"Softmax": 1, "MatMul": 2, **dict.fromkeys(_MOVING, 1)}
# Moves of all values together take some seconds at most.
_LONGEST, _MAX_VALUES, _MAX_WORK = 24, 1 << 24, 1 << 32


def recognize_attention(graph: NodeGraph) -> None:
    """Put one node in place of each softmax(queries x keys) x values whose factors come from tensors (1, c, h, w) of one size.

    A node before it puts the channels, of several tensors side by side, into the order of an [attention] layer. What is written
    otherwise stays as it is.
    """
    # Of a damaged file the rest of the import says what is wrong.
    has_all_inputs = all(len(node.inputs) >= _INPUTS.get(node.operator, 0) for node in graph.nodes)
    if has_all_inputs and any(node.operator == "Softmax" for node in graph.nodes):
        finder = _AttentionFinder(graph)
        for node in list(graph.nodes):
            if node.operator == "Softmax":
                finder.replace(node)
        finder.finish()


@dataclass(frozen=True)
class _Trace:
    """The origin of a tensor's values.

    source: a tensor (1, c, h, w). positions: where each value stands there. factor: the number that multiplies the values.
    """

    source: str
    positions: Positions
    factor: float = 1.0


class _AttentionFinder:
    """The attention of a graph, found softmax by softmax; `finish` changes the graph.

    new_nodes:      nodes that replace one of the graph, by its name.
    channel_orders: the tensor with the channels of a source in the order of an [attention] layer, and that order, by source.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.makers, self.readers = graph, graph.makers(), graph.readers()
        self.budget = Budget(_MAX_WORK, 1 << 62)
        self.new_nodes: dict[str, list[Node]] = {}
        self.channel_orders: dict[str, tuple[str, list[int]]] = {}
        self._traces: dict[str, _Trace | None] = {}

    def replace(self, softmax: Node) -> None:
        """Note what replaces the attention around one softmax; nothing where it is none."""
        shape = self.graph.shapes.get(softmax.output, ())
        if len(shape) < 3 or softmax.attributes.get("axis", -1) not in (-1, len(shape) - 1):
            return
        self._traces = {}  # positions of one attention after the other: those of all together would take gigabytes
        scores, scale = self._split_scale(softmax.inputs[0])
        product = self.makers.get(scores)
        mean, turned = self._find_mean(softmax.output)
        if product is None or product.operator != "MatMul" or mean is None:
            return
        queries, keys = (self.trace(name) for name in product.inputs[:2])
        values = self.trace(mean.inputs[0 if turned else 1])
        if queries is None or keys is None or values is None:
            return
        sources = list(dict.fromkeys((queries.source, keys.source, values.source)))
        shapes = [self.graph.shapes[name] for name in sources]
        height, width = shapes[0][2:]
        if any(shape[2:] != (height, width) for shape in shapes):
            return
        # Positions in all of them, one behind the other.
        offsets = dict(zip(sources, np.cumsum([0, *map(math.prod, shapes)], dtype=np.int32), strict=False))
        factors = [factor.positions + offsets[factor.source] for factor in (queries, keys, values)]
        factors[1] = np.swapaxes(factors[1], -1, -2)
        factors[2] = np.swapaxes(factors[2], -1, -2) if turned else factors[2]
        for last_node, order in self._find_results(mean, (height, width)):
            result = order[[1, 0, 2]] if turned else order
            layout, patches = _find_layout(factors, result, height * width), None
            if layout is None:
                layout, patches = _find_grouped_layout(factors, result, sum(shape[1] for shape in shapes), (height, width))
            if layout is not None and abs(values.factor - 1) < 1e-6 and self.channel_orders.keys().isdisjoint(sources):
                channels, heads, areas = layout
                key = factors[0].shape[-1]
                scale *= queries.factor * keys.factor
                usual = abs(scale * math.sqrt(key) - 1) < 1e-6
                joined, source_tensor = f"{last_node.output}/queries_keys_values", sources[0]
                if len(sources) == 1:
                    self.channel_orders[source_tensor] = joined, channels
                else:
                    source_tensor = f"{last_node.output}/factors"
                    self._add_node(
                        Node("Concat", f"{last_node.name}/factors", sources, [source_tensor], {"axis": 1}), last_node
                    )
                    self.graph.shapes[source_tensor] = (1, sum(shape[1] for shape in shapes), height, width)
                self._add_node(
                    Node("mpnet.Channels", f"{last_node.name}/order", [source_tensor], [joined], {"order": channels}), last_node
                )
                self.graph.shapes[joined] = (1, len(channels), height, width)
                output = last_node.output
                if patches is not None:
                    joined, output = self._group_places(last_node, joined, patches, heads * key)
                    heads *= patches.places
                attributes = {"heads": heads, "key": key, "areas": areas, "scale": 0.0 if usual else scale}
                name = last_node.name if patches is None else output
                self._add_node(Node("mpnet.Attention", name, [joined], [output], attributes), last_node)
                if patches is not None:
                    block = {"blocksize": patches.patch_height}
                    self._add_node(Node("DepthToSpace", last_node.name, [output], [last_node.output], block), last_node)
                for factor in (product, softmax, mean):
                    self.graph.outcomes[factor.name] = f"a part of {last_node.name}, which is attention"
                return

    def _group_places(self, last_node: Node, joined: str, patches: Patches, queries: int) -> tuple[str, str]:
        """Put the places of a patch among the channels, place by place.

        Each place then has heads of its own among all patches, instead of an area of its own among all pixels.

        joined: queries, keys and values. queries: channels of the first, and of the second.
        Returns the tensor with the queries, keys and values of all places, and the name of the attention's result.
        """
        name, (_, channels, height, width) = last_node.output, self.graph.shapes[joined]
        sides = (height // patches.patch_height, width // patches.patch_width)
        counts = [queries, queries, channels - 2 * queries]
        parts = [f"{name}/{word}" for word in ("queries", "keys", "values")]
        self._add_node(Node("Split", f"{name}/parts", [joined], parts, {"axis": 1, "split": counts}), last_node)
        for part, count in zip(parts, counts, strict=True):
            self.graph.shapes[part] = (1, count, height, width)
            block, grouped = {"blocksize": patches.patch_height}, f"{part}_by_place"
            self._add_node(Node("SpaceToDepth", grouped, [part], [grouped], block), last_node)
            self.graph.shapes[grouped] = (1, count * patches.places, *sides)
        tensor, output = f"{name}/by_place", f"{name}/attention"
        self._add_node(Node("Concat", tensor, [f"{part}_by_place" for part in parts], [tensor], {"axis": 1}), last_node)
        self.graph.shapes[tensor] = (1, channels * patches.places, *sides)
        self.graph.shapes[output] = (1, counts[2] * patches.places, *sides)
        return tensor, output

    def _add_node(self, node: Node, replaced: Node) -> None:
        self.new_nodes.setdefault(replaced.name, []).append(node)

    def _split_scale(self, name: str) -> tuple[str, float]:
        """Return the tensor that a product with numbers begins with, and the product of these numbers."""
        factor = 1.0
        for _ in range(_LONGEST):
            number = self._find_scale(self.makers.get(name))
            if number is None:
                break
            input_index, value = number
            name, factor = self.makers[name].inputs[input_index], factor * value
        return name, factor

    def _find_scale(self, node: Node | None) -> tuple[int, float] | None:
        """Return (which input is computed, the number that multiplies it) of a product with one number."""
        if node is None or node.operator not in ("Mul", "Div") or len(node.inputs) != 2:
            return None
        for input_index in (0, 1):
            constant = self.graph.constants.get(node.inputs[1 - input_index])
            if constant is not None and constant.size == 1 and (node.operator == "Mul" or input_index == 0):
                value = float(constant.ravel()[0])
                if not math.isfinite(value) or value == 0:
                    return None
                return input_index, value if node.operator == "Mul" else 1 / value
        return None

    def _find_mean(self, shares: str) -> tuple[Node | None, bool]:
        """Return the product of the values with the shares, and whether the shares are transposed and come second."""
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

    def _find_results(self, mean: Node, sides: tuple[int, int]) -> list[tuple[Node, Positions]]:
        """Return the nodes whose results (1, c, h, w) only move what a product gives.

        With each comes which (row, column, group) of the product stands at (channel, pixel): (3, c, h * w).
        """
        shape = self.graph.shapes.get(mean.output)
        if shape is None or math.prod(shape) > _MAX_VALUES:
            return []
        rows, columns = shape[-2:]
        x: Array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        results, node = [], mean
        for _ in range(_LONGEST):
            readers = self.readers.get(node.output, [])
            if len(readers) != 1 or readers[0].operator not in _MOVING or node.output in self.graph.outputs:
                break
            [node] = readers
            outputs = self._evaluate(node, x)
            if outputs is None or len(outputs) != 1:
                break
            [x] = outputs
            if x.ndim == 4 and x.shape[0] == 1 and x.shape[2:] == sides and x.size == math.prod(shape):
                flat = x.reshape(x.shape[1], -1)
                row, column, group = flat // columns % rows, flat % columns, flat // (rows * columns)
                results.append((node, np.stack([row, column, group])))
        return results

    def trace(self, name: str, depth: int = 0) -> _Trace | None:
        """Find where the values of a tensor stand in the next tensor (1, c, h, w) before it that no node only moves."""
        if name not in self._traces:
            self._traces[name] = self._trace(name, depth)
        return self._traces[name]

    def _trace(self, name: str, depth: int) -> _Trace | None:
        node, shape = self.makers.get(name), self.graph.shapes.get(name)
        if shape is None or depth > _LONGEST or math.prod(shape) > _MAX_VALUES:
            return None
        number = self._find_scale(node)
        if node is not None and number is not None:
            input_trace = self.trace(node.inputs[number[0]], depth + 1)
            return (
                None
                if input_trace is None
                else _Trace(input_trace.source, input_trace.positions, input_trace.factor * number[1])
            )
        if node is None or node.operator not in _MOVING:
            if len(shape) != 4 or shape[0] != 1:
                return None
            return _Trace(name, np.arange(math.prod(shape), dtype=np.int32).reshape(shape))
        input_trace = self.trace(node.inputs[0], depth + 1)
        results = None if input_trace is None else self._evaluate(node, input_trace.positions)
        if input_trace is None or results is None:
            return None
        return _Trace(input_trace.source, results[node.outputs.index(name)], input_trace.factor)

    def _evaluate(self, node: Node, x: Array) -> list[Array] | None:
        constants = [self.graph.constants.get(name) if name else None for name in node.inputs[1:]]
        try:
            return evaluate(OperatorCall(node, [x, *constants]), self.budget)
        except Refused:
            return None

    def finish(self) -> None:
        """Change the graph."""
        if not self.new_nodes:
            return
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.new_nodes.get(node.name) or [self._select_channels(node)]
        self.graph.nodes = nodes
        self.graph.order()

    def _select_channels(self, node: Node) -> Node:
        """Return the node, or where it gives channels that an attention reads too, a selection from the ordered tensor."""
        shape = self.graph.shapes.get(node.output, ())
        one_image = len(shape) == 4 and shape[0] == 1
        if node.operator not in _MOVING or not one_image or len(node.outputs) > 1 or node.inputs[0] in self.channel_orders:
            return node
        self._traces = {}
        trace = self.trace(node.output)
        if trace is None or trace.source not in self.channel_orders or shape[2:] != self.graph.shapes[trace.source][2:]:
            return node
        pixels = shape[2] * shape[3]
        channels = trace.positions.reshape(shape[1], pixels)
        joined, order = self.channel_orders[trace.source]
        source_channels = (channels[:, 0] // pixels).tolist()
        expected_positions = np.array(source_channels)[:, None] * pixels + np.arange(pixels)
        if (
            abs(trace.factor - 1) > 1e-6
            or not np.array_equal(channels, expected_positions)
            or not set(source_channels) <= set(order)
        ):
            return node
        positions = [order.index(channel) for channel in source_channels]
        return Node("mpnet.Channels", node.name, [joined], [node.output], {"order": positions})


def _find_layout(factors: list[Positions], result: Positions, pixels: int) -> tuple[list[int], int, int] | None:
    """Return (the source's channels in the order of an [attention] layer, heads, areas); None for anything else.

    factors: queries, keys and values, (..., positions, channels), as places in the source of so many pixels. result: which
    (row, column, group) of the product of shares and values stands at (channel, pixel).
    """
    positions, (row, column, group) = factors[0].shape[-2], result
    groups = math.prod(factors[0].shape[:-2])
    if any(factor.shape[:-1] != factors[0].shape[:-1] for factor in factors) or factors[0].shape[-1] != factors[1].shape[-1]:
        return None
    grouped = [factor.reshape(groups, positions, -1) for factor in factors]
    first_pixels = grouped[0][:, 0, 0] % pixels
    pixel = first_pixels[:, None] + np.arange(positions)
    channels = [factor[:, 0] // pixels for factor in grouped]
    expected = [channel_indices[:, None] * pixels + pixel[:, :, None] for channel_indices in channels]
    if pixels % positions or (first_pixels % positions).any() or not all(map(np.array_equal, grouped, expected)):
        return None
    pixel_indices, values = np.arange(pixels), grouped[2].shape[2]
    if len(result[0]) % values or not (np.array_equal(first_pixels[group] + row, np.broadcast_to(pixel_indices, group.shape))):
        return None
    heads = len(result[0]) // values
    head_of_group = np.full(groups, -1)
    head_of_group[group] = (np.arange(heads * values) // values)[:, None]
    leaders = group[::values, 0]
    ordered = [channel_indices[leaders] for channel_indices in channels[:2]] + [
        channels[2][group[:, 0], column[:, 0]].reshape(heads, values)
    ]
    are_equal = all(
        np.array_equal(channel_indices, factor[head_of_group])
        for channel_indices, factor in zip(channels[:2], ordered, strict=False)
    )
    if not are_equal or not np.array_equal(channels[2][group, column], np.broadcast_to(ordered[2].reshape(-1, 1), group.shape)):
        return None
    return [int(channel) for factor in ordered for channel in factor.ravel()], heads, pixels // positions


def _find_grouped_layout(
    factors: list[Positions], result: Positions, channels: int, sides: tuple[int, int]
) -> tuple[tuple[list[int], int, int] | None, Patches | None]:
    """Return (the source's channels in the order of an [attention] layer, heads, areas) of one place, and the patches.

    The pixels at one place of all patches are an area. None, None for anything else. channels: of the source.
    """
    height, width = sides
    places = height * width // max(1, factors[0].shape[-2])
    for patches in list_patches(height, width, places) if places > 1 else []:
        if patches.patch_height != patches.patch_width or patches.places * factors[0].shape[-2] != height * width:
            continue
        grouped_factors = [patches.find_grouped(factor, channels) for factor in factors]
        grouped_result = patches.group(result.reshape(3, -1, height, width)).reshape(3, -1, patches.count)
        layout = _find_layout(grouped_factors, grouped_result, patches.count)
        if layout is None or layout[2] != 1 or layout[1] % places:
            continue
        order, heads, _ = layout
        key = factors[0].shape[-1]
        ends = np.cumsum([heads * key, heads * key])
        parts = [part.reshape(places, -1) for part in np.split(np.array(order), ends)]
        first_places = [part[0] for part in parts]
        expected = [np.arange(places)[:, None] * channels + first_place for first_place in first_places]
        if all(map(np.array_equal, parts, expected)):
            return ([int(channel) for first_place in first_places for channel in first_place], heads // places, 1), patches
    return None, None
