# SPDX-License-Identifier: MIT
"""Items as the sections of a cfg, with the values that go into its weights file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import numpy as np

from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights_write import weights_content
from mpnet.importing.graph import Array, Refused
from mpnet.importing.items import Body, Item
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Floats, Weights

WEIGHTED = ("conv", "deconv", "dense")
"""Kinds of items that have weights."""


@dataclass(frozen=True)
class Head:
    """Tensors that leave the network. tensors: joined along channels, in this order. keys: of the [yolo] section."""

    tensors: tuple[str, ...]
    decoder: str = "none"
    keys: tuple[tuple[str, str], ...] = ()


@dataclass
class Written:
    """What was written. network: read back. layer_of: index of the layer that makes a tensor; quantised: those whose weights
    have integers of the file's. heads: index of each head's section. ranges: by layer, -1 the image."""

    text: str
    network: NetworkSpec
    weights: bytes
    layer_of: dict[str, int]
    heads: list[int]
    fates: dict[str, str] = field(default_factory=dict)


@dataclass
class _Section:
    kind: str
    keys: dict[str, Any]
    comment: str


class Writer:
    """Sections so far.

    layer_of: index of the layer that makes a tensor. layers, values: as mpnet.model.weights has them, by layer index.
    rounded:  tensors of layers with weights that are rounded to 8 bits whoever reads them, by a layer of its own; made_at: the
              layer before that.
    flat:     tensors that are many pixels as one row. padded: tensor that a [pad] of a convolution's own surrounds, by index.
    """

    def __init__(self, body: Body, image: str, rounded: frozenset[str] = frozenset()) -> None:
        self.body, self.rounded = body, rounded
        self.made_at: dict[str, int] = {}
        self.sections: list[_Section] = []
        self.layer_of: dict[str, int] = {image: -1}
        self.layers: dict[int, ConvolutionWeights] = {}
        self.values: dict[int, Floats] = {}
        self.fates: dict[str, str] = {}
        self.heads: list[int] = []
        self.flat: set[str] = set()
        self.padded: dict[int, str] = {}
        readers = body.readers().get(image, [])
        if len(readers) > 1 or (body.items and image not in body.items[0].inputs) or any(r.kind == "concat" for r in readers):
            # Only the first layer reads the image; others name a layer.
            self.layer_of[image] = self.emit(
                "empty", "the picture, for several readers"
            )  # a word of 0.1.0: files keep their digests

    def emit(self, kind: str, comment: str = "", /, **keys: Any) -> int:
        """Append a section that reads the one before it; its layer index."""
        self.sections.append(_Section(kind, {name: value for name, value in keys.items() if value is not None}, comment))
        return len(self.sections) - 1

    def place(self, tensor: str) -> None:
        """Let the next section read this tensor."""
        index = self.layer_of[tensor]
        if index != len(self.sections) - 1:
            self.emit("route", layers=index)

    def item(self, item: Item) -> None:
        """Write an item. Raises: Refused."""
        if any(name in self.flat for name in item.inputs) and item.kind != "dense":
            raise Refused("reads values of many pixels as one row; only fully connected layers do")
        index = _WRITERS[item.kind](self, item)
        if item.output in self.rounded and item.kind in WEIGHTED:
            self.made_at[item.output] = index
            self.layer_of[item.output] = self.emit("empty", "rounded as in the file", int8=1, quantize_activations="calibrated")
        else:
            self.layer_of[item.output] = index
        for node in item.nodes:
            if index >= 0:
                self.fates[node] = f"{index} [{self.sections[index].kind}]"

    def head(self, head: Head, classes: int) -> None:
        """Write a head."""
        if len(head.tensors) > 1:
            self.emit("route", layers=",".join(str(self.layer_of[name]) for name in head.tensors))
        else:
            self.place(head.tensors[0])
        self.heads.append(
            self.emit("yolo", decoder=head.decoder if head.decoder != "darknet" else None, classes=classes, **dict(head.keys))
        )

    def written(self, net: dict[str, Any], extra: dict[int, dict[str, Any]], source: str, seen: int = 0) -> Written:
        """The files. net: keys of [net]; extra: more keys by layer index. Raises: FormatError for a mistake in here."""
        lines = ["[net]", *(f"{key}={value}" for key, value in net.items()), ""]
        for index, section in enumerate(self.sections):
            comment = "".join(c if c.isprintable() and ord(c) < 127 else "?" for c in section.comment[:200])
            lines += [f"# {index}: {comment}"] if comment else [f"# {index}"]
            keys = {**section.keys, **extra.get(index, {})}
            lines += [f"[{section.kind}]", *(f"{key}={value}" for key, value in keys.items()), ""]
        text = "\n".join(lines)
        network = parse_cfg(text, source)
        weights = Weights(self.layers, values=self.values, seen=seen)
        return Written(text, network, weights_content(weights, network), self.layer_of, self.heads, self.fates)

    def weigh(self, index: int, weights: Array, bias: Array) -> int:
        """Give a layer its weights."""
        self.layers[index] = ConvolutionWeights(np.asarray(bias, np.float32), np.ascontiguousarray(weights, np.float32))
        return index


def _name(item: Item) -> str:
    return ", ".join(dict.fromkeys(item.nodes))


def _conv(to: Writer, item: Item) -> int:
    values = item.values
    weights, pads, (stride_y, stride_x) = values["weights"], list(values["pads"]), values["strides"]
    size, weights, pads, dilation = _square(weights, pads, values["dilations"])
    padding, zeros = _padding(to, item, pads, size, (stride_y, stride_x), dilation)
    to.place(item.inputs[0])
    if any(zeros):
        to.padded[
            to.emit("pad", **{key: zero or None for key, zero in zip(("top", "left", "bottom", "right"), zeros, strict=True)})
        ] = item.inputs[0]
    index = to.emit(
        "convolutional",
        _name(item),
        filters=len(weights),
        size=size,
        **_strides(stride_y, stride_x),
        padding=padding // dilation or None,
        dilation=dilation if dilation > 1 else None,
        groups=values["groups"] if values["groups"] > 1 else None,
        activation=item.activation,
    )
    return to.weigh(index, weights, values["bias"])


def _strides(y: int, x: int) -> dict[str, int]:
    return {"stride": y} if x == y else {"stride_x": x, "stride_y": y}


def _square(weights: Array, pads: list[int], dilations: Sequence[int]) -> tuple[int, Array, list[int], int]:
    """(size, weights, pads, dilation) with one size and dilation for both axes; zeros are put around what has two."""
    height, width = weights.shape[2:]
    if height == width and (dilations[0] == dilations[1] or height == 1):
        return height, weights, pads, int(dilations[0]) if height > 1 else 1
    reach = [(side - 1) * dilation + 1 for side, dilation in zip((height, width), dilations, strict=True)]
    size = max(reach)
    before = [(size - side) // 2 for side in reach]
    out = np.zeros((*weights.shape[:2], size, size), np.float32)
    out[:, :, before[0] : before[0] + reach[0] : dilations[0], before[1] : before[1] + reach[1] : dilations[1]] = weights
    after = [size - side - low for side, low in zip(reach, before, strict=True)]
    return size, out, [pads[0] + before[0], pads[1] + before[1], pads[2] + after[0], pads[3] + after[1]], 1


def _padding(
    to: Writer, item: Item, pads: list[int], size: int, strides: tuple[int, int], dilation: int
) -> tuple[int, list[int]]:
    """(padding of all sides, zeros that come first: top, left, bottom, right)."""
    top, left = pads[:2]
    sides = to.body.shapes[item.inputs[0]][1:]
    reach = (size - 1) * dilation + 1

    def fits(padding: int) -> bool:
        found = tuple((side + 2 * padding - reach) // stride + 1 for side, stride in zip(sides, strides, strict=True))
        return found == item.shape[1:] and padding % dilation == 0

    # Rows below that no window reaches need not be there.
    if top == left and fits(top):
        return top, [0, 0, 0, 0]
    common = min(pads)
    common -= common % dilation
    return common, [pad - common for pad in pads]


def _deconv(to: Writer, item: Item) -> int:
    values = item.values
    to.place(item.inputs[0])
    weights = values["weights"]
    index = to.emit(
        "deconvolutional",
        _name(item),
        filters=weights.shape[1],
        size=weights.shape[2],
        stride=values["stride"],
        padding=values["padding"] or None,
        activation=item.activation,
    )
    return to.weigh(index, weights[:, :, ::-1, ::-1].transpose(1, 0, 2, 3), values["bias"])


def _dense(to: Writer, item: Item) -> int:
    weights = item.values["weights"]
    x = item.inputs[0]
    to.place(x)
    maker = to.body.makers().get(x)
    channels, height, width = to.body.shapes[maker.inputs[0] if maker is not None and x in to.flat else x]
    index = to.emit("connected", _name(item), output=len(weights), activation=item.activation)
    # The file's order is (channels, height, width), the kernels' channels last.
    ordered = weights.reshape(len(weights), channels, height, width).transpose(0, 2, 3, 1)
    return to.weigh(index, ordered.reshape(len(weights), -1, 1, 1), item.values["bias"])


def _affine(to: Writer, item: Item) -> int:
    to.place(item.inputs[0])
    channels = item.shape[0]
    index = to.emit(
        "convolutional",
        _name(item),
        filters=channels,
        size=1,
        stride=1,
        groups=channels if channels > 1 else None,
        activation=item.activation,
    )
    return to.weigh(index, item.values["scale"].reshape(channels, 1, 1, 1), item.values["shift"])


def _activation(to: Writer, item: Item) -> int:
    if item.values["word"] == "softplus":
        raise Refused("Softplus has no form in a cfg but as a part of Mish")
    to.place(item.inputs[0])
    return to.emit("activation", _name(item), activation=item.values["word"])


def _prelu(to: Writer, item: Item) -> int:
    """slope x + (1 - slope) relu(x)."""
    slopes = np.asarray(item.values["slopes"], np.float32)
    to.place(item.inputs[0])
    to.emit("activation", activation="relu")
    index = to.emit(
        "shortcut", _name(item), **{"from": to.layer_of[item.inputs[0]]}, weights_type="per_channel", activation="linear"
    )
    to.values[index] = np.stack([1 - slopes, slopes])
    return index


def _pool(to: Writer, item: Item, kind: str) -> int:
    values = item.values
    (height, width), (stride_y, stride_x), pads = values["size"], values["strides"], list(values["pads"])
    if height != width:
        raise Refused(f"a window of {width}x{height} has no form in a cfg; square ones have")
    to.place(item.inputs[0])
    sides = to.body.shapes[item.inputs[0]][1:]
    if values.get("counted"):
        to.emit("pad", **{key: pad or None for key, pad in zip(("top", "left", "bottom", "right"), pads, strict=True)})
        sides, pads = (sides[0] + pads[0] + pads[2], sides[1] + pads[1] + pads[3]), [0, 0, 0, 0]
    for total in (2 * pads[0], 2 * pads[0] + 1):
        found = tuple((side + total - height) // stride + 1 for side, stride in zip(sides, (stride_y, stride_x), strict=True))
        if pads[0] == pads[1] and found == item.shape[1:]:
            return to.emit(kind, _name(item), size=height, **_strides(stride_y, stride_x), padding=total)
    raise Refused(f"pads a pooling by {pads} (top, left, bottom, right); a cfg pads both axes alike, at most one more behind")


def _upsample(to: Writer, item: Item) -> int:
    if item.values["factor"] == 1:
        return to.layer_of[item.inputs[0]]
    to.place(item.inputs[0])
    return to.emit("upsample", _name(item), stride=item.values["factor"])


def _concat(to: Writer, item: Item) -> int:
    return to.emit("route", _name(item), layers=",".join(str(to.layer_of[name]) for name in item.inputs))


def _slice(to: Writer, item: Item) -> int:
    first, channels, whole = item.values["first"], item.shape[0], to.body.shapes[item.inputs[0]][0]
    index = to.layer_of[item.inputs[0]]
    if channels == whole:
        return index
    if whole % channels == 0 and first % channels == 0 and index >= 0:
        return to.emit("route", _name(item), layers=index, groups=whole // channels, group_id=first // channels)
    to.place(item.inputs[0])
    return to.emit("slice", _name(item), first=first, channels=channels)


def _sample(to: Writer, item: Item) -> int:
    if any(item.values["start"]):
        raise Refused("every n-th pixel, but not from the first on, has no form in a cfg")
    to.place(item.inputs[0])
    return to.emit("maxpool", _name(item), size=1, **_strides(*item.values["step"]), padding=0)


def _add(to: Writer, item: Item) -> int:
    a, b = item.inputs
    if to.layer_of[b] == len(to.sections) - 1:
        a, b = b, a
    if to.layer_of[b] < 0:
        raise Refused("adds the image itself")
    to.place(a)
    return to.emit("shortcut", _name(item), **{"from": to.layer_of[b]}, activation=item.activation)


def _mul(to: Writer, item: Item) -> int:
    a, b = item.inputs
    if item.values["operand"] == "same":
        if to.layer_of[b] != len(to.sections) - 1:
            a, b = b, a
        to.place(b)
        return to.emit("sam", _name(item), **{"from": to.layer_of[a]}, activation=item.activation)
    to.place(b)
    per_pixel = 1 if item.values["operand"] == "per_pixel" else None
    return to.emit("scale_channels", _name(item), **{"from": to.layer_of[a]}, scale_wh=per_pixel, activation=item.activation)


def _pad(to: Writer, item: Item) -> int:
    if item.values.get("lowest"):
        raise Refused("pads with the lowest value, and no maximum pooling alone reads it")
    to.place(item.inputs[0])
    zeros = [*item.values["pads"], *item.values["channels"]]
    names = ("top", "left", "bottom", "right", "front", "back")
    edge = 1 if item.values.get("edge") else None
    return to.emit("pad", _name(item), **{key: zero or None for key, zero in zip(names, zeros, strict=True)}, edge=edge)


def _flatten(to: Writer, item: Item) -> int:
    to.flat.add(item.output)
    return to.layer_of[item.inputs[0]]


def _space_to_depth(to: Writer, item: Item) -> int:
    block, order = item.values["block"], item.values["order"]
    to.place(item.inputs[0])
    index = to.emit("reorg3d", _name(item), stride=block)
    if order is None:
        return index
    parts = [to.emit("route", layers=index, groups=block * block, group_id=y * block + x) for y, x in order]
    return to.emit("route", layers=",".join(map(str, parts)))


def _plain(kind: str) -> Callable[[Writer, Item], int]:
    def write(to: Writer, item: Item) -> int:
        to.place(item.inputs[0])
        return to.emit(kind, _name(item))

    return write


_WRITERS: dict[str, Callable[[Writer, Item], int]] = {
    "conv": _conv,
    "deconv": _deconv,
    "dense": _dense,
    "affine": _affine,
    "activation": _activation,
    "prelu": _prelu,
    "maxpool": lambda to, item: _pool(to, item, "maxpool"),
    "avgpool": lambda to, item: _pool(to, item, "local_avgpool"),
    "global": _plain("avgpool"),
    "upsample": _upsample,
    "concat": _concat,
    "slice": _slice,
    "sample": _sample,
    "add": _add,
    "mul": _mul,
    "pad": _pad,
    "softmax": _plain("softmax"),
    "flatten": _flatten,
    "space_to_depth": _space_to_depth,
}
