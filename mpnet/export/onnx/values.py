# SPDX-License-Identifier: MIT
"""Tensors of a plan as an ONNX graph holds them, and the conversions between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpnet.engine.operations import Quantize
from mpnet.export.onnx.graph import BFLOAT16 as BFLOAT16_TENSOR
from mpnet.export.onnx.graph import FLOAT, HALF, OnnxGraph
from mpnet.export.onnx.rules import OnnxRules
from mpnet.model.precision import BFLOAT16, FLOAT16, StoredType
from mpnet.quantization.scheme import QuantParams, range_to_params

# Codes are written as uint8: OpenVINO gives wrong results for int8 activations, and x86 multiplies uint8 by int8.
SHIFT = 128
# Reals of 16 bits: their number in ONNX, and s for which (2^s x + x) - 2^s x has as many leading bits of a float32 x as they
# have, rounded to nearest: Veltkamp's splitting with a factor that multiplies exactly, so that it is the same whatever an
# engine contracts or folds into the layer before.
NARROW = {FLOAT16: (HALF, 13), BFLOAT16: (BFLOAT16_TENSOR, 16)}


@dataclass(frozen=True)
class Coded:
    """Codes: tensor of uint8, or int16, and the names of its scale and zero point; params: of a calibrated range, else None."""

    tensor: str
    scale: str
    zero_point: str
    params: QuantParams | None = None


@dataclass(frozen=True)
class Pending:
    """The operations that a layer's reals lack before anything computes with them.

    It is an activation, then codes, or without a Quantize rounding to what is stored.

    All of it keeps the order of values, so that a pooling or a slice may come before and leave less to be done.
    """

    layer: int
    activation: str
    quantize: Quantize | None
    stored_type: StoredType = FLOAT16


@dataclass(frozen=True)
class Value:
    """One slot.

    real:  float32 tensor of what it means, '' where only the codes are written. coded: its codes.
    later: what `real` still lacks.
    """

    real: str
    coded: Coded | None = None
    pending: Pending | None = None


def add_pair(graph: OnnxGraph, x: str, name: str, params: QuantParams) -> Value:
    """Take a float32 tensor through codes of a fixed scale and back: what engines fuse with its neighbours."""
    codes = graph.node("QuantizeLinear", [x, *add_fixed_map(graph, name, params)], f"{name}_quantize")
    return dequantize_codes(graph, codes, name, params)


def dequantize_codes(graph: OnnxGraph, codes: str, name: str, params: QuantParams) -> Value:
    """Write codes of a fixed scale with what they mean."""
    scale, zero_point = add_fixed_map(graph, name, params)
    real = graph.node("DequantizeLinear", [codes, scale, zero_point], f"{name}_dequantize")
    return Value(real, Coded(codes, scale, zero_point, params))


def add_fixed_map(graph: OnnxGraph, name: str, params: QuantParams) -> tuple[str, str]:
    """Return the names of the scale and the zero point of calibrated codes."""
    zero_point = np.int16(params.zero_point) if is_wide(params) else np.uint8(params.zero_point + SHIFT)
    return graph.constant(f"{name}_scale", np.float32(params.scale)), graph.constant(f"{name}_zero_point", zero_point)


def is_wide(params: QuantParams) -> bool:
    """Return whether codes have 16 bits."""
    return params.high >= SHIFT


def quantize_value(graph: OnnxGraph, x: str, name: str, quantize: Quantize) -> Value:
    """Append what a Quantize step gives."""
    if quantize.range is None:
        return _quantize_dynamically(graph, x, name, quantize)
    params = range_to_params(*quantize.range, quantize.scheme)
    return add_pair(graph, _snap_to_steps(graph, x, name, params), name, params)


def _snap_to_steps(graph: OnnxGraph, x: str, name: str, params: QuantParams) -> str:
    """Write x moved onto multiples of the scale by the scheme's own rounding, where QuantizeLinear's differs.

    It is kept above the lowest code where the scheme uses fewer than QuantizeLinear.
    """
    if params.low > -SHIFT:
        lowest = graph.constant(f"{name}_lowest", np.float32((params.low - params.zero_point) * params.scale))
        x = graph.node("Max", [x, lowest], f"{name}_low")
    if params.rounding == "half_to_even":
        return x
    t = graph.node("Mul", [x, graph.constant(f"{name}_inv_scale", np.float32(params.inv_scale))], f"{name}_steps")
    steps = graph.node("Abs", [t], f"{name}_magnitude")
    if params.rounding == "half_away":
        # The float32 below one half, so that what lies just below a half does not become a whole by the addition.
        steps = graph.node("Add", [steps, graph.constant("below_half", np.float32(0.49999997))], f"{name}_up")
    steps = graph.node("Floor", [steps], f"{name}_whole")
    signed = graph.node("Mul", [steps, graph.node("Sign", [t], f"{name}_sign")], f"{name}_rounded")
    return graph.node("Mul", [signed, graph.constant(f"{name}_scale", np.float32(params.scale))], f"{name}_snapped")


def _quantize_dynamically(graph: OnnxGraph, x: str, name: str, quantize: Quantize) -> Value:
    """Write codes by a range measured when the network runs."""
    if quantize.scheme.mode == "affine":
        codes, scale, zero_point = graph.nodes(
            "DynamicQuantizeLinear", [x], [f"{name}_{role}" for role in ("quantize", "scale", "zero_point")]
        )
    else:
        # Symmetric: the largest magnitude is code 127 of [-127, 127]. An all-zero tensor gets a scale all the same.
        largest = graph.node("ReduceMax", [graph.node("Abs", [x], f"{name}_magnitude")], f"{name}_largest", keepdims=0)
        step = graph.node("Div", [largest, graph.constant("codes_127", np.float32(127))], f"{name}_step")
        scale = graph.node("Max", [step, graph.constant("smallest_scale", np.float32(2.0**-100))], f"{name}_scale")
        zero_point = graph.constant("zero_point_128", np.uint8(SHIFT))
        codes = graph.node("QuantizeLinear", [x, scale, zero_point], f"{name}_quantize")
    return Value("", Coded(codes, scale, zero_point))


def real_of(graph: OnnxGraph, value: Value, name: str) -> str:
    """Return the float32 tensor of a slot, converted where it holds codes."""
    if value.real:
        return value.real
    assert value.coded is not None
    inputs = [value.coded.tensor, value.coded.scale, value.coded.zero_point]
    return graph.node("DequantizeLinear", inputs, f"{name}_dequantize")


def round_to_16_bits(graph: OnnxGraph, x: str, name: str, stored_type: StoredType, rules: OnnxRules) -> str:
    """Round x to the values that a type of 16 bits has, as float32."""
    number, split = NARROW[stored_type]
    if rules.rounding_to_16_bits == "cast":
        halves = graph.node("Cast", [x], f"{name}_half", to=number)
        return graph.node("Cast", [halves], f"{name}_widened", to=FLOAT)
    scaled = graph.node("Mul", [x, graph.constant(f"split_{split}", np.float32(2**split))], f"{name}_large")
    sum_ = graph.node("Add", [scaled, x], f"{name}_sum")
    return graph.node("Sub", [sum_, scaled], f"{name}_half")
