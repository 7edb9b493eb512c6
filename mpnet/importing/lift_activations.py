# SPDX-License-Identifier: MIT
"""Activations as items; those with slopes or bounds of their own as several."""

from __future__ import annotations

from typing import Callable

import numpy as np

from mpnet.importing.graph import Array, Node, Refused
from mpnet.importing.lifter import Lifter

_SIXTH = 1 / 6


def _activation(word: str) -> Callable[[Lifter, Node], None]:
    def lifted(to: Lifter, node: Node) -> None:
        to.add(node, "activation", node.inputs[:1], to.result(node), word=word)

    return lifted


def _leaky(to: Lifter, node: Node) -> None:
    _slope(to, node, np.array([node.attributes.get("alpha", 0.01)], np.float32))


def _prelu(to: Lifter, node: Node) -> None:
    slopes = to.constant(node, 1)
    assert slopes is not None
    channels = to.result(node)[0]
    if slopes.size not in (1, channels):
        raise Refused("its slopes differ by pixel; one per channel is possible")
    _slope(to, node, np.asarray(slopes, np.float32).ravel())


def _slope(to: Lifter, node: Node, slopes: Array) -> None:
    words = {0.0: "relu", round(0.1, 6): "leaky", round(0.01, 6): "relie"}
    only = round(float(slopes[0]), 6) if (slopes == slopes[0]).all() else None
    if only in words:
        _activation(words[only])(to, node)
    else:
        to.add(node, "prelu", node.inputs[:1], to.result(node), slopes=np.broadcast_to(slopes, to.result(node)[0]))


def _clip(to: Lifter, node: Node) -> None:
    low, high = (
        float(np.asarray(value).ravel()[0]) if value is not None else default
        for value, default in (
            (to.constant(node, 1) if "min" not in node.attributes else node.attributes["min"], -np.inf),
            (to.constant(node, 2) if "max" not in node.attributes else node.attributes["max"], np.inf),
        )
    )
    _clamp(to, node, low, high)


def _clamp(to: Lifter, node: Node, low: float, high: float) -> None:
    """Values kept in [low, high]."""
    word = {(0.0, 6.0): "relu6", (-1.0, 1.0): "hardtan"}.get((low, high))
    if low == 0 and high > 1e30:
        word = "relu"
    if word is not None:
        return _activation(word)(to, node)
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        raise Refused(f"a clamp to [{low:g}, {high:g}] has no form in a cfg")
    # By relu6, between two lines.
    shape, factor = to.result(node), 6 / (high - low)
    x = to.add(
        node,
        "affine",
        node.inputs[:1],
        shape,
        f"{node.output}/line",
        scale=np.full(shape[0], factor),
        shift=np.full(shape[0], -low * factor),
    )
    x = to.add(node, "activation", [x], shape, f"{node.output}/relu6", word="relu6")
    to.add(node, "affine", [x], shape, scale=np.full(shape[0], 1 / factor), shift=np.full(shape[0], low))
    return None


def _hard_sigmoid(to: Lifter, node: Node) -> None:
    slope, middle = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    x, shape = node.inputs[0], to.result(node)
    if abs(slope - _SIXTH) > 1e-6 or middle != 0.5:
        x = to.add(
            node,
            "affine",
            [x],
            shape,
            f"{node.output}/line",
            scale=np.full(shape[0], 6 * slope),
            shift=np.full(shape[0], 6 * middle - 3),
        )
    to.add(node, "activation", [x], shape, word="hard_sigmoid")


def _elu(to: Lifter, node: Node) -> None:
    if node.attributes.get("alpha", 1.0) != 1.0:
        raise Refused("alpha must be 1")
    _activation("elu")(to, node)


ACTIVATIONS: dict[str, Callable[[Lifter, Node], None]] = {
    "Relu": _activation("relu"),
    "Sigmoid": _activation("logistic"),
    "Tanh": _activation("tanh"),
    "HardSwish": _activation("hard_swish"),
    "Mish": _activation("mish"),
    "Softplus": _activation("softplus"),
    "Swish": _activation("swish"),
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
}
