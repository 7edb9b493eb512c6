# SPDX-License-Identifier: MIT
"""The tensors that leave the network, and their decoders: named by the user, told by the file, or found by trying."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from mpnet.errors import ConfigError
from mpnet.importing.choices import Choices
from mpnet.importing.graph import Node, NodeGraph
from mpnet.importing.heads import Head, HeadChoice
from mpnet.importing.layer_graph import LayerGraph
from mpnet.importing.passes.box_decoding import list_leaving_tensors, recognize_decoder
from mpnet.importing.passes.distance_decoders import find_plain_tensor
from mpnet.messages import shown
from mpnet.model.heads import DECODERS

# The largest constant of arithmetic on boxes that is written as a convolution: a mean of bins.
_MAX_DECODING_WEIGHTS = 256
_DECODING = ("reg_max", "coords", "softmax", "yx", "linear", "variances")
_PRODUCTS, _MAX_LISTED = ("MatMul", "BATCH_MATMUL", "Einsum"), 600
# Tensors of boxes and of classes, and what each decoder has besides.
_DISTANCE_ROLES = {
    "yolov8": ("boxes", "classes"),
    "rtmdet": ("boxes", "classes"),
    "yolov8_obb": ("boxes", "classes", "angles"),
    "picodet": ("boxes", "classes", "alignments"),
}
# These take a logistic function of all values, or of all but those of boxes.
_LOGISTIC_DECODERS = (*_DISTANCE_ROLES, "yolov5", "yolox")
_DECIDING = ("If", "Loop", "Scan")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN")


def choose_heads(graph: NodeGraph, layers: LayerGraph, choices: Choices) -> tuple[HeadChoice, list[str]]:
    """Return the heads, and what is worth saying. Raises: FormatError, ConfigError."""
    decoder = choices.decoder
    if decoder and decoder not in DECODERS:
        raise ConfigError(f"--decoder {decoder}: unknown; known are {', '.join(DECODERS)}")
    if choices.heads:
        requested = _read_requested_heads(graph, layers, choices)
        return requested, list(requested.notes)
    leaving_names = list_leaving_tensors(graph, layers)
    if not leaving_names:
        _refuse_first(graph, layers, graph.nodes)
        deciding = next((node for node in graph.nodes if node.operator in _DECIDING), None)
        if deciding is not None:
            graph.refuse(
                deciding,
                "decides which nodes run while the model runs, for which a cfg has no form; export it without, or fold it, for "
                "example with onnxsim",
            )
        graph.fail("nothing of it is a layer")
    exported = _read_exported_heads(graph, layers)
    if exported is not None:
        return exported, ["boxes: anchors and classes as the file's metadata say"]
    lifted = layers.node_names()
    nodes_behind = [node for node in graph.nodes if node.name not in lifted]
    if nodes_behind and any(name not in layers.shapes for name in graph.outputs):
        _refuse_weights(graph, layers, nodes_behind)
        choice = recognize_decoder(graph, layers, leaving_names, nodes_behind)
        if choice is not None:
            further = [name for head in choice.heads if head.decoder == "none" for name in head.tensors]
            is_rounded = any(name in graph.quantization for node in nodes_behind for name in node.outputs)
            equality = "gives what the nodes behind the heads give" + (" but for their rounding" if is_rounded else "")
            notes = [f"boxes: decoded as {choice.decoder} does, which {equality}"]
            if further:
                notes.append(f"further outputs, with decoder=none: {_list_text(further)}")
            notes += choice.notes
            return choice, notes
        if decoder:
            described = _describe_heads(graph, layers, _group_by_grid(layers, leaving_names, choices), decoder, choices)
            return described, list(described.notes)
        names_text = _list_text([f"{name} {_shape_text(layers, name)}" for name in leaving_names])
        reason = next((layers.reasons[node.name] for node in nodes_behind if node.name in layers.reasons), "")
        graph.refuse(
            nodes_behind[0],
            f"{reason or 'is no layer'}. What follows it is no box decoding that mpnet knows; name the "
            f"head tensors with --heads and their --decoder. What enters it: {names_text}",
        )
    if len(leaving_names) == 1 and layers.shapes[leaving_names[0]][1:] == (1, 1) and not decoder:
        return HeadChoice([Head((leaving_names[0],), "")], 0, ""), []
    outputs = [name for name in dict.fromkeys(graph.outputs) if name in layers.shapes and name != graph.image]
    if not outputs:
        graph.fail("no output of it is a tensor of a layer; name tensors with --heads")
    if decoder:
        described = _describe_heads(graph, layers, _group_by_grid(layers, outputs, choices), decoder, choices)
        return described, list(described.notes)
    return HeadChoice([Head((name,), "none") for name in outputs], 1, ""), [
        "boxes: the file does not say how its outputs are decoded, so they have decoder=none; --decoder names one"
    ]


def _shape_text(layers: LayerGraph, name: str) -> str:
    c, h, w = layers.shapes[name]
    return f"({w}x{h}x{c})"


def _refuse_weights(graph: NodeGraph, layers: LayerGraph, nodes: list[Node]) -> None:
    """Refuse nodes with weights, which are no box decoding: name the first node that stopped the layers before one."""
    weighted = [
        output
        for node in nodes
        if node.operator in WEIGHTED
        and any(graph.constants[name].size > _MAX_DECODING_WEIGHTS for name in node.inputs if name in graph.constants)
        for output in node.outputs
    ]
    _refuse_first(graph, layers, graph.reaching(weighted))


def _refuse_first(graph: NodeGraph, layers: LayerGraph, nodes: list[Node]) -> None:
    for node in nodes:
        if node.name in layers.reasons:
            product = next(
                (
                    candidate
                    for candidate in nodes
                    if candidate.operator in _PRODUCTS and _has_computed_factors(graph, candidate)
                ),
                None,
            )
            reason = layers.reasons[node.name]
            if _samples_features(graph):
                reason += (
                    "; it is part of a transformer that samples its features (RT-DETR, D-FINE), which has no form in a cfg: "
                    "take a detector with convolutional heads, or import what is before it, without boxes, with --heads "
                    f"{_list_text(list_leaving_tensors(graph, layers), ',') or 'and tensors before this node'}"
                )
            elif product is not None:
                reason += (
                    "; it is part of attention of a kind that has no form in a cfg: a product of two computed tensors follows "
                    f"({product.name})"
                )
            graph.refuse(node, reason)


def _samples_features(graph: NodeGraph) -> bool:
    """Return whether a file reads features at computed places, or computes with weights on what it has chosen as the best."""
    behind_best: set[str] = set()
    for node in graph.nodes:
        if node.operator == "GridSample":
            return True
        if node.operator == "TopK" or behind_best.intersection(node.inputs):
            behind_best.update(node.outputs)
            constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
            if node.operator in WEIGHTED and any(constant.size > _MAX_DECODING_WEIGHTS for constant in constants):
                return True
    return False


def _has_computed_factors(graph: NodeGraph, node: Node) -> bool:
    return len(node.inputs) > 1 and not any(name in graph.constants for name in node.inputs[:2])


def _list_text(names: list[str], comma: str = ", ") -> str:
    """Return as many names as fit into a line, none of them cut. comma: between them."""
    fitting = [name for index, name in enumerate(names) if sum(map(len, names[: index + 1])) < _MAX_LISTED] or names[:1]
    return comma.join(fitting) + (f" and {len(names) - len(fitting)} more" if len(names) > len(fitting) else "")


def _read_requested_heads(graph: NodeGraph, layers: LayerGraph, choices: Choices) -> HeadChoice:
    heads = []
    for tensors in choices.heads:
        names = tuple(graph.tensor(name) for name in tensors)
        for name, requested_name in zip(names, tensors, strict=True):
            if name not in layers.shapes or name == graph.image:
                _refuse_first(graph, layers, graph.reaching([name]))
                raise ConfigError(
                    f"--heads {shown(requested_name)}: {graph.source} has no such tensor of a layer; the last ones are "
                    f"{_list_text(list_leaving_tensors(graph, layers)[::-1])}"
                )
        if len({layers.shapes[name][1:] for name in names}) > 1:
            raise ConfigError(f"--heads {'+'.join(tensors)}: tensors of one head have one width and height")
        heads.append(names)
    return _describe_heads(graph, layers, heads, choices.decoder or "none", choices)


def _group_by_grid(layers: LayerGraph, tensors: list[str], choices: Choices) -> list[tuple[str, ...]]:
    """Group the tensors of one grid into one head: boxes before classes, the larger grids first."""
    box_channels = 0
    if choices.decoder in _DISTANCE_ROLES:
        box_channels = 4 * _read_whole_number(dict(choices.keys), "reg_max", "16")
    grids: dict[tuple[int, int], list[str]] = {}
    for name in tensors:
        grids.setdefault(layers.shapes[name][1:], []).append(name)
    ordered = sorted(grids.items(), key=lambda grid: -grid[0][0] * grid[0][1])
    return [
        tuple(sorted(names, key=lambda name: -layers.shapes[name][0]))
        if choices.decoder == "ssd"
        else tuple(sorted(names, key=lambda name: box_channels != layers.shapes[name][0]))
        for _, names in ordered
    ]


def _describe_heads(
    graph: NodeGraph, layers: LayerGraph, tensors: list[tuple[str, ...]], decoder: str, choices: Choices
) -> HeadChoice:
    """Return heads as the user asks for them, after checks that the tensors fit. Raises: FormatError, ConfigError."""
    anchors, keys = choices.anchors, dict(choices.keys)
    if anchors and len(anchors) != len(tensors):
        raise ConfigError(
            f"--anchors: {len(anchors)} lists for {len(tensors)} heads; separate heads by /, first those of "
            f"{', '.join('+'.join(names) for names in tensors)[:200]}"
        )
    if decoder in ("yolov5", "ssd", "darknet") and not all(text.count(",") for text in anchors or [""]):
        raise ConfigError(
            f"--decoder {decoder} needs anchors: --anchors 'w,h,w,h/w,h,...', in pixels of the input, heads "
            f"separated by /, first those of {'+'.join(tensors[0])}"
        )
    requested_classes = keys.pop("classes", "")
    heads, classes, channels, count = [], 0, 0, 0
    makers, notes = layers.makers(), []
    for index, named_tensors in enumerate(tensors):
        names = named_tensors
        if decoder in _LOGISTIC_DECODERS:
            names = tuple(find_plain_tensor(makers, name) for name in named_tensors)
            notes += [
                f"{name} went through a logistic function, which {decoder} computes: {plain_name} before it is the head"
                for name, plain_name in zip(named_tensors, names, strict=True)
                if plain_name != name
            ]
        channels = sum(layers.shapes[name][0] for name in names)
        count = (anchors[index].count(",") + 1) // 2 if anchors else 0
        anchor_keys = {"num": str(count), "anchors": anchors[index]} if count else {}
        previous_classes, classes = classes, _count_classes(decoder, channels, count, keys)
        tensor_roles = _DISTANCE_ROLES.get(decoder, names)
        if len(names) > len(tensor_roles):
            raise ConfigError(
                f"--heads {'+'.join(names)}: {decoder} takes the tensors of {' and of '.join(tensor_roles)}, not {len(names)}; "
                "leave out those of other things, such as keypoints or masks"
            )
        if (
            decoder in _DISTANCE_ROLES
            and len(names) == len(tensor_roles)
            and (layers.shapes[names[0]][0] != channels - classes - (len(tensor_roles) - 2))
        ):
            raise ConfigError(f"--heads {'+'.join(names)}: the tensor of boxes comes first, with 4 x reg_max channels")
        if index and previous_classes != classes and not requested_classes:
            raise ConfigError(
                f"--heads: the heads have {previous_classes} and {classes} classes; tensors of one decoder have as many"
            )
        heads.append(Head(names, decoder, tuple({**anchor_keys, **keys}.items())))
    classes = int(requested_classes) if requested_classes.isdecimal() and len(requested_classes) < 10 else classes
    if classes < 1:
        graph.fail(f"{channels} channels do not fit --decoder {decoder} with {count} anchors")
    return HeadChoice(heads, classes, "" if decoder == "none" else decoder, notes=tuple(notes))


def _count_classes(decoder: str, channels: int, anchors: int, keys: dict[str, str]) -> int:
    """Count the classes of a head of so many channels."""
    match decoder:
        case "yolov8" | "yolov8_obb" | "rtmdet" | "picodet":
            return channels - 4 * _read_whole_number(keys, "reg_max", "16") - (len(_DISTANCE_ROLES[decoder]) - 2)
        case "yolox":
            return channels - 5
        case "yolov5" | "darknet":
            return channels // anchors - 5
        case "ssd":
            return channels // anchors - _read_whole_number(keys, "coords", "4") - _read_whole_number(keys, "softmax", "1")
    return 1


def _read_whole_number(keys: dict[str, str], key: str, default: str) -> int:
    text = keys.get(key, default)
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"--key {key}={text}: no whole number")
    return int(text)


def _read_exported_heads(graph: NodeGraph, layers: LayerGraph) -> HeadChoice | None:
    """Return the heads that `mpnet export` wrote down; None where there are none, or they do not fit."""
    text = graph.metadata.get("heads", "")
    try:
        documents: Any = json.loads(text) if 0 < len(text) < 1 << 20 else None
        heads, classes = [], 0
        for document in documents or []:
            name = graph.tensor(str(document["output"]))
            anchors = np.array(document["anchors"], np.float64).reshape(-1, 2)
            decoder, keys = str(document.get("decoder", "darknet")), {}
            if len(anchors):
                keys = {"num": str(len(anchors)), "anchors": ", ".join(f"{w:.12g},{h:.12g}" for w, h in anchors.tolist())}
            for key, usual in (("scale_x_y", 1), ("new_coords", 0), *((key, None) for key in _DECODING)):
                value = document.get(key, usual)
                if value != usual:
                    numbers = value if isinstance(value, list) else [value]
                    keys[key] = ",".join(f"{float(number):.9g}" for number in numbers)
            classes = int(document["classes"])
            if name not in layers.shapes or name == graph.image or decoder not in DECODERS or classes < 1:
                return None
            if decoder == "darknet" and layers.shapes[name][0] != len(anchors) * (5 + classes):
                return None
            heads.append(Head((name,), decoder, tuple(keys.items())))
        return HeadChoice(heads, classes, "yolo") if heads else None
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
        return None  # a document of another shape
