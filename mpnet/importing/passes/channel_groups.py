# SPDX-License-Identifier: MIT
"""Groups of channels, as split attention has them, filters along channels, and norms of an image, on (1, c, h, w)."""

from __future__ import annotations

import math
from typing import Callable

import numpy as np

from mpnet.importing.graph import Node
from mpnet.importing.operators.record import Shape
from mpnet.importing.passes.layout import LayoutRewriter


def find_group_replacement(layout: LayoutRewriter, node: Node, shape: Shape) -> Callable[[], None] | None:
    """Find what replaces sums and shares of groups of channels, a filter along channels, or a norm of an image."""
    x = node.inputs[0]
    source, input_shape = layout.in_order.get(x), layout.graph.shapes.get(x, ())
    if (
        source is None
        or len(input_shape) < 2
        or input_shape[0] != 1
        or (len(input_shape) == 4 == len(layout.shape_of(source)) and x == source)
    ):
        return None
    source_shape, axes = layout.shape_of(source), layout.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    groups, pixel = input_shape[1], source_shape[2:] == (1, 1)
    axes = np.array(node.attributes["axes"]) if "axes" in node.attributes else axes
    if (
        node.operator == "ReduceSum"
        and axes is not None
        and axes.tolist() == [1]
        and source_shape[1] % groups == 0
        and len(input_shape) > 3
    ):
        return lambda: layout.set_values(node, _sum_groups(layout, node, source, groups), shape)
    if node.operator == "Softmax" and node.attributes.get("axis") == 1 and groups == 2 and source_shape[1] % 2 == 0 and pixel:
        return lambda: layout.set_values(node, _add_shares(layout, node, source), shape)
    if node.operator == "Concat" and len(input_shape) == 5 and node.attributes.get("axis") == 1:
        sources = [layout.in_order.get(name, "") for name in node.inputs]
        if "" not in sources and len({layout.shape_of(name)[2:] for name in sources}) == 1:
            total = (1, sum(layout.shape_of(name)[1] for name in sources), *source_shape[2:])
            return lambda: layout.set_values(node, layout.add_node("Concat", node.name, sources, total, axis=1), shape)
    if node.operator == "Mul" and len(input_shape) == 5 and all(name in layout.in_order for name in node.inputs):
        factors = [layout.in_order[name] for name in node.inputs]
        if [math.prod(layout.shape_of(name)[1:3]) for name in node.inputs] == [source_shape[1]] * 2 and layout.shape_of(
            factors[1]
        )[1] == source_shape[1]:
            largest = max((layout.shape_of(name) for name in factors), key=math.prod)
            return lambda: layout.set_values(node, layout.add_node("Mul", node.name, factors, largest), shape)
    if node.operator == "InstanceNormalization" and input_shape[1] == 1 and len(input_shape) == 3:
        scale, shift = (layout.graph.constants.get(name) for name in node.inputs[1:3])
        if scale is not None and shift is not None and scale.size == shift.size == 1:
            return lambda: layout.set_values(
                node, _add_image_norm(layout, node, source, float(scale.item()), float(shift.item())), shape
            )
    if node.operator == "Conv" and pixel and input_shape == (1, 1, source_shape[1]):
        return _find_band(layout, node, source, shape)
    if node.operator in ("Sigmoid", "HardSigmoid") and pixel:
        return lambda: layout.set_values(
            node, layout.add_node(node.operator, node.name, [source], source_shape, **node.attributes), shape
        )
    return None


def _sum_groups(layout: LayoutRewriter, node: Node, source: str, groups: int) -> str:
    groups_of_channels = layout.split_channels(node, source, groups)
    return (
        layout.add_node("Sum", node.name, groups_of_channels, layout.shape_of(groups_of_channels[0])) if groups > 1 else source
    )


def _add_shares(layout: LayoutRewriter, node: Node, source: str) -> str:
    """Append the shares of two groups by softmax, which are the logistic functions of their differences."""
    a, b = layout.split_channels(node, source, 2)
    half_shape = layout.shape_of(a)
    pairs = [layout.add_node("Sub", node.name, list(pair), half_shape) for pair in ((a, b), (b, a))]
    shares = [layout.add_node("Sigmoid", node.name, [x], half_shape) for x in pairs]
    return layout.add_node("Concat", node.name, shares, layout.shape_of(source), axis=1)


def _add_image_norm(layout: LayoutRewriter, node: Node, source: str, scale: float, shift: float) -> str:
    image_shape, epsilon = layout.shape_of(source), node.attributes.get("epsilon", 1e-5)
    x = layout.add_node("mpnet.LayerNorm", node.name, [source], image_shape, epsilon=epsilon, whole=1)
    for operator, value, usual in (("Mul", scale, 1.0), ("Add", shift, 0.0)):
        if value != usual:
            x = layout.add_node(operator, node.name, [x, layout.add_constant(node.name, [value])], image_shape)
    return x


def _find_band(layout: LayoutRewriter, node: Node, source: str, shape: Shape) -> Callable[[], None] | None:
    """Find what replaces a filter of one channel along what are channels: a band of weights."""
    weights, source_shape = layout.graph.constants.get(node.inputs[1]), layout.shape_of(source)
    size, pads = 0 if weights is None else weights.size, node.attributes.get("pads") or [0, 0]
    is_plain = not node.attributes.get("strides", [1])[0] - 1 and not node.attributes.get("dilations", [1])[0] - 1
    if weights is None or weights.ndim != 3 or weights.shape[:2] != (1, 1) or not is_plain or sum(pads) != size - 1:
        return None
    if len(node.inputs) > 2 or source_shape[1] > 4096:
        return None
    band = sum(np.eye(source_shape[1], k=index - pads[0]) * weights[0, 0, index] for index in range(size))
    matrix = layout.add_constant(node.name, np.asarray(band)[:, :, None, None])
    return lambda: layout.set_values(node, layout.add_node("Conv", node.name, [source, matrix], source_shape), shape)
