"""What ONNX can hold: of each layer at each precision, '' or why not."""

from __future__ import annotations

from mpnet.engine.options import LayerQuantization
from mpnet.export.basic import beyond
from mpnet.quantization.scheme import ActivationScheme
from mpnet.spec.layers import LayerSpec, MaxpoolSpec
from mpnet.spec.precision import Precision


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    """See mpnet.export.Support; the flavours hold the same, each in its own way."""
    if problem := beyond(layer, "ONNX"):
        return problem
    if precision.accumulates == "float16":
        return "sums in half by a fixed order are mpnet's own arithmetic; fp16 stores the same tensors"
    if isinstance(layer, MaxpoolSpec) and layer.padding - layer.padding // 2 >= layer.size:
        return f"ONNX pads a pooling by less than its window; this one of {layer.size} pads {layer.padding}"
    return scheme_problem(quantization.activations, quantization.calibrated) if precision.carries_scale else ""


def scheme_problem(scheme: ActivationScheme, calibrated: bool) -> str:
    """'' or why ONNX cannot hold codes of a scheme."""
    if scheme.mode == "MIN_COMBINED":
        return "codes of MIN_COMBINED have none for the real 0, which ONNX asks for; use affine"
    if calibrated:
        return ""
    if scheme.mode not in ("affine", "symmetric") or scheme.rounding != "half_to_even":
        return f"ranges of mode {scheme.mode} with rounding {scheme.rounding} cannot be measured in ONNX; calibrate them"
    return ""
