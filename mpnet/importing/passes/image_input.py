# SPDX-License-Identifier: MIT
"""The image: which input it is, and what happens to its values before the first layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpnet.importing.file_metadata import ImageValues, Pixels
from mpnet.importing.graph import Array, Node, NodeGraph
from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.messages import shown

_MAX_SIDE = 16384
_MAX_SCALING_NODES = 8
_BYTE_SCALE, _BYTE_SHIFT = 0.1, 20.0
# PaddleDetection's files take the size of the image and how much it was scaled, and give boxes in the image before that.
_SIZE_INPUTS = ("im_shape", "scale_factor")


def set_image(graph: NodeGraph, size: tuple[int, int] | None) -> list[str]:
    """Find the input that is the image, one of them, in fixed sizes. Return what is worth saying. Raises: FormatError."""
    size_inputs = {
        name: graph.inputs.pop(name)
        for name, shape in list(graph.inputs.items())
        if name in _SIZE_INPUTS and shape in ((0, 2), (1, 2)) and len(graph.inputs) > 1
    }
    if len(graph.inputs) != 1:
        graph.fail(f"takes {len(graph.inputs)} inputs ({', '.join(map(shown, list(graph.inputs)[:4]))}); only one is possible")
    [(name, shape)] = graph.inputs.items()
    if len(shape) != 4 or shape[0] not in (0, 1):
        graph.fail(f"the input {shown(name)} has the shape {list(shape)}; it must be one image (1, channels, height, width)")
    transpose = _find_channels_last_transpose(graph, name)
    channels, height, width = (shape[3], shape[1], shape[2]) if transpose else shape[1:]
    if size is not None:
        if (width or size[0], height or size[1]) != size:
            graph.fail(
                f"--size {size[0]}x{size[1]}: the file fixes {_side_text(width)}x{_side_text(height)}; "
                "leave out --size, or keep to that"
            )
        width, height = size
    if not height or not width or not channels:
        graph.fail(
            f"the input {shown(name)} has no fixed size ({list(shape)}, 0 is open); say it with --size WIDTHxHEIGHT, or "
            "export the model with a fixed one"
        )
    if max(height, width) > _MAX_SIDE or channels > 64:
        graph.fail(f"an image of {width}x{height} with {channels} channels; the limits are {_MAX_SIDE} and 64")
    graph.inputs = {name: (1, height, width, channels) if transpose else (1, channels, height, width)}
    graph.shapes.update(graph.inputs)
    graph.image = name
    if transpose is not None:
        # Images are channels first from here on; the file's own turning goes.
        graph.nodes.remove(transpose)
        graph.rename(transpose.output, transpose.inputs[0])
        graph.outcomes[transpose.name] = "the image's layout"
        graph.inputs = {name: (1, channels, height, width)}
        graph.shapes.update(graph.inputs)
    sizes = {"im_shape": (height, width), "scale_factor": (1, 1)}
    for size_input in size_inputs:
        graph.constants[size_input] = np.array([sizes[size_input]], np.float32)
    return [
        f"the input {size_input} is set to {' and '.join(map(str, sizes[size_input]))}: boxes are those of the network's image"
        for size_input in size_inputs
    ]


def _side_text(length: int) -> str:
    return str(length) if length else "(open)"


def _find_channels_last_transpose(graph: NodeGraph, name: str) -> Node | None:
    """Return the node that turns an image with channels last into channels first, where the input is one.

    Before it may stand casts and what scales the image's values by constants; a row of these has a value per channel, and is
    turned with the image.
    """
    rows: list[tuple[Node, int]] = []
    for _ in range(_MAX_SCALING_NODES):
        readers = [node for node in graph.nodes if name in node.inputs]
        if len(readers) != 1:
            return None
        node = readers[0]
        if node.operator == "Transpose":
            if node.attributes.get("perm") != [0, 3, 1, 2]:
                return None
            for scaling_node, index in rows:
                _turn_constant(graph, scaling_node, index)
            return node
        if node.operator in ("Add", "Sub", "Mul", "Div") and len(node.inputs) == 2:
            index = 1 - node.inputs.index(name)
            rows.append((node, index))
            if _find_constant(graph, node.inputs[index]) is None:
                return None
        elif node.operator != "Cast":
            return None
        name = node.output
    return None


def _find_constant(graph: NodeGraph, name: str) -> Array | None:
    if name in graph.constants:
        return graph.constants[name]
    node = next((node for node in graph.nodes if node.output == name and node.operator == "Constant"), None)
    return None if node is None else np.asarray(next(iter(node.attributes.values()), None))


def _turn_constant(graph: NodeGraph, node: Node, index: int) -> None:
    """Turn a constant of channels last into one of channels first."""
    values = _find_constant(graph, node.inputs[index])
    if values is None or values.ndim == 0 or values.ndim > 4 or values.size == 1:
        return
    turned = values.reshape((1,) * (4 - values.ndim) + values.shape).transpose(0, 3, 1, 2)
    node.inputs[index] = f"{node.inputs[index]}/channels first"
    graph.constants[node.inputs[index]] = turned


def find_image_values(graph: NodeGraph, layers: LayerGraph) -> ImageValues | None:
    """Return the values of the image that a graph takes where it shows: by the input's type, or by what it does first.

    A graph that multiplies its image by less than a tenth, or subtracts more than 20, takes values up to 255: those up to 1
    would all become nearly the same.
    """
    if graph.input_types.get(graph.image) == "uint8":
        return ImageValues(0.0, 1.0, "the file takes them as uint8")
    if graph.input_types.get(graph.image) == "int8":
        return ImageValues(128.0, 1.0, "the file takes them as int8")
    readers, name, nodes = layers.readers(), graph.image, []
    scale, shift = np.ones(1), np.zeros(1)
    while len(readers.get(name, ())) == 1 and readers[name][0].kind == "affine":
        operation = readers[name][0]
        scale, shift = operation.values["scale"] * scale, operation.values["scale"] * shift + operation.values["shift"]
        nodes += operation.nodes
        name = operation.output
        if np.abs(scale).max() < _BYTE_SCALE or np.abs(shift).max() > _BYTE_SHIFT:
            return ImageValues(0.0, 1.0, f"the file itself scales such values, at {', '.join(map(shown, nodes[:3]))}")
    return None


def put_pixels(graph: NodeGraph, layers: LayerGraph, pixels: Pixels) -> None:
    """Let the first layers take images as mpnet gives them: 0 to 1, red first."""
    if pixels.plain:
        return
    image = graph.image
    shape = layers.shapes[image]
    channels = shape[0]
    for numbers in (pixels.mean, pixels.std):
        if len(numbers) not in (1, channels) or not np.isfinite(numbers).all() or 0 in pixels.std:
            graph.fail(f"mean and deviation are no {channels} numbers of its channels; say them with --mean and --std")
    mean, std = (np.broadcast_to(np.array(values, np.float64), channels).copy() for values in (pixels.mean, pixels.std))
    scale, shift = 255 / std, -mean / std
    readers = [operation for operation in layers.operations if image in operation.inputs]
    first_reader = readers[0] if len(readers) == 1 else None
    if first_reader is not None and first_reader.kind == "conv" and first_reader.values["groups"] == 1 and not shift.any():
        weights = first_reader.values["weights"].astype(np.float64) * scale.reshape(1, -1, 1, 1)
        ordered = weights[:, ::-1] if pixels.bgr else weights
        first_reader.values = first_reader.values | {"weights": ordered.astype(np.float32), "weights_name": ""}
        return
    network_input = "picture/as the network takes it"  # a word of 0.1.0: written cfgs keep their digests
    if pixels.bgr:
        # Row i of the matrix makes the network's channel i of mpnet's channels.
        matrix = np.diag(scale)[:, ::-1].reshape(channels, channels, 1, 1)
        values: dict[str, Any] = {"weights": matrix.astype(np.float32), "bias": shift.astype(np.float32), "weights_name": ""}
        values |= {"groups": 1, "strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4}
    else:
        values = {"scale": scale, "shift": shift}
    for reader in readers:
        reader.inputs = [network_input if name == image else name for name in reader.inputs]
    layers.shapes[network_input] = shape
    layers.operations.insert(0, LayerOperation("conv" if pixels.bgr else "affine", [], [image], network_input, shape, values))
