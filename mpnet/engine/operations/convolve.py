# SPDX-License-Identifier: MIT
"""Convolutions, with what their kernels do in the same pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Sequence

from mpnet.engine.operations.base import Context, Operation, StepFields
from mpnet.engine.operations.convert import Quantize
from mpnet.engine.operations.elementwise import Map
from mpnet.engine.operations.pooling import MaxPool
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.calls import DEFAULT_RULES
from mpnet.kernels.interface import ACTIVATIONS, CodeRules
from mpnet.model.network import ConvolutionSpec, LayerSpec, NetworkSpec, Shape
from mpnet.model.precision import FLOAT32, FP32, Precision
from mpnet.model.quantization import KERNEL_MODES
from mpnet.quantization.weights import WeightScheme, multiplier_bytes


@dataclass(frozen=True)
class Convolve(Operation):
    """The convolution of a layer at a precision: weights, bias, activation. Sums of codes are de-scaled.

    weights:   how they are quantised, where the precision's carry scales; else None.
    corrected: whether the bias takes back the mean shift of the rounded weights (with `weights` only).
    quantize:  by a calibrated range, in the output stage: what a fused plan holds instead of a step of its own.
    pool:      2x2/2, before the results leave the caches; likewise.
    map:       in place of the layer's own activation, which is linear; likewise.
    """

    layer: int = 0
    precision: Precision = FP32
    weights: WeightScheme | None = None
    corrected: bool = False
    quantize: Quantize | None = None
    pool: MaxPool | None = None
    map: Map | None = field(default=None, kw_only=True)
    checks_result: ClassVar[bool] = True
    bundle: ClassVar[str] = "CONVOLVE"
    functions: ClassVar[tuple[str, ...]] = ("conv",)

    @property
    def name(self) -> str:
        """Return the name with what is fused: a pool or a quantization."""
        return "ConvolvePool" if self.pool else "ConvolveQuantize" if self.quantize else "Convolve"

    @property
    def detail(self) -> str:
        """Return the precision and the details of the fused steps."""
        fused = [step.detail for step in (self.map, self.quantize, self.pool) if step is not None]
        return "; ".join([f"{self.precision}", *fused])

    @property
    def alone(self) -> Convolve:
        """Return the convolution without what is fused into it, which its packed weights belong to."""
        return self._doing(None, None, None) if self.map or self.quantize or self.pool else self

    def needs(self, input_precision: Precision) -> tuple[tuple[str, Precision], ...]:
        """Return the kernel functions that it needs, each with its precision."""
        return tuple((function, self.precision) for function in self.functions)

    def layer_of(self, network: NetworkSpec) -> ConvolutionSpec:
        """Return the layer whose weights it has."""
        layer = network.layers[self.layer]
        assert isinstance(layer, ConvolutionSpec)
        return layer

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the precision of the result, for the one input precision that the kernel reads."""
        if input_precision is not self.precision.tensor:
            return None
        return self.precision.widened if self.quantize is None else self.quantize.target

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        shape = self.layer_of(network).kernel_output
        return shape if self.pool is None else self.pool.result_shape(network, [shape])

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Return the weights, one fp32 bias per filter, scales of quantised weights and multipliers of their groups."""
        assert isinstance(layer, ConvolutionSpec)
        size_bytes = -(-layer.weight_count * self.precision.weight_bits // 8) + 4 * layer.filters
        if self.weights is not None:
            size_bytes += 4 * (layer.filters if self.weights.granularity != "per_tensor" else 1)
            channels, bits = layer.kernel_input[2] // layer.groups, self.precision.weight_bits
            if self.weights.in_groups(channels):
                size_bytes += multiplier_bytes(layer.filters, layer.size**2, channels, bits)
        return size_bytes

    def joined(self, reader: Operation) -> Operation | None:
        """Return the convolution with the reader fused into its output stage, None where the kernels cannot do that."""
        if self.pool is not None:
            return None
        if isinstance(reader, MaxPool):
            return self._doing(self.map, self.quantize, reader) if self.pools(reader) else None
        # A result of 16 bits is rounded before it is quantised; the output stage rounds once.
        if isinstance(reader, Quantize) and self.quantize is None and self.precision.widened.stored is FLOAT32:
            is_fixed = reader.range is not None and reader.scheme.mode in KERNEL_MODES
            return self._doing(self.map, reader, None) if is_fixed else None
        return None

    def mapped(self, reader: Map, network: NetworkSpec) -> Convolve | None:
        """Join the activation that alone reads the result, where the convolution has none itself and rounds nothing before."""
        linear = self.layer_of(network).activation not in ACTIVATIONS[1:]
        alone = self.alone is self and type(self) is Convolve and self.precision.widened.stored is FLOAT32
        return self._doing(reader, None, None) if linear and alone and reader.keeps_finite else None

    def pools(self, reader: MaxPool) -> bool:
        """Return whether the kernels take maxima in the same pass."""
        return self.pool is None and (reader.size, reader.stride) == (2, 2) and reader.padding <= 1

    def _doing(self, map: Map | None, quantize: Quantize | None, pool: MaxPool | None) -> Convolve:
        return Convolve(self.layer, self.precision, self.weights, self.corrected, quantize, pool, map=map)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, ready, binder = inputs[0], context.prepared.convolution(self.alone), context.binder
        shape = ready.packed.shape
        source, converts = x.storage, None
        if x.unconverted is not None:
            tensor, converts = x.unconverted
            source = tensor.storage
        # What a connected layer reads as channels of one pixel lies in memory just so.
        values = source.reshape((x.images, shape.in_h, shape.in_w, shape.in_channels))
        ranges = None
        out_quant, out_rules = None, DEFAULT_RULES
        if self.quantize is not None:
            out.code_map, scheme = self.quantize.fixed_map(x.images, context.device), self.quantize.scheme
            assert scheme.rounding is not None
            out_quant, out_rules = out.code_map.scales, CodeRules(scheme.rounding, scheme.low, scheme.high)
        elif out.measured:
            ranges = out.ranges = context.allocate((x.images, 2))
        calls = [
            binder.conv(
                ready.packed,
                values,
                out.storage,
                bias=ready.bias,
                activation=ready.activation if self.map is None else self.map.activation,
                weight_scale=ready.weight_scale,
                in_quant=None if x.code_map is None else x.code_map.scales,
                ranges=ranges,
                pool=self.pool is not None,
                converts=converts,
                out_quant=out_quant,
                out_rules=out_rules,
            )
        ]
        if ranges is not None and out.precision.stored is not FLOAT32:
            # They were measured before rounding, which never changes the order of values.
            rounded = context.allocate(ranges.shape, out.storage.dtype)
            calls += [binder.cast(ranges, rounded).with_fixed_input(), binder.cast(rounded, ranges).with_fixed_input()]
        return calls

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        fields: StepFields = {"quantizes": int(self.quantize is not None), "pooled": int(self.pool is not None)}
        for fused in (self.quantize, self.pool):
            fields |= {} if fused is None else fused.step_fields()
        return fields
