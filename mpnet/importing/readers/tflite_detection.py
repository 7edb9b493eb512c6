# SPDX-License-Identifier: MIT
"""TensorFlow Lite's operators behind the heads of detectors: box decoding with suppression, and suppression alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpnet.importing.graph import Node, Refused
from mpnet.importing.readers.tflite_graph import TfliteOperator

_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_LIMITS = {"iou_threshold": "nms_iou_threshold", "score_threshold": "nms_score_threshold", "max_output_boxes": "max_detections"}
_OPTIONS = (*_SCALES, *_LIMITS.values(), "num_classes")
_MAX_OPTIONS_BYTES = 1 << 16


def convert_suppression(operator: TfliteOperator) -> None:
    """Append NON_MAX_SUPPRESSION under its own name: boxes, scores, how many boxes, overlap, score."""
    builder = operator.builder
    inputs = [builder.operand(number, 1) for number in operator.inputs]
    builder.graph.nodes.append(Node("NON_MAX_SUPPRESSION", operator.name, inputs, _result_names(operator)))


def convert_detection(operator: TfliteOperator) -> None:
    """Append what TFLite_Detection_PostProcess computes up to its suppression, and the suppression as a node behind that.

    Its inputs are boxes (1, n, 4) as y, x, h, w, scores (1, n, classes) and priors (n, 4) as y, x, h, w in shares of the image.
    Scores may begin with those of the background, which it leaves out.
    """
    builder, name = operator.builder, operator.name
    options = _read_options(operator.custom_options)
    scales = [_read_positive(options, key) for key in _SCALES]
    boxes, scores = (builder.name(number) for number in operator.inputs[:2])
    rows, classes = builder.shape(operator.inputs[0]), builder.shape(operator.inputs[1])
    priors = builder.real(operator.inputs[2]).astype(np.float32)
    if len(rows) != 3 or rows[2] != 4 or len(classes) != 3 or priors.shape != rows[1:] or classes[1] != rows[1]:
        raise Refused("its boxes, scores and priors do not fit each other; name the tensors before it with --heads")
    background = classes[2] - int(_read_positive(options, "num_classes"))
    if background not in (0, 1):
        raise Refused(f"scores of {classes[2]} classes, of which it takes {classes[2] - background}; the file is damaged")

    def node(kind: str, role: str, *inputs: str, **attributes: object) -> str:
        return builder.node(kind, f"{name}/{role}", list(inputs), f"{name}/{role}", **attributes)

    def constant(role: str, values: Any) -> str:
        return builder.constant(f"{name}/{role}", np.asarray(values))

    def part(role: str, x: str, start: int, stop: int) -> str:
        bounds = [constant(f"{role} {end}", [at]) for end, at in (("from", start), ("to", stop), ("axis", 2))]
        return node("Slice", role, x, *bounds)

    shifts = part("shifts", boxes, 0, 2)
    factors = part("factors", boxes, 2, 4)
    sizes = priors[None, :, 2:]
    moved = node("Mul", "moved", shifts, constant("units", sizes / np.array(scales[:2], np.float32)))
    centres = node("Add", "centres", moved, constant("priors", priors[None, :, :2]))
    grown = node("Exp", "grown", node("Mul", "logarithms", factors, constant("shares", 1 / np.array(scales[2:], np.float32))))
    halves = node("Mul", "halves", grown, constant("half sizes", sizes / 2))
    sides = [node(kind, role, centres, halves) for kind, role in (("Sub", "near sides"), ("Add", "far sides"))]
    table = node("Concat", "boxes", *sides, axis=2)
    if background:
        scores = part("scores", scores, 1, classes[2])
    limits = {name: options[key] for name, key in _LIMITS.items() if key in options}
    builder.graph.nodes.append(Node("TFLite_Detection_PostProcess", name, [table, scores], _result_names(operator), limits))


def _result_names(operator: TfliteOperator) -> list[str]:
    return [operator.builder.name(number) for number in operator.outputs]


def _read_options(content: bytes) -> dict[str, float]:
    """Return the numbers among the options of a custom operator. Raises: Refused where they cannot be read."""
    from flatbuffers import flexbuffers

    if not 3 <= len(content) <= _MAX_OPTIONS_BYTES:
        raise Refused("its options are missing; the file is damaged")
    numbers: dict[str, float] = {}
    try:
        options = flexbuffers.GetRoot(bytearray(content)).AsMap
        for key in _OPTIONS:
            if key in {name.AsKey for name in options.Keys}:
                value = options[key]
                numbers[key] = value.AsFloat if value.IsFloat else value.AsInt
    except Exception as error:  # of a damaged file, whatever the package raises
        raise Refused(f"its options cannot be read ({type(error).__name__}); the file is damaged") from None
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _read_positive(options: dict[str, float], key: str) -> float:
    value = options.get(key, 0.0)
    if not 0 < value < 1 << 24:
        raise Refused(f"its option {key} is no positive number; the file is damaged")
    return value
