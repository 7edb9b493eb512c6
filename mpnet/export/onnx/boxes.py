# SPDX-License-Identifier: MIT
"""Boxes in the graph: decoding as mpnet.detection does it, then non-maximum suppression per class."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpnet.arrays import Array
from mpnet.errors import ConfigError
from mpnet.export.onnx.graph import OnnxGraph
from mpnet.model.layers import YoloSpec
from mpnet.model.network import NetworkSpec


def refuse_kind(kind: str) -> None:
    """Check the kind of suppression. Raises: ConfigError for one that ONNX's operator does not know."""
    if kind != "default":
        raise ConfigError(
            f"--with-boxes: nms_kind {kind} cannot be written, ONNX's NonMaxSuppression compares IoU only; "
            "measure with detection.nms_kind=default, or export without boxes"
        )


def write_boxes(
    graph: OnnxGraph, network: NetworkSpec, tensors: Sequence[str], confidence: float, nms: float
) -> tuple[str, str, str]:
    """Append the detections of one image, best first within each class, classes rising.

    tensors: the one that enters each yolo layer, (1, c, h, w).
    Result: boxes (n, 4) float32, centre and size relative to the network's input; scores (n,); classes (n,) int64.
    """
    if not network.yolos:
        raise ConfigError("--with-boxes: the network has no [yolo] layer; export without boxes")
    for head in network.yolos:
        if type(head) is not YoloSpec:
            raise ConfigError(f"--with-boxes: boxes of [{head.kind}] ({head.name}) cannot be written; export without boxes")
    decoded = [_decode(graph, network, yolo, tensor) for yolo, tensor in zip(network.yolos, tensors, strict=True)]
    boxes, scores = (
        tensors_of_heads[0]
        if len(tensors_of_heads) == 1
        else graph.node("Concat", tensors_of_heads, f"boxes_all_{role}", axis=1)
        for role, tensors_of_heads in (
            ("boxes", [boxes for boxes, _ in decoded]),
            ("scores", [scores for _, scores in decoded]),
        )
    )
    by_class = graph.node("Transpose", [scores], "boxes_scores_by_class", perm=[0, 2, 1])
    # No limit of its own: mpnet's own suppression has none.
    count = sum(yolo.in_shape[0] * yolo.in_shape[1] * len(yolo.mask) for yolo in network.yolos)
    limits = [
        graph.constant("boxes_limit", np.array([count], np.int64)),
        graph.constant("boxes_nms", np.array([nms], np.float32)),
        graph.constant("boxes_confidence", np.array([confidence], np.float32)),
    ]
    selected = graph.node("NonMaxSuppression", [boxes, by_class, *limits], "boxes_kept", center_point_box=1)
    axis = [graph.constant(f"number_{n}", np.array([n], np.int64)) for n in (1, 2, 3)]
    classes = graph.node("Slice", [selected, axis[0], axis[1], axis[0]], "boxes_class_column")
    box_indices = graph.node("Slice", [selected, axis[1], axis[2], axis[0]], "boxes_place_column")
    classes, box_indices = (graph.node("Squeeze", [x, axis[0]], f"{x}_flat") for x in (classes, box_indices))
    selected_scores = graph.node("GatherND", [by_class, selected], "boxes_scores_kept")
    flat = graph.node("Squeeze", [boxes, graph.constant("number_0", np.array([0], np.int64))], "boxes_flat")
    return graph.node("Gather", [flat, box_indices], "boxes_boxes_kept", axis=0), selected_scores, classes


def _decode(graph: OnnxGraph, network: NetworkSpec, yolo: YoloSpec, head: str) -> tuple[str, str]:
    """Return boxes (1, n, 4) and scores (1, n, classes) of one head, by row, column and anchor."""
    name = f"layer_{yolo.index:03d}"
    height, width, _ = yolo.in_shape
    anchors, values = len(yolo.mask), 5 + yolo.classes

    def constant(role: str, array: list[int] | Array) -> str:
        return graph.constant(f"{name}_{role}", np.asarray(array))

    channels_last = graph.node("Transpose", [head], f"{name}_nhwc", perm=[0, 2, 3, 1])
    rows = graph.node("Reshape", [channels_last, constant("rows_shape", [1, height * width * anchors, values])], f"{name}_rows")
    centre, size, objectness, classes = graph.nodes(
        "Split",
        [rows, constant("parts", [2, 2, 1, yolo.classes])],
        [f"{name}_{role}" for role in ("raw_centre", "raw_size", "raw_objectness", "raw_classes")],
        axis=2,
    )
    if not yolo.new_coords:
        centre, objectness, classes = (graph.node("Sigmoid", [x], f"{x}_logistic") for x in (centre, objectness, classes))
        size = graph.node("Exp", [size], f"{size}_exp")
    else:
        size = graph.node("Mul", [size, size], f"{size}_squared")
    cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 1, 2)
    shift = np.float32(0.5) * np.float32(yolo.scale_x_y - 1.0)
    stretched = graph.node("Mul", [centre, graph.constant(f"{name}_stretch", np.float32(yolo.scale_x_y))], f"{name}_stretched")
    offsets = np.broadcast_to(cells, (len(cells), anchors, 2)).reshape(1, -1, 2).astype(np.float32) - shift
    placed = graph.node("Add", [stretched, graph.constant(f"{name}_cells", offsets)], f"{name}_placed")
    grid = graph.constant(f"{name}_grid", np.array([width, height], np.float32))
    centre = graph.node("Div", [placed, grid], f"{name}_centre")
    relative = np.array(yolo.head_anchors, np.float32) * (4 if yolo.new_coords else 1) / [network.width, network.height]
    sizes = np.broadcast_to(relative, (len(cells), anchors, 2)).reshape(1, -1, 2).astype(np.float32)
    size = graph.node("Mul", [size, graph.constant(f"{name}_anchors", sizes)], f"{name}_size")
    boxes = graph.node("Concat", [centre, size], f"{name}_boxes", axis=2)
    return boxes, graph.node("Mul", [classes, objectness], f"{name}_scores")
