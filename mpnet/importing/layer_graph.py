# SPDX-License-Identifier: MIT
"""The layers of a network, between another program's nodes and the sections of a cfg."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Chw = tuple[int, int, int]


@dataclass(eq=False)
class LayerOperation:
    """One operation on tensors of one image, which becomes a layer or a part of one.

    kind:   conv, deconv, dense, affine, activation, prelu, maxpool, avgpool, global, upsample, concat, slice, sample, add,
            mul, pad, softmax, flatten, shuffle, space_to_depth, depth_to_space, reshape, layernorm, offset.
    nodes:  names of the nodes that it stands for.
    shape:  (channels, height, width) of the result.
    values: parameters by name; arrays as ONNX has them.
    """

    kind: str
    nodes: list[str]
    inputs: list[str]
    output: str
    shape: Chw
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def activation(self) -> str:
        """Return the activation that follows in the same layer."""
        return str(self.values.get("activation", "linear"))


@dataclass
class LayerGraph:
    """The operations of a file's graph that layers are made of.

    operations: in an order in which they can run. shapes: (channels, height, width) of every tensor in it.
    reasons:    why a node is no part of it, by the node's name; nodes that read what is behind such a node have none.
    """

    operations: list[LayerOperation]
    shapes: dict[str, Chw]
    reasons: dict[str, str]

    def readers(self) -> dict[str, list[LayerOperation]]:
        """Return the operations that read each tensor."""
        readers: dict[str, list[LayerOperation]] = {}
        for operation in self.operations:
            for name in dict.fromkeys(operation.inputs):
                readers.setdefault(name, []).append(operation)
        return readers

    def makers(self) -> dict[str, LayerOperation]:
        """Return the operation that makes each tensor."""
        return {operation.output: operation for operation in self.operations}

    def node_names(self) -> set[str]:
        """Return the names of all nodes that operations stand for."""
        return {name for operation in self.operations for name in operation.nodes}
