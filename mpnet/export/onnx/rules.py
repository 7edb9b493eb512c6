"""How each engine wants the same arithmetic written: one row per flavour, found by measuring (docs/export-onnx.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """One flavour.

    what:         the engine, for people.
    coded_sums:   whether an int8 convolution's sums go through 8 bits before an activation that is no clamp: without,
                  the engine's convolution would run in fp32.
    coded_moves:  whether what moves codes without changing them (pooling, slices, upsampling) gets a pair of its own
                  behind it: without, the engine would move reals.
    half:         how a result is rounded to half: "cast" there and back, or "split", where an engine drops such casts.
    integer:      whether convolutions of dynamic ranges are written on integers; else on the reals that codes mean.
    """

    what: str
    coded_sums: bool = False
    coded_moves: bool = False
    half: str = "cast"
    integer: bool = True


FLAVOURS: dict[str, Rules] = {
    "openvino": Rules("OpenVINO", half="split", integer=False),
    "onnxruntime": Rules("ONNX Runtime", coded_sums=True, coded_moves=True),
}
