"""Operations value by value: activations and scaling, weighted sums, products, constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from mpnet.engine.operations.base import Context, Floats, Operation, PreparedWeights
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.model.layers import ImplicitSpec, LayerSpec
from mpnet.model.network import NetworkSpec, Shape


@dataclass(frozen=True)
class Map(Operation):
    """activation(x * scale + shift), with the activations that no convolution applies itself."""

    activation: str = "linear"
    scale: float = 1.0
    shift: float = 0.0

    @property
    def detail(self) -> str:
        line = "" if (self.scale, self.shift) == (1.0, 0.0) else f"{self.scale:g} x {self.shift:+g}"
        return " ".join(part for part in (line, "" if self.activation == "linear" else self.activation) if part)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.map(inputs[0].data, out.data, self.activation, self.scale, self.shift)]


@dataclass(frozen=True)
class Combine(Operation):
    """activation(w0 * a + w1 * b + ...), one after the other: the sum so far is stored as the result is.

    layer:       whose weights they are, -1: alpha and beta instead, which count where both tensors have values.
    """

    activation: str = "linear"
    layer: int = -1
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def detail(self) -> str:
        return "" if self.activation == "linear" else self.activation

    def weight_bytes(self, layer: LayerSpec) -> int:
        return 4 * layer.parameters

    def factors(self, prepared: PreparedWeights, inputs: Sequence[Shape]) -> list[tuple[Floats, Floats]]:
        """For each input after the first: weights per channel of the sum so far, and of the input."""
        channels = inputs[0][2]
        ones = np.ones(channels, np.float32)
        found = []
        for number, other in enumerate(inputs[1:], 1):
            if self.layer >= 0:
                weights = prepared.shortcut_weights(self.layer)
                first, second = (weights[0] if number == 1 else ones), weights[number]
            else:
                first, second = ones.copy(), ones * np.float32(self.beta)
                if number == 1:
                    first[: min(channels, other[2])] = self.alpha
            found.append((first, second))
        return found

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        calls = []
        factors = self.factors(context.prepared, [x.shape for x in inputs])
        for number, (other, (first, second)) in enumerate(zip(inputs[1:], factors, strict=True), 1):
            last = number == len(inputs) - 1
            calls.append(
                context.binder.combine(
                    inputs[0].data if number == 1 else out.data,
                    other.data,
                    out.data,
                    first,
                    second,
                    self.activation if last else "linear",
                )
            )
        return calls


@dataclass(frozen=True)
class Multiply(Operation):
    """activation(a * b): b as a, or a value per channel, or per pixel. swapped: b comes first among the inputs."""

    activation: str = "linear"
    operand: str = "same"
    swapped: bool = False

    @property
    def detail(self) -> str:
        words = (
            self.operand.replace("_", " ") if self.operand != "same" else "",
            self.activation if self.activation != "linear" else "",
        )
        return " ".join(word for word in words if word)

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return inputs[1 if self.swapped else 0]

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        a, b = (inputs[1], inputs[0]) if self.swapped else (inputs[0], inputs[1])
        return [context.binder.multiply(a.data, b.data, out.data, self.activation, self.operand)]


@dataclass(frozen=True)
class Constant(Operation):
    """The values of an [implicit] layer, whatever its input."""

    layer: int = 0

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return network.layers[self.layer].out_shape

    def weight_bytes(self, layer: LayerSpec) -> int:
        assert isinstance(layer, ImplicitSpec)
        return 4 * layer.parameters

    def tiled(self, prepared: PreparedWeights, shape: tuple[int, ...]) -> Floats:
        """The values in the shape of the result, (n, h, w, c)."""
        return np.ascontiguousarray(np.broadcast_to(prepared.values[self.layer].T[:, None, :], shape), np.float32)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return [context.binder.cast(self.tiled(context.prepared, out.data.shape), out.data)]
