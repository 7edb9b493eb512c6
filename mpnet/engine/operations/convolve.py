"""Convolutions, alone and with what their kernels do in the same pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Sequence

import numpy as np

from mpnet.engine.operations.base import Operation
from mpnet.engine.operations.convert import Quantize
from mpnet.engine.operations.move import MaxPool
from mpnet.kernels.calls import Call
from mpnet.quantization.weights import WeightScheme
from mpnet.spec.network import ConvolutionSpec, LayerSpec, NetworkSpec, Shape
from mpnet.spec.precision import FLOAT32, FP32, Precision

if TYPE_CHECKING:
    from mpnet.engine.bind import Context
    from mpnet.engine.tensor import Tensor

# Modes whose reciprocal scale the convolutions' output stage uses in the same order of operations.
_FUSED_MODES = ("affine", "symmetric", "power_of_two")


@dataclass(frozen=True)
class Convolve(Operation):
    """The convolution of a layer at a precision: weights, bias, activation. Sums of codes are de-scaled.

    weights:   how they are quantised, where the precision's carry scales; else None.
    corrected: whether the bias takes back the mean shift of the rounded weights (with `weights` only).
    """

    layer: int = 0
    precision: Precision = FP32
    weights: WeightScheme | None = None
    corrected: bool = False
    name: ClassVar[str] = "Convolve"
    checks_result: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.precision}"

    def gives(self, takes: Precision) -> Precision | None:
        return self.precision.widened if takes is self.precision.tensor else None

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        layer = self.layer_of(network)
        rest = 2 * layer.padding - layer.dilation * (layer.size - 1) - 1
        height, width, _ = inputs[0]
        return ((height + rest) // layer.stride + 1, (width + rest) // layer.stride + 1, layer.filters)

    def layer_of(self, network: NetworkSpec) -> ConvolutionSpec:
        """The layer whose weights it has."""
        layer = network.layers[self.layer]
        assert isinstance(layer, ConvolutionSpec)
        return layer

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Weights, one fp32 bias per filter, scales of quantised weights."""
        assert isinstance(layer, ConvolutionSpec)
        stored = layer.weight_count * self.precision.weight_bits // 8 + 4 * layer.filters
        if self.weights is not None:
            stored += 4 * (layer.filters if self.weights.granularity == "per_channel" else 1)
        return stored

    def joined(self, reader: Operation) -> Operation | None:
        # A result of 16 bits is rounded before it is quantised; the output stage rounds once.
        if isinstance(reader, Quantize) and reader.range is not None and self.precision.widened.stored is FLOAT32:
            return ConvolveQuantize(self, reader) if reader.scheme.mode in _FUSED_MODES else None
        return _pooled(self, reader)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return _bind(context, inputs[0], out, self)


@dataclass(frozen=True)
class ConvolveQuantize(Operation):
    """A convolution whose output stage quantises by a calibrated range: what a fused plan holds for the two steps."""

    convolve: Convolve = field(default_factory=Convolve)
    quantize: Quantize = field(default_factory=Quantize)
    name: ClassVar[str] = "ConvolveQuantize"

    @property
    def detail(self) -> str:
        return f"{self.convolve.detail}; {self.quantize.detail}"

    def gives(self, takes: Precision) -> Precision | None:
        return None if self.convolve.gives(takes) is None else self.quantize.target

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return self.convolve.result_shape(network, inputs)

    def weight_bytes(self, layer: LayerSpec) -> int:
        return self.convolve.weight_bytes(layer)

    def joined(self, reader: Operation) -> Operation | None:
        return _pooled(self, reader)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        return _bind(context, inputs[0], out, self.convolve, self.quantize)


@dataclass(frozen=True)
class ConvolvePool(Operation):
    """A convolution whose results are pooled, 2x2/2, before they leave the caches."""

    convolve: Convolve | ConvolveQuantize = field(default_factory=Convolve)
    pool: MaxPool = field(default_factory=MaxPool)
    name: ClassVar[str] = "ConvolvePool"

    @property
    def detail(self) -> str:
        return f"{self.convolve.detail}; {self.pool.detail}"

    def gives(self, takes: Precision) -> Precision | None:
        return self.convolve.gives(takes)

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return self.pool.result_shape(network, [self.convolve.result_shape(network, inputs)])

    def weight_bytes(self, layer: LayerSpec) -> int:
        return self.convolve.weight_bytes(layer)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        if isinstance(self.convolve, ConvolveQuantize):
            return _bind(context, inputs[0], out, self.convolve.convolve, self.convolve.quantize, pool=True)
        return _bind(context, inputs[0], out, self.convolve, pool=True)


def convolution_of(operation: Operation) -> Convolve | None:
    """The convolution in an operation, fused or alone."""
    if isinstance(operation, ConvolvePool | ConvolveQuantize):
        return convolution_of(operation.convolve)
    return operation if isinstance(operation, Convolve) else None


def _pooled(convolve: Convolve | ConvolveQuantize, pool: Operation) -> ConvolvePool | None:
    if isinstance(pool, MaxPool) and (pool.size, pool.stride) == (2, 2) and pool.padding <= 1:
        return ConvolvePool(convolve, pool)
    return None


def _bind(
    context: Context, x: Tensor, out: Tensor, convolve: Convolve, quantize: Quantize | None = None, pool: bool = False
) -> list[Call]:
    ready = context.prepared.convolution(convolve)
    ranges = None
    target: dict[str, Any] = {}
    if quantize is not None:
        out.code_map, scheme = quantize.fixed_map(x.images), quantize.scheme
        target = {
            "out_scales": out.code_map.scales, "out_rounding": scheme.rounding,
            "out_low": scheme.low, "out_high": scheme.high,
        }
    elif out.measured and not pool:  # the kernel measures what it does not pool
        ranges = out.ranges = np.zeros((x.images, 2), np.float32)
    calls = [context.binder.conv(
        ready.packed, x.data, out.data, bias=ready.bias, activation=ready.activation, weight_scale=ready.weight_scale,
        in_scales=None if x.code_map is None else x.code_map.scales, ranges=ranges, pool=pool, **target,
    )]
    if ranges is not None and out.precision.stored is not FLOAT32:
        # They were measured before rounding, which never changes the order of values.
        rounded = np.empty(ranges.shape, out.data.dtype)
        binder = context.binder
        calls.append(Call(_run_both, (binder.cast(ranges, rounded), binder.cast(rounded, ranges))))
    return calls


def _run_both(first: Call, second: Call) -> Any:
    return first.function(*first.arguments) or second.function(*second.arguments)
