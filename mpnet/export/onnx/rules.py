# SPDX-License-Identifier: MIT
"""The forms of the same arithmetic that engines want: one row per flavour, found by measuring (docs/export-onnx.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OnnxRules:
    """One flavour.

    program:       the engine, for people.
    fused_only:   the engine convolves codes only where it stores codes, with no activation between that is no clamp. What
                  it convolves as reals gets weights that fold into reals when loaded, and is quantised after what moves
                  its result: the engine moves reals faster. What moves codes gets a pair of its own behind it.
    leaky_depth:  with fused_only, an int8 convolution with LeakyReLU whose result is quantised is written as two that
                  store codes and the larger of both, where it sums at least this many products; below, one convolution
                  of reals is faster. None: never.
    coded_sums:   with fused_only, calibrated int8 convolutions store codes whoever reads them, also before LeakyReLU, as the
                  engine's own quantiser writes them: most layers run in int8, with one more rounding each.
    half:         how a result is rounded to 16 bits: "cast" there and back, or "split", where an engine drops such casts.
    integer:      whether convolutions of dynamic ranges are written on integers; else on the reals that codes mean.
    precisions:   those it takes besides fp32, fp16 and int8.
    """

    program: str
    fused_only: bool = False
    leaky_depth: int | None = 0
    coded_sums: bool = False
    rounding_to_16_bits: str = "cast"
    integer: bool = True
    precisions: tuple[str, ...] = ("bf16", "int4", "int16", "int16w4")


FLAVOURS: dict[str, OnnxRules] = {
    "openvino": OnnxRules("OpenVINO", rounding_to_16_bits="split", integer=False),
    "onnxruntime": OnnxRules("ONNX Runtime", fused_only=True, leaky_depth=32),
    "onnxruntime-fast": OnnxRules(
        "ONNX Runtime, as its own quantiser writes", fused_only=True, leaky_depth=None, coded_sums=True
    ),
}
