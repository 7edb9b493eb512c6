# SPDX-License-Identifier: MIT
"""A graph whose tensors of other axes are followed back to tensors (1, channels, height, width), while it is rewritten."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import Node, NodeGraph
from mpnet.importing.operators.record import Shape


class LayoutRewriter:
    """The graph while it is rewritten.

    nodes:         so far.
    in_order:      by tensor: the (1, c, h, w) tensor whose values it holds in their order, under another shape.
    channels_last: by tensor: the (1, c, h, w) tensor whose values it holds with the channels behind the pixels.
    own_tensors:   tensors that no file has.
    aliases:       tensors that are others under a second name.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.nodes = graph, list[Node]()
        self.in_order: dict[str, str] = {}
        self.channels_last: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.own_tensors: set[str] = set()

    def is_computed(self, name: str) -> bool:
        """Return whether a tensor is neither left out nor a constant."""
        return name != "" and name not in self.graph.constants

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a tensor of the graph."""
        return self.graph.shapes[name]

    def set_values(self, node: Node, tensor: str, shape: Shape) -> None:
        """Let a node's result be the values of a (1, c, h, w) tensor in their order."""
        if shape == self.shape_of(tensor):
            self.set_alias(node, tensor)
            return
        self.nodes.append(
            Node("Reshape", node.name, [tensor, self.add_constant(node.name, shape, np.int64)], [node.outputs[0]])
        )
        self.in_order[node.outputs[0]] = tensor

    def set_alias(self, node: Node, tensor: str) -> None:
        """Let a node's result be a second name of a tensor."""
        output = node.outputs[0]
        if tensor in self.own_tensors and tensor not in self.aliases:
            self.aliases[tensor] = output  # the file's own name
        else:
            self.aliases[output] = self.aliases.get(tensor, tensor)
        self.graph.outcomes[node.name] = "moves values back"
        self.in_order[node.outputs[0]] = node.outputs[0]

    def add_node(self, operator: str, name: str, inputs: list[str], shape: Shape, **attributes: object) -> str:
        """Append a node with a result of that shape, and return the result's name."""
        output = f"{name}/{len(self.nodes)}"
        self.own_tensors.add(output)
        self.nodes.append(Node(operator, output, inputs, [output], attributes))
        self.graph.shapes[output] = shape
        return output

    def add_constant(self, name: str, values: ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        """Add a constant and return its name."""
        name_of_constant = f"{name}/constant{len(self.graph.constants)}"
        self.graph.constants[name_of_constant] = np.asarray(values, dtype)
        return name_of_constant

    def add_reshape(self, x: str, name: str, shape: Shape) -> str:
        """Append a Reshape of a tensor and return its result."""
        return self.add_node("Reshape", name, [x, self.add_constant(name, shape, np.int64)], shape)

    def add_wide_reshape(self, x: str, name: str, shape: Shape) -> str:
        """Append a move of the pixels of a tensor to other sides, and return its result."""
        return self.add_node("mpnet.Reshape", name, [x], shape, width=shape[3])

    def split_channels(self, node: Node, source: str, count: int) -> list[str]:
        """Append a split of a tensor's channels into so many equal groups, and return these."""
        _, channels, height, width = self.shape_of(source)
        names = [f"{node.name}/{len(self.nodes)}.{number}" for number in range(count)]
        self.own_tensors.update(names)
        self.nodes.append(Node("Split", names[0], [source], names, {"axis": 1, "split": [channels // count] * count}))
        self.graph.shapes.update(dict.fromkeys(names, (1, channels // count, height, width)))
        return names
