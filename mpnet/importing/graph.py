# SPDX-License-Identifier: MIT
"""A network as another program's file describes it: nodes in the words of ONNX, tensors NCHW, constants as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import FormatError
from mpnet.messages import shown

Array = NDArray[Any]
MAX_NODES = 20_000
MAX_TENSORS = 100_000
MAX_RANK = 8


class Refused(Exception):
    """Why a node has no form in a cfg, with the remedy: a text without the node's name."""


@dataclass
class Node:
    """operator: in ONNX's words. inputs, outputs: names of tensors, '' for one that is left out. attributes: plain values."""

    operator: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """The first."""
        return self.outputs[0]


@dataclass(frozen=True)
class Codes:
    """How the integers of a quantised tensor mean reals: (q - zero_point) * scale.

    scale, zero_point: one value, or one for each index of `axis`. low, high: the integers that its type has.
    """

    scale: NDArray[np.float64]
    zero_point: NDArray[np.int64]
    low: int
    high: int
    axis: int = 0


@dataclass
class Graph:
    """nodes: in an order in which they can run, once `mpnet.importing.fold` has seen them.

    inputs:    shape by name, of tensors that no node makes and no constant is.
    shapes:    of all tensors for which they are known.
    codes:     by tensor: how it is quantised in the file. stored: the integers of quantised constants.
    measured:  tensors that some int8 node quantises by a range of their own, found when the file runs.
    metadata:  texts that came with the file. image: the input's name, once it is known.
    """

    source: str
    nodes: list[Node]
    constants: dict[str, Array]
    inputs: dict[str, tuple[int, ...]]
    outputs: list[str]
    metadata: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    codes: dict[str, Codes] = field(default_factory=dict)
    stored: dict[str, Array] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    image: str = ""
    format: str = "ONNX"
    fates: dict[str, str] = field(default_factory=dict)
    """What became of nodes that are no layers, by node name."""

    renamed: dict[str, str] = field(default_factory=dict)
    """Tensors that are others under a second name."""

    def tensor(self, name: str) -> str:
        """The tensor that a name of the file stands for."""
        for _ in range(len(self.renamed) + 1):
            if name not in self.renamed:
                break
            name = self.renamed[name]
        return name

    def fail(self, message: str) -> NoReturn:
        """Raise FormatError."""
        raise FormatError(f"{self.source}: {message}")

    def refuse(self, node: Node, reason: str) -> NoReturn:
        """Raise FormatError about a node."""
        self.fail(f"node {shown(node.name)} ({shown(node.operator)[1:-1]}): {reason}")

    def makers(self) -> dict[str, Node]:
        """The node that makes each tensor."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each tensor."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def rename(self, old: str, new: str) -> None:
        """Let everything that reads `old` read `new`."""
        for node in self.nodes:
            node.inputs = [new if name == old else name for name in node.inputs]
        self.outputs = [new if name == old else name for name in self.outputs]

    def order(self) -> None:
        """Put the nodes into an order in which they can run. Raises: FormatError for circles and tensors that nobody makes."""
        if len(self.nodes) > MAX_NODES:
            self.fail(f"{len(self.nodes)} nodes; the limit is {MAX_NODES}")
        known = set(self.constants) | set(self.inputs) | {""}
        makers: dict[str, Node] = {}
        for node in self.nodes:
            for output in node.outputs:
                if output and (output in makers or output in known):
                    self.refuse(node, f"the tensor {shown(output)} is made twice; the file is damaged")
                makers[output] = node
        waiting = {id(node): len({n for n in node.inputs if n not in known}) for node in self.nodes}
        readers = self.readers()
        for node in self.nodes:
            for name in node.inputs:
                if name not in known and name not in makers:
                    self.refuse(node, f"reads the tensor {shown(name)}, which nothing makes; the file is damaged")
        ready = [node for node in self.nodes if waiting[id(node)] == 0]
        ordered: list[Node] = []
        for node in ready:  # grows while it is read
            ordered.append(node)
            for output in dict.fromkeys(node.outputs):
                for reader in readers.get(output, ()) if output else ():
                    waiting[id(reader)] -= 1
                    if waiting[id(reader)] == 0:
                        ready.append(reader)
        if len(ordered) < len(self.nodes):
            left = next(node for node in self.nodes if waiting[id(node)] > 0)
            self.refuse(left, "is part of a circle; the file is damaged")
        position = {id(node): number for number, node in enumerate(self.nodes)}
        places = [
            min((position[id(r)] for o in n.outputs for r in readers.get(o, ()) if o), default=len(position))
            for n in self.nodes
        ]
        if any(reader <= own for own, reader in enumerate(places)):
            self.nodes = ordered
        for name in self.outputs:
            if name not in makers and name not in known:
                self.fail(f"the output {shown(name)} is made by nothing; the file is damaged")
