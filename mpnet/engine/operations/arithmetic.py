"""Sums of values without weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Sequence

from mpnet.engine.operations.base import Operation
from mpnet.kernels.calls import Call
from mpnet.spec.network import NetworkSpec, Shape

if TYPE_CHECKING:
    from mpnet.engine.bind import Context
    from mpnet.engine.tensor import Tensor


@dataclass(frozen=True)
class AvgPool(Operation):
    """Global mean per channel."""

    name: ClassVar[str] = "AvgPool"

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return (1, 1, inputs[0][2])

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.avgpool(inputs[0].data, out.data)]


@dataclass(frozen=True)
class Add(Operation):
    """activation(a + b)."""

    activation: str = "linear"
    name: ClassVar[str] = "Add"

    @property
    def detail(self) -> str:
        return "" if self.activation == "linear" else self.activation

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.add(inputs[0].data, inputs[1].data, out.data, self.activation)]
