"""How each engine wants the same arithmetic written: one row per flavour, found by measuring (docs/export-onnx.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """One flavour.

    what:         the engine, for people.
    leaky_pair:   an int8 convolution with LeakyReLU whose result is quantised is written as two that store codes and
                  the larger of both, where it sums at least `leaky_depth` products: the engine's int8 convolution cannot
                  do LeakyReLU, and with one behind it would run in fp32.
    leaky_depth:  below, two int8 convolutions are slower than one in fp32.
    coded_moves:  whether what moves codes without changing them (pooling, slices, upsampling) gets a pair of its own
                  behind it: without, the engine would move reals.
    half:         how a result is rounded to half: "cast" there and back, or "split", where an engine drops such casts.
    integer:      whether convolutions of dynamic ranges are written on integers; else on the reals that codes mean.
    """

    what: str
    leaky_pair: bool = False
    leaky_depth: int = 0
    coded_moves: bool = False
    half: str = "cast"
    integer: bool = True


FLAVOURS: dict[str, Rules] = {
    "openvino": Rules("OpenVINO", half="split", integer=False),
    "onnxruntime": Rules("ONNX Runtime", leaky_pair=True, leaky_depth=32, coded_moves=True),
}
