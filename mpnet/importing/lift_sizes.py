# SPDX-License-Identifier: MIT
"""Larger images as items: nearest neighbours, and bilinear as these and a filter."""

from __future__ import annotations

from itertools import pairwise
from typing import Callable

import numpy as np

from mpnet.importing.graph import Array, Node, Refused
from mpnet.importing.lifter import Lifter

_ROUNDS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


def _resize(to: Lifter, node: Node) -> None:
    mode, shape = node.attributes.get("mode", "nearest"), to.body.shapes[node.inputs[0]]
    result = to.result(node)
    factor = result[1] // shape[1]
    if mode == "linear" and factor > 1 and result == (shape[0], shape[1] * factor, shape[2] * factor):
        return _bilinear(to, node, factor)
    if mode not in ("nearest", b"nearest") or result != (shape[0], shape[1] * factor, shape[2] * factor) or factor < 1:
        raise Refused(f"mode {mode} to {result[2]}x{result[1]} has no form in a cfg; nearest by a whole factor has")
    coordinates = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding = node.attributes.get("nearest_mode", "round_prefer_floor")
    places = np.arange(result[1], dtype=np.float64)
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        places = (places + 0.5) / factor - 0.5
    elif coordinates == "asymmetric" or node.operator == "Upsample":
        places, rounding = places / factor, "floor" if node.operator == "Upsample" else rounding
    else:
        raise Refused(f"coordinates {coordinates} have no form in a cfg; half_pixel and asymmetric have")
    rounds = _ROUNDS[rounding]
    if not np.array_equal(np.clip(rounds(places), 0, shape[1] - 1), np.arange(result[1]) // factor):
        raise Refused(f"{coordinates} with {rounding} copies other pixels than Darknet's upsampling")
    to.add(node, "upsample", node.inputs[:1], result, factor=factor)
    return None


def _bilinear(to: Lifter, node: Node, factor: int) -> None:
    """Nearest pixels, then a filter that mixes in the neighbour's share: at the p-th of a pixel's `factor` copies from its
    border that is 1/2 - (p + 1/2) / factor."""
    coordinates = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if coordinates not in ("half_pixel", "pytorch_half_pixel"):
        raise Refused(f"bilinear with coordinates {coordinates} has no form in a cfg; half_pixel has")
    shares = [max(0.0, 0.5 - (p + 0.5) / factor) for p in range(factor)]
    side = [before - own for before, own in pairwise(shares) if before > own]
    line = np.array([*side[::-1], 1 - 2 * sum(side), *side])
    reach, result = len(side), to.result(node)
    channels, height, width = result
    x = to.add(node, "upsample", node.inputs[:1], result, f"{node.output}/nearest", factor=factor)
    x = to.add(
        node,
        "pad",
        [x],
        (channels, height + 2 * reach, width + 2 * reach),
        f"{node.output}/edge",
        pads=[reach] * 4,
        channels=[0, 0],
        edge=True,
    )
    weights = np.broadcast_to(np.outer(line, line).astype(np.float32), (channels, 1, len(line), len(line)))
    to.add(
        node,
        "conv",
        [x],
        result,
        weights=weights,
        weights_name="",
        bias=np.zeros(channels, np.float32),
        strides=[1, 1],
        dilations=[1, 1],
        pads=[0] * 4,
        groups=channels,
    )


SIZES: dict[str, Callable[[Lifter, Node], None]] = {"Resize": _resize, "Upsample": _resize}
