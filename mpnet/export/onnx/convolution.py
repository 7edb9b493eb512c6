# SPDX-License-Identifier: MIT
"""Convolutions: on reals with the weights that the precision has, or on codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations import Convolve
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Constants, Prepared
from mpnet.engine.rules import kernel_activation
from mpnet.export.naming import layer_name
from mpnet.export.onnx.activations import CLAMPS, MONOTONIC, activate
from mpnet.export.onnx.graph import FLOAT, INT4, INT8, OnnxGraph
from mpnet.export.onnx.rules import OnnxRules
from mpnet.export.onnx.values import (
    NARROW,
    SHIFT,
    Coded,
    Pending,
    Value,
    add_fixed_map,
    add_pair,
    dequantize_codes,
    is_wide,
    quantize_value,
    real_of,
)
from mpnet.export.weights import pack_bits, split_blocks
from mpnet.model.layers import ConvolutionSpec
from mpnet.model.reals import narrowed
from mpnet.quantization.codes import LEAKY_SLOPE, sums_before
from mpnet.quantization.scheme import QuantParams, range_to_params


@dataclass(frozen=True)
class _Writer:
    """One convolution to be written."""

    graph: OnnxGraph
    layer: ConvolutionSpec
    operation: Convolve
    constants: Constants
    rules: OnnxRules
    x: Value
    options: EngineOptions

    def name(self, role: str) -> str:
        return layer_name(self.layer.index, role)

    def constant(self, role: str, value: Any) -> str:
        return self.graph.constant(self.name(role), value)

    @property
    def window(self) -> dict[str, Any]:
        layer = self.layer
        return {
            "kernel_shape": [layer.size] * 2,
            "strides": [layer.stride] * 2,
            "pads": [layer.padding] * 4,
            "dilations": [layer.dilation] * 2,
            "group": layer.groups,
        }

    def activate(self, sums: str) -> str:
        return activate(self.graph, self.activation, sums, self.name(self.activation))

    @property
    def activation(self) -> str:
        """Return the activation in the convolution itself; others are separate steps."""
        return kernel_activation(self.layer.activation)

    def write_sums(self) -> str:
        """Write biased sums before the activation; weights as the precision stores them."""
        coded = self.x.coded
        if self.constants.weight_scale is not None:
            if coded is not None and coded.params is None and self.rules.integer:
                return self.write_on_integers(coded)
            return self.write_convolution(self.weights(), self.constants.bias)
        return self.write_convolution(self.real_weights(), self.constants.bias)

    def real_weights(self) -> str:
        """Return the weights that are no codes, from the type that they are stored in."""
        weights, stored_type = self.constants.reals, self.operation.precision.stored
        if stored_type not in NARROW:
            return self.constant("weights", weights)
        bits = narrowed(weights, stored_type.dtype)
        constant = self.graph.packed(self.name("weights"), NARROW[stored_type][0], bits.shape, bits.tobytes())
        return self.graph.node("Cast", [constant], self.name("weights_widened"), to=FLOAT)

    @cached_property
    def weight_codes(self) -> str:
        """Return the tensor of the weight codes, in 8 bits.

        Codes of 4 bits become that when the file is loaded: engines convolve codes of 8 bits only, and DequantizeLinear of 4
        bits leaves them with reals.
        """
        weights, precision, node = self.constants.codes, self.operation.precision, self.graph.node
        if not precision.is_narrow:
            return self.constant("weights", weights)
        codes, multipliers = split_blocks(weights, precision.weight_bits)
        if (multipliers == 1).all():
            constant = self.graph.packed(self.name("weights"), INT4, weights.shape, pack_bits(weights, precision.weight_bits))
        else:
            # Of nodes that engines compute once, when they load the file.
            constant = self.graph.packed(self.name("weights"), INT4, codes.shape, pack_bits(codes, precision.weight_bits))
            factors = [
                node("Cast", [factor], self.name("weights_factor"), to=FLOAT)
                for factor in (constant, self.constant("weights_multipliers", multipliers))
            ]
            product = node("Mul", factors, self.name("weights_product"))
            shape = self.constant("weights_shape", np.array([len(codes), -1, *weights.shape[2:]], np.int64))
            constant = node("Reshape", [product, shape], self.name("weights_reshaped"))
            if codes.shape[1] * codes.shape[2] > weights.shape[1]:
                ends = [
                    self.constant(role, np.array([value], np.int64))
                    for role, value in (("first", 0), ("channels", weights.shape[1]), ("axis", 1))
                ]
                constant = node("Slice", [constant, *ends], self.name("weights_cut"))
        return node("Cast", [constant], self.name("weights_codes"), to=INT8)

    def write_convolution(self, weights: str, bias: NDArray[np.float32], role: str = "conv") -> str:
        inputs = [real_of(self.graph, self.x, self.name(role)), weights, self.constant("bias", bias)]
        return self.graph.node("Conv", inputs, self.name(role), **self.window)

    def weights(self, factor: float = 1.0) -> str:
        """Return what the weight codes mean, times a factor."""
        codes, scales = self.weight_codes, self.scales * np.float32(factor)
        if self.rules.fused_only and not self.is_in_codes:
            # Engines fold these into real weights, which DequantizeLinear keeps them from.
            reals = self.graph.node("Cast", [codes], self.name("weights_widened"), to=FLOAT)
            factors = self.constant("weights_scale", scales.reshape(-1, 1, 1, 1))
            return self.graph.node("Mul", [reals, factors], self.name("weights_dequantize"))
        zeros = self.graph.constant("weights_zero_point", np.zeros(len(scales), np.int8))
        return self.graph.node(
            "DequantizeLinear", [codes, self.constant("weights_scale", scales), zeros], self.name("weights_dequantize"), axis=0
        )

    @property
    def scales(self) -> NDArray[np.float32]:
        scales = self.constants.weight_scale
        assert scales is not None
        return scales

    def write_on_integers(self, x: Coded) -> str:
        """Write biased sums of codes whose scale is known when they are."""
        sums = self.graph.node("ConvInteger", [x.tensor, self.weight_codes, x.zero_point], self.name("conv"), **self.window)
        reals = self.graph.node("Cast", [sums], self.name("sums"), to=FLOAT)
        factor = self.graph.node(
            "Mul", [x.scale, self.constant("weights_scale", self.scales.reshape(1, -1, 1, 1))], self.name("factor")
        )
        scaled = self.graph.node("Mul", [reals, factor], self.name("scaled"))
        return self.graph.node(
            "Add", [scaled, self.constant("bias", self.constants.bias.reshape(1, -1, 1, 1))], self.name("biased")
        )

    @property
    def is_codes_to_codes(self) -> bool:
        """Return whether it reads codes of a fixed scale and stores codes by the rounding that engines have."""
        quantize, coded = self.operation.quantize, self.x.coded
        return (
            self.constants.weight_scale is not None
            and coded is not None
            and coded.params is not None
            and not is_wide(coded.params)
            and quantize is not None
            and quantize.scheme.bits == 8
            and quantize.scheme.rounding == "half_to_even"
        )

    @property
    def is_leaky_pair(self) -> bool:
        """Return whether it is written as two convolutions, see `Rules.leaky_depth`."""
        pays = self.rules.leaky_depth is not None and self.layer.depth >= self.rules.leaky_depth
        return self.rules.fused_only and pays and self.activation == "leaky" and self.is_codes_to_codes

    @property
    def is_in_codes(self) -> bool:
        """Return whether an engine that convolves codes only where it stores codes does so here."""
        quantize = self.operation.quantize
        clamps = self.activation in CLAMPS and quantize is not None and quantize.scheme.low == -SHIFT
        return self.is_leaky_pair or self.result_codes is not None or (clamps and self.is_codes_to_codes)

    @cached_property
    def result_codes(self) -> QuantParams | None:
        """Return codes of its result where `Rules.coded_sums` has them; None where it has none, or nothing says their range."""
        quantize, coded, index = self.operation.quantize, self.x.coded, self.layer.index
        if not self.rules.coded_sums or self.constants.weight_scale is None or coded is None or coded.params is None:
            return None
        bounds = self.options.ranges.get(index) if quantize is None else quantize.range
        scheme = self.options.of(index).activations if quantize is None else quantize.scheme
        if bounds is None or is_wide(coded.params) or scheme.rounding != "half_to_even" or scheme.low != -SHIFT:
            return None
        return range_to_params(*bounds, scheme) if self.activation in (*CLAMPS, "leaky") else None

    def write_through_codes(self, params: QuantParams) -> Value:
        """Write sums in codes where an activation other than a clamp follows, and the result in codes."""
        sums = self.write_sums()
        if self.activation == "leaky":
            low, high = ((code - params.zero_point) * params.scale for code in (-SHIFT, SHIFT - 1))
            bounds = sums_before("leaky", low, high)
            assert bounds is not None
            scheme = self.options.of(self.layer.index).activations
            sums = add_pair(self.graph, sums, self.name("sums"), range_to_params(*bounds, scheme)).real
        return add_pair(self.graph, self.activate(sums), self.name("result"), params)

    def write_leaky_pair(self) -> Value:
        """Write the codes of LeakyReLU without it: of the sums, and of a tenth of the sums, the larger.

        Both have the codes' scale. Above 0 the first is right and no smaller than the second, below 0 the other way round;
        what lies outside the codes is clamped, which never makes the wrong one the larger.
        """
        quantize = self.operation.quantize
        assert quantize is not None
        assert quantize.range is not None
        params = range_to_params(*quantize.range, quantize.scheme)
        code_map = add_fixed_map(self.graph, self.name("result"), params)
        candidates = []
        for role, factor in (("conv", 1.0), ("conv_tenth", LEAKY_SLOPE)):
            sums = self.write_convolution(self.weights(factor), self.constants.bias * np.float32(factor), role)
            candidates.append(self.graph.node("QuantizeLinear", [sums, *code_map], self.name(f"{role}_quantize")))
        if params.low > -SHIFT:
            candidates.append(self.graph.constant("lowest_code", np.uint8(params.low + SHIFT)))
        return dequantize_codes(self.graph, self.graph.node("Max", candidates, self.name("leaky")), self.name("result"), params)


def convolve(
    graph: OnnxGraph, prepared: Prepared, operation: Convolve, x: Value, rules: OnnxRules, options: EngineOptions
) -> Value:
    """Write a convolution with bias and activation.

    The result is coded if the operation quantises it, else reals that are not yet rounded to anything, or are to be quantised
    later.
    """
    layer = operation.layer_of(prepared.network)
    writer = _Writer(graph, layer, operation, prepared.constants(operation.alone), rules, x, options)
    if writer.is_leaky_pair:
        return writer.write_leaky_pair()
    if writer.result_codes is not None:
        return writer.write_through_codes(writer.result_codes)
    sums = writer.write_sums()
    if operation.quantize is None:
        return Value(writer.activate(sums))
    if rules.fused_only and not writer.is_in_codes and writer.activation in MONOTONIC:
        return Value(sums, pending=Pending(layer.index, writer.activation, operation.quantize))
    return quantize_value(graph, writer.activate(sums), writer.name("result"), operation.quantize)
