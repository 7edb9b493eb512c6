"""Operations without weights on tensors that stay as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations.base import Context, Operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.precision import FP32, Precision


@dataclass(frozen=True)
class MaxPool(Operation):
    """padding: total."""

    size: int = 1
    stride: int = 1
    padding: int = 0
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.size}x{self.size}/{self.stride}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        height, width, channels = inputs[0]
        rest = self.padding - self.size
        return ((height + rest) // self.stride + 1, (width + rest) // self.stride + 1, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.maxpool(inputs[0].data, out.data, size=self.size, stride=self.stride, padding=self.padding)]


@dataclass(frozen=True)
class Upsample(Operation):
    """Nearest neighbour."""

    factor: int = 2
    moves_values: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"x{self.factor}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        height, width, channels = inputs[0]
        return (height * self.factor, width * self.factor, channels)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.upsample(inputs[0].data, out.data, factor=self.factor)]


@dataclass(frozen=True)
class Slice(Operation):
    """The channels start <= c < stop."""

    start: int = 0
    stop: int = 0
    moves_values: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.start}:{self.stop}"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        height, width, _ = inputs[0]
        return (height, width, self.stop - self.start)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [Call(_copy_channels, (inputs[0].data, out.data, self.start, self.stop), 0)]


def _copy_channels(x: NDArray[Any], out: NDArray[Any], start: int, stop: int) -> None:
    np.copyto(out, x[..., start:stop])


@dataclass(frozen=True)
class Concat(Operation):
    """Along channels."""

    moves_values: ClassVar[bool] = True

    def gives(self, takes: Precision) -> Precision | None:
        # Tensors of codes have scales of their own.
        return None if takes.carries_scale else takes

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        height, width, _ = inputs[0]
        return (height, width, sum(channels for _, _, channels in inputs))

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return context.binder.concat([x.data for x in inputs], out.data)


@dataclass(frozen=True)
class AvgPool(Operation):
    """Global mean per channel."""

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return (1, 1, inputs[0][2])

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.avgpool(inputs[0].data, out.data)]


@dataclass(frozen=True)
class Add(Operation):
    """activation(a + b)."""

    activation: str = "linear"

    @property
    def detail(self) -> str:
        return "" if self.activation == "linear" else self.activation

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.add(inputs[0].data, inputs[1].data, out.data, activation=self.activation)]


@dataclass(frozen=True)
class Yolo(Operation):
    """Hands the tensor over to box decoding, unchanged."""

    is_head: ClassVar[bool] = True

    def gives(self, takes: Precision) -> Precision | None:
        return takes if takes is FP32 else None

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return []
