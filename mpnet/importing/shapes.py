# SPDX-License-Identifier: MIT
"""Shapes of what nodes make, from the shapes and constants that they read."""

from __future__ import annotations

import math
from typing import Callable, Sequence

import numpy as np

from mpnet.importing.evaluate import axes_of, flattened, parts_of, reshaped, slices_of, unsqueezed
from mpnet.importing.graph import Array, Graph, Node

Sides = tuple[int, ...]
_MAX_SIDE = 1 << 30


class Place:
    """One node with the shapes and constants of its inputs."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.node, self.attributes = node, node.attributes
        self._graph = graph

    def shape(self, at: int = 0) -> Sides:
        """Of an input. Raises: KeyError when it is not known."""
        name = self.node.inputs[at]
        found = self._graph.constants.get(name)
        return found.shape if found is not None else self._graph.shapes[name]

    def constant(self, at: int) -> Array | None:
        """An input that is a constant; None when it is left out. Raises: KeyError when it is none."""
        if len(self.node.inputs) <= at or not self.node.inputs[at]:
            return None
        return self._graph.constants[self.node.inputs[at]]

    @property
    def given(self) -> list[Array | None]:
        """Inputs that are constants; the first, which need not be one, is left out."""
        return [None, *(self.constant(at) for at in range(1, len(self.node.inputs)))]


def shapes_of(graph: Graph, node: Node) -> list[Sides] | None:
    """Of a node's results; None where they cannot be told."""
    function = _SHAPES.get(node.operator)
    if function is None:
        return None
    try:
        found = function(Place(graph, node))
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
        return None
    shapes = found if isinstance(found, list) else [found]
    if any(side < 0 or side > _MAX_SIDE for shape in shapes for side in shape):
        return None
    return [tuple(int(side) for side in shape) for shape in shapes]


def _same(place: Place) -> Sides:
    return place.shape()


def _broadcast(place: Place) -> Sides:
    return tuple(np.broadcast_shapes(*[place.shape(at) for at in range(len(place.node.inputs))]))


def pads_of(place: Place, rank: int, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """(top, left, ..., bottom, right, ...) of a window, SAME_UPPER and the like made explicit."""
    said = str(place.attributes.get("auto_pad", "NOTSET"))
    if said in ("NOTSET", ""):
        return [int(v) for v in place.attributes.get("pads", [0] * (2 * rank))]
    before, after = [], []
    for axis in range(rank):
        side = place.shape()[2 + axis]
        reach = (sizes[axis] - 1) * dilations[axis] + 1
        total = 0 if said == "VALID" else max(0, (-(-side // strides[axis]) - 1) * strides[axis] + reach - side)
        low = total - total // 2 if said == "SAME_LOWER" else total // 2
        before.append(low)
        after.append(total - low)
    return before + after


def window(place: Place, rank: int, sizes: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """(strides, dilations, pads) of a convolution or pooling."""
    strides = [int(v) for v in place.attributes.get("strides") or [1] * rank]
    dilations = [int(v) for v in place.attributes.get("dilations") or [1] * rank]
    return strides, dilations, pads_of(place, rank, sizes, strides, dilations)


def _slide(place: Place, sizes: Sequence[int]) -> list[int]:
    rank = len(sizes)
    strides, dilations, pads = window(place, rank, sizes)
    found = []
    for axis in range(rank):
        rest = place.shape()[2 + axis] + pads[axis] + pads[rank + axis] - dilations[axis] * (sizes[axis] - 1) - 1
        up = place.attributes.get("ceil_mode", 0)
        count = (-(-rest // strides[axis]) if up else rest // strides[axis]) + 1
        # The last window must begin inside.
        if up and (count - 1) * strides[axis] >= place.shape()[2 + axis] + pads[axis]:
            count -= 1
        found.append(count)
    return found


def _conv(place: Place) -> Sides:
    weights = place.shape(1)
    return (place.shape()[0], weights[0], *_slide(place, weights[2:]))


def _pool(place: Place) -> list[Sides]:
    shape = (*place.shape()[:2], *_slide(place, place.attributes["kernel_shape"]))
    return [shape] * len(place.node.outputs)


def _deconv(place: Place) -> Sides:
    weights, rank = place.shape(1), len(place.shape()) - 2
    sizes = weights[2:]
    strides = place.attributes.get("strides") or [1] * rank
    dilations = place.attributes.get("dilations") or [1] * rank
    pads = place.attributes.get("pads") or [0] * (2 * rank)
    more = place.attributes.get("output_padding") or [0] * rank
    sides = [
        strides[a] * (place.shape()[2 + a] - 1) + more[a] + (sizes[a] - 1) * dilations[a] + 1 - pads[a] - pads[rank + a]
        for a in range(rank)
    ]
    return (place.shape()[0], weights[1] * int(place.attributes.get("group", 1)), *sides)


def _concat(place: Place) -> Sides:
    shapes = [place.shape(at) for at in range(len(place.node.inputs))]
    axis = int(place.attributes["axis"]) % len(shapes[0])
    if any(s[:axis] + s[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :] for s in shapes):
        raise ValueError("shapes differ")
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _split(place: Place) -> list[Sides]:
    shape = place.shape()
    axis = int(place.attributes.get("axis", 0)) % len(shape)
    parts = parts_of(place.attributes, place.given, shape[axis], len(place.node.outputs))
    return [(*shape[:axis], part, *shape[axis + 1 :]) for part in parts]


def _slice(place: Place) -> Sides:
    shape = place.shape()
    return tuple(
        len(range(*part.indices(side)))
        for part, side in zip(slices_of(place.attributes, place.given, len(shape)), shape, strict=True)
    )


def _transpose(place: Place) -> Sides:
    shape = place.shape()
    order = place.attributes.get("perm") or list(reversed(range(len(shape))))
    return tuple(shape[axis] for axis in order)


def _squeeze(place: Place) -> Sides:
    shape, axes = place.shape(), axes_of(place.attributes, place.given)
    places = {axis % len(shape) for axis in axes} if axes is not None else {i for i, side in enumerate(shape) if side == 1}
    return tuple(side for at, side in enumerate(shape) if at not in places)


def _gemm(place: Place) -> Sides:
    a, b = place.shape(), place.shape(1)
    return (a[1] if place.attributes.get("transA") else a[0], b[0] if place.attributes.get("transB") else b[1])


def _matmul(place: Place) -> Sides:
    a, b = place.shape(), place.shape(1)
    if a[-1] != b[-2]:
        raise ValueError("shapes differ")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _resize(place: Place) -> Sides:
    shape = place.shape()
    if place.node.operator == "Upsample" or len(place.node.inputs) == 2:
        scales = place.constant(1) if len(place.node.inputs) > 1 else np.array(place.attributes["scales"])
        sizes = None
    else:
        scales, sizes = place.constant(2), place.constant(3)
    if sizes is not None and sizes.size:
        return tuple(int(side) for side in sizes)
    assert scales is not None
    return tuple(math.floor(side * float(scale)) for side, scale in zip(shape, scales, strict=True))


def _reduce(place: Place) -> Sides:
    shape = place.shape()
    axes = axes_of(place.attributes, place.given)
    places = set(range(len(shape))) if axes is None else {axis % len(shape) for axis in axes}
    keep = bool(place.attributes.get("keepdims", 1))
    return tuple(1 if at in places else side for at, side in enumerate(shape) if keep or at not in places)


def _pad(place: Place) -> Sides:
    shape, pads = place.shape(), place.attributes.get("pads")
    values = place.constant(1) if pads is None else pads
    numbers = [int(v) for v in np.asarray(values).ravel()]
    return tuple(side + numbers[at] + numbers[len(shape) + at] for at, side in enumerate(shape))


def _gather(place: Place) -> Sides:
    shape = place.shape()
    axis = int(place.attributes.get("axis", 0)) % len(shape)
    return (*shape[:axis], *place.shape(1), *shape[axis + 1 :])


def _blocks(place: Place) -> Sides:
    n, c, h, w = place.shape()
    b = int(place.attributes["blocksize"])
    if place.node.operator == "SpaceToDepth":
        return (n, c * b * b, h // b, w // b)
    return (n, c // (b * b), h * b, w * b)


_SHAPES: dict[str, Callable[[Place], Sides | list[Sides]]] = {
    **dict.fromkeys(
        (
            "BatchNormalization",
            "Relu",
            "LeakyRelu",
            "PRelu",
            "Sigmoid",
            "Tanh",
            "HardSigmoid",
            "HardSwish",
            "Clip",
            "Softmax",
            "Elu",
            "Selu",
            "Softplus",
            "Mish",
            "Gelu",
            "Exp",
            "Sqrt",
            "Neg",
            "Abs",
            "Floor",
            "Cast",
            "Identity",
            "Dropout",
            "QuantizeLinear",
            "DequantizeLinear",
            "Round",
            "Reciprocal",
            "Log",
            "LogSoftmax",
            "LRN",
            "Swish",
            "LpNormalization",
            "com.microsoft.QuantizeLinear",
            "com.microsoft.DequantizeLinear",
        ),
        _same,
    ),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum"), _broadcast),
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Concat": _concat,
    "Split": _split,
    "GlobalAveragePool": lambda p: (*p.shape()[:2], *[1] * (len(p.shape()) - 2)),
    "Slice": _slice,
    "Transpose": _transpose,
    "Tile": lambda p: tuple(a * int(b) for a, b in zip(p.shape(), np.asarray(p.constant(1)).ravel(), strict=True)),
    "Reshape": lambda p: reshaped(p.shape(), np.asarray(p.constant(1)).ravel().tolist(), bool(p.attributes.get("allowzero"))),
    "Flatten": lambda p: flattened(p.shape(), p.attributes),
    "Squeeze": _squeeze,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Unsqueeze": lambda p: unsqueezed(p.shape(), axes_of(p.attributes, p.given) or []),
    "Resize": _resize,
    "Upsample": _resize,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "ReduceMax": _reduce,
    "Pad": _pad,
    "Gather": _gather,
    "SpaceToDepth": _blocks,
    "DepthToSpace": _blocks,
}
