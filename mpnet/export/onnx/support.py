# SPDX-License-Identifier: MIT
"""The limits of ONNX: of each layer at each precision, '' or why not. Asked of the operations that the layer is made of."""

from __future__ import annotations

from mpnet.engine.operations import Convolve
from mpnet.engine.options import LayerQuantization
from mpnet.engine.rules import RULES
from mpnet.export.onnx.operations import problem
from mpnet.model.layers import LayerSpec, MaxpoolSpec, ShortcutSpec
from mpnet.model.precision import Precision
from mpnet.quantization.scheme import ActivationScheme


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    """See mpnet.export.Support; the flavours hold the same, each in its own way."""
    rule = RULES.get(type(layer))
    if rule is None:
        return f"[{layer.kind}] has no form in ONNX that mpnet writes"
    if precision.accumulates == "float16":
        return "sums in half by a fixed order are mpnet's own arithmetic; fp16 stores the same tensors"
    input_slice = None if rule.slice_input is None else rule.slice_input(layer, layer.in_shape)
    for operation in (*rule.operations(layer, precision, quantization), *([input_slice] if input_slice else [])):
        reason = "" if operation.is_head or isinstance(operation, Convolve) else problem(operation)
        if reason:
            return reason
    if isinstance(layer, ShortcutSpec) and any(shape[:2] != layer.in_shape[:2] for shape in layer.other_shapes):
        return "a sum of tensors of different sizes has no form in ONNX that mpnet writes"
    if isinstance(layer, MaxpoolSpec) and layer.depth and layer.in_shape[2] % layer.depth:
        return "a maximum across channels that do not divide evenly has no form in ONNX that mpnet writes"
    if not precision.carries_scale:
        return ""
    if not precision.multiplies_bytes and not quantization.calibrated:
        return f"{precision} ranges cannot be measured in ONNX; set quantization.activations.ranges to calibrated"
    return scheme_problem(quantization.codes_of(precision), quantization.calibrated)


def scheme_problem(scheme: ActivationScheme, calibrated: bool) -> str:
    """Return '' or why ONNX cannot hold codes of a scheme."""
    if scheme.mode == "MIN_COMBINED":
        return "codes of MIN_COMBINED have none for the real 0, which ONNX asks for; use affine"
    if calibrated:
        return ""
    if scheme.mode not in ("affine", "symmetric") or scheme.rounding != "half_to_even":
        return f"ranges of mode {scheme.mode} with rounding {scheme.rounding} cannot be measured in ONNX; calibrate them"
    return ""
