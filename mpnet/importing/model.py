# SPDX-License-Identifier: MIT
"""One file of another program as the files of a network of mpnet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from mpnet.errors import FormatError, MpnetError
from mpnet.importing.codes import quantised_keys, rounded_tensors
from mpnet.importing.described import Pixels, class_names, pixels_of
from mpnet.importing.fold import fold, reaching
from mpnet.importing.front import put_pixels, set_image
from mpnet.importing.fuse import fuse
from mpnet.importing.graph import Graph, Node, Refused
from mpnet.importing.heads import chosen_heads
from mpnet.importing.items import Body
from mpnet.importing.lift import lift
from mpnet.importing.quantised import unquantise
from mpnet.importing.repeats import find_repeats
from mpnet.importing.sections import Head, Writer, Written
from mpnet.importing.tails import Tail
from mpnet.messages import shown
from mpnet.model.network import NetworkSpec


@dataclass(frozen=True)
class Choices:
    """What the user says beside the file.

    heads:   tensors of each head, joined along channels; (): found. decoder, keys, anchors: of [yolo] sections where the file
             does not tell; anchors by head.
    size:    (width, height) where the file leaves them open. pixels: how images enter; None: as the file says.
    rounded: round wherever a quantised file does, as what was deployed does; else only where int8 layers read.
    """

    heads: tuple[tuple[str, ...], ...] = ()
    decoder: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    anchors: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    pixels: Pixels | None = None
    rounded: bool = True


@dataclass(frozen=True)
class Row:
    """What became of one node."""

    node: str
    operator: str
    fate: str


@dataclass(frozen=True)
class Imported:
    """cfg, weights: contents. names: of classes. network: the cfg read back. rows: one per node of the file.

    notes: what was assumed, for people. heads: tensors of the file that each output is made of, in the order of the outputs.
    """

    cfg: str
    weights: bytes
    names: tuple[str, ...]
    network: NetworkSpec
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    pixels: Pixels = field(default_factory=Pixels)


def _onnx(path: Path) -> Graph:
    from mpnet.importing.onnx_file import read_onnx

    return read_onnx(path)


def _tflite(path: Path) -> Graph:
    from mpnet.importing.tflite_file import read_tflite

    return read_tflite(path)


READERS: dict[str, Callable[[Path], Graph]] = {".onnx": _onnx, ".tflite": _tflite}
"""By the file's suffix."""


def import_model(path: Path, choices: Choices | None = None) -> Imported:
    """The network of a file. Raises: FormatError, ConfigError: one line with the node's name, the reason and a remedy."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise FormatError(f"{path}: files of other programs end in {' or '.join(READERS)}; rename it, or convert the model")
    try:
        return _imported(reader(path), choices or Choices())
    except MpnetError:
        raise
    except (MemoryError, RecursionError, OverflowError) as error:
        raise FormatError(
            f"{path}: needs more memory than there is ({type(error).__name__}); the file is damaged, or too "
            "large for this machine"
        ) from None


def _imported(graph: Graph, choices: Choices) -> Imported:
    operators = {node.name: node.operator for node in graph.nodes}
    set_image(graph, choices.size)
    fold(graph)
    unquantise(graph)
    find_repeats(graph)
    living = reaching(graph.nodes, graph.outputs)
    for node in graph.nodes:
        if node not in living:
            graph.fates[node.name] = "nothing reads it"
    graph.nodes = living
    body = lift(graph)
    tail, notes = chosen_heads(graph, body, choices.heads, choices.decoder, choices.keys, choices.anchors)
    kept = list(dict.fromkeys(name for head in tail.heads for name in head.tensors))
    for node in _beyond(graph, body, kept):
        graph.fates.setdefault(node.name, f"replaced by {tail.what}" if tail.what else "behind the heads")
    pixels = pixels_of(graph, tail.what, choices.pixels)
    rounded = rounded_tensors(graph, body) if choices.rounded else frozenset[str]()
    fuse(body, kept, rounded)
    put_pixels(graph, body, pixels)
    written, about_codes = _written(graph, body, tail, rounded)
    classes = tail.classes or written.network.classes
    names, about_names = class_names(graph, classes)
    rows = tuple(
        Row(name, operator, f"layer {written.fates[name]}" if name in written.fates else graph.fates.get(name, "folded"))
        for name, operator in operators.items()
    )
    if rounded:
        about_codes.append(
            f"rounded to 8 bits as in the file, besides what int8 layers read: {len(rounded)} tensors; "
            "--rounding int8 leaves that out, which is more exact than what was deployed"
        )
    said = (*notes, *about_codes, pixels.note, about_names)
    return Imported(
        written.text, written.weights, names, written.network, rows, said, tuple(head.tensors for head in tail.heads), pixels
    )


def _beyond(graph: Graph, body: Body, kept: list[str]) -> list[Node]:
    """The nodes that are not needed for the heads."""
    needed = reaching(graph.nodes, kept)
    return [node for node in graph.nodes if node not in needed]


def _written(graph: Graph, body: Body, tail: Tail, rounded: frozenset[str]) -> tuple[Written, list[str]]:
    makers = {node.name: node for node in graph.nodes}
    writer = Writer(body, graph.image, rounded)
    heads = list(tail.heads)
    if len(heads) == 1 and heads[0].decoder == "":
        heads = []
    waiting: list[Head] = list(heads)
    for item in body.items:
        try:
            writer.item(item)
        except Refused as reason:
            graph.refuse(makers.get(item.nodes[-1], Node("?", item.nodes[-1], [], [""])), str(reason))
    for head in waiting:
        writer.head(head, tail.classes or 1)
    height, width = graph.shapes[graph.image][2:]
    net = {"width": width, "height": height, "channels": graph.shapes[graph.image][1]}
    try:
        written = writer.written(net, {}, graph.source)
        keys, about_codes = quantised_keys(graph, body, writer, written.network)
        if keys:
            written = writer.written(net | keys.pop(-1, {}), keys, graph.source)
    except FormatError as error:
        graph.fail(f"as a cfg it would be refused: {error}")
    for name, index in written.layer_of.items():
        shape = body.shapes.get(name)
        if index >= 0 and shape is not None and name not in writer.flat:
            made = written.network.layers[index].out_shape
            if made != (shape[1], shape[2], shape[0]):
                graph.fail(
                    f"the tensor {shown(name)} became {made}, not {(shape[1], shape[2], shape[0])} (height, width, "
                    "channels); this is a mistake in mpnet"
                )
    return written, about_codes
