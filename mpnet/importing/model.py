# SPDX-License-Identifier: MIT
"""One file of another program as the files of a network of mpnet: `import_model` reads, `PASSES` rewrite, the rest writes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Collection, Mapping

import numpy as np

from mpnet.errors import FormatError, InternalError, MpnetError
from mpnet.formats.files.foreign import foreign_model
from mpnet.importing.choices import Choices
from mpnet.importing.file_metadata import Pixels, find_class_names, find_pixels
from mpnet.importing.graph import Node, NodeGraph, Refused
from mpnet.importing.heads import HeadChoice
from mpnet.importing.layer_graph import LayerGraph
from mpnet.importing.operators import lift
from mpnet.importing.passes.attention import recognize_attention
from mpnet.importing.passes.behind_heads import RoundingBehind, find_rounding_behind
from mpnet.importing.passes.channels_last import put_channels_first
from mpnet.importing.passes.fold import fold, remove_unread_nodes
from mpnet.importing.passes.fuse import fuse
from mpnet.importing.passes.half_floats import widen_half_floats
from mpnet.importing.passes.head_choice import WEIGHTED, choose_heads
from mpnet.importing.passes.image_input import find_image_values, put_pixels, set_image
from mpnet.importing.passes.integer_operators import expand_integer_operators
from mpnet.importing.passes.normalizations import recognize_normalizations
from mpnet.importing.passes.patterns import recognize_flatten, recognize_gelu
from mpnet.importing.passes.quantization_nodes import remove_quantization_nodes
from mpnet.importing.passes.repeated_pixels import recognize_repeats
from mpnet.importing.write.cfg_writer import CfgWriter, WrittenCfg
from mpnet.importing.write.quantization_keys import find_quantization_keys, rounded_tensors
from mpnet.importing.write.sections import write_operation
from mpnet.messages import shown
from mpnet.model.network import NetworkSpec


@dataclass(frozen=True)
class NodeOutcome:
    """The outcome of one node of the file, for people. node: its name."""

    node: str
    operator: str
    became: str


@dataclass(frozen=True)
class Imported:
    """A network of another program as mpnet's files.

    cfg, weights: contents of the two files. network: the cfg read back.
    names:        of the classes.
    nodes:        one outcome for each node of the file.
    notes:        what was assumed, for people.
    heads:        tensors of the file that each output is made of, in the order of the outputs.
    pixels:       how images enter.
    nms:          overlap from which on the worse of two boxes is suppressed, as the file says (1: it takes the best boxes
                  without suppression); None: it does not say.
    rounding_behind: what a quantised file rounds behind its heads, None for nothing.
    """

    cfg: str
    weights: bytes
    names: tuple[str, ...]
    network: NetworkSpec
    nodes: tuple[NodeOutcome, ...]
    notes: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    pixels: Pixels = field(default_factory=Pixels)
    nms: float | None = None
    rounding_behind: RoundingBehind | None = None


@dataclass(frozen=True)
class SourceNames:
    """Names of the nodes of a file, () where recipes cannot use them. ambiguous: those that do not find their node in it."""

    all: Collection[str]
    ambiguous: Collection[str]


def _read_onnx(path: Path) -> NodeGraph:
    from mpnet.importing.readers.onnx_file import read_onnx

    return read_onnx(path)


def _read_tflite(path: Path) -> NodeGraph:
    from mpnet.importing.readers.tflite_file import read_tflite

    return read_tflite(path)


FILE_READERS: dict[str, Callable[[Path], NodeGraph]] = {".onnx": _read_onnx, ".tflite": _read_tflite}
"""What reads a file, by its suffix; the packages that it needs are imported with it."""


def import_model(path: Path, choices: Choices | None = None) -> Imported:
    """Return the network of a file.

    Raises: FormatError, ConfigError: one line with the node's name, the reason and a remedy. InternalError: a fault of mpnet.
    """
    reader = FILE_READERS.get(path.suffix.lower())
    if reader is None:
        kinds = f"files of other programs end in {' or '.join(FILE_READERS)}; rename it, or convert the model"
        raise FormatError(f"{path}: {foreign_model(path) or kinds}")
    try:
        # Weights that are no numbers are refused by name where they are written; NumPy's warnings would say less.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _import_graph(reader(path), choices or Choices())
    except (MpnetError, OSError, ImportError):
        raise
    except (MemoryError, RecursionError) as error:
        raise FormatError(
            f"{path}: needs more memory than there is ({type(error).__name__}); the file is damaged, or too "
            "large for this machine"
        ) from None
    except Exception as error:
        raise InternalError.of(error, str(path)) from error


@dataclass(frozen=True)
class Pass:
    """One step that rewrites a file's graph in place.

    run: changes the graph. postcondition: what holds afterwards.
    """

    run: Callable[[NodeGraph], None]
    postcondition: str


PASSES = (
    Pass(widen_half_floats, "no constant and no cast is float16 or bfloat16"),
    Pass(expand_integer_operators, "no node computes on integers that has a counterpart on reals"),
    Pass(fold, "nodes stand in an order in which they can run, shapes are noted, and what depends on constants alone is one"),
    Pass(remove_quantization_nodes, "every tensor is one of reals; `NodeGraph.quantization` says how the file rounds it"),
    Pass(recognize_gelu, "x / 2 * (1 + erf(x / sqrt(2))) is one node, mpnet.Gelu"),
    Pass(
        recognize_flatten, "all pixels as one row, channels last, before fully connected layers are one node, mpnet.FlattenLast"
    ),
    Pass(
        recognize_normalizations,
        "a global response normalisation is one node, mpnet.ResponseNorm, and shares of channels are mpnet.ChannelShares",
    ),
    Pass(put_channels_first, "what is computed on rows or groups of channels is computed on (1, channels, height, width)"),
    Pass(recognize_attention, "softmax(queries x keys) x values of such tensors is one node, mpnet.Attention"),
    Pass(recognize_repeats, "a chain of nodes that repeats pixels is a Resize, one that orders channels anew an mpnet.Shuffle"),
    Pass(remove_unread_nodes, "the outputs depend on every node"),
)
"""In this order, after `set_image`, which makes the input one image (1, channels, height, width).

`lift`, which turns nodes into operations of layers, follows.
"""


def _import_graph(graph: NodeGraph, choices: Choices) -> Imported:
    operators, ambiguous_names = _name_nodes(graph)
    input_notes = set_image(graph, choices.size)
    for step in PASSES:
        step.run(graph)
    layers = lift(graph).layers
    choice, notes = choose_heads(graph, layers, choices)
    head_tensors = list(dict.fromkeys(name for head in choice.heads for name in head.tensors))
    needed_nodes = {node.name for node in graph.reaching(head_tensors)}
    for node in graph.nodes:
        if node.name not in needed_nodes:
            graph.outcomes.setdefault(node.name, f"replaced by {choice.decoder}" if choice.decoder else "behind the heads")
    rounding_behind = find_rounding_behind(graph, needed_nodes)
    if rounding_behind is not None:
        notes.append(rounding_behind.text)
    pixels = find_pixels(graph, choice.decoder, choices.pixels, find_image_values(graph, layers))
    rounded = rounded_tensors(graph, layers) if choices.rounded else {}
    merged = fuse(layers, head_tensors, frozenset(rounded), bool(graph.quantization), choices.merged)
    put_pixels(graph, layers, pixels)
    # Recipes for other programs name the nodes of ONNX files; those of TensorFlow Lite have no names of their own.
    source_names = SourceNames(operators if graph.format == "ONNX" else (), ambiguous_names)
    decoding_nodes = _list_weighted_nodes(graph, needed_nodes)
    files, quantization_notes = _write_files(graph, layers, choice, rounded, source_names, decoding_nodes)
    names, names_note = find_class_names(graph, choice.classes or files.network.classes)
    nodes = tuple(
        NodeOutcome(name, operator, f"layer {files.layer_texts[name]}" if name in files.layer_texts else outcome)
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
    all_notes = (*input_notes, *notes, *quantization_notes, pixels.note, names_note)
    return Imported(
        files.text, files.weights, names, files.network, nodes, all_notes, heads, pixels, choice.nms, rounding_behind
    )


def _name_nodes(graph: NodeGraph) -> tuple[dict[str, str], set[str]]:
    """Give every node a name of its own, which ONNX does not ask for.

    Return the operators by that name, and the names that do not find their node in the file.
    """
    operators: dict[str, str] = {}
    ambiguous_names = set[str]()
    for number, node in enumerate(graph.nodes):
        name_in_file = node.name
        node.name = node.name or f"{node.operator.rpartition('.')[2]}_{number}"
        if node.name in operators:
            ambiguous_names.add(node.name)
            node.name = f"{node.name}:{number}"
        if node.name != name_in_file:
            ambiguous_names.add(node.name)
        operators[node.name] = node.operator
    return operators, ambiguous_names


def _list_weighted_nodes(graph: NodeGraph, needed_nodes: Collection[str]) -> tuple[str, ...]:
    """Return the nodes with weights behind the heads, such as the mean of bins of YOLOv8's boxes.

    Other programs may quantise them too, so that recipes name them.
    """
    return tuple(
        node.name
        for node in graph.nodes
        if node.name not in needed_nodes
        and node.operator in WEIGHTED
        and any(name in graph.constants for name in node.inputs[:2])
    )


def _write_files(
    graph: NodeGraph,
    layers: LayerGraph,
    choice: HeadChoice,
    rounded: Mapping[str, str],
    source_names: SourceNames,
    decoding_nodes: tuple[str, ...],
) -> tuple[WrittenCfg, list[str]]:
    """Write the cfg and its weights.

    rounded:        precisions of tensors that are rounded as in the file.
    source_names:   nodes that a layer's `source` may name. decoding_nodes: those of the last head, besides its own.
    Returns the files, and what is worth saying of their quantisation and of recipes for other programs.
    """
    nodes = {node.name: node for node in graph.nodes}
    writer = CfgWriter(layers, graph.image, rounded)
    for operation in layers.operations:
        try:
            write_operation(writer, operation)
        except Refused as reason:
            name = operation.nodes[-1] if operation.nodes else "?"
            graph.refuse(nodes.get(name, Node("?", name, [], [""])), reason)
    classifier = len(choice.heads) == 1 and choice.heads[0].decoder == ""
    for head in [] if classifier else choice.heads:
        writer.write_head(head, choice.classes or 1)
    if not classifier and decoding_nodes:
        writer.sources[len(writer.sections) - 1] = decoding_nodes
    _, channels, height, width = graph.shapes[graph.image]
    net = {"width": width, "height": height, "channels": channels}
    sources, unnamed_reason = writer.list_sources(source_names.all, source_names.ambiguous)
    try:
        files = writer.make_files(net, {}, graph.source, sources)
        keys = find_quantization_keys(graph, layers, writer, files.network)
        if keys.network or keys.layers:
            files = writer.make_files(net | keys.network, keys.layers, graph.source, sources)
    except FormatError as error:
        graph.fail(f"as a cfg it would be refused: {error}")
    for name, index in files.layer_of.items():
        shape = layers.shapes.get(name)
        if index >= 0 and shape is not None and name not in writer.flat_tensors:
            out_shape, (c, h, w) = files.network.layers[index].out_shape, shape
            if out_shape != (h, w, c):
                raise AssertionError(f"the tensor {shown(name)} became {out_shape}, not {(h, w, c)} (height, width, channels)")
    recipes = f"{unnamed_reason}: recipes for other programs are for the file that `mpnet export NET.cfg --to onnx` writes"
    return files, [*keys.notes, *([recipes] if unnamed_reason else [])]
