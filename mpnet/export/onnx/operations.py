# SPDX-License-Identifier: MIT
"""Operations without weights of their own as ONNX nodes: one writer by the operation's type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpnet.engine.operations import (
    Add,
    Attention,
    AvgPool,
    Blur,
    ChannelMax,
    Combine,
    Concat,
    Constant,
    DepthToSpace,
    LocalAvgPool,
    Map,
    MaxPool,
    Multiply,
    Normalize,
    Operation,
    Pad,
    Rearrange,
    Reorg3d,
    Shuffle,
    Slice,
    Upsample,
)
from mpnet.engine.prepare import Prepared
from mpnet.export.onnx.activations import WRITTEN_ACTIVATIONS, activate
from mpnet.export.onnx.graph import OnnxGraph
from mpnet.model.network import Shape


@dataclass(frozen=True)
class OperationWriter:
    """One operation to be written. inputs: tensors (1, c, h, w) of `shapes` (h, w, c); shape: of the result."""

    graph: OnnxGraph
    operation: Any
    inputs: Sequence[str]
    shapes: Sequence[Shape]
    shape: Shape
    name: str
    prepared: Prepared

    def node(self, operator: str, inputs: Sequence[str], role: str = "", **attributes: object) -> str:
        """Append a node on behalf of the operation."""
        return self.graph.node(operator, inputs, f"{self.name}_{role}" if role else self.name, **attributes)

    def constant(self, role: str, values: ArrayLike, dtype: type = np.float32) -> str:
        """Add a constant of the operation."""
        return self.graph.constant(f"{self.name}_{role}", np.asarray(values, dtype))

    def activate(self, x: str) -> str:
        """Append the operation's activation to x."""
        word = self.operation.activation
        return activate(self.graph, word, x, f"{self.name}_{word}")


def write(job: OperationWriter) -> str:
    """Write an operation and return the tensor of its result."""
    writer = _writer(job.operation)
    assert writer is not None
    return writer(job)


def problem(operation: Operation) -> str:
    """Return '' or why an operation cannot be written."""
    if _writer(operation) is None:
        return f"{operation.name} has no form in ONNX that mpnet writes"
    activation = getattr(operation, "activation", "linear")
    if activation not in WRITTEN_ACTIVATIONS:
        return f"the activation {activation} has no form in ONNX that mpnet writes"
    if isinstance(operation, Normalize) and (operation.kind not in _NORMALIZATIONS or operation.tree is not None):
        return f"normalisation {operation.kind}{' over a tree' if operation.tree else ''} has no form in ONNX that mpnet writes"
    if isinstance(operation, MaxPool) and operation.padding - operation.padding // 2 >= operation.size:
        return f"ONNX pads a pooling by less than its window; this one of {operation.size} pads {operation.padding}"
    return ""


def _writer(operation: Operation) -> Callable[[OperationWriter], str] | None:
    return next((_WRITERS[kind] for kind in type(operation).__mro__ if kind in _WRITERS), None)


def _pads(padding: int) -> list[int]:
    padding_before = padding // 2
    return [padding_before, padding_before, padding - padding_before, padding - padding_before]


def _maxpool(job: OperationWriter) -> str:
    pool = job.operation
    return job.node("MaxPool", job.inputs, kernel_shape=[pool.size] * 2, strides=[pool.stride] * 2, pads=_pads(pool.padding))


def _local_avgpool(job: OperationWriter) -> str:
    pool = job.operation
    return job.node(
        "AveragePool",
        job.inputs,
        kernel_shape=[pool.size] * 2,
        strides=[pool.strides[1], pool.strides[0]],
        pads=_pads(pool.padding),
        count_include_pad=0,
    )


def _channel_max(job: OperationWriter) -> str:
    height, width, channels = job.shapes[0]
    kept_channels = job.operation.channels
    shape = job.constant("shape", [1, channels // kept_channels, kept_channels, height, width], np.int64)
    groups = job.node("Reshape", [*job.inputs, shape], "parts")
    return job.node("ReduceMax", [groups], axes=[1], keepdims=0)


def _upsample(job: OperationWriter) -> str:
    factor = job.operation.factor
    return job.node(
        "Resize",
        [*job.inputs, "", job.constant("scales", [1, 1, factor, factor])],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _slice(job: OperationWriter) -> str:
    numbers = [job.graph.constant(f"number_{n}", np.array([n], np.int64)) for n in (job.operation.start, job.operation.stop, 1)]
    return job.node("Slice", [*job.inputs, *numbers])


def _shuffle(job: OperationWriter) -> str:
    height, width, channels = job.shape
    groups = job.operation.groups
    groups_shape = job.constant("parts", [1, groups, channels // groups, height, width], np.int64)
    transposed = job.node(
        "Transpose", [job.node("Reshape", [*job.inputs, groups_shape], "groups")], "turned", perm=[0, 2, 1, 3, 4]
    )
    return job.node("Reshape", [transposed, job.constant("shape", [1, channels, height, width], np.int64)])


def _rearrange(job: OperationWriter) -> str:
    """Write any order of values: flat, gathered, in its new shape. Where zeros come in, one is put behind the values."""
    operation: Rearrange = job.operation
    height, width, channels = job.shape
    order = operation.order(job.shapes[0])
    flat = job.node("Reshape", [*job.inputs, job.constant("flat", [-1], np.int64)], "values")
    if (order < 0).any():
        flat = job.node("Concat", [flat, job.constant("zero", [0])], "zeros", axis=0)
    count = int(np.prod(job.shapes[0]))
    positions = job.constant("order", np.where(order < 0, count, order).ravel(), np.int64)
    gathered = job.node("Gather", [flat, positions], "taken", axis=0)
    return job.node("Reshape", [gathered, job.constant("shape", [1, channels, height, width], np.int64)])


def _reorg3d(job: OperationWriter) -> str:
    if job.operation.reverse:
        return _rearrange(job)
    return job.node("SpaceToDepth", job.inputs, blocksize=job.operation.stride)


def _pad(job: OperationWriter) -> str:
    pad: Pad = job.operation
    pads = [0, pad.front, pad.top, pad.left, 0, pad.back, pad.bottom, pad.right]
    return job.node("Pad", [*job.inputs, job.constant("pads", pads, np.int64)], mode="edge" if pad.edge else "constant")


def _map(job: OperationWriter) -> str:
    operation: Map = job.operation
    [x] = job.inputs
    if operation.scale != 1:
        x = job.node("Mul", [x, job.constant("scale", operation.scale)], "scaled")
    if operation.shift != 0:
        x = job.node("Add", [x, job.constant("shift", operation.shift)], "shifted")
    return job.activate(x)


def _multiply(job: OperationWriter) -> str:
    # What has one value per channel or pixel broadcasts.
    return job.activate(job.node("Mul", job.inputs))


def _combine(job: OperationWriter) -> str:
    """Write the sum of as many channels as both have, and the first's own behind them."""
    operation: Combine = job.operation
    height, width, channels = job.shape
    total, factors = job.inputs[0], operation.factors(job.prepared, job.shapes)
    for number, (summand, shape, (first_factor, second_factor)) in enumerate(
        zip(job.inputs[1:], job.shapes[1:], factors, strict=True), 1
    ):
        if shape[:2] != (height, width):
            raise ValueError("checked by support")
        if shape[2] > channels:
            bounds = [job.graph.constant(f"number_{n}", np.array([n], np.int64)) for n in (0, channels, 1)]
            summand = job.node("Slice", [summand, *bounds], f"part_{number}")
        elif shape[2] < channels:
            missing_channels = job.constant(f"missing_{number}", [0, 0, 0, 0, 0, channels - shape[2], 0, 0], np.int64)
            summand = job.node("Pad", [summand, missing_channels], f"filled_{number}")
        terms = [
            x
            if (factor == 1).all()
            else job.node(
                "Mul", [x, job.constant(f"{role}_{number}", factor.reshape(1, -1, 1, 1))], f"weighted_{role}_{number}"
            )
            for role, x, factor in (("first", total, first_factor), ("second", summand, second_factor))
        ]
        total = job.node("Add", terms, f"sum_{number}")
    return job.activate(total)


def _constant(job: OperationWriter) -> str:
    height, width, channels = job.shape
    values = job.prepared.values[job.operation.layer]
    tiled = np.broadcast_to(values.T[:, None, :], (height, width, channels)).transpose(2, 0, 1)[None]
    return job.node("Identity", [job.constant("values", np.ascontiguousarray(tiled))])


def _blur(job: OperationWriter) -> str:
    blur: Blur = job.operation
    line = np.array([1, 2, 1] if blur.size == 3 else [1, 1], np.float32)
    channels = job.shape[2]
    weights = np.broadcast_to(np.outer(line, line) / line.sum() ** 2, (channels, 1, blur.size, blur.size))
    return job.node(
        "Conv",
        [*job.inputs, job.constant("weights", weights)],
        kernel_shape=[blur.size] * 2,
        group=channels,
        strides=[blur.stride] * 2,
        pads=[blur.padding] * 4,
    )


def _softmax(job: OperationWriter) -> str:
    height, width, channels = job.shape
    operation: Normalize = job.operation
    [x] = job.inputs
    if operation.parameters and operation.parameters[0] != 1:
        x = job.node("Div", [x, job.constant("temperature", operation.parameters[0])], "tempered")
    groups_shape = [1, operation.groups, channels // operation.groups, height, width]
    grouped = job.node("Reshape", [x, job.constant("parts", groups_shape, np.int64)], "parts")
    shares = job.node("Softmax", [grouped], "softmax", axis=2)
    return job.node("Reshape", [shares, job.constant("shape", [1, channels, height, width], np.int64)])


def _shares(job: OperationWriter) -> str:
    """Write the share of each channel in the sum of all channels, which a small constant keeps above 0."""
    [x] = job.inputs
    if job.operation.kind == "channels":
        numerators = job.node("Relu", [x], "parts")
    else:
        if job.operation.kind == "channels_softmax_maxval":
            x = job.node("Sub", [x, job.node("ReduceMax", [x], "top", axes=[1], keepdims=1)], "below_top")
        numerators = job.node("Exp", [x], "parts")
    axis = job.graph.constant("number_1", np.array([1], np.int64))
    total = job.node("ReduceSum", [numerators, axis], "sum", keepdims=1)
    return job.node("Div", [numerators, job.node("Add", [total, job.constant("least", 0.0001)], "total")])


def _attention(job: OperationWriter) -> str:
    operation: Attention = job.operation
    height, width, values = job.shape
    heads, areas, queries = operation.heads, operation.areas, operation.heads * operation.key
    positions = height * width // areas
    cuts = job.constant("cuts", [queries, queries, values], np.int64)
    words = ("queries", "keys", "values")
    projections = job.graph.nodes("Split", [*job.inputs, cuts], [f"{job.name}_{word}" for word in words], axis=1)
    by_area = []
    for word, projection, channels in zip(words, projections, (queries, queries, values), strict=True):
        shape = job.constant(f"{word}_shape", [heads, channels // heads, areas, positions], np.int64)
        order = [2, 0, 3, 1] if word == "queries" else [2, 0, 1, 3]
        by_head = job.node("Reshape", [projection, shape], f"{word}_by_head")
        by_area.append(job.node("Transpose", [by_head], f"{word}_by_area", perm=order))
    q, k, v = by_area
    scores = job.node("Mul", [job.node("MatMul", [q, k], "products"), job.constant("scale", operation.scale)], "scores")
    shares = job.node("Transpose", [job.node("Softmax", [scores], "shares", axis=-1)], "turned", perm=[0, 1, 3, 2])
    mean = job.node("Transpose", [job.node("MatMul", [v, shares], "means")], "by_head", perm=[1, 2, 0, 3])
    return job.node("Reshape", [mean, job.constant("shape", [1, values, height, width], np.int64)])


def _layer(job: OperationWriter) -> str:
    """Write layer normalisation (less the mean, over the root of the variance) of each pixel's channels or the whole image."""
    axes = [1, 2, 3] if job.operation.over_image else [1]
    name, graph, [x] = job.name, job.graph, job.inputs
    centred = graph.node("Sub", [x, graph.node("ReduceMean", [x], f"{name}_mean", axes=axes)], f"{name}_centred")
    square = graph.node("Mul", [centred, centred], f"{name}_square")
    variance = graph.node("ReduceMean", [square], f"{name}_variance", axes=axes)
    epsilon = graph.constant(f"{name}_epsilon", np.float32(job.operation.parameters[0]))
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, epsilon], f"{name}_raised")], f"{name}_deviation")
    return job.node("Div", [centred, deviation])


_NORMALIZATIONS: dict[str, Callable[[OperationWriter], str]] = {
    "softmax": _softmax,
    "channels": _shares,
    "channels_softmax": _shares,
    "channels_softmax_maxval": _shares,
    "layer": _layer,
    "l2": lambda job: job.node("LpNormalization", job.inputs, axis=1, p=2),
}

_WRITERS: dict[type[Operation], Callable[[OperationWriter], str]] = {
    MaxPool: _maxpool,
    LocalAvgPool: _local_avgpool,
    AvgPool: lambda job: job.node("GlobalAveragePool", job.inputs),
    ChannelMax: _channel_max,
    Upsample: _upsample,
    Shuffle: _shuffle,
    Slice: _slice,
    Pad: _pad,
    Reorg3d: _reorg3d,
    DepthToSpace: lambda job: job.node("DepthToSpace", job.inputs, blocksize=job.operation.stride, mode="DCR"),
    Rearrange: _rearrange,
    Concat: lambda job: job.node("Concat", job.inputs, axis=1),
    Add: lambda job: job.activate(job.node("Add", job.inputs)),
    Combine: _combine,
    Multiply: _multiply,
    Map: _map,
    Constant: _constant,
    Blur: _blur,
    Attention: _attention,
    Normalize: lambda job: _NORMALIZATIONS[job.operation.kind](job),
}
