# SPDX-License-Identifier: MIT
"""What a network is made of, between another program's nodes and the sections of a cfg."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Chw = tuple[int, int, int]


@dataclass
class Item:
    """One operation on tensors of one image.

    kind:   conv, deconv, dense, affine, activation, prelu, maxpool, avgpool, global, upsample, concat, slice, sample, add,
            mul, pad, softmax, flatten, space_to_depth.
    nodes:  names of the nodes that it stands for.
    shape:  (c, h, w) of the result.
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
        """The one that follows in the same layer."""
        return str(self.values.get("activation", "linear"))


@dataclass
class Body:
    """The part of a graph that layers are made of.

    items:   in order. shapes: (c, h, w) of every tensor in it.
    reasons: why a node is no part of it, by the node's name; nodes that read what is beyond have none.
    """

    items: list[Item]
    shapes: dict[str, Chw]
    reasons: dict[str, str]

    def readers(self) -> dict[str, list[Item]]:
        """The items that read each tensor."""
        found: dict[str, list[Item]] = {}
        for item in self.items:
            for name in dict.fromkeys(item.inputs):
                found.setdefault(name, []).append(item)
        return found

    def makers(self) -> dict[str, Item]:
        """The item that makes each tensor."""
        return {item.output: item for item in self.items}
