# SPDX-License-Identifier: MIT
"""The image: which input it is, and what happens to its values before the first layer."""

from __future__ import annotations

import numpy as np

from mpnet.importing.described import Pixels
from mpnet.importing.graph import Graph, Node
from mpnet.importing.items import Body, Item
from mpnet.messages import shown

_MAX_SIDE = 16384


def set_image(graph: Graph, size: tuple[int, int] | None) -> None:
    """Find the input that is the image, one of them, in fixed sizes. Raises: FormatError."""
    if len(graph.inputs) != 1:
        graph.fail(f"takes {len(graph.inputs)} inputs ({', '.join(map(shown, list(graph.inputs)[:4]))}); only one is possible")
    [(name, shape)] = graph.inputs.items()
    if len(shape) != 4 or shape[0] not in (0, 1):
        graph.fail(f"the input {shown(name)} has the shape {list(shape)}; it must be one image (1, channels, height, width)")
    last = _channels_last(graph, name, shape)
    channels, height, width = (shape[3], shape[1], shape[2]) if last else shape[1:]
    if size is not None and height == width == 0:
        width, height = size
    if not height or not width or not channels:
        graph.fail(
            f"the input {shown(name)} has no fixed size ({list(shape)}, 0 is open); say it with --size WIDTHxHEIGHT, or "
            "export the model with a fixed one"
        )
    if max(height, width) > _MAX_SIDE or channels > 64:
        graph.fail(f"an image of {width}x{height} with {channels} channels; the limits are {_MAX_SIDE} and 64")
    graph.inputs = {name: (1, height, width, channels) if last else (1, channels, height, width)}
    graph.shapes.update(graph.inputs)
    graph.image = name
    if last is not None:
        # Images are channels first from here on; the file's own turning goes.
        graph.nodes.remove(last)
        graph.rename(last.output, name)
        graph.fates[last.name] = "the image's layout"
        graph.inputs = {name: (1, channels, height, width)}
        graph.shapes.update(graph.inputs)


def _channels_last(graph: Graph, name: str, shape: tuple[int, ...]) -> Node | None:
    """The node that turns an image with channels last, where the input is one."""
    readers = [node for node in graph.nodes if name in node.inputs]
    if len(readers) == 1 and readers[0].operator == "Transpose" and readers[0].attributes.get("perm") == [0, 3, 1, 2]:
        return readers[0]
    return None


def put_pixels(graph: Graph, body: Body, pixels: Pixels) -> None:
    """Let the first layers take images as mpnet gives them: 0 to 1, red first."""
    if pixels.plain:
        return
    image = graph.image
    shape = body.shapes[image]
    channels = shape[0]
    mean, std = (np.broadcast_to(np.array(values, np.float64), channels).copy() for values in (pixels.mean, pixels.std))
    scale, shift = 255 / std, -mean / std
    readers = [item for item in body.items if image in item.inputs]
    first = readers[0] if len(readers) == 1 else None
    if first is not None and first.kind == "conv" and first.values["groups"] == 1 and not shift.any():
        weights = first.values["weights"].astype(np.float64) * scale.reshape(1, -1, 1, 1)
        ordered = weights[:, ::-1] if pixels.bgr else weights
        first.values = first.values | {"weights": ordered.astype(np.float32), "weights_name": ""}
        return
    made = "picture/as the network takes it"  # stands in cfgs, whose digests stay
    matrix = np.diag(scale)
    # Row i of the matrix makes the network's channel i of mpnet's channels.
    matrix = matrix[:, ::-1] if pixels.bgr else matrix
    if pixels.bgr:
        item = Item(
            "conv",
            [],
            [image],
            made,
            shape,
            {
                "weights": matrix.reshape(channels, channels, 1, 1).astype(np.float32),
                "bias": shift.astype(np.float32),
                "groups": 1,
                "strides": [1, 1],
                "dilations": [1, 1],
                "pads": [0] * 4,
                "weights_name": "",
            },
        )
    else:
        item = Item("affine", [], [image], made, shape, {"scale": scale, "shift": shift})
    for reader in readers:
        reader.inputs = [made if name == image else name for name in reader.inputs]
    body.shapes[made] = shape
    body.items.insert(0, item)
