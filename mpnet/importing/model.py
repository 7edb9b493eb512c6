# SPDX-License-Identifier: MIT
"""One file of another program as the files of a network of mpnet."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Collection, Mapping

import numpy as np

from mpnet.errors import FormatError, InternalError, MpnetError
from mpnet.importing.choices import Choices
from mpnet.importing.file_metadata import Pixels, class_names, pixels_of
from mpnet.importing.graph import Node, NodeGraph, Refused
from mpnet.importing.heads import HeadChoice
from mpnet.importing.layer_graph import LayerGraph
from mpnet.importing.operators import lift
from mpnet.importing.passes.attention import recognize_attention
from mpnet.importing.passes.channels_last import find_flat, find_gelu, put_channels_first
from mpnet.importing.passes.fold import fold
from mpnet.importing.passes.fuse import fuse
from mpnet.importing.passes.head_choice import WEIGHTED, chosen_heads
from mpnet.importing.passes.image_input import put_pixels, set_image
from mpnet.importing.passes.quantization_nodes import unquantise
from mpnet.importing.passes.repeated_pixels import recognize_repeats
from mpnet.importing.write.cfg_writer import Writer, Written
from mpnet.importing.write.quantization_keys import quantised_keys, rounded_tensors
from mpnet.messages import shown
from mpnet.model.network import NetworkSpec


@dataclass(frozen=True)
class NodeOutcome:
    """What one node of the file became."""

    node: str
    operator: str
    became: str


@dataclass(frozen=True)
class Imported:
    """cfg, weights: contents. names: of classes. network: the cfg read back. nodes: one outcome for each node of the file.

    notes: what was assumed, for people. heads: tensors of the file that each output is made of, in the order of the outputs.
    nms_free: whether the file takes the best boxes without non-maximum suppression.
    """

    cfg: str
    weights: bytes
    names: tuple[str, ...]
    network: NetworkSpec
    nodes: tuple[NodeOutcome, ...]
    notes: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    pixels: Pixels = field(default_factory=Pixels)
    nms_free: bool = False


def _onnx(path: Path) -> NodeGraph:
    from mpnet.importing.readers.onnx_file import read_onnx

    return read_onnx(path)


def _tflite(path: Path) -> NodeGraph:
    from mpnet.importing.readers.tflite_file import read_tflite

    return read_tflite(path)


READERS: dict[str, Callable[[Path], NodeGraph]] = {".onnx": _onnx, ".tflite": _tflite}
"""By the file's suffix."""


def import_model(path: Path, choices: Choices | None = None) -> Imported:
    """The network of a file.

    Raises: FormatError, ConfigError: one line with the node's name, the reason and a remedy. InternalError: a fault of mpnet.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise FormatError(f"{path}: files of other programs end in {' or '.join(READERS)}; rename it, or convert the model")
    try:
        # Weights that are no numbers are refused by name where they are written; NumPy's warnings would say less.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _imported(reader(path), choices or Choices())
    except (MpnetError, OSError, ImportError):
        raise
    except (MemoryError, RecursionError) as error:
        raise FormatError(
            f"{path}: needs more memory than there is ({type(error).__name__}); the file is damaged, or too "
            "large for this machine"
        ) from None
    except Exception as error:
        raise InternalError.of(error, str(path)) from error


def _imported(graph: NodeGraph, choices: Choices) -> Imported:
    operators: dict[str, str] = {}
    for number, node in enumerate(graph.nodes):
        if node.name in operators:  # ONNX does not ask for names that differ
            node.name = f"{node.name}:{number}"
        operators[node.name] = node.operator
    set_image(graph, choices.size)
    fold(graph)
    unquantise(graph)
    find_gelu(graph)
    find_flat(graph)
    put_channels_first(graph)
    recognize_attention(graph)
    recognize_repeats(graph)
    living = graph.reaching(graph.outputs)
    outcomes = dict.fromkeys((node.name for node in graph.nodes), "nothing reads it")
    graph.nodes = living
    for node in living:
        outcomes.pop(node.name, None)
    graph.outcomes |= outcomes
    layers = lift(graph).layers
    choice, notes = chosen_heads(graph, layers, choices)
    kept = list(dict.fromkeys(name for head in choice.heads for name in head.tensors))
    needed = {node.name for node in graph.reaching(kept)}
    for node in graph.nodes:
        if node.name not in needed:
            graph.outcomes.setdefault(node.name, f"replaced by {choice.what}" if choice.what else "behind the heads")
    pixels = pixels_of(graph, choice.what, choices.pixels)
    rounded = rounded_tensors(graph, layers) if choices.rounded else {}
    merged = fuse(layers, kept, frozenset(rounded), bool(graph.quantization), choices.merged)
    put_pixels(graph, layers, pixels)
    # Recipes for other programs name the nodes of ONNX files; those of TensorFlow Lite have no names of their own.
    named = operators if graph.format == "ONNX" else ()
    written, quantization_notes = _written(graph, layers, choice, rounded, named, _weighted(graph, needed))
    classes = choice.classes or written.network.classes
    names, names_note = class_names(graph, classes)
    nodes = tuple(
        NodeOutcome(name, operator, f"layer {written.layers[name]}" if name in written.layers else outcome)
        for name, operator in operators.items()
        for outcome in [graph.outcomes.get(name, "folded")]
    )
    if rounded:
        quantization_notes.append(
            f"rounded to {' and '.join(sorted({name[3:] for name in rounded.values()}, key=int))} bits as in the file, besides "
            f"what layers on integers read: {len(rounded)} tensors; "
            "--rounding int8 leaves that out, which is more exact than what was deployed"
        )
    if merged:
        notes.append(
            f"merged {merged} branches of convolutions with those whose results they are added to; --branches apart leaves "
            "them, which int8 may be closer with and recipes for the file need"
        )
    heads = tuple(head.tensors for head in choice.heads)
    all_notes = (*notes, *quantization_notes, pixels.note, names_note)
    return Imported(written.text, written.weights, names, written.network, nodes, all_notes, heads, pixels, choice.nms_free)


def _weighted(graph: NodeGraph, needed: Collection[str]) -> tuple[str, ...]:
    """Nodes with weights behind the heads, such as the mean of bins of YOLOv8's boxes: other programs may quantise them too."""
    return tuple(
        node.name
        for node in graph.nodes
        if node.name not in needed and node.operator in WEIGHTED and any(name in graph.constants for name in node.inputs[:2])
    )


def _written(
    graph: NodeGraph,
    layers: LayerGraph,
    choice: HeadChoice,
    rounded: Mapping[str, str],
    named: Collection[str],
    decoding: tuple[str, ...],
) -> tuple[Written, list[str]]:
    nodes = {node.name: node for node in graph.nodes}
    writer = Writer(layers, graph.image, rounded)
    for operation in layers.operations:
        try:
            writer.write(operation)
        except Refused as reason:
            name = operation.nodes[-1] if operation.nodes else "?"
            graph.refuse(nodes.get(name, Node("?", name, [], [""])), reason)
    classifier = len(choice.heads) == 1 and choice.heads[0].decoder == ""
    for head in [] if classifier else choice.heads:
        writer.head(head, choice.classes or 1)
    if not classifier and decoding:
        writer.sources[len(writer.sections) - 1] = decoding
    _, channels, height, width = graph.shapes[graph.image]
    net = {"width": width, "height": height, "channels": channels}
    try:
        written = writer.written(net, {}, graph.source, named)
        keys, notes = quantised_keys(graph, layers, writer, written.network)
        if keys:
            written = writer.written(net | keys.pop(-1, {}), keys, graph.source, named)
    except FormatError as error:
        graph.fail(f"as a cfg it would be refused: {error}")
    for name, index in written.layer_of.items():
        shape = layers.shapes.get(name)
        if index >= 0 and shape is not None and name not in writer.flat:
            made, (c, h, w) = written.network.layers[index].out_shape, shape
            if made != (h, w, c):
                raise AssertionError(f"the tensor {shown(name)} became {made}, not {(h, w, c)} (height, width, channels)")
    return written, notes
