# SPDX-License-Identifier: MIT
"""The pass that moves computations on other axes to tensors of (1, c, h, w).

Rows of channels behind a Transpose, as transformers and ConvNeXt have them, stand here; channels in groups, as split attention
has them, in `channel_groups`. `LayoutRewriter` says how tensors are followed back. Nodes move values back where something else
reads the original tensor; what nobody reads goes.
"""

from __future__ import annotations

import math
from typing import Callable

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph
from mpnet.importing.operators.record import DOES_NOT_FIT, Shape
from mpnet.importing.passes.channel_groups import find_group_replacement
from mpnet.importing.passes.layout import LayoutRewriter
from mpnet.importing.passes.patches import Patches, PatchFinder

# A product of fewer weights may be a part of box decoding, the mean of bins, unless rows of channels are known to enter it.
_LEAST_WEIGHTS = 257
_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_BY_ITSELF = (
    *("mpnet.Gelu", "Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Clip", "LeakyRelu", "Elu", "Mish"),
    "mpnet.ResponseNorm",
)
_OF_TWO = ("Add", "Sub", "Mul", "Div")


def put_channels_first(graph: NodeGraph) -> None:
    """Put tensors (1, c, h, w) in place of rows and groups of channels. The graph stays in order."""
    converter = _Converter(graph)
    for node in graph.nodes:
        converter.convert(node)
    graph.nodes, aliases = converter.nodes, converter.aliases
    for node in graph.nodes:
        node.inputs = [aliases.get(name, name) for name in node.inputs]
        node.outputs = [aliases.get(name, name) for name in node.outputs]
    graph.outputs = [aliases.get(name, name) for name in graph.outputs]
    graph.aliases |= {name: tensor for name, tensor in aliases.items() if name not in converter.own_tensors}


class _Converter(LayoutRewriter):
    """The graph while it is rewritten.

    expanded:           by tensor: the (1, c, 1, 1) that was repeated for each pixel.
    sides_of_positions: (height, width) of an image, by its number of pixels.
    patches:            by the first two sides of rows of pixels by their place in a patch: these patches.
    has_bands:          whether there are filters along one axis.
    has_rows:           whether rows of channels are multiplied by weights or normalised; else only groups are looked for.
    """

    def __init__(self, graph: NodeGraph) -> None:
        super().__init__(graph)
        self.expanded: dict[str, str] = {}
        self.sides_of_positions: dict[int, tuple[int, int]] = {}
        self.has_bands = any(node.operator == "Conv" and self._count_axes(node.inputs[1:2]) == 3 for node in graph.nodes)
        self.has_rows = any(self._find_weights(node) is not None or self._is_row_norm(node) for node in graph.nodes)
        self.patch_finder = PatchFinder(graph) if self.has_rows else None
        self.patches: dict[Shape, Patches] = self.patch_finder.patches if self.patch_finder is not None else {}

    def convert(self, node: Node) -> None:
        """Append a node, or what stands for it."""
        count_before = len(self.nodes)
        try:
            self._convert(node)
        except DOES_NOT_FIT:  # of a damaged file the rest of the import says what is wrong
            self.nodes[count_before:] = [node]
        self.graph.origins |= {new_node.name: node for new_node in self.nodes[count_before:] if new_node.name != node.name}

    def _convert(self, node: Node) -> None:
        shape = self.graph.shapes.get(node.outputs[0]) if node.outputs and node.inputs else None
        has_shapes = all(name in self.graph.shapes for name in node.inputs if self.is_computed(name))
        replace = self._find_replacement(node, shape) if has_shapes and shape is not None else None
        if replace is not None:
            replace()
            return
        self.nodes.append(node)
        if has_shapes and shape is not None:
            self._note_views(node, shape)

    def _count_axes(self, names: list[str]) -> int:
        return max((self.graph.constants[name].ndim for name in names if name in self.graph.constants), default=0)

    def _find_weights(self, node: Node) -> Array | None:
        """Return the matrix (in, out) that rows of channels are multiplied by."""
        matrix = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        shape = self.graph.shapes.get(node.inputs[0]) if node.inputs else None
        if matrix is None or shape is None or matrix.ndim != 2 or len(shape) < 2:
            return None
        if matrix.size < _LEAST_WEIGHTS and node.inputs[0] not in self.channels_last:
            return None
        if node.operator == "Gemm":
            is_plain = all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta")) and not node.attributes.get(
                "transA"
            )
            matrix = matrix.T if node.attributes.get("transB") else matrix
            return matrix if is_plain and shape[0] > 1 and shape[-1] == len(matrix) else None
        return matrix if node.operator == "MatMul" and len(shape) > 2 and shape[-1] == len(matrix) else None

    def _is_row_norm(self, node: Node) -> bool:
        if node.operator != "LayerNormalization" or (len(node.outputs) > 1 and node.outputs[1]):
            return False
        shape = self.graph.shapes.get(node.inputs[0], ())
        return len(shape) > 2 and node.attributes.get("axis", -1) in (-1, len(shape) - 1)

    def _note_views(self, node: Node, shape: Shape) -> None:
        """Note what a node that only moves values holds."""
        x, output = node.inputs[0], node.outputs[0]
        input_shape = self.graph.shapes.get(x)
        if input_shape is None or not self.is_computed(x):
            return
        if len(input_shape) == 4 and input_shape[0] == 1 and x not in self.channels_last:
            self.in_order.setdefault(x, x)
        if len(input_shape) == 4 and input_shape[0] == 1 and input_shape[2] * input_shape[3] > 1:
            self.sides_of_positions.setdefault(input_shape[2] * input_shape[3], (input_shape[2], input_shape[3]))
        if node.operator in _RESHAPES or (node.operator == "Transpose" and _keeps_order(node, input_shape)):
            if x in self.in_order:
                self.in_order[output] = self.in_order[x]
                self._restore(output, shape)
            if self.patch_finder is not None and output in self.patch_finder.sources:
                self.channels_last[output] = self.patch_finder.sources[output]
            elif x in self.channels_last and shape[-1] == input_shape[-1] and not self._is_grouped(input_shape, shape):
                self.channels_last[output] = self.channels_last[x]
            elif self.has_rows and x in self.in_order and self.shape_of(self.in_order[x]) == (1, shape[-1], 1, 1):
                self.channels_last[output] = self.in_order[x]
        elif node.operator == "Transpose" and self.has_rows:
            perm = list(node.attributes.get("perm") or ())
            channels = (
                1
                if x in self.in_order and self.shape_of(self.in_order[x])[1] == input_shape[1] and input_shape[0] == 1
                else None
            )
            pixel_axes = [axis for axis in perm[:-1] if input_shape[axis] > 1]
            if channels and perm[-1:] == [1] and pixel_axes == sorted(pixel_axes):
                self.channels_last[output] = self.in_order[x]
            if (
                x in self.channels_last
                and input_shape[0] == 1
                and perm == [0, len(input_shape) - 1, *range(1, len(input_shape) - 1)]
            ):
                self.in_order[output] = self.channels_last[x]
                self._restore(output, shape)
        elif node.operator == "Expand" and input_shape[2:] == (1, 1) and len(shape) == 4 and shape[:2] == input_shape[:2]:
            self.expanded[output] = x

    def _is_grouped(self, *shapes: Shape) -> bool:
        """Return whether rows of one of these shapes are pixels by their place in a patch."""
        return any(shape[:-1] in self.patches for shape in shapes)

    def _restore(self, name: str, shape: Shape) -> None:
        """Restore the order: where a tensor has become (1, c, h, w) again, take it from the tensor that it was before."""
        source = self.in_order[name]
        source_shape = self.shape_of(source)
        if len(shape) != 4 or shape[0] != 1 or shape[1] != source_shape[1] or source == name:
            return
        node = self.nodes.pop()
        if shape == source_shape:
            self.set_alias(node, source)
        else:
            self.nodes.append(Node("mpnet.Reshape", node.name, [source], [name], {"width": shape[3]}))
        self.in_order[name] = name

    def _find_rows(self, x: str, name: str) -> str:
        """Return the (1, c, h, w) tensor of rows of channels."""
        if x not in self.channels_last:
            shape = self.shape_of(x)
            positions, channels = math.prod(shape[:-1]), shape[-1]
            if self._is_grouped(shape):
                patches = self.patches[shape[:-1]]
                grid = patches.grid
                by_place = self.add_reshape(x, name, (grid[1], grid[3], grid[0], grid[2], channels))
                turned = self.add_node("Transpose", name, [by_place], (channels, *grid), perm=[4, 2, 0, 3, 1])
                self.channels_last[x] = self.add_reshape(turned, name, (1, channels, patches.height, patches.width))
                return self.channels_last[x]
            rows = self.add_reshape(x, name, (1, positions, channels))
            turned = self.add_node("Transpose", name, [rows], (1, channels, positions), perm=[0, 2, 1])
            sides = self.sides_of_positions.get(positions, (positions, 1))
            self.channels_last[x] = self.add_reshape(turned, name, (1, channels, *sides))
        return self.channels_last[x]

    def _set_rows(self, node: Node, tensor: str, shape: Shape) -> None:
        """Let a node's result be the rows of a (1, c, h, w) tensor."""
        _, channels, height, width = self.shape_of(tensor)
        if self._is_grouped(shape):
            grid = self.patches[shape[:-1]].grid
            places = self.add_reshape(tensor, node.name, (channels, *grid))
            sides = (grid[1], grid[3], grid[0], grid[2], channels)
            rows = self.add_node("Transpose", node.name, [places], sides, perm=[2, 4, 1, 3, 0])
        else:
            flat = self.add_reshape(tensor, node.name, (1, channels, height * width))
            rows = self.add_node("Transpose", node.name, [flat], (1, height * width, channels), perm=[0, 2, 1])
        self.nodes.append(Node("Reshape", node.name, [rows, self.add_constant(node.name, shape, np.int64)], [node.outputs[0]]))
        self.channels_last[node.outputs[0]] = tensor
        if height * width == 1:
            self.in_order[node.outputs[0]] = tensor

    def _find_replacement(self, node: Node, shape: Shape) -> Callable[[], None] | None:
        """Return what appends the replacement of a node; None where the node stays."""
        if any(name in self.expanded for name in node.inputs) and node.operator == "Mul":
            node.inputs = [self.expanded.get(name, name) for name in node.inputs]
            return None
        if self.has_bands and node.operator == "ReduceMean" and len(shape) == 2 and self._is_pixel_mean(node):
            pooled = self.add_node("GlobalAveragePool", node.name, node.inputs[:1], (*shape, 1, 1))
            return lambda: self.set_values(node, pooled, shape)
        if self.patches and node.operator in (*_RESHAPES, "Transpose") and len(shape) == 4 and shape[0] == 1:
            image = self.patch_finder.find_image(node, self.channels_last) if self.patch_finder is not None else None
            if image is not None:
                return lambda: self.set_alias(node, image)
        if self.has_rows:
            if (weights := self._find_weights(node)) is not None:
                return lambda: self._replace_product(node, weights, shape)
            if self._is_row_norm(node):
                return lambda: self._replace_norm(node, shape)
            if (inputs := self._find_elementwise_inputs(node, shape)) is not None:
                return lambda: self._set_rows(node, self._add_elementwise(node, inputs), shape)
            if node.inputs[0] in self.channels_last or (node.operator == "Concat" and node.inputs[-1] in self.channels_last):
                return self._find_replacement_of_positions(node, shape)
        return find_group_replacement(self, node, shape)

    def _is_pixel_mean(self, node: Node) -> bool:
        axes = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else np.array(node.attributes.get("axes") or ())
        return axes is not None and axes.tolist() == [2, 3] and len(self.shape_of(node.inputs[0])) == 4

    def _add_elementwise(self, node: Node, inputs: list[str]) -> str:
        shapes = [self.shape_of(name) for name in inputs if name in self.graph.shapes and self.is_computed(name)]
        attributes = node.attributes | ({"axis": 1} if node.operator == "mpnet.ResponseNorm" else {})
        return self.add_node(node.operator, node.name, inputs, max(shapes, key=math.prod), **attributes)

    def _replace_product(self, node: Node, weights: Array, shape: Shape) -> None:
        x = self._find_rows(node.inputs[0], node.name)
        result_shape = (1, weights.shape[1], *self.shape_of(x)[2:])
        inputs = [x, self.add_constant(node.name, np.ascontiguousarray(weights.T)[:, :, None, None])]
        bias = self.graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        tensor = f"{node.name}/rows"
        self.own_tensors.add(tensor)
        self.nodes.append(Node("Conv", tensor, inputs, [tensor]))
        self.graph.shapes[tensor] = result_shape
        self.graph.outcomes[node.name] = f"a 1x1 convolution of rows ({tensor})"
        if bias is not None:
            inputs.append(self.add_constant(node.name, np.broadcast_to(bias.ravel(), weights.shape[1])))
        self._set_rows(node, tensor, shape)

    def _replace_norm(self, node: Node, shape: Shape) -> None:
        x = self._find_rows(node.inputs[0], node.name)
        rows_shape = self.shape_of(x)
        tensor = self.add_node("mpnet.LayerNorm", node.name, [x], rows_shape, epsilon=node.attributes.get("epsilon", 1e-5))
        for operator, index in (("Mul", 1), ("Add", 2)):
            values = self.graph.constants.get(node.inputs[index]) if len(node.inputs) > index else None
            if values is not None:
                per_channel = self.add_constant(node.name, np.broadcast_to(values.ravel(), rows_shape[1]).reshape(1, -1, 1, 1))
                tensor = self.add_node(operator, node.name, [tensor, per_channel], rows_shape)
        self._set_rows(node, tensor, shape)

    def _find_elementwise_inputs(self, node: Node, shape: Shape) -> list[str] | None:
        """Return the inputs of an operation on rows, as (1, c, h, w); None where it is none."""
        if node.operator not in (*_BY_ITSELF, *_OF_TWO) or not any(name in self.channels_last for name in node.inputs):
            return None
        if node.operator in _BY_ITSELF:
            return [self.channels_last[node.inputs[0]], *node.inputs[1:]] if node.inputs[0] in self.channels_last else None
        first_rows = next(self.channels_last[name] for name in node.inputs if name in self.channels_last)
        channels, rows_shape = shape[-1], self.shape_of(first_rows)
        inputs = []
        for name in node.inputs:
            values = self.graph.constants.get(name)
            if values is None:
                if self.shape_of(name) != shape:
                    return None
                x = self._find_rows(name, node.name)
                inputs.append(x if self.shape_of(x) == rows_shape else self.add_wide_reshape(x, node.name, rows_shape))
            elif values.size == 1:
                inputs.append(self.add_constant(node.name, values.reshape(1, 1, 1, 1)))
            elif values.size == channels == values.shape[-1]:
                inputs.append(self.add_constant(node.name, values.reshape(1, channels, 1, 1)))
            elif values.size == math.prod(shape) and values.shape[-1] == channels and not self._is_grouped(shape):
                inputs.append(self.add_constant(node.name, values.reshape(-1, channels).T.reshape(rows_shape)))
            else:
                return None
        return inputs if math.prod(rows_shape) == math.prod(shape) else None

    def _find_replacement_of_positions(self, node: Node, shape: Shape) -> Callable[[], None] | None:
        """Find what replaces a constant row before the rows, the first row, or the mean of all rows."""
        if node.operator == "Concat" and len(node.inputs) == 2:
            row, x = self.graph.constants.get(node.inputs[0]), node.inputs[1]
            if row is not None and len(shape) == 3 and row.shape == (1, 1, shape[2]) and node.attributes.get("axis") in (1, -2):
                return lambda: self._prepend_row(node, row, x, shape)
        x = node.inputs[0]
        input_shape = self.shape_of(x)
        index = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.operator == "Gather" and len(input_shape) == 3 and node.attributes.get("axis") == 1 and input_shape[0] == 1:
            return (
                (lambda: self._take_first_row(node, x, shape))
                if index is not None and not index.any() and index.size == 1
                else None
            )
        axes = node.attributes.get("axes") if index is None else index.ravel().tolist()
        position_axes = list(range(1, len(input_shape) - 1))
        if (
            node.operator == "ReduceMean"
            and axes is not None
            and input_shape[0] == 1
            and sorted(axis % len(input_shape) for axis in axes) == position_axes
        ):
            return lambda: self.set_values(
                node, self.add_node("GlobalAveragePool", node.name, [self.channels_last[x]], (1, input_shape[-1], 1, 1)), shape
            )
        return None

    def _prepend_row(self, node: Node, row: Array, x: str, shape: Shape) -> None:
        channels, count = shape[2], shape[1]
        tensor = self.channels_last[x]
        if self.shape_of(tensor)[3] != 1:
            tensor = self.add_wide_reshape(tensor, node.name, (1, channels, count - 1, 1))
        pads = self.add_constant(node.name, [0, 0, 1, 0, 0, 0, 0, 0], np.int64)
        tensor = self.add_node("Pad", node.name, [tensor, pads], (1, channels, count, 1))
        values = np.zeros((1, channels, count, 1), np.float32)
        values[0, :, 0, 0] = row.ravel()
        self._set_rows(
            node, self.add_node("Add", node.name, [tensor, self.add_constant(node.name, values)], values.shape), shape
        )

    def _take_first_row(self, node: Node, x: str, shape: Shape) -> None:
        tensor = self.channels_last[x]
        _, channels, height, width = self.shape_of(tensor)
        bounds = [self.add_constant(node.name, values, np.int64) for values in ([0, 0], [1 << 30] * 2, [2, 3], [height, width])]
        self.set_values(node, self.add_node("Slice", node.name, [tensor, *bounds], (1, channels, 1, 1)), shape)


def _keeps_order(node: Node, shape: Shape) -> bool:
    """Return whether a transposition moves axes of one value only."""
    perm = [axis for axis in node.attributes.get("perm") or () if 0 <= axis < len(shape) and shape[axis] > 1]
    return bool(node.attributes.get("perm")) and perm == sorted(perm)
