# SPDX-License-Identifier: MIT
"""TensorFlow Lite's operators behind the heads of SSD: boxes and scores are LiteRT's, suppression is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry
from mpnet.errors import FormatError
from mpnet.importing import Imported, import_model
from tests.importing.conftest import heads_of
from tests.importing.test_tflite import _edited, litert

pytest.importorskip("ai_edge_litert")

SIDE, CLASSES, BOXES = 32, 4, 2
GRIDS = (8, 4)
WORD = "TFLite_Detection_PostProcess"


def detector(path: Path, background: int = 1, tail: str = WORD, offset: float = 0.5, **changes: Any) -> Path:
    """Write an SSD. background: whether scores begin with it. offset: of a cell, where priors are. changes: of the options."""
    from mpnet.export.tflite.file import TfliteGraph

    graph, random = TfliteGraph(), np.random.default_rng(3)

    def convolve(x: int, filters: int, size: int, stride: int, activation: int = 0) -> int:
        _, height, width, channels = graph.shape(x)
        weights = random.normal(0, (1.5 / (channels * size * size)) ** 0.5, (filters, size, size, channels))
        constants = [
            graph.constant("w", weights.astype(np.float32)),
            graph.constant("b", random.normal(0, 0.5, filters).astype(np.float32)),
        ]
        y = graph.tensor("y", (1, height // stride, width // stride, filters))
        options = {"strideW": stride, "strideH": stride, "dilationWFactor": 1, "dilationHFactor": 1}
        return graph.operator(
            "CONV_2D", [x, *constants], y, options="Conv2DOptions", fusedActivationFunction=activation, **options
        )

    def join(parts: list[int], width: int) -> int:
        rows = []
        for part in parts:
            _, height, columns, channels = graph.shape(part)
            shape = (1, height * columns * channels // width, width)
            constant = graph.constant("shape", np.array(shape, np.int32))
            rows.append(
                graph.operator(
                    "RESHAPE", [part, constant], graph.tensor("r", shape), options="ReshapeOptions", newShape=list(shape)
                )
            )
        total = graph.tensor("joined", (1, sum(graph.shape(row)[1] for row in rows), width))
        return graph.operator("CONCATENATION", rows, total, options="ConcatenationOptions", axis=1)

    image = x = graph.tensor("image", (1, SIDE, SIDE, 3))
    boxes, scores, priors = [], [], []
    x = convolve(x, 8, 3, 2, 1)
    for grid in GRIDS:
        x = convolve(x, 8, 3, 2, 1)
        boxes.append(convolve(x, 4 * BOXES, 1, 1))
        scores.append(convolve(x, (CLASSES + background) * BOXES, 1, 1))
        y, x_centre = np.meshgrid(np.arange(grid), np.arange(grid), indexing="ij")
        middle = (np.stack([y, x_centre], -1).reshape(-1, 1, 2) + offset) / grid
        sizes = np.array([[0.2, 0.3], [0.5, 0.25]]) * 8 / grid
        shape = (grid * grid, BOXES, 2)
        priors.append(np.concatenate([np.broadcast_to(middle, shape), np.broadcast_to(sizes, shape)], -1).reshape(-1, 4))
    raw = join(boxes, 4)
    logits = join(scores, CLASSES + background)
    probabilities = graph.operator("LOGISTIC", [logits], graph.tensor("probabilities", graph.shape(logits)))
    if tail != WORD:
        content = _suppress(graph, raw, probabilities, np.concatenate(priors).astype(np.float32), tail)
        path.write_bytes(graph.content([image], content, "", {}))
        return path
    constant = graph.constant("priors", np.concatenate(priors).astype(np.float32))
    output = graph.operator("CUSTOM", [raw, probabilities, constant], graph.tensor("boxes", ()))
    further = [graph.tensor(name, ()) for name in ("classes", "scores", "count")]
    path.write_bytes(graph.content([image], [output, *further], "", {}))
    count = graph.shape(raw)[1]
    options = {
        "max_detections": count * CLASSES,
        "detections_per_class": count,
        "max_classes_per_detection": 1,
        "use_regular_nms": True,
        "nms_score_threshold": 1e-8,
        "nms_iou_threshold": 1.0,
        "num_classes": CLASSES,
        **{"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
    }

    def change(model: Any, schema: Any) -> None:
        model.operatorCodes[-1].customCode = WORD.encode()
        operator = model.subgraphs[0].operators[-1]
        operator.outputs = np.array([output, *further], np.int32)
        operator.customOptions = np.frombuffer(_write_options(options | changes), np.uint8)

    return _edited(path, change)


def _suppress(graph: Any, raw: int, scores: int, priors: np.ndarray, word: str) -> list[int]:
    """Write what TFLite_Detection_PostProcess computes as operators of their own; return the outputs."""
    count = graph.shape(raw)[1]

    def combine(operator: str, x: int, values: Any, fused: int = 0) -> int:
        constant = values if isinstance(values, int) else graph.constant("c", np.asarray(values, np.float32)[None])
        options = {"options": f"{operator.title()}Options", "fusedActivationFunction": fused}
        return graph.operator(operator, [x, constant], graph.tensor(operator, graph.shape(x)), **options)

    def take(x: int, start: int, stop: int) -> int:
        bounds = [graph.constant("at", np.array(at, np.int32)) for at in ([0, 0, start], [1, count, stop - start])]
        return graph.operator("SLICE", [x, *bounds], graph.tensor("part", (1, count, stop - start)), options="SliceOptions")

    def flatten(x: int, *shape: int) -> int:
        constant = graph.constant("shape", np.array(shape, np.int32))
        return graph.operator(
            "RESHAPE", [x, constant], graph.tensor("flat", shape), options="ReshapeOptions", newShape=list(shape)
        )

    centres = combine("ADD", combine("MUL", take(raw, 0, 2), priors[:, 2:] / 10), priors[:, :2])
    logarithms = combine("MUL", take(raw, 2, 4), np.full((1, 2), 0.2))
    halves = graph.operator("EXP", [logarithms], graph.tensor("exp", graph.shape(logarithms)), options="ExpOptions")
    halves = combine("MUL", halves, priors[:, 2:] / 2)
    sides = [combine(operator, centres, halves) for operator in ("SUB", "ADD")]
    table = graph.operator(
        "CONCATENATION", sides, graph.tensor("table", graph.shape(raw)), options="ConcatenationOptions", axis=2
    )
    limits = [graph.constant("limit", np.asarray(value)) for value in (np.int32(20), np.float32(0.6), np.float32(0.25))]
    if word.endswith("5"):
        limits.append(graph.constant("sigma", np.float32(0).reshape(())))
    inputs = [flatten(table, count, 4), flatten(take(scores, 0, 1), count), *limits]
    return [
        table,
        scores,
        graph.operator(word, inputs, graph.tensor("kept", (20,), "int32"), options=f"NonMaxSuppression{word[-2:]}Options"),
    ]


def _write_options(options: dict[str, Any]) -> bytes:
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in options.items():
            builder.Key(key)
            {bool: builder.Bool, int: builder.Int, float: builder.Float}[type(value)](value)
    return bytes(builder.Finish())


def decoded_boxes(imported: Imported, x: np.ndarray) -> np.ndarray:
    """Return (boxes, 6): class, score, and top, left, bottom and right in shares of the image."""
    geometry = plan_geometry(SIDE, SIDE, SIDE, SIDE, "stretch")
    rows = []
    for tensor, head in zip(heads_of(imported, x), yolo_heads(imported.network), strict=True):
        found = decode_head(tensor, head, [geometry], 0.0)
        centre, half = found.box[:, 1::-1], found.box[:, :1:-1] / 2
        rows.append(np.c_[found.category, found.score, centre - half, centre + half])
    return np.concatenate(rows)


@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("scales", [(10.0, 10.0, 5.0, 5.0), (8.0, 4.0, 2.0, 3.0)], ids=["usual", "other"])
def test_boxes_and_scores_are_litert_s(background: int, scales: tuple[float, ...], tmp_path: Path) -> None:
    named = dict(zip(("y_scale", "x_scale", "h_scale", "w_scale"), scales, strict=True))
    path = detector(tmp_path / "ssd.tflite", background, **named)
    imported = import_model(path)
    heads = imported.network.yolos
    assert [(head.decoder, head.classes) for head in heads] == [("ssd", CLASSES)] * 2  # type: ignore[attr-defined]
    x = np.random.default_rng(5).random((1, SIDE, SIDE, 3), np.float32)
    boxes, classes, scores, count = litert(path, x)
    expected = np.c_[classes[0], scores[0], boxes[0]][: int(count[0])]
    assert len(expected) == CLASSES * BOXES * sum(grid * grid for grid in GRIDS)
    decoded = decoded_boxes(imported, x)
    assert len(decoded) == len(expected)
    for row in expected:
        # Some ten float32 roundings of shares of the image.
        assert np.abs(decoded - row).max(axis=1).min() <= 2e-6 * max(1.0, np.abs(row).max())


def test_the_background_is_no_layer_of_its_own(tmp_path: Path) -> None:
    imported = import_model(detector(tmp_path / "ssd.tflite"))
    convolutions = [layer for layer in imported.network.layers if layer.kind == "convolutional"]
    assert [layer.filters for layer in convolutions] == [8, 8, 4 * BOXES, CLASSES * BOXES, 8, 4 * BOXES, CLASSES * BOXES]  # type: ignore[attr-defined]


def test_its_limits_are_said_and_kept(tmp_path: Path) -> None:
    path = detector(tmp_path / "ssd.tflite", nms_iou_threshold=0.55, nms_score_threshold=0.25, max_detections=20)
    imported = import_model(path)
    assert imported.nms == 0.55
    assert any(f"({WORD}: overlaps above 0.55, scores above 0.25, at most 20 boxes)" in note for note in imported.notes)


@pytest.mark.parametrize("word", ["NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"])
def test_suppression_alone_is_said_and_kept(word: str, tmp_path: Path) -> None:
    imported = import_model(detector(tmp_path / "ssd.tflite", background=0, tail=word))
    assert [head.decoder for head in imported.network.yolos] == ["ssd"] * 2  # type: ignore[attr-defined]
    assert imported.nms == 0.6
    limits = "overlaps above 0.6, scores above 0.25, at most 20 boxes"
    assert any(f"(NON_MAX_SUPPRESSION: {limits})" in note for note in imported.notes)


def test_priors_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no box decoding that mpnet knows; name the head tensors with --heads"):
        import_model(detector(tmp_path / "ssd.tflite", offset=0.25))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_classes": 9}, "scores of 5 classes, of which it takes 9"),
        ({"h_scale": 0.0}, "its option h_scale is no positive number"),
        ({"y_scale": float("nan")}, "its option y_scale is no positive number"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=f"{WORD}.*{reason}"):
        import_model(detector(tmp_path / "ssd.tflite", **changes))


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"\xff" * 40, bytes(range(64))])
def test_options_that_cannot_be_read_are_refused(content: bytes, tmp_path: Path) -> None:
    path = detector(tmp_path / "ssd.tflite")

    def change(model: Any, schema: Any) -> None:
        model.subgraphs[0].operators[-1].customOptions = np.frombuffer(content, np.uint8)

    with pytest.raises(FormatError, match=r"its option.*the file is damaged"):
        import_model(_edited(path, change))
