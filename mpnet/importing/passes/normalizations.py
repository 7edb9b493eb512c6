# SPDX-License-Identifier: MIT
"""Normalisations by the sizes of channels, recognised where they are written as several nodes.

ConvNeXt V2 divides each channel's norm over all pixels by the mean of these norms, multiplies the channel by that, and adds its
input again. Source: Woo et al., ConvNeXt V2, 2023, section 3.
"""

from __future__ import annotations

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import OperatorCall
from mpnet.importing.operators.elementwise import SHARES_EPSILON

_ROOT = 0.5


def recognize_normalizations(graph: NodeGraph) -> None:
    """Put one node in place of a global response normalisation, and one in place of shares in the sum of all channels.

    mpnet.ResponseNorm: x, scale and shift of each channel -> x * (scale * n + residual) + shift, n = norm / (mean + epsilon).
    """
    if any(node.operator in ("ReduceL2", "Sqrt", "ReduceSum") for node in graph.nodes):
        _Recognizer(graph).recognize()


class _Recognizer:
    """The graph with makers and readers, and what replaces its nodes, by the identity of the last one."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.makers, self.readers = graph, graph.makers(), graph.readers()
        self.replacements: dict[int, Node] = {}

    def recognize(self) -> None:
        """Replace what is recognised."""
        for node in self.graph.nodes:
            if node.operator == "ReduceMean":
                self._recognize_response_norm(node)
            elif node.operator == "Div":
                self._recognize_shares(node)
        self.graph.nodes = [self.replacements.get(id(node), node) for node in self.graph.nodes]

    def _recognize_response_norm(self, mean: Node) -> None:
        found = self._find_norm(mean.inputs[0]) if mean.inputs else None
        if found is None:
            return
        x, axis = found
        channels = self.graph.shapes[x][axis]
        raised = self._find_only_reader(mean.output, "Add")
        epsilon = None if raised is None else self._find_number(raised, mean.output)
        quotient = None if raised is None else self._find_only_reader(raised.output, "Div")
        if not self._reduces(mean, [axis]) or epsilon is None or epsilon <= 0 or raised is None or quotient is None:
            return
        if quotient.inputs != [mean.inputs[0], raised.output]:
            return
        last_node = self._find_only_reader(quotient.output, "Mul")
        if last_node is None or sorted(last_node.inputs) != sorted([x, quotient.output]):
            return
        scale, shift, residual = np.ones(channels), np.zeros(channels), 0
        while not residual and (reader := self._find_only_reader(last_node.output)) is not None:
            values = self._find_channel_values(reader, last_node.output, axis, channels)
            if reader.operator == "Add" and sorted(reader.inputs) == sorted([x, last_node.output]):
                residual = 1
            elif values is None:
                break
            elif reader.operator == "Mul":
                scale, shift = scale * values, shift * values
            else:
                shift = shift + values
            last_node = reader
        inputs = [x]
        for word, values in (("scale", scale), ("shift", shift)):
            name = f"{last_node.output}/{word}"
            self.graph.constants[name] = values.astype(np.float32)
            inputs.append(name)
        attributes = {"epsilon": epsilon, "residual": residual, "axis": axis}
        self.replacements[id(last_node)] = Node("mpnet.ResponseNorm", last_node.name, inputs, [last_node.output], attributes)

    def _recognize_shares(self, quotient: Node) -> None:
        """Recognise relu(x) / (sum of relu(x) over channels + 0.0001), as mpnet writes normalize_channels."""
        raised = self.makers.get(quotient.inputs[1]) if len(quotient.inputs) == 2 else None
        total = self.makers.get(raised.inputs[0]) if raised is not None and raised.operator == "Add" else None
        relu = self.makers.get(quotient.inputs[0])
        if raised is None or total is None or relu is None or relu.operator != "Relu" or total.operator != "ReduceSum":
            return
        epsilon = self._find_number(raised, total.output)
        if epsilon is None or np.float32(epsilon) != np.float32(SHARES_EPSILON) or total.inputs[0] != relu.output:
            return
        if len(self.graph.shapes.get(relu.output, ())) == 4 and self._reduces(total, [1]):
            self.replacements[id(quotient)] = Node("mpnet.ChannelShares", quotient.name, relu.inputs[:1], [quotient.output])

    def _find_norm(self, name: str) -> tuple[str, int] | None:
        """Return the tensor whose channels' norms over all pixels a tensor holds, and its axis of channels."""
        node = self.makers.get(name)
        if node is None or not node.inputs:
            return None
        if node.operator == "ReduceL2":
            return self._find_pixel_axes(node, node.inputs[0])
        total = self.makers.get(node.inputs[0]) if self._is_root(node) else None
        if total is None or total.operator not in ("ReduceSum", "ReduceSumSquare") or not total.inputs:
            return None
        if total.operator == "ReduceSumSquare":
            return self._find_pixel_axes(total, total.inputs[0])
        square = self.makers.get(total.inputs[0])
        if square is None or not square.inputs:
            return None
        is_product = square.operator == "Mul" and square.inputs[0] == square.inputs[-1]
        if is_product or (square.operator == "Pow" and self._find_number(square, square.inputs[0]) == 2):
            return self._find_pixel_axes(total, square.inputs[0])
        return None

    def _is_root(self, node: Node) -> bool:
        return node.operator == "Sqrt" or (node.operator == "Pow" and self._find_number(node, node.inputs[0]) == _ROOT)

    def _find_pixel_axes(self, node: Node, x: str) -> tuple[str, int] | None:
        shape = self.graph.shapes.get(x, ())
        if len(shape) == 4 and shape[0] == 1 and x not in self.graph.constants:
            for channel_axis, pixel_axes in ((1, [2, 3]), (3, [1, 2])):
                if self._reduces(node, pixel_axes):
                    return x, channel_axis
        return None

    def _reduces(self, node: Node, axes: list[int]) -> bool:
        """Return whether a node reduces these axes of four, and keeps them with one value each."""
        try:
            call = OperatorCall.in_graph(self.graph, node)
            found_axes, keeps = call.axes(rank=4), call.integer("keepdims", 1)
        except Refused:
            return False
        return found_axes is not None and sorted(found_axes) == axes and bool(keeps)

    def _find_only_reader(self, name: str, operator: str = "") -> Node | None:
        """Return the only node that reads a tensor, where it is of that operator ('': any)."""
        readers = self.readers.get(name, [])
        is_only = len(readers) == 1 and name not in self.graph.outputs
        return readers[0] if is_only and operator in ("", readers[0].operator) else None

    def _find_number(self, node: Node, x: str) -> float | None:
        """Return the one number that a node takes besides `x`."""
        constant = self._find_constant(node, x)
        return float(constant.ravel()[0]) if constant is not None and constant.size == 1 else None

    def _find_constant(self, node: Node, x: str) -> Array | None:
        if len(node.inputs) != 2 or x not in node.inputs:
            return None
        return self.graph.constants.get(node.inputs[1 - node.inputs.index(x)])

    def _find_channel_values(self, node: Node, x: str, axis: int, channels: int) -> Array | None:
        """Return the values for each channel that a node multiplies by, or adds; None for any other node."""
        constant = self._find_constant(node, x) if node.operator in ("Mul", "Add") else None
        if constant is None or constant.ndim > 4 or constant.size not in (1, channels):
            return None
        sides = (1,) * (4 - constant.ndim) + constant.shape
        if constant.size > 1 and sides[axis] != channels:
            return None
        return np.broadcast_to(constant.ravel().astype(np.float64), channels)
