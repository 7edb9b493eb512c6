# SPDX-License-Identifier: MIT
"""A network as another program's file describes it: nodes in the words of ONNX, tensors NCHW, constants as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, NoReturn

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import FormatError
from mpnet.messages import one_line, shown

Array = NDArray[Any]
MAX_NODES = 20_000
MAX_TENSORS = 100_000
MAX_OPERANDS = 1024


class Refused(Exception):
    """The reason why a node has no form in a cfg, with the remedy: a text without the node's name."""


@dataclass(eq=False)
class Node:
    """One operation of the file.

    operator: in ONNX's words. inputs, outputs: names of tensors, '' for one that is left out. attributes: plain values.
    """

    operator: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """Return the name of the first result."""
        return self.outputs[0]


@dataclass(frozen=True)
class QuantizationParameters:
    """The map from the integers of a quantised tensor to reals: (q - zero_point) * scale.

    scale, zero_point: one value, or one for each index of `axis`. low, high: the integers that its type has.
    """

    scale: NDArray[np.float64]
    zero_point: NDArray[np.int64]
    low: int
    high: int
    axis: int = 0

    @classmethod
    def from_file(cls, scale: Array, zero_point: Array, dtype: str, axis: int) -> QuantizationParameters:
        """Return the parameters that a file holds; low and high are 0 for types that are not in QUANTIZED_TYPES.

        Raises: Refused.
        """
        scale, zero_point = np.asarray(scale, np.float64).ravel(), np.asarray(zero_point, np.int64).ravel()
        if not np.isfinite(scale).all() or (scale <= 0).any() or zero_point.size not in (1, scale.size):
            raise Refused("its scale is no positive number; the file is damaged")
        low, high = QUANTIZED_TYPES.get(dtype, (0, 0))
        if high - low == 65535 and (zero_point - low != 32768).any():
            raise Refused("its integers of 16 bits mean 0 by another than the middle one; quantise activations symmetrically")
        return cls(scale, np.broadcast_to(zero_point, scale.size), low, high, axis)

    @property
    def bits(self) -> int:
        """Count the bits of an integer."""
        return (self.high - self.low).bit_length()

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the reals that a tensor's integers span; those of 16 bits as far below 0 as above, as their scale is found."""
        lowest = self.low + (self.bits == 16)
        scale, zero = float(self.scale[0]), int(self.zero_point[0])
        return (lowest - zero) * scale, (self.high - zero) * scale


QUANTIZED_TYPES: dict[str, tuple[int, int]] = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
}
"""The lowest and the highest integer of the types that mpnet takes from quantised files."""


@dataclass
class NodeGraph:
    """A file's network.

    nodes:           in an order in which they can run, once `mpnet.importing.passes.fold` has seen them.
    inputs:          shape by name, of tensors that no node makes and no constant is. input_types: their types, such as uint8,
                     where they are known.
    shapes:          of all tensors for which they are known.
    quantization:    by tensor: how it is quantised in the file. stored_integers: of quantised constants, as they are.
    dynamic_ranges:  tensors that some int8 node quantises by a range of their own, measured when the file runs, and in which
                     `quantize_mode`.
    metadata:        texts that came with the file. image: the input's name, once it is known.
    outcomes:        what became of nodes that are no layers, by node name.
    aliases:         tensors that are others under a second name.
    origins:         the file's node, by the names of nodes that were put in its place.
    has_half_floats: whether some constant was rounded to float16 or bfloat16.
    """

    source: str
    nodes: list[Node]
    constants: dict[str, Array]
    inputs: dict[str, tuple[int, ...]]
    outputs: list[str]
    metadata: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    quantization: dict[str, QuantizationParameters] = field(default_factory=dict)
    stored_integers: dict[str, Array] = field(default_factory=dict)
    dynamic_ranges: dict[str, str] = field(default_factory=dict)
    image: str = ""
    format: str = "ONNX"
    outcomes: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    origins: dict[str, Node] = field(default_factory=dict)
    has_half_floats: bool = False
    input_types: dict[str, str] = field(default_factory=dict)

    def tensor(self, name: str) -> str:
        """Return the tensor that a name of the file stands for."""
        for _ in range(len(self.aliases) + 1):
            if name not in self.aliases:
                break
            name = self.aliases[name]
        return name

    def fail(self, message: str) -> NoReturn:
        """Raise FormatError."""
        raise FormatError(f"{self.source}: {one_line(message)}")

    def refuse(self, node: Node, reason: object) -> NoReturn:
        """Raise FormatError about a node."""
        node = self.origins.get(node.name, node)
        self.fail(f"node {shown(node.name)} ({shown(node.operator)[1:-1]}): {reason}")

    def makers(self) -> dict[str, Node]:
        """Return the node that makes each tensor."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def readers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each tensor."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def rename(self, old_name: str, new_name: str) -> None:
        """Let everything that reads `old_name` read `new_name`."""
        for node in self.nodes:
            node.inputs = [new_name if name == old_name else name for name in node.inputs]
        self.outputs = [new_name if name == old_name else name for name in self.outputs]

    def order(self) -> None:
        """Put the nodes into an order in which they can run. Raises: FormatError for circles and tensors that nobody makes."""
        if len(self.nodes) > MAX_NODES:
            self.fail(f"{len(self.nodes)} nodes; the limit is {MAX_NODES}")
        sources = set(self.constants) | set(self.inputs) | {""}
        makers: dict[str, Node] = {}
        in_order = True
        for node in self.nodes:
            if max(len(node.inputs), len(node.outputs)) > MAX_OPERANDS:
                self.refuse(node, f"has more than {MAX_OPERANDS} inputs or results; the file is damaged")
            in_order = in_order and all(name in sources or name in makers for name in node.inputs)
            for output in node.outputs:
                if output and (output in makers or output in sources):
                    self.refuse(node, f"the tensor {shown(output)} is made twice; the file is damaged")
                makers[output] = node
        for node in self.nodes:
            for name in node.inputs:
                if name not in sources and name not in makers:
                    self.refuse(node, f"reads the tensor {shown(name)}, which nothing makes; the file is damaged")
        for name in self.outputs:
            if name not in makers and name not in sources:
                self.fail(f"the output {shown(name)} is made by nothing; the file is damaged")
        if in_order:
            return
        inputs_missing = {id(node): len({name for name in node.inputs if name not in sources}) for node in self.nodes}
        readers = self.readers()
        ordered = [node for node in self.nodes if inputs_missing[id(node)] == 0]
        for node in ordered:  # grows while it is read
            for output in dict.fromkeys(node.outputs):
                for reader in readers.get(output, ()):
                    inputs_missing[id(reader)] -= 1
                    if inputs_missing[id(reader)] == 0:
                        ordered.append(reader)
        if len(ordered) < len(self.nodes):
            unordered_node = next(node for node in self.nodes if inputs_missing[id(node)] > 0)
            self.refuse(unordered_node, "is part of a circle; the file is damaged")
        self.nodes = ordered

    def reaching(self, tensors: Iterable[str]) -> list[Node]:
        """Return the nodes, which are in order, that some of the tensors depends on."""
        needed_tensors, nodes = set(tensors), []
        for node in reversed(self.nodes):
            if needed_tensors.intersection(node.outputs):
                needed_tensors.update(name for name in node.inputs if name)
                nodes.append(node)
        return nodes[::-1]
