# SPDX-License-Identifier: MIT
"""Boxes of heads that give more than boxes, oriented ones, or take the best without suppression, are those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnxruntime as ort
import pytest

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry
from mpnet.importing import Imported
from tests.importing.conftest import heads_of
from tests.importing.graphs import Builder, _grid

SIDE, CLASSES, STRIDES = 64, 3, (8, 16, 32)
CELLS = sum((SIDE // stride) ** 2 for stride in STRIDES)


def _boxes(b: Builder, bins: int, distances: str, corners: bool, angle: str = "") -> str:
    if bins > 1:
        bin_scores = b.node("Transpose", [b.reshape(distances, [1, 4, bins, CELLS])], perm=[0, 2, 1, 3])
        bin_numbers = b.constant(np.arange(bins).reshape(1, bins, 1, 1))
        distances = b.reshape(b.node("Conv", [b.node("Softmax", [bin_scores], axis=1), bin_numbers]), [1, 4, CELLS])
    left_top, right_bottom = b.node("Split", [distances, b.constant([2, 2], np.int64)], 1, 2, axis=1)
    points = b.constant(np.concatenate([_grid(SIDE, s).reshape(2, -1) + 0.5 for s in STRIDES], 1)[None])
    if angle:
        x, y = b.node("Split", [b.node("Div", [b.node("Sub", [right_bottom, left_top]), b.constant(2.0)])], 1, 2, axis=1)
        sine, cosine = b.node("Sin", [angle]), b.node("Cos", [angle])
        products = [[b.node("Mul", [coordinate, turn]) for turn in (cosine, sine)] for coordinate in (x, y)]
        turned = [b.node("Sub", [products[0][0], products[1][1]]), b.node("Add", [products[0][1], products[1][0]])]
        middle = b.node("Add", [b.node("Concat", turned, axis=1), points])
        scale = b.constant(np.concatenate([np.full((SIDE // s) ** 2, s) for s in STRIDES])[None, None])
        return str(b.node("Mul", [b.node("Concat", [middle, b.node("Add", [left_top, right_bottom])], axis=1), scale]))
    low, high = b.node("Sub", [points, left_top]), b.node("Add", [points, right_bottom])
    middle = b.node("Div", [b.node("Add", [low, high]), b.constant(2.0)])
    sides = [low, high] if corners else [middle, b.node("Sub", [high, low])]
    scale = b.constant(np.concatenate([np.full((SIDE // s) ** 2, s) for s in STRIDES])[None, None])
    return str(b.node("Mul", [b.node("Concat", sides, axis=1), scale]))


def detector(kind: str, joined: bool) -> Any:
    """Build a small network with a head of the kind: masks (with prototypes), keypoints, angles, or the best boxes as
    they are. joined: whether bins and classes are one tensor of each grid, as older exporters write them."""
    b = Builder(SIDE)
    bins = 1 if kind == "best" else 16
    extra_channels = {"masks": 8, "keypoints": 6, "oriented": 1, "oriented by values": 1}.get(kind, 0)
    widths = [4 * bins + CLASSES] if joined else [4 * bins, CLASSES]
    widths += [extra_channels] if extra_channels else []
    x, levels_of = "images", [[] for _ in widths]
    for stride in (2, 4, *STRIDES):
        x = b.conv(x, 8, 3, 2, act="Relu")
        if stride in STRIDES:
            heads = [b.conv(x, channels) for channels in (4 * bins, CLASSES, extra_channels) if channels]
            if joined:
                heads[:2] = [b.node("Concat", heads[:2], axis=1)]
            for level_rows, head, channels in zip(levels_of, heads, widths, strict=True):
                level_rows.append(b.reshape(head, [1, channels, -1]))
        if stride == STRIDES[0]:
            prototypes = b.conv(b.upsample(x), 8)
    tables = [b.node("Concat", level_rows, axis=2) for level_rows in levels_of]
    if joined:
        tables[:1] = b.node("Split", [tables[0], b.constant([4 * bins, CLASSES], np.int64)], 1, 2, axis=1)
    distances, scores, *extras = tables
    scores = b.node("Sigmoid", [scores])
    if kind == "oriented":
        turns = b.node("Sub", [b.node("Sigmoid", extras), b.constant(0.25)])
        extras = [b.node("Mul", [turns, b.constant(np.pi)])]
    boxes = _boxes(b, bins, distances, kind == "best", extras[0] if kind.startswith("oriented") else "")
    if kind != "best":
        return b.model([b.node("Concat", [boxes, scores, *extras], axis=1), *([prototypes] if kind == "masks" else [])])
    table = b.node("Transpose", [b.node("Concat", [boxes, scores], axis=1)], perm=[0, 2, 1])
    boxes, scores = b.node("Split", [table, b.constant([4, CLASSES], np.int64)], 1, 2, axis=2)
    best = b.node("ReduceMax", [scores], axes=[-1], keepdims=0)
    _, order = b.node("TopK", [best, b.constant([20], np.int64)], 1, 2, axis=-1)
    return b.model([b.node("Gather", [b.reshape(table, [CELLS, 4 + CLASSES]), b.reshape(order, [20])], axis=0)])


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kind", ["masks", "keypoints", "best", "oriented", "oriented by values"])
def test_boxes_are_onnx_runtimes(kind: str, joined: bool, importing: Callable[..., tuple[Path, Imported]]) -> None:
    path, imported = importing(detector(kind, joined))
    network = imported.network
    x = np.random.default_rng(2).random((1, *network.in_shape), np.float32)
    table = ort.InferenceSession(path).run(None, {"images": x.transpose(0, 3, 1, 2)})[0]
    table = table[0].T if kind != "best" else table
    boxes = np.concatenate([(table[:, :2] + table[:, 2:4]) / 2, table[:, 2:4] - table[:, :2]], 1) if kind == "best" else table
    if kind.startswith("oriented"):
        # The upright box around the oriented one.
        cosine, sine = np.abs(np.cos(table[:, -1:])), np.abs(np.sin(table[:, -1:]))
        width, height = table[:, 2:3], table[:, 3:4]
        boxes = np.concatenate([table[:, :2], width * cosine + height * sine, width * sine + height * cosine], 1)
    geometry = plan_geometry(SIDE, SIDE, SIDE, SIDE, "stretch")
    decoded = [
        decode_head(x, head, [geometry], 0.0) for x, head in zip(heads_of(imported, x), yolo_heads(network), strict=True)
    ]
    decoded_boxes = np.concatenate(
        [np.c_[candidates.category, candidates.score, candidates.box * SIDE] for candidates in decoded]
    )
    for row, box in zip(table, boxes, strict=True):
        for category, score in enumerate(row[4 : 4 + CLASSES]):
            expected = [category, score, *box[:4]]
            # Some thirty float32 roundings of pixels up to 128; oriented boxes are longer.
            assert np.abs(decoded_boxes - expected).max(axis=1).min() <= 2e-4 * max(1, np.abs(box[:4]).max() / 128)
    decoders = [yolo.decoder for yolo in network.yolos]  # type: ignore[attr-defined]
    assert decoders == ["yolov8_obb" if kind.startswith("oriented") else "yolov8"] * 3 + ["none"] * {
        "masks": 4,
        "keypoints": 3,
    }.get(kind, 0)
    assert imported.nms == (1.0 if kind == "best" else None)
    assert len(imported.names) == CLASSES
