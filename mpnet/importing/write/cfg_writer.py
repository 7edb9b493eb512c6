# SPDX-License-Identifier: MIT
"""Operations as the sections of a cfg, with the values that go into its weights file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Iterable, Mapping
from urllib.parse import quote

import numpy as np

from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.cfg.tokens import MAX_LINE_CHARACTERS
from mpnet.formats.weights import weights_content
from mpnet.importing.graph import Array, Refused
from mpnet.importing.heads import Head
from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Floats, Weights

WEIGHTED = ("conv", "deconv", "dense")
"""Kinds of operations that have weights."""

# Of node names, what stands in a cfg as it is.
_PLAIN = "/:._-()[]{}<>*+@$!?^|~"


@dataclass
class WrittenCfg:
    """The two files of a network.

    text, weights: contents of the cfg and of the weights. network: the cfg read back.
    layer_of:      index of the layer that makes a tensor, -1 for the image.
    layer_texts:   index and kind of each node's layer, for people.
    """

    text: str
    network: NetworkSpec
    weights: bytes
    layer_of: dict[str, int]
    layer_texts: dict[str, str]


@dataclass
class _Section:
    kind: str
    keys: dict[str, Any]
    comment: str


class CfgWriter:
    """The sections of a cfg so far.

    layer_of:         index of the layer that makes a tensor.
    weights, values:  as mpnet.model.weights has them, by layer index.
    rounded_tensors:  precisions of tensors of layers with weights that are rounded whoever reads them, by a layer of its own.
    unrounded_index:  the layer before that, by tensor.
    flat_tensors:     tensors that are many pixels as one row.
    padded_tensors:   tensor that a [pad] of a convolution's own surrounds, by index.
    sources:          nodes of the file that a layer stands for, by index.
    """

    def __init__(self, graph: LayerGraph, image: str, rounded: Mapping[str, str] | None = None) -> None:
        self.shapes, self.makers, self.rounded_tensors = graph.shapes, graph.makers(), rounded or {}
        self.unrounded_index: dict[str, int] = {}
        self.sections: list[_Section] = []
        self.layer_of: dict[str, int] = {image: -1}
        self.weights: dict[int, ConvolutionWeights] = {}
        self.values: dict[int, Floats] = {}
        self.layer_texts: dict[str, str] = {}
        self.sources: dict[int, tuple[str, ...]] = {}
        self.flat_tensors: set[str] = set()
        self.padded_tensors: dict[int, str] = {}
        operations, readers = graph.operations, graph.readers().get(image, [])
        if (
            len(readers) > 1
            or (operations and image not in operations[0].inputs)
            or any(reader.kind == "concat" for reader in readers)
        ):
            # Only the first layer reads the image; others name a layer. The comment's word is that of 0.1.0, whose cfgs had
            # the same digests.
            self.layer_of[image] = self.emit("empty", "the picture, for several readers")

    def emit(self, kind: str, comment: str = "", /, **keys: object) -> int:
        """Append a section that reads the one before it; its layer index. Keys of None are left out."""
        self.sections.append(_Section(kind, {name: value for name, value in keys.items() if value is not None}, comment))
        return len(self.sections) - 1

    def read_tensor(self, tensor: str) -> None:
        """Let the next section read this tensor."""
        index = self.layer_of[tensor]
        if index != len(self.sections) - 1:
            if index < 0:
                raise Refused("reads the image itself behind other layers, which has no form in a cfg")
            self.emit("route", layers=index)

    def emit_after_input(self, operation: LayerOperation, kind: str, /, **keys: object) -> int:
        """Append the section of an operation that reads its first input; its layer index."""
        self.read_tensor(operation.inputs[0])
        return self.emit(kind, join_node_names(operation), **keys)

    def write_head(self, head: Head, classes: int) -> None:
        """Write a head."""
        if len(head.tensors) > 1:
            self.emit("route", layers=self.list_indices(head.tensors))
        else:
            self.read_tensor(head.tensors[0])
        self.emit("yolo", decoder=head.decoder if head.decoder != "darknet" else None, classes=classes, **dict(head.keys))

    def list_indices(self, tensors: Iterable[str]) -> str:
        """Return the layers that make tensors, as a [route] names them. Raises: Refused for the image, which is none."""
        indices = [self.layer_of[name] for name in tensors]
        if min(indices) < 0:
            raise Refused("joins the image itself, which has no form in a cfg")
        return ",".join(map(str, indices))

    def list_sources(self, node_names: Collection[str], ambiguous_names: Collection[str]) -> tuple[dict[int, str], str]:
        """Return the `source` of each layer, and why no layer has one, '' where they have.

        Recipes for other programs name all nodes of the imported file or none, so one that cannot be named decides for all.

        node_names: of the file's nodes. ambiguous_names: those that only mpnet gave, or that several nodes have.
        """
        sources = {}
        for index, nodes in self.sources.items():
            names = [name for name in dict.fromkeys(nodes) if name in node_names]
            if any(name in ambiguous_names for name in names):
                return {}, "not all nodes of the file have a name of their own"
            if names:
                sources[index] = ",".join(quote(name, safe=_PLAIN) for name in names)
        if any(len(f"source={text}") > MAX_LINE_CHARACTERS for text in sources.values()):
            return {}, f"names of nodes are longer than a line of a cfg, {MAX_LINE_CHARACTERS} characters"
        return sources, ""

    def make_files(
        self, net: dict[str, Any], extra_keys: dict[int, dict[str, Any]], source: str, sources: Mapping[int, str] | None = None
    ) -> WrittenCfg:
        """Return the files.

        net:     keys of [net]. extra_keys: more keys by layer index.
        source:  the imported file, for messages. sources: nodes of the file by layer index, as `list_sources` gives them.
        Raises: FormatError, where the cfg is refused.
        """
        lines = ["[net]", *(f"{key}={value}" for key, value in net.items()), ""]
        for index, section in enumerate(self.sections):
            comment = "".join(c if c.isprintable() and ord(c) < 127 else "?" for c in section.comment[:200])
            lines += [f"# {index}: {comment}"] if comment else [f"# {index}"]
            keys = {**section.keys, **extra_keys.get(index, {})}
            if sources and index in sources:
                keys["source"] = sources[index]
            lines += [f"[{section.kind}]", *(f"{key}={value}" for key, value in keys.items()), ""]
        text = "\n".join(lines)
        network = parse_cfg(text, source)
        content = weights_content(Weights(self.weights, values=self.values, seen=0), network)
        return WrittenCfg(text, network, content, self.layer_of, self.layer_texts)

    def set_weights(self, index: int, weights: Array, bias: Array) -> int:
        """Give a layer its weights. Raises: Refused where they are not finite."""
        weights, bias = np.ascontiguousarray(weights, np.float32), np.asarray(bias, np.float32)
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            raise Refused("its weights are not finite numbers; the file is damaged, or its training failed")
        self.weights[index] = ConvolutionWeights(bias, weights)
        return index


def join_node_names(operation: LayerOperation) -> str:
    """Return the names of the nodes that an operation stands for, for people."""
    return ", ".join(dict.fromkeys(operation.nodes))
