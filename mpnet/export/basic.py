# SPDX-License-Identifier: MIT
"""Layers made of the operations that other engines' formats are written for; the rest only mpnet runs."""

from __future__ import annotations

from typing import Callable

from mpnet.engine.operations import Add, AvgPool, Concat, Convolve, MaxPool, Operation, Slice, Upsample, Yolo
from mpnet.engine.options import LayerQuantization
from mpnet.engine.rules import RULES
from mpnet.model.layers import ConvolutionSpec, DetectionSpec, LayerSpec
from mpnet.model.precision import FP32

_OPERATIONS = (Add, AvgPool, Concat, Convolve, MaxPool, Slice, Upsample, Yolo)


def find_problem(layer: LayerSpec, form: str, is_written: Callable[[Operation], bool] = lambda operation: False) -> str:
    """Return '' or why a layer has no form in `form`, such as `ONNX`. is_written: whether it writes another operation."""
    rule = RULES[type(layer)]
    input_slice = None if rule.slice_input is None else rule.slice_input(layer, layer.in_shape)
    operations = [*rule.operations(layer, FP32, LayerQuantization()), *(() if input_slice is None else (input_slice,))]
    unknown = [
        operation.name for operation in operations if not isinstance(operation, _OPERATIONS) and not is_written(operation)
    ]
    if unknown:
        return f"[{layer.kind}] takes {unknown[0]} here, which has no form in {form} that mpnet writes"
    other_head = isinstance(layer, DetectionSpec)
    flattened = isinstance(layer, ConvolutionSpec) and layer.kernel_input != layer.in_shape
    return f"[{layer.kind}] has no form in {form} that mpnet writes" if other_head or flattened else ""
