# SPDX-License-Identifier: MIT
"""The operations that ncnn can express: docs/export-ncnn.md."""

from __future__ import annotations

import numpy as np

from mpnet.engine.operations import Shuffle
from mpnet.engine.options import LayerQuantization
from mpnet.export.basic import find_problem
from mpnet.model.network import LayerSpec, UpsampleSpec
from mpnet.model.precision import FLOAT16, Precision

MODES = ("symmetric", "power_of_two")


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    """Return '' or why a layer cannot be expressed."""
    if problem := find_problem(layer, "ncnn", lambda operation: isinstance(operation, Shuffle)):
        return problem
    if isinstance(layer, UpsampleSpec) and not copies_exactly(layer):
        return f"its nearest neighbour misses pixels at a factor of {layer.factor} on {layer.in_shape[1]}x{layer.in_shape[0]}"
    if precision.accumulates == FLOAT16.name:
        return "it has no sums in half in a fixed order; fp16 stores the same tensors"
    if not precision.carries_scale:
        return ""
    scheme = quantization.activations
    if scheme.mode not in MODES:
        return f"ncnn's int8 is symmetric, not {scheme.mode}; set quantization.activations.mode to symmetric"
    if not quantization.calibrated:
        return "ncnn takes ranges that are fixed beforehand; set quantization.activations.ranges to calibrated"
    if scheme.rounding == "truncate":
        return "ncnn rounds to the nearest code, never towards zero; set quantization.activations.rounding to half_to_even"
    return ""


def copies_exactly(layer: UpsampleSpec) -> bool:
    """Return whether float32(1 / factor) times a position, cut off, is the position that it is copied from, as ncnn counts."""
    for size in layer.in_shape[:2]:
        positions = np.arange(size * layer.factor)
        sources = (positions.astype(np.float32) * (np.float32(size) / np.float32(size * layer.factor))).astype(np.int64)
        if not np.array_equal(np.minimum(sources, size - 1), positions // layer.factor):
            return False
    return True
