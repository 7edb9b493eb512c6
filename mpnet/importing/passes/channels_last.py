# SPDX-License-Identifier: MIT
"""What is computed on tensors of other axes than (1, c, h, w) as the same on these: rows of channels behind a Transpose, as
transformers and ConvNeXt have them, and channels in groups, as split attention has them.

A tensor `first` holds the values of one (1, c, h, w) in their order, under another shape; a tensor `last` those of one with the
channels behind the pixels. Nodes move values back where something else reads the original tensor; what nobody reads goes.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph
from mpnet.importing.operators.record import DOES_NOT_FIT, Shape

# A product of fewer weights may be a part of box decoding: the mean of bins.
_LEAST_WEIGHTS = 257
_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_BY_ITSELF = ("mpnet.Gelu", "Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Clip", "LeakyRelu", "Elu", "Mish")
_OF_TWO = ("Add", "Sub", "Mul", "Div")


def find_gelu(graph: NodeGraph) -> None:
    """Put one node in place of x / 2 * (1 + erf(x / sqrt(2))), in the order in which programs write it."""
    makers, readers = graph.makers(), graph.readers()

    def factor(node: Node | None) -> tuple[str, float]:
        """(the computed input, the number that multiplies it or is added) of a node with one number; else ('', 0)."""
        if node is None or len(node.inputs) != 2:
            return "", 0.0
        for at in (0, 1):
            number = graph.constants.get(node.inputs[1 - at])
            if number is not None and number.size == 1 and not (node.operator == "Div" and at == 1):
                value = float(number.ravel()[0])
                return node.inputs[at], 1 / value if node.operator == "Div" and value else value
        return "", 0.0

    def only(name: str, *operators: str) -> Node | None:
        found = readers.get(name, [])
        return found[0] if len(found) == 1 and found[0].operator in operators else None

    new: dict[int, Node] = {}
    for erf in graph.nodes:
        if erf.operator != "Erf" or not erf.inputs:
            continue
        line, plus = makers.get(erf.inputs[0]), only(erf.output, "Add")
        x, scale = factor(line) if line is not None and line.operator in ("Mul", "Div") else ("", 0.0)
        product = only(plus.output, "Mul") if plus is not None and factor(plus) == (erf.output, 1.0) else None
        if not x or abs(scale - math.sqrt(0.5)) > 1e-6 or product is None or plus is None:
            continue
        other = next((name for name in product.inputs if name != plus.output), "")
        last, half = product, makers.get(other)
        if other == x and (halved := only(product.output, "Mul")) is not None and factor(halved) == (product.output, 0.5):
            last = halved
        elif half is None or half.operator not in ("Mul", "Div") or factor(half) != (x, 0.5):
            continue
        new[id(last)] = Node("mpnet.Gelu", last.name, [x], [last.output])
    graph.nodes = [new.get(id(node), node) for node in graph.nodes]


def find_flat(graph: NodeGraph) -> None:
    """Put one node in place of all values as one row, channels last, where fully connected layers alone read it."""
    makers, readers = graph.makers(), graph.readers()

    def dense(reader: Node, x: str) -> bool:
        named = reader.inputs[:1] == [x] and len(reader.inputs) > 1 and reader.inputs[1] in graph.constants
        return named and reader.operator in ("Gemm", "MatMul")

    for at, node in enumerate(graph.nodes):
        before = makers.get(node.inputs[0]) if node.operator in ("Reshape", "Flatten") and node.inputs else None
        if before is None or before.operator != "Transpose" or before.attributes.get("perm") != [0, 2, 3, 1]:
            continue
        if len(before.inputs) != 1 or len(node.outputs) != 1 or node.output in graph.outputs:
            continue
        shape, made = graph.shapes.get(before.inputs[0], ()), graph.shapes.get(node.output, ())
        if len(shape) != 4 or shape[0] != 1 or made != (1, math.prod(shape)):
            continue
        if all(dense(reader, node.output) for reader in readers.get(node.output, [])):
            graph.nodes[at] = Node("mpnet.FlattenLast", node.name, before.inputs, [node.output])


def put_channels_first(graph: NodeGraph) -> None:
    """Rewrite what is known. The graph stays in order."""
    converter = _Converter(graph)
    for node in graph.nodes:
        converter.take(node)
    graph.nodes, same = converter.nodes, converter.same
    for node in graph.nodes:
        node.inputs = [same.get(name, name) for name in node.inputs]
        node.outputs = [same.get(name, name) for name in node.outputs]
    graph.outputs = [same.get(name, name) for name in graph.outputs]
    graph.aliases |= {name: tensor for name, tensor in same.items() if name not in converter.own}


class _Converter:
    """The graph while it is rewritten.

    nodes: so far. first, last: the (1, c, h, w) tensor of a tensor, see the module. own: tensors that no file has. same: what
    is another tensor under a second name. expanded: the (1, c, 1, 1) that was repeated for each pixel. bands: whether there are
    filters along one axis. rows: whether there are rows of channels that are multiplied by weights or normalised; else only
    split attention is looked for.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.nodes = graph, list[Node]()
        self.first: dict[str, str] = {}
        self.last: dict[str, str] = {}
        self.expanded: dict[str, str] = {}
        self.same: dict[str, str] = {}
        self.own: set[str] = set()
        self.sides: dict[int, tuple[int, int]] = {}
        self.bands = any(node.operator == "Conv" and self._rank(node.inputs[1:2]) == 3 for node in graph.nodes)
        self.rows = any(self._weights(node) is not None or self._normalises(node) for node in graph.nodes)

    def take(self, node: Node) -> None:
        """Append a node, or what stands for it."""
        before = len(self.nodes)
        try:
            self._take(node)
        except DOES_NOT_FIT:  # of a damaged file the rest of the import says what is wrong
            self.nodes[before:] = [node]
        self.graph.origins |= {made.name: node for made in self.nodes[before:] if made.name != node.name}

    def _take(self, node: Node) -> None:
        shape = self.graph.shapes.get(node.outputs[0]) if node.outputs and node.inputs else None
        known = all(name in self.graph.shapes for name in node.inputs if self._computed(name))
        make = self._made(node, shape) if known and shape is not None else None
        if make is not None:
            make()
            return
        self.nodes.append(node)
        if known and shape is not None:
            self._views(node, shape)

    def _rank(self, names: list[str]) -> int:
        return max((self.graph.constants[name].ndim for name in names if name in self.graph.constants), default=0)

    def _computed(self, name: str) -> bool:
        return name != "" and name not in self.graph.constants

    def _shape(self, name: str) -> Shape:
        return self.graph.shapes[name]

    def _weights(self, node: Node) -> Array | None:
        """The matrix (in, out) that rows of channels are multiplied by."""
        matrix = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        shape = self.graph.shapes.get(node.inputs[0]) if node.inputs else None
        if matrix is None or shape is None or matrix.ndim != 2 or matrix.size < _LEAST_WEIGHTS or len(shape) < 2:
            return None
        if node.operator == "Gemm":
            plain = all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta")) and not node.attributes.get(
                "transA"
            )
            matrix = matrix.T if node.attributes.get("transB") else matrix
            return matrix if plain and shape[0] > 1 and shape[-1] == len(matrix) else None
        return matrix if node.operator == "MatMul" and len(shape) > 2 and shape[-1] == len(matrix) else None

    def _normalises(self, node: Node) -> bool:
        if node.operator != "LayerNormalization" or (len(node.outputs) > 1 and node.outputs[1]):
            return False
        shape = self.graph.shapes.get(node.inputs[0], ())
        return len(shape) > 2 and node.attributes.get("axis", -1) in (-1, len(shape) - 1)

    def _views(self, node: Node, shape: Shape) -> None:
        """Note what a node that only moves values holds."""
        x, out = node.inputs[0], node.outputs[0]
        before = self.graph.shapes.get(x)
        if before is None or not self._computed(x):
            return
        if len(before) == 4 and before[0] == 1 and x not in self.last:
            self.first.setdefault(x, x)
        if len(before) == 4 and before[0] == 1 and before[2] * before[3] > 1:
            self.sides.setdefault(before[2] * before[3], (before[2], before[3]))
        if node.operator in _RESHAPES or (node.operator == "Transpose" and _keeps_order(node, before)):
            if x in self.first:
                self.first[out] = self.first[x]
                self._again(out, shape)
            if x in self.last and shape[-1] == before[-1]:
                self.last[out] = self.last[x]
            elif self.rows and x in self.first and self._shape(self.first[x]) == (1, shape[-1], 1, 1):
                self.last[out] = self.first[x]
        elif node.operator == "Transpose" and self.rows:
            perm = list(node.attributes.get("perm") or ())
            channels = 1 if x in self.first and self._shape(self.first[x])[1] == before[1] and before[0] == 1 else None
            if channels and perm == [0, *range(2, len(before)), 1]:
                self.last[out] = self.first[x]
            if x in self.last and before[0] == 1 and perm == [0, len(before) - 1, *range(1, len(before) - 1)]:
                self.first[out] = self.last[x]
                self._again(out, shape)
        elif node.operator == "Expand" and before[2:] == (1, 1) and len(shape) == 4 and shape[:2] == before[:2]:
            self.expanded[out] = x

    def _again(self, name: str, shape: Shape) -> None:
        """Where a tensor has become (1, c, h, w) again, take it from the tensor that it was before."""
        source = self.first[name]
        there = self._shape(source)
        if len(shape) != 4 or shape[0] != 1 or shape[1] != there[1] or source == name:
            return
        node = self.nodes.pop()
        if shape == there:
            self._alias(node, source)
        else:
            self.nodes.append(Node("mpnet.Reshape", node.name, [source], [name], {"width": shape[3]}))
        self.first[name] = name

    def _alias(self, node: Node, tensor: str) -> None:
        out = node.outputs[0]
        if tensor in self.own and tensor not in self.same:
            self.same[tensor] = out  # the file's own name
        else:
            self.same[out] = self.same.get(tensor, tensor)
        self.graph.outcomes[node.name] = "moves values back"
        self.first[node.outputs[0]] = node.outputs[0]

    def _add(self, operator: str, name: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        """Append a node with a result of that shape; the result's name."""
        out = f"{name}/{len(self.nodes)}"
        self.own.add(out)
        self.nodes.append(Node(operator, out, inputs, [out], attributes))
        self.graph.shapes[out] = shape
        return out

    def _constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        out = f"{name}/constant{len(self.graph.constants)}"
        self.graph.constants[out] = np.asarray(values, dtype)
        return out

    def _reshaped(self, x: str, name: str, shape: Shape) -> str:
        return self._add("Reshape", name, [x, self._constant(name, shape, np.int64)], shape)

    def _rows_of(self, x: str, name: str) -> str:
        """The (1, c, h, w) tensor of rows of channels."""
        if x not in self.last:
            shape = self._shape(x)
            positions, channels = math.prod(shape[:-1]), shape[-1]
            rows = self._reshaped(x, name, (1, positions, channels))
            turned = self._add("Transpose", name, [rows], (1, channels, positions), perm=[0, 2, 1])
            sides = self.sides.get(positions, (positions, 1))
            self.last[x] = self._reshaped(turned, name, (1, channels, *sides))
        return self.last[x]

    def _give_rows(self, node: Node, tensor: str, shape: Shape) -> None:
        """Let a node's result be the rows of a (1, c, h, w) tensor."""
        _, channels, height, width = self._shape(tensor)
        flat = self._reshaped(tensor, node.name, (1, channels, height * width))
        rows = self._add("Transpose", node.name, [flat], (1, height * width, channels), perm=[0, 2, 1])
        self.nodes.append(Node("Reshape", node.name, [rows, self._constant(node.name, shape, np.int64)], [node.outputs[0]]))
        self.last[node.outputs[0]] = tensor
        if height * width == 1:
            self.first[node.outputs[0]] = tensor

    def _give(self, node: Node, tensor: str, shape: Shape) -> None:
        """Let a node's result be the values of a (1, c, h, w) tensor in their order."""
        if shape == self._shape(tensor):
            self._alias(node, tensor)
            return
        self.nodes.append(Node("Reshape", node.name, [tensor, self._constant(node.name, shape, np.int64)], [node.outputs[0]]))
        self.first[node.outputs[0]] = tensor

    def _made(self, node: Node, shape: Shape) -> Callable[[], None] | None:
        """What to do instead of a node; None: nothing."""
        if any(name in self.expanded for name in node.inputs) and node.operator == "Mul":
            node.inputs = [self.expanded.get(name, name) for name in node.inputs]
            return None
        if self.bands and node.operator == "ReduceMean" and len(shape) == 2 and self._means_pixels(node):
            pooled = self._add("GlobalAveragePool", node.name, node.inputs[:1], (*shape, 1, 1))
            return lambda: self._give(node, pooled, shape)
        if self.rows:
            if (weights := self._weights(node)) is not None:
                return lambda: self._product(node, weights, shape)
            if self._normalises(node):
                return lambda: self._normalised(node, shape)
            if (inputs := self._elementwise(node, shape)) is not None:
                return lambda: self._give_rows(node, self._add_like(node, inputs), shape)
            if node.inputs[0] in self.last or (node.operator == "Concat" and node.inputs[-1] in self.last):
                return self._of_positions(node, shape)
        return self._of_groups(node, shape)

    def _means_pixels(self, node: Node) -> bool:
        axes = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else np.array(node.attributes.get("axes") or ())
        return axes is not None and axes.tolist() == [2, 3] and len(self._shape(node.inputs[0])) == 4

    def _add_like(self, node: Node, inputs: list[str]) -> str:
        shapes = [self._shape(name) for name in inputs if name in self.graph.shapes and self._computed(name)]
        return self._add(node.operator, node.name, inputs, max(shapes, key=math.prod), **node.attributes)

    def _product(self, node: Node, weights: Array, shape: Shape) -> None:
        x = self._rows_of(node.inputs[0], node.name)
        made = (1, weights.shape[1], *self._shape(x)[2:])
        inputs = [x, self._constant(node.name, np.ascontiguousarray(weights.T)[:, :, None, None])]
        bias = self.graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        tensor = f"{node.name}/rows"
        self.own.add(tensor)
        self.nodes.append(Node("Conv", tensor, inputs, [tensor]))
        self.graph.shapes[tensor] = made
        self.graph.outcomes[node.name] = f"a 1x1 convolution of rows ({tensor})"
        if bias is not None:
            inputs.append(self._constant(node.name, np.broadcast_to(bias.ravel(), weights.shape[1])))
        self._give_rows(node, tensor, shape)

    def _normalised(self, node: Node, shape: Shape) -> None:
        x = self._rows_of(node.inputs[0], node.name)
        made = self._shape(x)
        tensor = self._add("mpnet.LayerNorm", node.name, [x], made, epsilon=node.attributes.get("epsilon", 1e-5))
        for operator, at in (("Mul", 1), ("Add", 2)):
            values = self.graph.constants.get(node.inputs[at]) if len(node.inputs) > at else None
            if values is not None:
                per_channel = self._constant(node.name, np.broadcast_to(values.ravel(), made[1]).reshape(1, -1, 1, 1))
                tensor = self._add(operator, node.name, [tensor, per_channel], made)
        self._give_rows(node, tensor, shape)

    def _elementwise(self, node: Node, shape: Shape) -> list[str] | None:
        """The inputs of an operation on rows, as (1, c, h, w); None: it is none."""
        if node.operator not in (*_BY_ITSELF, *_OF_TWO) or not any(name in self.last for name in node.inputs):
            return None
        if node.operator in _BY_ITSELF:
            return [self.last[node.inputs[0]], *node.inputs[1:]] if node.inputs[0] in self.last else None
        like = next(self.last[name] for name in node.inputs if name in self.last)
        channels, made = shape[-1], self._shape(like)
        inputs = []
        for name in node.inputs:
            values = self.graph.constants.get(name)
            if values is None:
                if self._shape(name) != shape:
                    return None
                x = self._rows_of(name, node.name)
                inputs.append(x if self._shape(x) == made else self._wide(x, node.name, made))
            elif values.size == 1:
                inputs.append(self._constant(node.name, values.reshape(1, 1, 1, 1)))
            elif values.size == channels == values.shape[-1]:
                inputs.append(self._constant(node.name, values.reshape(1, channels, 1, 1)))
            elif values.size == math.prod(shape) and values.shape[-1] == channels:
                inputs.append(self._constant(node.name, values.reshape(-1, channels).T.reshape(made)))
            else:
                return None
        return inputs if math.prod(made) == math.prod(shape) else None

    def _wide(self, x: str, name: str, shape: Shape) -> str:
        return self._add("mpnet.Reshape", name, [x], shape, width=shape[3])

    def _of_positions(self, node: Node, shape: Shape) -> Callable[[], None] | None:
        """A constant row before the rows; the first row; the mean of all rows."""
        if node.operator == "Concat" and len(node.inputs) == 2:
            row, x = self.graph.constants.get(node.inputs[0]), node.inputs[1]
            if row is not None and len(shape) == 3 and row.shape == (1, 1, shape[2]) and node.attributes.get("axis") in (1, -2):
                return lambda: self._row_before(node, row, x, shape)
        x = node.inputs[0]
        there = self._shape(x)
        index = self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.operator == "Gather" and len(there) == 3 and node.attributes.get("axis") == 1 and there[0] == 1:
            return (
                (lambda: self._first_row(node, x, shape)) if index is not None and not index.any() and index.size == 1 else None
            )
        axes = node.attributes.get("axes") if index is None else index.ravel().tolist()
        places = list(range(1, len(there) - 1))
        if (
            node.operator == "ReduceMean"
            and axes is not None
            and there[0] == 1
            and sorted(at % len(there) for at in axes) == places
        ):
            return lambda: self._give(
                node, self._add("GlobalAveragePool", node.name, [self.last[x]], (1, there[-1], 1, 1)), shape
            )
        return None

    def _row_before(self, node: Node, row: Array, x: str, shape: Shape) -> None:
        channels, count = shape[2], shape[1]
        tensor = self.last[x]
        if self._shape(tensor)[3] != 1:
            tensor = self._wide(tensor, node.name, (1, channels, count - 1, 1))
        pads = self._constant(node.name, [0, 0, 1, 0, 0, 0, 0, 0], np.int64)
        tensor = self._add("Pad", node.name, [tensor, pads], (1, channels, count, 1))
        values = np.zeros((1, channels, count, 1), np.float32)
        values[0, :, 0, 0] = row.ravel()
        self._give_rows(node, self._add("Add", node.name, [tensor, self._constant(node.name, values)], values.shape), shape)

    def _first_row(self, node: Node, x: str, shape: Shape) -> None:
        tensor = self.last[x]
        _, channels, height, width = self._shape(tensor)
        bounds = [self._constant(node.name, values, np.int64) for values in ([0, 0], [1 << 30] * 2, [2, 3], [height, width])]
        self._give(node, self._add("Slice", node.name, [tensor, *bounds], (1, channels, 1, 1)), shape)

    def _of_groups(self, node: Node, shape: Shape) -> Callable[[], None] | None:
        """Sums and shares of groups of channels; one filter along channels; one norm of a whole image."""
        x = node.inputs[0]
        source, before = self.first.get(x), self.graph.shapes.get(x, ())
        if (
            source is None
            or len(before) < 2
            or before[0] != 1
            or (len(before) == 4 == len(self._shape(source)) and x == source)
        ):
            return None
        made, axes = self._shape(source), self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        groups, pixel = before[1], made[2:] == (1, 1)
        axes = np.array(node.attributes["axes"]) if "axes" in node.attributes else axes
        if (
            node.operator == "ReduceSum"
            and axes is not None
            and axes.tolist() == [1]
            and made[1] % groups == 0
            and len(before) > 3
        ):
            return lambda: self._give(node, self._sum(node, source, groups), shape)
        if node.operator == "Softmax" and node.attributes.get("axis") == 1 and groups == 2 and made[1] % 2 == 0 and pixel:
            return lambda: self._give(node, self._shares(node, source), shape)
        if node.operator == "Concat" and len(before) == 5 and node.attributes.get("axis") == 1:
            parts = [self.first.get(name, "") for name in node.inputs]
            if "" not in parts and len({self._shape(name)[2:] for name in parts}) == 1:
                total = (1, sum(self._shape(name)[1] for name in parts), *made[2:])
                return lambda: self._give(node, self._add("Concat", node.name, parts, total, axis=1), shape)
        if node.operator == "Mul" and len(before) == 5 and all(name in self.first for name in node.inputs):
            others = [self.first[name] for name in node.inputs]
            if [math.prod(self._shape(name)[1:3]) for name in node.inputs] == [made[1]] * 2 and self._shape(others[1])[
                1
            ] == made[1]:
                largest = max((self._shape(name) for name in others), key=math.prod)
                return lambda: self._give(node, self._add("Mul", node.name, others, largest), shape)
        if node.operator == "InstanceNormalization" and before[1] == 1 and len(before) == 3:
            scale, shift = (self.graph.constants.get(name) for name in node.inputs[1:3])
            if scale is not None and shift is not None and scale.size == shift.size == 1:
                return lambda: self._give(node, self._whole(node, source, float(scale.item()), float(shift.item())), shape)
        if node.operator == "Conv" and pixel and before == (1, 1, made[1]):
            return self._along_channels(node, source, shape)
        if node.operator in ("Sigmoid", "HardSigmoid") and pixel:
            return lambda: self._give(node, self._add(node.operator, node.name, [source], made, **node.attributes), shape)
        return None

    def _parts(self, node: Node, source: str, count: int) -> list[str]:
        _, channels, height, width = self._shape(source)
        names = [f"{node.name}/{len(self.nodes)}.{part}" for part in range(count)]
        self.own.update(names)
        self.nodes.append(Node("Split", names[0], [source], names, {"axis": 1, "split": [channels // count] * count}))
        self.graph.shapes.update(dict.fromkeys(names, (1, channels // count, height, width)))
        return names

    def _sum(self, node: Node, source: str, groups: int) -> str:
        parts = self._parts(node, source, groups)
        return self._add("Sum", node.name, parts, self._shape(parts[0])) if groups > 1 else source

    def _shares(self, node: Node, source: str) -> str:
        """Of two values the shares by softmax are the logistic functions of their differences."""
        a, b = self._parts(node, source, 2)
        half = self._shape(a)
        pairs = [self._add("Sub", node.name, list(pair), half) for pair in ((a, b), (b, a))]
        shares = [self._add("Sigmoid", node.name, [x], half) for x in pairs]
        return self._add("Concat", node.name, shares, self._shape(source), axis=1)

    def _whole(self, node: Node, source: str, scale: float, shift: float) -> str:
        made, epsilon = self._shape(source), node.attributes.get("epsilon", 1e-5)
        x = self._add("mpnet.LayerNorm", node.name, [source], made, epsilon=epsilon, whole=1)
        for operator, value, usual in (("Mul", scale, 1.0), ("Add", shift, 0.0)):
            if value != usual:
                x = self._add(operator, node.name, [x, self._constant(node.name, [value])], made)
        return x

    def _along_channels(self, node: Node, source: str, shape: Shape) -> Callable[[], None] | None:
        """A filter of one channel along what are channels: a band of weights."""
        weights, made = self.graph.constants.get(node.inputs[1]), self._shape(source)
        size, pads = 0 if weights is None else weights.size, node.attributes.get("pads") or [0, 0]
        plain = not node.attributes.get("strides", [1])[0] - 1 and not node.attributes.get("dilations", [1])[0] - 1
        if weights is None or weights.ndim != 3 or weights.shape[:2] != (1, 1) or not plain or sum(pads) != size - 1:
            return None
        if len(node.inputs) > 2 or made[1] > 4096:
            return None
        band = sum(np.eye(made[1], k=at - pads[0]) * weights[0, 0, at] for at in range(size))
        matrix = self._constant(node.name, np.asarray(band)[:, :, None, None])
        return lambda: self._give(node, self._add("Conv", node.name, [source, matrix], made), shape)


def _keeps_order(node: Node, shape: Shape) -> bool:
    """Whether a transposition moves axes of one value only."""
    perm = [axis for axis in node.attributes.get("perm") or () if 0 <= axis < len(shape) and shape[axis] > 1]
    return bool(node.attributes.get("perm")) and perm == sorted(perm)
