# SPDX-License-Identifier: MIT
"""Operations of layers as sections of a cfg: one function for each kind of operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Sequence

import numpy as np

from mpnet.importing.graph import Array, Refused
from mpnet.importing.layer_graph import LayerOperation
from mpnet.importing.write.cfg_writer import WEIGHTED, CfgWriter, join_node_names

# What a window of two sizes may take once it is a square one with zeros.
_MAX_SQUARE_VALUES = 1 << 24
# A pixel further in is not the first that every n-th one is taken from.
_MAX_WINDOW = 16


def write_operation(writer: CfgWriter, operation: LayerOperation) -> None:
    """Write the sections of an operation. Raises: Refused, where it has no form in a cfg."""
    if any(name in writer.flat_tensors for name in operation.inputs) and operation.kind != "dense":
        raise Refused("reads values of many pixels as one row; only fully connected layers do")
    write_sections = _WRITERS.get(operation.kind)
    index = (
        write_sections(writer, operation)
        if write_sections
        else writer.emit_after_input(operation, operation.kind, **operation.values)
    )
    # A layer without weights rounds by itself where all that it reads is rounded; what reads reals gives reals.
    is_own_step = operation.kind in WEIGHTED or any(name not in writer.rounded_tensors for name in operation.inputs)
    if operation.output in writer.rounded_tensors and is_own_step:
        writer.unrounded_index[operation.output] = index
        keys = {writer.rounded_tensors[operation.output]: 1, "quantize_activations": "calibrated"}
        index_of_result = writer.emit("empty", "rounded as in the file", **keys)
    else:
        index_of_result = index
    writer.layer_of[operation.output] = index_of_result
    if index >= 0 and not operation.values.get("merged"):  # of several nodes a recipe for the file could name none
        first_node = (operation.values["node"],) if "node" in operation.values else ()
        writer.sources[index] = (*writer.sources.get(index, ()), *first_node, *operation.nodes)
    for node in operation.nodes:
        if index >= 0:
            writer.layer_texts[node] = f"{index} [{writer.sections[index].kind}]"


def _pad_keys(zeros: Sequence[int]) -> dict[str, int | None]:
    """Return the keys of [pad]; those of 0 are left out."""
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
        join_node_names(operation),
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
    """Return (size, weights, pads, dilation) with one size and dilation for both axes; zeros are put around what has two."""
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
    """Split padding into what is equal on all sides, and the zeros that come first: top, left, bottom, right."""
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
    """Write slope x + (1 - slope) relu(x)."""
    slopes = np.asarray(operation.values["slopes"], np.float32)
    if not np.isfinite(slopes).all():
        raise Refused("its slopes are not finite numbers; the file is damaged")
    writer.read_tensor(operation.inputs[0])
    writer.emit("activation", activation="relu")
    keys = {"from": writer.list_indices(operation.inputs), "weights_type": "per_channel", "activation": "linear"}
    index = writer.emit("shortcut", join_node_names(operation), **keys)
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
            return writer.emit(kind, join_node_names(operation), size=height, **_stride_keys(*strides), padding=total)
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
            join_node_names(operation),
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
    return writer.emit("shortcut", join_node_names(operation), **{"from": writer.layer_of[b]}, activation=operation.activation)


def _write_offset(writer: CfgWriter, operation: LayerOperation) -> int:
    """Write a sum with a constant of its own for each pixel, which an [implicit] layer holds."""
    values, x = operation.values["offset"], writer.layer_of[operation.inputs[0]]
    if x < 0:
        raise Refused("adds to the image itself")
    if not np.isfinite(values).all():
        raise Refused("its constant is not finite; the file is damaged")
    channels, height, width = values.shape
    index = writer.emit("implicit", join_node_names(operation), filters=channels, atoms=height * width)
    writer.values[index] = values.reshape(channels, -1)
    if width > 1:
        writer.emit("reshape", width=width)
    return writer.emit("shortcut", join_node_names(operation), **{"from": x}, activation="linear")


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
    return writer.emit("sam" if is_same_shape else "scale_channels", join_node_names(operation), **keys)


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
        "route", join_node_names(operation), layers=writer.list_indices(operation.inputs)
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
