# SPDX-License-Identifier: MIT
"""Attention of pixels to pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Sequence

from mpnet.engine.operations.base import Context, Operation, StepFields, one_operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.model.layers import AttentionSpec
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.precision import FP32, Precision


@dataclass(frozen=True)
class Attention(Operation):
    """Queries, keys and values of `heads` heads side by side -> values; see AttentionSpec. scale: of the products."""

    heads: int
    key: int
    areas: int
    scale: float
    bundle: ClassVar[str] = "ATTENTION"
    functions: ClassVar[tuple[str, ...]] = ("attention",)

    @property
    def detail(self) -> str:
        """Return the number of heads and of channels of a key, and of areas where there are several."""
        areas = f", {self.areas} areas" if self.areas > 1 else ""
        return f"{self.heads} heads of {self.key}{areas}"

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return fp32 for fp32; other precisions are not supported."""
        return input_precision if input_precision is FP32 else None

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        height, width, channels = inputs[0]
        return (height, width, channels - 2 * self.heads * self.key)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x = inputs[0].storage
        n, height, width, _ = x.shape
        sizes = (n, height * width, self.heads, self.key, out.storage.shape[3] // self.heads, self.areas)
        return [context.binder.call("attention", x, out.storage, *sizes, self.scale)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"factor": self.heads, "length": self.key, "segments": self.areas, "parameters": [self.scale, 0.0, 0.0, 0.0]}


one_operation(AttentionSpec, lambda layer: Attention(layer.heads, layer.key, layer.areas, layer.scale or layer.key**-0.5))
