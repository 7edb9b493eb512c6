# SPDX-License-Identifier: MIT
"""Operations that put values elsewhere: each value of the result is one of an input's, or 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.engine.operations.base import Context, Operation, PreparedWeights, StepFields, one_operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.device import Values, array_of
from mpnet.model.layers import DepthToSpaceSpec, Reorg3dSpec, ReshapeSpec, ShuffleSpec
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.precision import Precision

Index = NDArray[np.int32]


@dataclass(frozen=True)
class Slice(Operation):
    """The channels start <= c < stop."""

    start: int = 0
    stop: int = 0
    moves_values: ClassVar[bool] = True
    bundle: ClassVar[str] = "SLICE"
    functions: ClassVar[tuple[str, ...]] = ("copy_channels",)

    @property
    def detail(self) -> str:
        """Return the range of channels."""
        return f"{self.start}:{self.stop}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, _ = inputs[0]
        return (height, width, self.stop - self.start)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.take_channels(inputs[0].storage, out.storage, self.start)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"first": self.start}


@dataclass(frozen=True)
class Concat(Operation):
    """Joins tensors of one height and width along channels."""

    moves_values: ClassVar[bool] = True
    bundle: ClassVar[str] = "CONCAT"
    functions: ClassVar[tuple[str, ...]] = ("copy_channels",)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the input's precision for reals; tensors of codes have scales of their own."""
        # Tensors of codes have scales of their own.
        return None if input_precision.carries_scale else input_precision

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, _ = inputs[0]
        return (height, width, sum(channels for _, _, channels in inputs))

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return context.binder.concat([x.storage for x in inputs], out.storage)


@dataclass(frozen=True)
class Upsample(Operation):
    """Repeats each pixel factor x factor times: nearest neighbour."""

    factor: int = 2
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    bundle: ClassVar[str] = "UPSAMPLE"
    functions: ClassVar[tuple[str, ...]] = ("upsample",)

    @property
    def detail(self) -> str:
        """Return the factor."""
        return f"x{self.factor}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, channels = inputs[0]
        return (height * self.factor, width * self.factor, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.upsample(inputs[0].storage, out.storage, factor=self.factor)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"factor": self.factor}


@dataclass(frozen=True)
class Shuffle(Operation):
    """Channel shuffle of so many groups: of each group the first channel, then of each the second, and so on."""

    groups: int = 2
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    bundle: ClassVar[str] = "SHUFFLE"
    functions: ClassVar[tuple[str, ...]] = ("shuffle",)

    @property
    def detail(self) -> str:
        """Return the number of groups."""
        return f"{self.groups} groups"

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, channels = inputs[0].storage, inputs[0].shape[2]
        return [context.binder.call("shuffle", x, out.storage, x.dtype, x.size // channels, channels, self.groups)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"factor": self.groups}


one_operation(ShuffleSpec, lambda layer: Shuffle(layer.groups))


@dataclass(frozen=True)
class Rearrange(Operation):
    """Base: `order` says it in Darknet's order (c, h, w)."""

    moves_values: ClassVar[bool] = True
    bundle: ClassVar[str] = "GATHER"
    functions: ClassVar[tuple[str, ...]] = ("gather",)

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the result of an input (h, w, c) as (c, h, w) of positions in the input's (c, h, w), -1 for 0."""
        raise NotImplementedError

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        return _ordered(self, inputs[0])[0]

    def index(self, shape: Shape) -> Index:
        """Return for each value of the result, height x width x channels, its place in the input's, -1 for 0."""
        return _ordered(self, shape)[1]

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, index = inputs[0], self.index(inputs[0].shape)
        fill: Values = np.zeros(x.images, np.int32) if x.code_map is None else x.code_map.scales.zero_point
        counts = x.images, x.storage.size // x.images, index.size
        return [context.binder.call("gather", x.storage, out.storage, x.storage.dtype, *counts, index, fill)]

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> Index:
        """Return the index of the gathered values."""
        return self.index(inputs[0])


@lru_cache(maxsize=256)
def _ordered(operation: Rearrange, shape: Shape) -> tuple[Shape, Index]:
    height, width, channels = shape
    order = operation.order(shape)
    planar = order.transpose(1, 2, 0).ravel()
    assert planar.max(initial=-1) < height * width * channels
    index = planar % (height * width) * channels + planar // (height * width)
    return (order.shape[1], order.shape[2], order.shape[0]), np.where(planar < 0, -1, index).astype(np.int32)


def _positions(shape: Shape) -> NDArray[np.int64]:
    height, width, channels = shape
    return np.arange(channels * height * width).reshape(channels, height, width)


@dataclass(frozen=True)
class Crop(Rearrange):
    """height x width from (left, top) on."""

    left: int = 0
    top: int = 0
    width: int = 1
    height: int = 1
    keeps_order: ClassVar[bool] = True

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions of the values inside the window, (c, h, w)."""
        return _positions(shape)[:, self.top : self.top + self.height, self.left : self.left + self.width]


@dataclass(frozen=True)
class Pad(Rearrange):
    """Zeros, or with `edge` the nearest values: rows above and below, columns left and right, channels before and behind."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0
    front: int = 0
    back: int = 0
    edge: bool = False

    def needs(self, input_precision: Precision) -> tuple[tuple[str, Precision], ...]:
        """Return the kernel functions that it needs, each with its precision."""
        return super().needs(input_precision) if self.edge else ()

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions with the border, -1 where it is zero, (c, h, w)."""
        margins = ((self.front, self.back), (self.top, self.bottom), (self.left, self.right))
        if self.edge:
            return np.pad(_positions(shape), margins, mode="edge")
        return np.pad(_positions(shape), margins, constant_values=-1)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        if self.edge:
            return super().bind(context, inputs, out)
        x = inputs[0]
        height, width, channels = x.shape
        # Whole rows are copied faster than values are gathered.
        result = out.host()
        interior = result[:, self.top : self.top + height, self.left : self.left + width, self.front : self.front + channels]
        fill = None if x.code_map is None else array_of(x.code_map.scales.zero_point)
        return [Call(_pad, (x.host(), result, interior, fill), 0)]


def _pad(x: Array, out: Array, interior: Array, fill: Array | None) -> None:
    out[...] = 0 if fill is None else fill.astype(out.dtype)[:, None, None, None]
    np.copyto(interior, x)


@dataclass(frozen=True)
class Sample(Rearrange):
    """Every x-th column and y-th row."""

    x: int = 1
    y: int = 1
    keeps_order: ClassVar[bool] = True

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions of every x-th column of every y-th row, (c, h, w)."""
        return _positions(shape)[:, :: self.y, :: self.x]


@dataclass(frozen=True)
class Spread(Rearrange):
    """factor - 1 zeros between the pixels."""

    factor: int = 1

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions `factor` apart, -1 between them, (c, h, w)."""
        height, width, channels = shape
        f = self.factor
        order = np.full((channels, (height - 1) * f + 1, (width - 1) * f + 1), -1, np.int64)
        order[:, ::f, ::f] = _positions(shape)
        return order


@dataclass(frozen=True)
class Reshape(Rearrange):
    """The pixels, in row order, as rows of `width`."""

    width: int = 1

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions in rows of the new width, (c, h, w)."""
        return _positions(shape).reshape(shape[2], -1, self.width)


one_operation(ReshapeSpec, lambda layer: Reshape(layer.width))


@dataclass(frozen=True)
class Flatten(Rearrange):
    """All values as the channels of one pixel, in Darknet's order, then `extra` zeros."""

    extra: int = 0

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions as channels of one pixel, -1 for each extra channel."""
        order = np.concatenate([_positions(shape).ravel(), np.full(self.extra, -1, np.int64)])
        return order.reshape(-1, 1, 1)


@dataclass(frozen=True)
class Unflatten(Rearrange):
    """The channels of one pixel, in Darknet's order, as (height, width, rest)."""

    height: int = 1
    width: int = 1

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions of one pixel's channels as (c, h, w)."""
        return np.arange(shape[2]).reshape(-1, self.height, self.width)


@dataclass(frozen=True)
class ChannelsLast(Rearrange):
    """(c, h, w) read as what (h, w, c) would be, in the shape that reorg has."""

    stride: int = 1
    reverse: bool = False

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions with rows, columns and channels exchanged as Darknet's local layout does, (c, h, w)."""
        height, width, channels = shape
        if self.reverse:
            flat = np.arange(height * width * channels).reshape(height, width, channels).transpose(2, 0, 1)
        else:
            flat = _positions(shape).transpose(1, 2, 0)
        return np.reshape(flat, _reorganized_shape(shape, self.stride, self.reverse))


@dataclass(frozen=True)
class Reorg(Rearrange):
    """Darknet's permutation of pixels and channels, or back."""

    stride: int = 1
    reverse: bool = False

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions in the order of Darknet's reorg, (c, h, w)."""
        height, width, channels = shape
        order = reorg_order(channels, height, width, self.stride, self.reverse)
        return order.reshape(_reorganized_shape(shape, self.stride, self.reverse))


@dataclass(frozen=True)
class Reorg3d(Rearrange):
    """Space to depth; reverse: what AlexeyAB's program does."""

    stride: int = 1
    reverse: bool = False

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions with blocks of stride x stride pixels as channels, or the reverse, (c, h, w)."""
        channels, s = shape[2], self.stride
        c, h, w = _reorganized_shape(shape, s, self.reverse)
        if self.reverse:
            return reorg_order(c, h, w, s, True).reshape(c, h, w)
        blocks = _positions(shape).reshape(channels, h, s, w, s)
        return np.reshape(blocks.transpose(2, 4, 0, 1, 3), (c, h, w))


one_operation(Reorg3dSpec, lambda layer: Reorg3d(layer.stride, layer.reverse))


@dataclass(frozen=True)
class DepthToSpace(Rearrange):
    """The inverse of Reorg3d: channels as blocks of stride x stride pixels."""

    stride: int = 2

    def order(self, shape: Shape) -> NDArray[np.int64]:
        """Return the positions of the channels that become pixels, (c, h, w)."""
        height, width, channels = shape
        s = self.stride
        blocks = _positions(shape).reshape(s, s, channels // (s * s), height, width)
        return np.reshape(blocks.transpose(2, 3, 0, 4, 1), (channels // (s * s), height * s, width * s))


one_operation(DepthToSpaceSpec, lambda layer: DepthToSpace(layer.stride))


def _reorganized_shape(shape: Shape, stride: int, reverse: bool) -> tuple[int, int, int]:
    """Return the shape (c, h, w) of a result of reorg."""
    height, width, channels = shape
    square = stride * stride
    if reverse:
        return (channels // square, height * stride, width * stride)
    return (channels * square, height // stride, width // stride)


def reorg_order(c: int, h: int, w: int, stride: int, reverse: bool) -> NDArray[np.int64]:
    """Return the flat positions that Darknet's loop over (c, h, w) reads: out[n] = in[place], or the other way round."""
    group = c // (stride * stride)
    k, y, x = np.meshgrid(np.arange(c), np.arange(h), np.arange(w), indexing="ij")
    offset = k // group
    column, row = x * stride + offset % stride, y * stride + offset // stride
    source = (column + w * stride * (row + h * stride * (k % group))).ravel()
    if not reverse:
        return source
    inverse = np.empty_like(source)
    inverse[source] = np.arange(source.size)
    return inverse
