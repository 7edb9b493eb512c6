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
class WrittenCfg:
    """What was written. network: the cfg read back. layer_of: index of the layer that makes a tensor. layers: index and kind of
    each node's layer, for people."""

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
    """The sections so far.

    layer_of: index of the layer that makes a tensor. weights, values: as mpnet.model.weights has them, by layer index.
    rounded:  precisions of tensors of layers with weights that are rounded whoever reads them, by a layer of its own; made_at:
              the layer before that.
    flat:     tensors that are many pixels as one row. padded: tensor that a [pad] of a convolution's own surrounds, by index.
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

    def emit(self, kind: str, comment: str = "", /, **keys: Any) -> int:
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

    def emit_after_input(self, operation: LayerOperation, kind: str, /, **keys: Any) -> int:
        """Append the section of an operation that reads its first input; its layer index."""
        self.read_tensor(operation.inputs[0])
        return self.emit(kind, _join_node_names(operation), **keys)

    def write(self, operation: LayerOperation) -> None:
        """Write an operation. Raises: Refused."""
        if any(name in self.flat_tensors for name in operation.inputs) and operation.kind != "dense":
            raise Refused("reads values of many pixels as one row; only fully connected layers do")
        write = _WRITERS.get(operation.kind)
        index = write(self, operation) if write else self.emit_after_input(operation, operation.kind, **operation.values)
        if operation.output in self.rounded_tensors and operation.kind in WEIGHTED:
            self.unrounded_index[operation.output] = index
            keys = {self.rounded_tensors[operation.output]: 1, "quantize_activations": "calibrated"}
            index_of_result = self.emit("empty", "rounded as in the file", **keys)
        else:
            index_of_result = index
        self.layer_of[operation.output] = index_of_result
        if index >= 0 and not operation.values.get("merged"):  # of several nodes a recipe for the file could name none
            first_node = (operation.values["node"],) if "node" in operation.values else ()
            self.sources[index] = (*self.sources.get(index, ()), *first_node, *operation.nodes)
        for node in operation.nodes:
            if index >= 0:
                self.layer_texts[node] = f"{index} [{self.sections[index].kind}]"

    def write_head(self, head: Head, classes: int) -> None:
        """Write a head."""
        if len(head.tensors) > 1:
            self.emit("route", layers=self.list_indices(head.tensors))
        else:
            self.read_tensor(head.tensors[0])
        self.emit("yolo", decoder=head.decoder if head.decoder != "darknet" else None, classes=classes, **dict(head.keys))

    def list_indices(self, tensors: Iterable[str]) -> str:
        """The layers that make tensors, as a [route] names them. Raises: Refused for the image, which is none."""
        indices = [self.layer_of[name] for name in tensors]
        if min(indices) < 0:
            raise Refused("joins the image itself, which has no form in a cfg")
        return ",".join(map(str, indices))

    def make_files(
        self, net: dict[str, Any], extra_keys: dict[int, dict[str, Any]], source: str, source_names: Collection[str] = ()
    ) -> WrittenCfg:
        """The files. net: keys of [net]; extra_keys: more keys by layer index; source_names: nodes of the file that a layer's `source` may
        name. Raises: FormatError."""
        lines = ["[net]", *(f"{key}={value}" for key, value in net.items()), ""]
        for index, section in enumerate(self.sections):
            comment = "".join(c if c.isprintable() and ord(c) < 127 else "?" for c in section.comment[:200])
            lines += [f"# {index}: {comment}"] if comment else [f"# {index}"]
            names = [quote(name, safe=_PLAIN) for name in dict.fromkeys(self.sources.get(index, ())) if name in source_names]
            keys = {**section.keys, **extra_keys.get(index, {}), **({"source": ",".join(names)} if names else {})}
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


def _join_node_names(operation: LayerOperation) -> str:
    return ", ".join(dict.fromkeys(operation.nodes))


def _pad_keys(zeros: Sequence[int]) -> dict[str, int | None]:
    """Keys of [pad]; those of 0 are left out."""
    names = ("top", "left", "bottom", "right", "front", "back")
    return {name: zero or None for name, zero in zip(names, zeros, strict=False)}


def _stride_keys(y: int, x: int) -> dict[str, int]:
    return {"stride": y} if x == y else {"stride_x": x, "stride_y": y}


def _write_conv(writer: CfgWriter, operation: LayerOperation) -> int:
    values = operation.values
    strides = tuple(values["strides"])
    size, weights, pads, dilation = _make_square(values["weights"], list(values["pads"]), values["dilations"])
    padding, zeros = _split_padding(writer, operation, pads, size, strides, dilation)
    writer.read_tensor(operation.inputs[0])
    if any(zeros):
        writer.padded_tensors[writer.emit("pad", **_pad_keys(zeros))] = operation.inputs[0]
    index = writer.emit(
        "convolutional",
        _join_node_names(operation),
        filters=len(weights),
        size=size,
        **_stride_keys(*strides),
        padding=padding // dilation or None,
        dilation=dilation if dilation > 1 else None,
        groups=values["groups"] if values["groups"] > 1 else None,
        activation=operation.activation,
    )
    return writer.set_weights(index, weights, values["bias"])


def _make_square(weights: Array, pads: list[int], dilations: Sequence[int]) -> tuple[int, Array, list[int], int]:
    """(size, weights, pads, dilation) with one size and dilation for both axes; zeros are put around what has two."""
    height, width = weights.shape[2:]
    if height == width and (dilations[0] == dilations[1] or height == 1):
        return height, weights, pads, int(dilations[0]) if height > 1 else 1
    reach = [(side - 1) * dilation + 1 for side, dilation in zip((height, width), dilations, strict=True)]
    size = max(reach)
    if weights.shape[0] * weights.shape[1] * size * size > max(_MAX_SQUARE_VALUES, 8 * weights.size):
        raise Refused(f"its window of {reach[1]}x{reach[0]} is larger as a square one than mpnet holds")
    margins = [(size - side) // 2 for side in reach]
    square = np.zeros((*weights.shape[:2], size, size), np.float32)
    square[:, :, margins[0] : margins[0] + reach[0] : dilations[0], margins[1] : margins[1] + reach[1] : dilations[1]] = weights
    margins_behind = [size - side - margin for side, margin in zip(reach, margins, strict=True)]
    return (
        size,
        square,
        [pads[0] + margins[0], pads[1] + margins[1], pads[2] + margins_behind[0], pads[3] + margins_behind[1]],
        1,
    )


def _split_padding(
    writer: CfgWriter, operation: LayerOperation, pads: list[int], size: int, strides: Sequence[int], dilation: int
) -> tuple[int, list[int]]:
    """(padding of all sides, zeros that come first: top, left, bottom, right)."""
    top, left = pads[:2]
    sides = writer.shapes[operation.inputs[0]][1:]
    reach = (size - 1) * dilation + 1
    result_sides = tuple((side + 2 * top - reach) // stride + 1 for side, stride in zip(sides, strides, strict=True))
    # Rows below that no window reaches need not be there.
    if top == left and result_sides == operation.shape[1:] and top % dilation == 0:
        return top, [0, 0, 0, 0]
    common = min(pads) - min(pads) % dilation
    return common, [pad - common for pad in pads]


def _write_deconv(writer: CfgWriter, operation: LayerOperation) -> int:
    values, weights = operation.values, operation.values["weights"]
    index = writer.emit_after_input(
        operation,
        "deconvolutional",
        filters=weights.shape[1],
        size=weights.shape[2],
        stride=values["stride"],
        padding=values["padding"] or None,
        activation=operation.activation,
    )
    return writer.set_weights(index, weights[:, :, ::-1, ::-1].transpose(1, 0, 2, 3), values["bias"])


def _write_dense(writer: CfgWriter, operation: LayerOperation) -> int:
    weights, x = operation.values["weights"], operation.inputs[0]
    channels, height, width = writer.shapes[writer.makers[x].inputs[0] if x in writer.flat_tensors else x]
    index = writer.emit_after_input(operation, "connected", output=len(weights), activation=operation.activation)
    if x in writer.flat_tensors and writer.makers[x].values.get("last"):
        return writer.set_weights(index, weights.reshape(len(weights), -1, 1, 1), operation.values["bias"])
    # The file's order is (channels, height, width), the kernels' channels last.
    ordered = weights.reshape(len(weights), channels, height, width).transpose(0, 2, 3, 1)
    return writer.set_weights(index, ordered.reshape(len(weights), -1, 1, 1), operation.values["bias"])


def _write_affine(writer: CfgWriter, operation: LayerOperation) -> int:
    channels = operation.shape[0]
    groups = channels if channels > 1 else None
    keys = {"filters": channels, "size": 1, "stride": 1, "groups": groups, "activation": operation.activation}
    index = writer.emit_after_input(operation, "convolutional", **keys)
    return writer.set_weights(index, operation.values["scale"].reshape(channels, 1, 1, 1), operation.values["shift"])


def _write_activation(writer: CfgWriter, operation: LayerOperation) -> int:
    if operation.values["word"] == "softplus":
        raise Refused("Softplus has no form in a cfg but as a part of Mish")
    return writer.emit_after_input(operation, "activation", activation=operation.values["word"])


def _write_prelu(writer: CfgWriter, operation: LayerOperation) -> int:
    """slope x + (1 - slope) relu(x)."""
    slopes = np.asarray(operation.values["slopes"], np.float32)
    if not np.isfinite(slopes).all():
        raise Refused("its slopes are not finite numbers; the file is damaged")
    writer.read_tensor(operation.inputs[0])
    writer.emit("activation", activation="relu")
    keys = {"from": writer.list_indices(operation.inputs), "weights_type": "per_channel", "activation": "linear"}
    index = writer.emit("shortcut", _join_node_names(operation), **keys)
    writer.values[index] = np.stack([1 - slopes, slopes])
    return index


def _write_pool(writer: CfgWriter, operation: LayerOperation, kind: str) -> int:
    values = operation.values
    (height, width), strides, pads = values["size"], values["strides"], list(values["pads"])
    if height != width:
        raise Refused(f"a window of {width}x{height} has no form in a cfg; square ones have")
    writer.read_tensor(operation.inputs[0])
    sides = writer.shapes[operation.inputs[0]][1:]
    if values.get("counted"):
        writer.emit("pad", **_pad_keys(pads))
        sides, pads = (sides[0] + pads[0] + pads[2], sides[1] + pads[1] + pads[3]), [0, 0, 0, 0]
    for total in (2 * pads[0], 2 * pads[0] + 1):
        result_sides = tuple((side + total - height) // stride + 1 for side, stride in zip(sides, strides, strict=True))
        if pads[0] == pads[1] and result_sides == operation.shape[1:]:
            return writer.emit(kind, _join_node_names(operation), size=height, **_stride_keys(*strides), padding=total)
    raise Refused(f"pads a pooling by {pads} (top, left, bottom, right); a cfg pads both axes alike, at most one more behind")


def _write_upsample(writer: CfgWriter, operation: LayerOperation) -> int:
    factor = operation.values["factor"]
    return (
        writer.layer_of[operation.inputs[0]] if factor == 1 else writer.emit_after_input(operation, "upsample", stride=factor)
    )


def _write_slice(writer: CfgWriter, operation: LayerOperation) -> int:
    first_channel, channels, input_channels = (
        operation.values["first"],
        operation.shape[0],
        writer.shapes[operation.inputs[0]][0],
    )
    index = writer.layer_of[operation.inputs[0]]
    if channels == input_channels:
        return index
    if input_channels % channels == 0 and first_channel % channels == 0 and index >= 0:
        return writer.emit(
            "route",
            _join_node_names(operation),
            layers=index,
            groups=input_channels // channels,
            group_id=first_channel // channels,
        )
    return writer.emit_after_input(operation, "slice", first=first_channel, channels=channels)


def _write_sample(writer: CfgWriter, operation: LayerOperation) -> int:
    start, step = operation.values["start"], operation.values["step"]
    if any(start):
        # Each channel's last value in a window that begins with the first pixel.
        if max(start) >= _MAX_WINDOW:
            raise Refused(f"begins with pixel {max(start)}; below {_MAX_WINDOW} has a form in a cfg")
        channels = operation.shape[0]
        weights = np.zeros((channels, 1, start[0] + 1, start[1] + 1), np.float32)
        weights[:, :, -1, -1] = 1
        values = {"weights": weights, "bias": np.zeros(channels, np.float32), "groups": channels}
        return _write_conv(writer, replace(operation, values=values | {"strides": step, "pads": [0] * 4, "dilations": [1, 1]}))
    return writer.emit_after_input(operation, "maxpool", size=1, **_stride_keys(*step), padding=0)


def _write_add(writer: CfgWriter, operation: LayerOperation) -> int:
    a, b = operation.inputs
    if writer.layer_of[b] == len(writer.sections) - 1:
        a, b = b, a
    if writer.layer_of[b] < 0:
        raise Refused("adds the image itself")
    writer.read_tensor(a)
    return writer.emit("shortcut", _join_node_names(operation), **{"from": writer.layer_of[b]}, activation=operation.activation)


def _write_offset(writer: CfgWriter, operation: LayerOperation) -> int:
    """A constant of its own for each pixel, which an [implicit] layer holds."""
    values, x = operation.values["offset"], writer.layer_of[operation.inputs[0]]
    if x < 0:
        raise Refused("adds to the image itself")
    if not np.isfinite(values).all():
        raise Refused("its constant is not finite; the file is damaged")
    channels, height, width = values.shape
    index = writer.emit("implicit", _join_node_names(operation), filters=channels, atoms=height * width)
    writer.values[index] = values.reshape(channels, -1)
    if width > 1:
        writer.emit("reshape", width=width)
    return writer.emit("shortcut", _join_node_names(operation), **{"from": x}, activation="linear")


def _write_mul(writer: CfgWriter, operation: LayerOperation) -> int:
    a, b = operation.inputs
    is_same_shape = operation.values["operand"] == "same"
    if is_same_shape and writer.layer_of[b] != len(writer.sections) - 1:
        a, b = b, a
    if writer.layer_of[a] < 0:
        raise Refused("multiplies the image itself")
    writer.read_tensor(b)
    per_pixel = 1 if operation.values["operand"] == "per_pixel" else None
    keys = {"from": writer.layer_of[a], "scale_wh": per_pixel, "activation": operation.activation}
    return writer.emit("sam" if is_same_shape else "scale_channels", _join_node_names(operation), **keys)


def _write_pad(writer: CfgWriter, operation: LayerOperation) -> int:
    if operation.values.get("lowest"):
        raise Refused("pads with the lowest value, and no maximum pooling alone reads it")
    zeros = _pad_keys([*operation.values["pads"], *operation.values["channels"]])
    return writer.emit_after_input(operation, "pad", **zeros, edge=1 if operation.values.get("edge") else None)


def _write_flatten(writer: CfgWriter, operation: LayerOperation) -> int:
    writer.flat_tensors.add(operation.output)
    return writer.layer_of[operation.inputs[0]]


def _write_space_to_depth(writer: CfgWriter, operation: LayerOperation) -> int:
    block, order = operation.values["block"], operation.values["order"]
    index = writer.emit_after_input(operation, "reorg3d", stride=block)
    if order is None:
        return index
    blocks = [writer.emit("route", layers=index, groups=block * block, group_id=y * block + x) for y, x in order]
    return writer.emit("route", layers=",".join(map(str, blocks)))


# What is not here is the section of its name, with its values as keys.
_WRITERS: dict[str, Callable[[CfgWriter, LayerOperation], int]] = {
    "conv": _write_conv,
    "deconv": _write_deconv,
    "dense": _write_dense,
    "affine": _write_affine,
    "activation": _write_activation,
    "prelu": _write_prelu,
    "maxpool": lambda writer, operation: _write_pool(writer, operation, "maxpool"),
    "avgpool": lambda writer, operation: _write_pool(writer, operation, "local_avgpool"),
    "global": lambda writer, operation: writer.emit_after_input(operation, "avgpool"),
    "upsample": _write_upsample,
    "concat": lambda writer, operation: writer.emit(
        "route", _join_node_names(operation), layers=writer.list_indices(operation.inputs)
    ),
    "slice": _write_slice,
    "sample": _write_sample,
    "add": _write_add,
    "mul": _write_mul,
    "offset": _write_offset,
    "pad": _write_pad,
    "flatten": _write_flatten,
    "space_to_depth": _write_space_to_depth,
}
