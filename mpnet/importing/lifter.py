# SPDX-License-Identifier: MIT
"""What nodes are lifted with: the items so far, and questions about a node's inputs and results."""

from __future__ import annotations

import math
from typing import Any, Sequence

from mpnet.importing.graph import Array, Graph, Node, Refused
from mpnet.importing.items import Body, Chw, Item

_MAX_VALUES = 1 << 30


class Lifter:
    """Items so far: `body`; what is asked of `graph`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        _, c, h, w = graph.shapes[graph.image]
        self.body = Body([], {graph.image: (c, h, w)}, {})

    def constant(self, node: Node, at: int) -> Array | None:
        """An input that is a constant; None when it is left out. Raises: Refused for another tensor."""
        if len(node.inputs) <= at or not node.inputs[at]:
            return None
        found = self.graph.constants.get(node.inputs[at])
        if found is None:
            raise Refused(f"its input {at} is computed when the model runs; only constants are possible there")
        return found

    def result(self, node: Node, at: int = 0) -> Chw:
        """The shape of a result, as the file's rules give it. Raises: Refused."""
        shape = self.graph.shapes.get(node.outputs[at])
        if shape is None:
            raise Refused("the shape of its result is not fixed; export the model with static shapes")
        if 0 in shape:
            raise Refused(f"its result of the shape {list(shape)[:8]} has no values")
        if math.prod(shape) > _MAX_VALUES:
            raise Refused(f"its result of the shape {list(shape)[:8]} is larger than mpnet holds")
        if len(shape) == 2 and shape[0] == 1:
            return (shape[1], 1, 1)
        if len(shape) != 4 or shape[0] != 1:
            raise Refused(f"its result has the shape {list(shape)}; layers give (1, channels, height, width)")
        return shape[1:]

    def add(self, node: Node, kind: str, inputs: Sequence[str], shape: Chw, output: str = "", **values: Any) -> str:
        """Append an item; its output."""
        name = output or node.output
        self.body.items.append(Item(kind, [node.name], list(inputs), name, shape, values))
        self.body.shapes[name] = shape
        return name

    def rank(self, name: str) -> int:
        """Of a tensor in the file."""
        return len(self.graph.shapes[name])
