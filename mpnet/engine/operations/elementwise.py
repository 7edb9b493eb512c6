# SPDX-License-Identifier: MIT
"""Operations that keep the places of values: sums, products, activations, constants, normalisations of pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Sequence

import numpy as np

from mpnet.engine.operations.base import Activated, Context, Floats, Operation, PreparedWeights, StepFields, one_operation
from mpnet.engine.tensor import Tensor
from mpnet.kernels.arguments import activation_code, check, code_of
from mpnet.kernels.call import Call
from mpnet.kernels.interface import ACTIVATION_CODE, ACTIVATIONS, ALL_ACTIVATIONS, NORMALISATIONS, OPERANDS
from mpnet.model.layers import ImplicitSpec, L2normSpec, LayernormSpec, LayerSpec, LogisticSpec, NormalizationSpec
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.tree import Tree


@dataclass(frozen=True)
class Add(Activated):
    """The sum activation(a + b) of two tensors of one shape."""

    bundle: ClassVar[str] = "ADD"
    functions: ClassVar[tuple[str, ...]] = ("add",)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.add(inputs[0].storage, inputs[1].storage, out.storage, activation=self.activation)]


@dataclass(frozen=True)
class Map(Activated):
    """activation(x * scale + shift), of ALL_ACTIVATIONS."""

    scale: float = 1.0
    shift: float = 0.0
    bundle: ClassVar[str] = "MAP"
    functions: ClassVar[tuple[str, ...]] = ("map",)

    @property
    def keeps_finite(self) -> bool:
        """Return whether no finite value becomes infinite."""
        return (self.scale, self.shift) == (1.0, 0.0) and self.activation not in ("ramp", "selu")

    @property
    def detail(self) -> str:
        """Return the linear factors, unless they change nothing, and the activation."""
        line = "" if (self.scale, self.shift) == (1.0, 0.0) else f"{self.scale:g} x {self.shift:+g}"
        return " ".join(filter(None, (line, super().detail)))

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, result = inputs[0].storage, out.storage
        code = activation_code(self.activation, ALL_ACTIVATIONS)
        line = float(self.scale), float(self.shift)
        return [context.binder.call("map", x, x.dtype, result, result.dtype, code, *line, x.size)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"activation": ACTIVATION_CODE[self.activation], "parameters": [self.scale, self.shift]}


one_operation(LogisticSpec, lambda layer: Map("logistic"))


@dataclass(frozen=True)
class Combine(Activated):
    """activation(w0 * a + w1 * b + ...), one after the other: the sum so far is stored as the result is.

    layer:       whose weights they are, -1: alpha and beta instead, which count where both tensors have values.
    """

    layer: int = -1
    alpha: float = 1.0
    beta: float = 1.0
    bundle: ClassVar[str] = "COMBINE"
    functions: ClassVar[tuple[str, ...]] = ("combine",)

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Count the bytes of the layer's weights, float32 each."""
        return 4 * layer.parameters

    def factors(self, prepared: PreparedWeights, inputs: Sequence[Shape]) -> list[tuple[Floats, Floats]]:
        """Return for each input after the first: weights per channel of the sum so far, and of the input."""
        channels = inputs[0][2]
        ones = np.ones(channels, np.float32)
        pairs = []
        for number, shape in enumerate(inputs[1:], 1):
            if self.layer >= 0:
                weights = prepared.shortcut_weights(self.layer)
                first, second = (weights[0] if number == 1 else ones), weights[number]
            else:
                first, second = ones.copy(), ones * np.float32(self.beta)
                if number == 1:
                    first[: min(channels, shape[2])] = self.alpha
            pairs.append((first, second))
        return pairs

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        calls = []
        factors = self.factors(context.prepared, [x.shape for x in inputs])
        for number, (operand, (first, second)) in enumerate(zip(inputs[1:], factors, strict=True), 1):
            so_far, b = (inputs[0] if number == 1 else out).storage, operand.storage
            code = activation_code(self.activation if number == len(inputs) - 1 else "linear", ACTIVATIONS)
            types, shapes = (so_far.dtype, out.storage.dtype), (*so_far.shape, *b.shape[1:])
            calls.append(context.binder.call("combine", so_far, b, out.storage, *types, code, first, second, *shapes))
        return calls

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> Floats:
        """Return the factors of all inputs, one after the other, float32."""
        return np.concatenate([factors for pair in self.factors(prepared, inputs) for factors in pair]).astype(np.float32)


@dataclass(frozen=True)
class Multiply(Activated):
    """activation(a * b): b as a, or a value per channel, or per pixel. swapped: b comes first among the inputs."""

    operand: str = "same"
    swapped: bool = False
    bundle: ClassVar[str] = "MULTIPLY"
    functions: ClassVar[tuple[str, ...]] = ("multiply",)

    @property
    def detail(self) -> str:
        """Return the kind of the second factor, unless it has the shape of the first, and the activation."""
        operand = self.operand.replace("_", " ") if self.operand != "same" else ""
        return " ".join(filter(None, (operand, super().detail)))

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        return inputs[1 if self.swapped else 0]

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        a, b = (x.storage for x in (inputs[::-1] if self.swapped else inputs))
        n, height, width, channels = a.shape
        shapes = {"same": a.shape, "per_channel": (n, 1, 1, channels), "per_pixel": (n, height, width, 1)}
        kind, code = code_of(self.operand, OPERANDS, "operand"), activation_code(self.activation, ACTIVATIONS)
        check(b, "the second factor", (a.dtype,), shapes[self.operand])
        return [context.binder.call("multiply", a, b, out.storage, a.dtype, out.storage.dtype, code, kind, *a.shape)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {**super().step_fields(), "kind": OPERANDS.index(self.operand), "swapped": int(self.swapped)}


@dataclass(frozen=True)
class Constant(Operation):
    """The values of an [implicit] layer, whatever its input."""

    layer: int = 0
    bundle: ClassVar[str] = "CONSTANT"
    functions: ClassVar[tuple[str, ...]] = ("cast",)

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the layer's result."""
        return network.layers[self.layer].out_shape

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Count the bytes of the layer's values, float32 each."""
        assert isinstance(layer, ImplicitSpec)
        return 4 * layer.parameters

    def tiled(self, prepared: PreparedWeights, shape: tuple[int, ...]) -> Floats:
        """Return the values in the shape of the result, (n, h, w, c)."""
        return np.ascontiguousarray(np.broadcast_to(prepared.values[self.layer].T[:, None, :], shape), np.float32)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.cast(self.tiled(context.prepared, out.storage.shape), out.storage)]

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> Floats:
        """Return the values in the shape of the result for one image."""
        return self.tiled(prepared, (1, *result))


one_operation(ImplicitSpec, lambda layer: Constant(layer.index))


@dataclass(frozen=True)
class Normalize(Operation):
    """The channels of each pixel by one of NORMALISATIONS.

    parameters: of it. groups: so many equal parts, each by itself. tree: the sets of siblings, each by itself.
    over_image: the image's values together, instead of each pixel's.
    """

    kind: str = "softmax"
    parameters: tuple[float, ...] = ()
    groups: int = 1
    tree: Tree | None = None
    over_image: bool = False
    bundle: ClassVar[str] = "NORMALIZE"
    functions: ClassVar[tuple[str, ...]] = ("normalize",)

    @property
    def detail(self) -> str:
        """Return the kind of normalisation."""
        return self.kind

    @property
    def four_parameters(self) -> list[float]:
        """Return as many parameters as the kernel takes; those that the formula does not have are 0."""
        return [*map(float, self.parameters), 0.0, 0.0, 0.0, 0.0][:4]

    def rows(self, shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Return (values of a row, where its segments begin, and its end). shape: (height, width, channels)."""
        length = math.prod(shape) if self.over_image else shape[2] // self.groups
        return length, (0, length) if self.tree is None else self.tree.starts

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x = inputs[0].storage
        length, starts = self.rows(x.shape[1:])
        kind = code_of(self.kind, NORMALISATIONS, "kind")
        rows = (x.size // length, length, np.array(starts, np.int32), len(starts) - 1)
        return [context.binder.call("normalize", x, out.storage, x.dtype, kind, *rows, *self.four_parameters)]

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"kind": NORMALISATIONS.index(self.kind), "parameters": self.four_parameters}


one_operation(L2normSpec, lambda layer: Normalize("l2"))
one_operation(LayernormSpec, lambda layer: Normalize("layer", (layer.epsilon,), over_image=layer.whole))
one_operation(NormalizationSpec, lambda layer: Normalize("local_response", (layer.size, layer.alpha, layer.beta, layer.kappa)))
