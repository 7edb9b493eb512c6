# SPDX-License-Identifier: MIT
"""Operations over windows, or over the channels of a pixel: maxima, means, antialiasing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Sequence

import numpy as np

from mpnet.engine.operations.base import Context, Floats, Operation, StepFields, one_operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.interface import ConvShape
from mpnet.model.layers import AvgpoolSpec, LocalAvgpoolSpec
from mpnet.model.network import NetworkSpec, Shape


@dataclass(frozen=True)
class MaxPool(Operation):
    """The maximum of each window. padding: of both sides together, in pixels."""

    size: int = 1
    stride: int = 1
    padding: int = 0
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    bundle: ClassVar[str] = "MAXPOOL"
    functions: ClassVar[tuple[str, ...]] = ("maxpool",)

    @property
    def detail(self) -> str:
        """Return the window and the stride."""
        return f"{self.size}x{self.size}/{self.stride}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, channels = inputs[0]
        border = self.padding - self.size
        return ((height + border) // self.stride + 1, (width + border) // self.stride + 1, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [
            context.binder.maxpool(inputs[0].storage, out.storage, size=self.size, stride=self.stride, padding=self.padding)
        ]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"size": self.size, "stride": self.stride, "padding": self.padding}


@dataclass(frozen=True)
class AvgPool(Operation):
    """The mean of each channel over all pixels: (h, w, c) -> (1, 1, c)."""

    bundle: ClassVar[str] = "AVGPOOL"
    functions: ClassVar[tuple[str, ...]] = ("avgpool",)

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        return (1, 1, inputs[0][2])

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.avgpool(inputs[0].storage, out.storage)]


one_operation(AvgpoolSpec, lambda layer: AvgPool())


@dataclass(frozen=True)
class LocalAvgPool(Operation):
    """Mean of what of each window lies inside. strides: (x, y); padding: total."""

    size: int = 1
    strides: tuple[int, int] = (1, 1)
    padding: int = 0
    bundle: ClassVar[str] = "LOCAL_AVGPOOL"
    functions: ClassVar[tuple[str, ...]] = ("local_avgpool",)

    @property
    def detail(self) -> str:
        """Return the window and the strides."""
        return f"{self.size}x{self.size}/{'x'.join(map(str, dict.fromkeys(self.strides)))}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, channels = inputs[0]
        border = self.padding - self.size
        return ((height + border) // self.strides[1] + 1, (width + border) // self.strides[0] + 1, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, sizes = inputs[0].storage, out.storage.shape[1:3]
        window = (self.size, *self.strides, self.padding)
        return [context.binder.call("local_avgpool", x, out.storage, x.dtype, *x.shape, *sizes, *window)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"size": self.size, "stride": self.strides[0], "stride_y": self.strides[1], "padding": self.padding}


one_operation(LocalAvgpoolSpec, lambda layer: LocalAvgPool(layer.size, layer.strides, layer.padding))


@dataclass(frozen=True)
class ChannelMax(Operation):
    """The largest of the channels g, g + channels, ... for each g below channels."""

    channels: int = 1
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    bundle: ClassVar[str] = "CHANNEL_MAX"
    functions: ClassVar[tuple[str, ...]] = ("channel_max",)

    @property
    def detail(self) -> str:
        """Return the number of channels of the result."""
        return f"across channels, to {self.channels}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        return (*inputs[0][:2], self.channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, channels = inputs[0].storage, inputs[0].shape[2]
        return [context.binder.call("channel_max", x, out.storage, x.dtype, x.size // channels, channels, self.channels)]


@dataclass(frozen=True)
class Blur(Operation):
    """A depthwise convolution by fixed weights: 1: 3x3 binomial, padded by 1; 2: 2x2 mean."""

    kind: int = 1
    stride: int = 1
    bundle: ClassVar[str] = "CONVOLVE"  # a depthwise one
    functions: ClassVar[tuple[str, ...]] = ("conv",)

    @property
    def size(self) -> int:
        """Return the side of the kernel, in pixels."""
        return 3 if self.kind == 1 else 2

    @property
    def padding(self) -> int:
        """Return the pixels of zeros on each side."""
        return 1 if self.kind == 1 else 0

    @property
    def detail(self) -> str:
        """Return the side of the kernel and the stride."""
        return f"{self.size}x{self.size}/{self.stride}"

    def conv_shape(self, shape: Shape) -> ConvShape:
        """Return the convolution that it is for tensors (h, w, c)."""
        height, width, channels = shape
        return ConvShape(height, width, channels, channels, self.size, self.stride, self.padding, groups=channels)

    def weights(self, channels: int) -> Floats:
        """Return the weights of that convolution, (channels, 1, size, size)."""
        line = np.array([1, 2, 1] if self.size == 3 else [1, 1], np.float32)
        weights = (np.outer(line, line) / line.sum() ** 2).astype(np.float32)
        return np.ascontiguousarray(np.broadcast_to(weights, (channels, 1, self.size, self.size)))

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        shape = self.conv_shape(inputs[0])
        return shape.out_h, shape.out_w, shape.out_channels

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x = inputs[0]
        shape = self.conv_shape(x.shape)
        packed = context.prepared.fixed(shape, x.precision, lambda: self.weights(shape.in_channels))
        return [context.binder.conv(packed, x.storage, out.storage, bias=np.zeros(x.shape[2], np.float32))]
