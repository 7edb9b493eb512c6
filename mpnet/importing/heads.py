# SPDX-License-Identifier: MIT
"""Which tensors leave the network, and how they are decoded: named by the user, told by the file, or found by trying."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from mpnet.errors import ConfigError
from mpnet.importing.fold import reaching
from mpnet.importing.graph import Graph, Node
from mpnet.importing.items import Body
from mpnet.importing.sections import Head
from mpnet.importing.tails import Tail, frontier, recognise
from mpnet.messages import shown
from mpnet.model.heads import DECODERS

# The largest constant of arithmetic on boxes that is written as a convolution: a mean of bins.
_MAX_TAIL_WEIGHTS = 256
_DECODING = ("reg_max", "coords", "softmax", "yx", "linear", "variances")
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN")


def chosen_heads(
    graph: Graph,
    body: Body,
    names: tuple[tuple[str, ...], ...],
    decoder: str,
    keys: tuple[tuple[str, str], ...],
    anchors: tuple[str, ...],
) -> tuple[Tail, list[str]]:
    """The heads, and what is worth saying. Raises: FormatError, ConfigError."""
    if decoder and decoder not in DECODERS:
        raise ConfigError(f"--decoder {decoder}: unknown; known are {', '.join(DECODERS)}")
    if names:
        return _named(graph, body, names, decoder, keys, anchors), []
    edge = frontier(graph, body, graph.nodes)
    if not edge:
        _blame(graph, body, graph.nodes)
        graph.fail("nothing of it is a layer")
    lifted = {name for item in body.items for name in item.nodes}
    behind = [node for node in graph.nodes if node.name not in lifted]
    if any(name not in body.shapes for name in graph.outputs):
        _refuse_weights(graph, body, behind)
        tail = recognise(graph, body, edge, graph.nodes)
        if tail is not None:
            return tail, [f"boxes: decoded as {tail.what} does, which gives what the nodes behind the heads give"]
        if decoder:
            return _made(graph, body, _joined(body, edge, decoder), decoder, keys, anchors), []
        named = ", ".join(f"{name} {_text(body, name)}" for name in edge[:12])
        reason = next((body.reasons[node.name] for node in behind if node.name in body.reasons), "")
        graph.refuse(
            behind[0],
            f"{reason or 'is no layer'}. What follows it is no box decoding that mpnet knows; name the "
            f"head tensors with --heads and their --decoder. What enters it: {named}",
        )
    told = _told(graph, body)
    if told is not None:
        return told, ["boxes: anchors and classes as the file's metadata say"]
    shapes = [body.shapes[name] for name in edge]
    if len(edge) == 1 and shapes[0][1:] == (1, 1) and not decoder:
        return Tail([Head((edge[0],), "")], 0, ""), []
    outputs = [name for name in dict.fromkeys(graph.outputs) if name in edge]
    if decoder:
        return _made(graph, body, _joined(body, outputs, decoder), decoder, keys, anchors), []
    return Tail([Head((name,), "none") for name in outputs], 1, ""), [
        "boxes: the file does not say how its outputs are decoded, so they have decoder=none; --decoder names one"
    ]


def _text(body: Body, name: str) -> str:
    c, h, w = body.shapes[name]
    return f"({w}x{h}x{c})"


def _refuse_weights(graph: Graph, body: Body, behind: list[Node]) -> None:
    """Nodes with weights are no box decoding: the first node that stopped the layers is what to name."""
    for node in behind:
        sizes = [graph.constants[name].size for name in node.inputs if name in graph.constants]
        if node.operator in _WEIGHTED and max(sizes, default=0) > _MAX_TAIL_WEIGHTS:
            _blame(graph, body, reaching(graph.nodes, node.outputs))


def _blame(graph: Graph, body: Body, nodes: list[Node]) -> None:
    for node in nodes:
        if node.name in body.reasons:
            graph.refuse(node, body.reasons[node.name])


def _named(
    graph: Graph,
    body: Body,
    names: tuple[tuple[str, ...], ...],
    decoder: str,
    keys: tuple[tuple[str, str], ...],
    anchors: tuple[str, ...],
) -> Tail:
    heads = []
    for tensors in names:
        found = [graph.tensor(name) for name in tensors]
        for name, said in zip(found, tensors, strict=True):
            if name not in body.shapes:
                makers = graph.makers()
                if name in makers:
                    _blame(graph, body, reaching(graph.nodes, [name]))
                edge = frontier(graph, body, graph.nodes)
                raise ConfigError(
                    f"--heads {shown(said)}: {graph.source} has no such tensor of a layer; the last ones are "
                    f"{', '.join(edge[:12])}"
                )
        if len({body.shapes[name][1:] for name in found}) > 1:
            raise ConfigError(f"--heads {'+'.join(tensors)}: tensors of one head have one width and height")
        heads.append(tuple(found))
    return _made(graph, body, heads, decoder or "none", keys, anchors)


def _joined(body: Body, edge: list[str], decoder: str) -> list[tuple[str, ...]]:
    """Tensors of one grid are one head: boxes before classes, the larger grids first."""
    grids: dict[tuple[int, int], list[str]] = {}
    for name in edge:
        grids.setdefault(body.shapes[name][1:], []).append(name)
    ordered = sorted(grids.items(), key=lambda grid: -grid[0][0] * grid[0][1])
    return [
        tuple(sorted(names, key=lambda name: -body.shapes[name][0])) if decoder == "ssd" else tuple(names)
        for _, names in ordered
    ]


def _made(
    graph: Graph,
    body: Body,
    tensors: list[tuple[str, ...]],
    decoder: str,
    keys: tuple[tuple[str, str], ...],
    anchors: tuple[str, ...],
) -> Tail:
    """Heads as the user says."""
    if anchors and len(anchors) != len(tensors):
        raise ConfigError(
            f"--anchors: {len(anchors)} lists for {len(tensors)} heads; separate heads by /, first those of "
            f"{', '.join('+'.join(names) for names in tensors)[:200]}"
        )
    if decoder in ("yolov5", "ssd", "darknet") and not anchors:
        raise ConfigError(
            f"--decoder {decoder} needs anchors: --anchors 'w,h,w,h/w,h,...', in pixels of the input, heads "
            f"separated by /, first those of {'+'.join(tensors[0])}"
        )
    said = dict(keys)
    heads, classes = [], 0
    for at, names in enumerate(tensors):
        channels = sum(body.shapes[name][0] for name in names)
        count = (anchors[at].count(",") + 1) // 2 if anchors else 0
        own = {"num": str(count), "anchors": anchors[at]} if count else {}
        classes = _classes(decoder, channels, count, said)
        heads.append(Head(names, decoder, tuple({**own, **{k: v for k, v in said.items() if k != "classes"}}.items())))
    classes = int(said["classes"]) if said.get("classes", "").isdigit() else classes
    if classes < 1:
        graph.fail(f"{channels} channels do not fit --decoder {decoder} with {count} anchors")
    return Tail(heads, classes, "" if decoder == "none" else decoder)


def _classes(decoder: str, channels: int, anchors: int, keys: dict[str, str]) -> int:
    """That a head of so many channels has."""
    match decoder:
        case "yolov8":
            return channels - 4 * int(keys.get("reg_max", "16"))
        case "yolox":
            return channels - 5
        case "yolov5" | "darknet":
            return channels // anchors - 5
        case "ssd":
            return channels // anchors - int(keys.get("coords", "4")) - int(keys.get("softmax", "1"))
    return 1


def _told(graph: Graph, body: Body) -> Tail | None:
    """Heads that `mpnet export` wrote down."""
    text = graph.metadata.get("heads", "")
    try:
        heads: Any = json.loads(text) if 0 < len(text) < 1 << 20 else None
        found, classes = [], 0
        for head in heads or []:
            name = graph.tensor(str(head["output"]))
            anchors = np.array(head["anchors"], np.float64).reshape(-1, 2)
            decoder, keys = str(head.get("decoder", "darknet")), {}
            if len(anchors):
                keys = {"num": str(len(anchors)), "anchors": ", ".join(f"{w:.12g},{h:.12g}" for w, h in anchors.tolist())}
            for key, usual in (("scale_x_y", 1), ("new_coords", 0), *((key, None) for key in _DECODING)):
                value = head.get(key, usual)
                if value != usual:
                    numbers = value if isinstance(value, list) else [value]
                    keys[key] = ",".join(f"{float(number):.9g}" for number in numbers)
            classes = int(head["classes"])
            if name not in body.shapes or decoder not in DECODERS:
                return None
            if decoder == "darknet" and body.shapes[name][0] != len(anchors) * (5 + classes):
                return None
            found.append(Head((name,), decoder, tuple(keys.items())))
        return Tail(found, classes, "yolo") if found else None
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None
