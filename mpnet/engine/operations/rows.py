"""Operations over the values of a row or a window, in plain C: normalisations, means, maxima across channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Sequence

import numpy as np

from mpnet.engine.operations.base import Context, Floats, Operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.interface import ConvShape
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.tree import Tree


@dataclass(frozen=True)
class Normalize(Operation):
    """The channels of each pixel by one of NORMALISATIONS.

    parameters: of it. groups: so many equal parts, each by itself. tree: the sets of siblings, each by itself.
    """

    kind: str = "softmax"
    parameters: tuple[float, ...] = ()
    groups: int = 1
    tree: Tree | None = None

    @property
    def detail(self) -> str:
        return self.kind

    def rows(self, channels: int) -> tuple[int, tuple[int, ...]]:
        """(values of a row, where its segments begin, and its end)."""
        length = channels // self.groups
        return length, (0, length) if self.tree is None else self.tree.starts

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        length, starts = self.rows(inputs[0].shape[2])
        return [
            context.binder.normalize(inputs[0].data, out.data, self.kind, length, np.array(starts, np.int32), self.parameters)
        ]


@dataclass(frozen=True)
class LocalAvgPool(Operation):
    """Mean of what of each window lies inside. strides: (x, y); padding: total."""

    size: int = 1
    strides: tuple[int, int] = (1, 1)
    padding: int = 0

    @property
    def detail(self) -> str:
        return f"{self.size}x{self.size}/{'x'.join(map(str, dict.fromkeys(self.strides)))}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        height, width, channels = inputs[0]
        rest = self.padding - self.size
        return ((height + rest) // self.strides[1] + 1, (width + rest) // self.strides[0] + 1, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.local_avgpool(inputs[0].data, out.data, self.size, self.strides, self.padding)]


@dataclass(frozen=True)
class ChannelMax(Operation):
    """The largest of the channels g, g + channels, ... for each g below channels."""

    channels: int = 1
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"across channels, to {self.channels}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return (*inputs[0][:2], self.channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.channel_max(inputs[0].data, out.data)]


@dataclass(frozen=True)
class Blur(Operation):
    """A depthwise convolution by fixed weights: 1: 3x3 binomial, padded by 1; 2: 2x2 mean."""

    kind: int = 1
    stride: int = 1

    @property
    def size(self) -> int:
        """Of its kernel."""
        return 3 if self.kind == 1 else 2

    @property
    def padding(self) -> int:
        """On each side."""
        return 1 if self.kind == 1 else 0

    @property
    def detail(self) -> str:
        return f"{self.size}x{self.size}/{self.stride}"

    def conv_shape(self, shape: Shape) -> ConvShape:
        """The convolution that it is for tensors (h, w, c)."""
        height, width, channels = shape
        return ConvShape(height, width, channels, channels, self.size, self.stride, self.padding, groups=channels)

    def weights(self, channels: int) -> Floats:
        """The weights of that convolution, (channels, 1, size, size)."""
        line = np.array([1, 2, 1] if self.size == 3 else [1, 1], np.float32)
        weights = (np.outer(line, line) / line.sum() ** 2).astype(np.float32)
        return np.ascontiguousarray(np.broadcast_to(weights, (channels, 1, self.size, self.size)))

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        shape = self.conv_shape(inputs[0])
        return shape.out_h, shape.out_w, shape.out_channels

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        x = inputs[0]
        shape = self.conv_shape(x.shape)
        packed = context.prepared.fixed(shape, x.precision, lambda: self.weights(shape.in_channels))
        return [
            context.binder.conv(
                packed,
                x.data,
                out.data,
                bias=np.zeros(x.shape[2], np.float32),
                activation="linear",
                weight_scale=None,
                in_scales=None,
                ranges=None,
            )
        ]
