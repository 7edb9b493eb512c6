# SPDX-License-Identifier: MIT
"""Operations as the sections of a cfg, with the values that go into its weights file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Collection, Iterable, Mapping, Sequence
from urllib.parse import quote

import numpy as np

from mpnet.formats.cfg.read import parse_cfg
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

# What a window of two sizes may take once it is a square one with zeros.
_MAX_SQUARE_VALUES = 1 << 24
# A pixel further in is not the first that every n-th one is taken from.
_MAX_WINDOW = 16


@dataclass
class Written:
    """What was written. network: the cfg read back. layer_of: index of the layer that makes a tensor. layers: index and kind of
    each node's layer, for people."""

    text: str
    network: NetworkSpec
    weights: bytes
    layer_of: dict[str, int]
    layers: dict[str, str]


@dataclass
class _Section:
    kind: str
    keys: dict[str, Any]
    comment: str


class Writer:
    """The sections so far.

    layer_of: index of the layer that makes a tensor. weights, values: as mpnet.model.weights has them, by layer index.
    rounded:  precisions of tensors of layers with weights that are rounded whoever reads them, by a layer of its own; made_at:
              the layer before that.
    flat:     tensors that are many pixels as one row. padded: tensor that a [pad] of a convolution's own surrounds, by index.
    """

    def __init__(self, graph: LayerGraph, image: str, rounded: Mapping[str, str] | None = None) -> None:
        self.shapes, self.makers, self.rounded = graph.shapes, graph.makers(), rounded or {}
        self.made_at: dict[str, int] = {}
        self.sections: list[_Section] = []
        self.layer_of: dict[str, int] = {image: -1}
        self.weights: dict[int, ConvolutionWeights] = {}
        self.values: dict[int, Floats] = {}
        self.layers: dict[str, str] = {}
        self.sources: dict[int, tuple[str, ...]] = {}
        self.flat: set[str] = set()
        self.padded: dict[int, str] = {}
        operations, readers = graph.operations, graph.readers().get(image, [])
        if (
            len(readers) > 1
            or (operations and image not in operations[0].inputs)
            or any(reader.kind == "concat" for reader in readers)
        ):
            # Only the first layer reads the image; others name a layer. The comment's word is that of 0.1.0, whose cfgs had
            # the same digests.
            self.layer_of[image] = self.emit("empty", "the picture, for several readers")

    def emit(self, kind: str, comment: str = "", /, **keys: Any) -> int:
        """Append a section that reads the one before it; its layer index. Keys of None are left out."""
        self.sections.append(_Section(kind, {name: value for name, value in keys.items() if value is not None}, comment))
        return len(self.sections) - 1

    def read(self, tensor: str) -> None:
        """Let the next section read this tensor."""
        index = self.layer_of[tensor]
        if index != len(self.sections) - 1:
            if index < 0:
                raise Refused("reads the image itself behind other layers, which has no form in a cfg")
            self.emit("route", layers=index)

    def on(self, operation: LayerOperation, kind: str, /, **keys: Any) -> int:
        """Append the section of an operation that reads its first input; its layer index."""
        self.read(operation.inputs[0])
        return self.emit(kind, _name(operation), **keys)

    def write(self, operation: LayerOperation) -> None:
        """Write an operation. Raises: Refused."""
        if any(name in self.flat for name in operation.inputs) and operation.kind != "dense":
            raise Refused("reads values of many pixels as one row; only fully connected layers do")
        write = _WRITERS.get(operation.kind)
        index = write(self, operation) if write else self.on(operation, operation.kind, **operation.values)
        if operation.output in self.rounded and operation.kind in WEIGHTED:
            self.made_at[operation.output] = index
            keys = {self.rounded[operation.output]: 1, "quantize_activations": "calibrated"}
            index_of_result = self.emit("empty", "rounded as in the file", **keys)
        else:
            index_of_result = index
        self.layer_of[operation.output] = index_of_result
        if index >= 0 and not operation.values.get("merged"):  # of several nodes a recipe for the file could name none
            first = (operation.values["node"],) if "node" in operation.values else ()
            self.sources[index] = (*self.sources.get(index, ()), *first, *operation.nodes)
        for node in operation.nodes:
            if index >= 0:
                self.layers[node] = f"{index} [{self.sections[index].kind}]"

    def head(self, head: Head, classes: int) -> None:
        """Write a head."""
        if len(head.tensors) > 1:
            self.emit("route", layers=self.indices(head.tensors))
        else:
            self.read(head.tensors[0])
        self.emit("yolo", decoder=head.decoder if head.decoder != "darknet" else None, classes=classes, **dict(head.keys))

    def indices(self, tensors: Iterable[str]) -> str:
        """The layers that make tensors, as a [route] names them. Raises: Refused for the image, which is none."""
        indices = [self.layer_of[name] for name in tensors]
        if min(indices) < 0:
            raise Refused("joins the image itself, which has no form in a cfg")
        return ",".join(map(str, indices))

    def written(
        self, net: dict[str, Any], extra: dict[int, dict[str, Any]], source: str, named: Collection[str] = ()
    ) -> Written:
        """The files. net: keys of [net]; extra: more keys by layer index; named: nodes of the file that a layer's `source` may
        name. Raises: FormatError."""
        lines = ["[net]", *(f"{key}={value}" for key, value in net.items()), ""]
        for index, section in enumerate(self.sections):
            comment = "".join(c if c.isprintable() and ord(c) < 127 else "?" for c in section.comment[:200])
            lines += [f"# {index}: {comment}"] if comment else [f"# {index}"]
            names = [quote(name, safe=_PLAIN) for name in dict.fromkeys(self.sources.get(index, ())) if name in named]
            keys = {**section.keys, **extra.get(index, {}), **({"source": ",".join(names)} if names else {})}
            lines += [f"[{section.kind}]", *(f"{key}={value}" for key, value in keys.items()), ""]
        text = "\n".join(lines)
        network = parse_cfg(text, source)
        content = weights_content(Weights(self.weights, values=self.values, seen=0), network)
        return Written(text, network, content, self.layer_of, self.layers)

    def weigh(self, index: int, weights: Array, bias: Array) -> int:
        """Give a layer its weights. Raises: Refused where they are not finite."""
        weights, bias = np.ascontiguousarray(weights, np.float32), np.asarray(bias, np.float32)
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            raise Refused("its weights are not finite numbers; the file is damaged, or its training failed")
        self.weights[index] = ConvolutionWeights(bias, weights)
        return index


def _name(operation: LayerOperation) -> str:
    return ", ".join(dict.fromkeys(operation.nodes))


def _zeros(zeros: Sequence[int]) -> dict[str, int | None]:
    """Keys of [pad]; those of 0 are left out."""
    names = ("top", "left", "bottom", "right", "front", "back")
    return {name: zero or None for name, zero in zip(names, zeros, strict=False)}


def _strides(y: int, x: int) -> dict[str, int]:
    return {"stride": y} if x == y else {"stride_x": x, "stride_y": y}


def _conv(to: Writer, operation: LayerOperation) -> int:
    values = operation.values
    strides = tuple(values["strides"])
    size, weights, pads, dilation = _square(values["weights"], list(values["pads"]), values["dilations"])
    padding, zeros = _padding(to, operation, pads, size, strides, dilation)
    to.read(operation.inputs[0])
    if any(zeros):
        to.padded[to.emit("pad", **_zeros(zeros))] = operation.inputs[0]
    index = to.emit(
        "convolutional",
        _name(operation),
        filters=len(weights),
        size=size,
        **_strides(*strides),
        padding=padding // dilation or None,
        dilation=dilation if dilation > 1 else None,
        groups=values["groups"] if values["groups"] > 1 else None,
        activation=operation.activation,
    )
    return to.weigh(index, weights, values["bias"])


def _square(weights: Array, pads: list[int], dilations: Sequence[int]) -> tuple[int, Array, list[int], int]:
    """(size, weights, pads, dilation) with one size and dilation for both axes; zeros are put around what has two."""
    height, width = weights.shape[2:]
    if height == width and (dilations[0] == dilations[1] or height == 1):
        return height, weights, pads, int(dilations[0]) if height > 1 else 1
    reach = [(side - 1) * dilation + 1 for side, dilation in zip((height, width), dilations, strict=True)]
    size = max(reach)
    if weights.shape[0] * weights.shape[1] * size * size > max(_MAX_SQUARE_VALUES, 8 * weights.size):
        raise Refused(f"its window of {reach[1]}x{reach[0]} is larger as a square one than mpnet holds")
    before = [(size - side) // 2 for side in reach]
    square = np.zeros((*weights.shape[:2], size, size), np.float32)
    square[:, :, before[0] : before[0] + reach[0] : dilations[0], before[1] : before[1] + reach[1] : dilations[1]] = weights
    after = [size - side - low for side, low in zip(reach, before, strict=True)]
    return size, square, [pads[0] + before[0], pads[1] + before[1], pads[2] + after[0], pads[3] + after[1]], 1


def _padding(
    to: Writer, operation: LayerOperation, pads: list[int], size: int, strides: Sequence[int], dilation: int
) -> tuple[int, list[int]]:
    """(padding of all sides, zeros that come first: top, left, bottom, right)."""
    top, left = pads[:2]
    sides = to.shapes[operation.inputs[0]][1:]
    reach = (size - 1) * dilation + 1
    after = tuple((side + 2 * top - reach) // stride + 1 for side, stride in zip(sides, strides, strict=True))
    # Rows below that no window reaches need not be there.
    if top == left and after == operation.shape[1:] and top % dilation == 0:
        return top, [0, 0, 0, 0]
    common = min(pads) - min(pads) % dilation
    return common, [pad - common for pad in pads]


def _deconv(to: Writer, operation: LayerOperation) -> int:
    values, weights = operation.values, operation.values["weights"]
    index = to.on(
        operation,
        "deconvolutional",
        filters=weights.shape[1],
        size=weights.shape[2],
        stride=values["stride"],
        padding=values["padding"] or None,
        activation=operation.activation,
    )
    return to.weigh(index, weights[:, :, ::-1, ::-1].transpose(1, 0, 2, 3), values["bias"])


def _dense(to: Writer, operation: LayerOperation) -> int:
    weights, x = operation.values["weights"], operation.inputs[0]
    channels, height, width = to.shapes[to.makers[x].inputs[0] if x in to.flat else x]
    index = to.on(operation, "connected", output=len(weights), activation=operation.activation)
    if x in to.flat and to.makers[x].values.get("last"):
        return to.weigh(index, weights.reshape(len(weights), -1, 1, 1), operation.values["bias"])
    # The file's order is (channels, height, width), the kernels' channels last.
    ordered = weights.reshape(len(weights), channels, height, width).transpose(0, 2, 3, 1)
    return to.weigh(index, ordered.reshape(len(weights), -1, 1, 1), operation.values["bias"])


def _affine(to: Writer, operation: LayerOperation) -> int:
    channels = operation.shape[0]
    groups = channels if channels > 1 else None
    keys = {"filters": channels, "size": 1, "stride": 1, "groups": groups, "activation": operation.activation}
    index = to.on(operation, "convolutional", **keys)
    return to.weigh(index, operation.values["scale"].reshape(channels, 1, 1, 1), operation.values["shift"])


def _activation(to: Writer, operation: LayerOperation) -> int:
    if operation.values["word"] == "softplus":
        raise Refused("Softplus has no form in a cfg but as a part of Mish")
    return to.on(operation, "activation", activation=operation.values["word"])


def _prelu(to: Writer, operation: LayerOperation) -> int:
    """slope x + (1 - slope) relu(x)."""
    slopes = np.asarray(operation.values["slopes"], np.float32)
    if not np.isfinite(slopes).all():
        raise Refused("its slopes are not finite numbers; the file is damaged")
    to.read(operation.inputs[0])
    to.emit("activation", activation="relu")
    keys = {"from": to.indices(operation.inputs), "weights_type": "per_channel", "activation": "linear"}
    index = to.emit("shortcut", _name(operation), **keys)
    to.values[index] = np.stack([1 - slopes, slopes])
    return index


def _pool(to: Writer, operation: LayerOperation, kind: str) -> int:
    values = operation.values
    (height, width), strides, pads = values["size"], values["strides"], list(values["pads"])
    if height != width:
        raise Refused(f"a window of {width}x{height} has no form in a cfg; square ones have")
    to.read(operation.inputs[0])
    sides = to.shapes[operation.inputs[0]][1:]
    if values.get("counted"):
        to.emit("pad", **_zeros(pads))
        sides, pads = (sides[0] + pads[0] + pads[2], sides[1] + pads[1] + pads[3]), [0, 0, 0, 0]
    for total in (2 * pads[0], 2 * pads[0] + 1):
        after = tuple((side + total - height) // stride + 1 for side, stride in zip(sides, strides, strict=True))
        if pads[0] == pads[1] and after == operation.shape[1:]:
            return to.emit(kind, _name(operation), size=height, **_strides(*strides), padding=total)
    raise Refused(f"pads a pooling by {pads} (top, left, bottom, right); a cfg pads both axes alike, at most one more behind")


def _upsample(to: Writer, operation: LayerOperation) -> int:
    factor = operation.values["factor"]
    return to.layer_of[operation.inputs[0]] if factor == 1 else to.on(operation, "upsample", stride=factor)


def _slice(to: Writer, operation: LayerOperation) -> int:
    first, channels, whole = operation.values["first"], operation.shape[0], to.shapes[operation.inputs[0]][0]
    index = to.layer_of[operation.inputs[0]]
    if channels == whole:
        return index
    if whole % channels == 0 and first % channels == 0 and index >= 0:
        return to.emit("route", _name(operation), layers=index, groups=whole // channels, group_id=first // channels)
    return to.on(operation, "slice", first=first, channels=channels)


def _sample(to: Writer, operation: LayerOperation) -> int:
    start, step = operation.values["start"], operation.values["step"]
    if any(start):
        # Each channel's last value in a window that begins with the first pixel.
        if max(start) >= _MAX_WINDOW:
            raise Refused(f"begins with pixel {max(start)}; below {_MAX_WINDOW} has a form in a cfg")
        channels = operation.shape[0]
        weights = np.zeros((channels, 1, start[0] + 1, start[1] + 1), np.float32)
        weights[:, :, -1, -1] = 1
        values = {"weights": weights, "bias": np.zeros(channels, np.float32), "groups": channels}
        return _conv(to, replace(operation, values=values | {"strides": step, "pads": [0] * 4, "dilations": [1, 1]}))
    return to.on(operation, "maxpool", size=1, **_strides(*step), padding=0)


def _add(to: Writer, operation: LayerOperation) -> int:
    a, b = operation.inputs
    if to.layer_of[b] == len(to.sections) - 1:
        a, b = b, a
    if to.layer_of[b] < 0:
        raise Refused("adds the image itself")
    to.read(a)
    return to.emit("shortcut", _name(operation), **{"from": to.layer_of[b]}, activation=operation.activation)


def _offset(to: Writer, operation: LayerOperation) -> int:
    """A constant of its own for each pixel, which an [implicit] layer holds."""
    values, x = operation.values["offset"], to.layer_of[operation.inputs[0]]
    if x < 0:
        raise Refused("adds to the image itself")
    if not np.isfinite(values).all():
        raise Refused("its constant is not finite; the file is damaged")
    channels, height, width = values.shape
    index = to.emit("implicit", _name(operation), filters=channels, atoms=height * width)
    to.values[index] = values.reshape(channels, -1)
    if width > 1:
        to.emit("reshape", width=width)
    return to.emit("shortcut", _name(operation), **{"from": x}, activation="linear")


def _mul(to: Writer, operation: LayerOperation) -> int:
    a, b = operation.inputs
    same = operation.values["operand"] == "same"
    if same and to.layer_of[b] != len(to.sections) - 1:
        a, b = b, a
    if to.layer_of[a] < 0:
        raise Refused("multiplies the image itself")
    to.read(b)
    per_pixel = 1 if operation.values["operand"] == "per_pixel" else None
    keys = {"from": to.layer_of[a], "scale_wh": per_pixel, "activation": operation.activation}
    return to.emit("sam" if same else "scale_channels", _name(operation), **keys)


def _pad(to: Writer, operation: LayerOperation) -> int:
    if operation.values.get("lowest"):
        raise Refused("pads with the lowest value, and no maximum pooling alone reads it")
    zeros = _zeros([*operation.values["pads"], *operation.values["channels"]])
    return to.on(operation, "pad", **zeros, edge=1 if operation.values.get("edge") else None)


def _flatten(to: Writer, operation: LayerOperation) -> int:
    to.flat.add(operation.output)
    return to.layer_of[operation.inputs[0]]


def _space_to_depth(to: Writer, operation: LayerOperation) -> int:
    block, order = operation.values["block"], operation.values["order"]
    index = to.on(operation, "reorg3d", stride=block)
    if order is None:
        return index
    parts = [to.emit("route", layers=index, groups=block * block, group_id=y * block + x) for y, x in order]
    return to.emit("route", layers=",".join(map(str, parts)))


# What is not here is the section of its name, with its values as keys.
_WRITERS: dict[str, Callable[[Writer, LayerOperation], int]] = {
    "conv": _conv,
    "deconv": _deconv,
    "dense": _dense,
    "affine": _affine,
    "activation": _activation,
    "prelu": _prelu,
    "maxpool": lambda to, operation: _pool(to, operation, "maxpool"),
    "avgpool": lambda to, operation: _pool(to, operation, "local_avgpool"),
    "global": lambda to, operation: to.on(operation, "avgpool"),
    "upsample": _upsample,
    "concat": lambda to, operation: to.emit("route", _name(operation), layers=to.indices(operation.inputs)),
    "slice": _slice,
    "sample": _sample,
    "add": _add,
    "mul": _mul,
    "offset": _offset,
    "pad": _pad,
    "flatten": _flatten,
    "space_to_depth": _space_to_depth,
}
