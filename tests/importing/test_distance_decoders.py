# SPDX-License-Identifier: MIT
"""Heads of detector families as their exporters write them: boxes and scores are ONNX Runtime's, suppression is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry
from mpnet.errors import FormatError
from mpnet.importing import Imported
from mpnet.importing.file_metadata import PixelOptions
from tests.importing.conftest import heads_of
from tests.importing.graphs import Builder, _grid

SIDE, CLASSES = 64, 5


class Family(NamedTuple):
    """How a family writes its boxes.

    bins:   of a distance. point: of a cell, where distances begin. exponential: the distance is e to the value.
    pixels: layers multiply by the stride. logistic: layers compute the logistic function of scores.
    aligned: scores are roots of their products with one value of each cell. clipped: to the image.
    """

    decoder: str
    bins: int = 1
    point: float = 0.5
    exponential: bool = False
    pixels: bool = False
    logistic: bool = False
    aligned: bool = False
    clipped: bool = False
    strides: tuple[int, ...] = (8, 16, 32)


FAMILIES = {
    "RTMDet-tiny": Family("rtmdet", point=0.0, pixels=True, clipped=True),
    "RTMDet-tiny of MMYOLO": Family("rtmdet", point=0.0),
    "RTMDet-m": Family("rtmdet", point=0.0, exponential=True),
    "DAMO-YOLO": Family("rtmdet", bins=8, point=0.0, logistic=True),
    "PicoDet": Family("picodet", bins=8, aligned=True, strides=(8, 16, 32, 64)),
    "PicoDet of 2021": Family("yolov8", bins=8, logistic=True, strides=(8, 16, 32, 64)),
    "YOLO-NAS, PP-YOLOE": Family("yolov8", bins=17),
}


def detector(family: Family, tail: str = "", decoded: bool = True) -> Any:
    """Build a small network with a family's heads.

    tail: what follows boxes and scores: '', 'nms' or 'plugin'; 'apart': neither is decoded, and those of grids are apart.
    """
    b = Builder(SIDE)
    x, distances, scores = "images", [], []
    for stride in (2, 4, *family.strides):
        x = b.conv(x, 8, 3, 2, act="Relu")
        if stride not in family.strides:
            continue
        cells = (SIDE // stride) ** 2
        distance, score = b.conv(x, 4 * family.bins), b.conv(x, CLASSES)
        if family.exponential:
            distance = b.node("Exp", [distance])
        if family.pixels or family.exponential:
            distance = b.node("Mul", [distance, b.constant(float(stride))])
        if family.logistic or family.aligned:
            score = b.node("Sigmoid", [score])
        if family.aligned:
            product = b.node("Mul", [score, b.node("Sigmoid", [b.conv(x, 1)])])
            product = b.node("Mul", [product, b.constant([1.0])])
            score = b.node("Sqrt", [b.node("Add", [product, b.constant(1e-9)])])
        if tail == "apart":
            for tensor, channels in ((score, CLASSES), (distance, 4 * family.bins)):
                rows = b.reshape(tensor, [1, channels, cells])
                scores.append(b.node("Transpose", [rows], perm=[0, 2, 1]))
            continue
        if not decoded:
            scores.append(b.reshape(b.concat([score, distance]), [1, CLASSES + 4 * family.bins, cells]))
            continue
        distance = b.node("Transpose", [distance], perm=[0, 2, 3, 1])
        if family.bins > 1:
            shares = b.node("Softmax", [b.reshape(distance, [1, cells, 4, family.bins])], axis=3)
            # Paddle multiplies by a vector.
            numbers = np.arange(family.bins) if family.aligned else np.arange(family.bins).reshape(-1, 1)
            mean = b.node("MatMul", [shares, b.constant(numbers)])
            distances.append(b.reshape(mean, [1, cells, 4]))
        else:
            distances.append(b.reshape(distance, [1, cells, 4]))
        scores.append(b.reshape(b.node("Transpose", [score], perm=[0, 2, 3, 1]), [1, cells, CLASSES]))
    if tail == "apart":
        return b.model(scores)
    if not decoded:
        return b.model([b.node("Transpose", [b.node("Concat", scores, axis=2)], perm=[0, 2, 1])])
    table = b.node("Concat", distances, axis=1)
    if not (family.pixels or family.exponential):
        strides = np.concatenate([np.full((SIDE // stride) ** 2, stride) for stride in family.strides])
        table = b.node("Mul", [table, b.constant(strides.reshape(1, -1, 1))])
    points = np.concatenate([(_grid(SIDE, stride).reshape(2, -1).T + family.point) * stride for stride in family.strides])
    left_top, right_bottom = b.node("Split", [table, b.constant([2, 2], np.int64)], 1, 2, axis=2)
    sides = [b.node("Sub", [b.constant(points[None]), left_top]), b.node("Add", [b.constant(points[None]), right_bottom])]
    boxes = b.node("Concat", sides, axis=2)
    if family.clipped:
        boxes = b.node("Clip", [boxes, b.constant(0.0), b.constant(float(SIDE))])
    score_table = b.node("Concat", scores, axis=1)
    if not family.logistic and not family.aligned:
        score_table = b.node("Sigmoid", [score_table])
    if tail == "nms":
        by_class = b.node("Transpose", [score_table], perm=[0, 2, 1])
        limits = [b.constant([20], np.int64), b.constant([0.65]), b.constant([0.3])]
        b.node("NonMaxSuppression", [boxes, by_class, *limits])
    if tail == "plugin":
        attributes = {"iou_threshold": 0.65, "score_threshold": 0.3, "max_output_boxes": 20}
        b.node("EfficientNMS_TRT", [boxes, score_table], domain="TRT", outputs=4, **attributes)
        return b.model([f"t{len(b.nodes) - 1}_1"])
    return b.model([boxes, score_table, *([f"t{len(b.nodes) - 1}_0"] if tail else [])])


def decoded_boxes(imported: Imported, x: Any, clipped: bool) -> Any:
    """Return (boxes, 6): category, score and corners in pixels of every box that mpnet decodes."""
    geometry = plan_geometry(SIDE, SIDE, SIDE, SIDE, "stretch")
    rows = []
    for tensor, head in zip(heads_of(imported, x), yolo_heads(imported.network), strict=True):
        found = decode_head(tensor, head, [geometry], 0.0)
        centre, size = found.box[:, :2] * SIDE, found.box[:, 2:] * SIDE
        rows.append(np.c_[found.category, found.score, centre - size / 2, centre + size / 2])
    table = np.concatenate(rows)
    return np.c_[table[:, :2], table[:, 2:].clip(0, SIDE)] if clipped else table


@pytest.mark.parametrize("name", list(FAMILIES))
def test_boxes_are_onnx_runtimes(name: str, importing: Callable[..., tuple[Path, Imported]]) -> None:
    family = FAMILIES[name]
    path, imported = importing(detector(family), pixels=PixelOptions((0.0,), (255.0,)))
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    boxes, scores = ort.InferenceSession(path).run(None, {"images": x.transpose(0, 3, 1, 2)})
    decoded = decoded_boxes(imported, x, family.clipped)
    assert {yolo.decoder for yolo in imported.network.yolos} == {family.decoder}  # type: ignore[attr-defined]
    assert len(decoded) == scores.size
    # Distances below 0 turn a box around in the file; mpnet gives it no size.
    upright = (boxes[0, :, 2:] >= boxes[0, :, :2]).all(axis=1)
    assert upright.mean() > 0.25
    for box, row in zip(boxes[0][upright], scores[0][upright], strict=True):
        for category, score in enumerate(row):
            # Some thirty float32 roundings of pixels; boxes of exponentials are larger than the image.
            error = np.abs(decoded - [category, score, *box]).max(axis=1).min()
            assert error <= 2e-4 * max(1, np.abs(box).max() / 128)


@pytest.mark.parametrize("tail", ["nms", "plugin"])
def test_suppression_of_the_file_is_said_and_kept(tail: str, importing: Callable[..., tuple[Path, Imported]]) -> None:
    _, imported = importing(detector(FAMILIES["RTMDet-tiny"], tail))
    assert imported.nms == 0.65
    operator = {"nms": "NonMaxSuppression", "plugin": "EfficientNMS_TRT"}[tail]
    assert any(f"({operator}: overlaps above 0.65, scores above 0.3, at most 20 boxes)" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("strides", "decoder"), [((8, 16, 32, 64), "rtmdet"), ((8, 16, 32), "yolov8")], ids=["NanoDet-Plus", "NanoDet"]
)
def test_boxes_that_are_not_decoded_are_assumed_with_a_note(
    strides: tuple[int, ...], decoder: str, importing: Callable[..., tuple[Path, Imported]]
) -> None:
    family = Family(decoder, bins=8, logistic=True, strides=strides)
    path, imported = importing(detector(family, decoded=False), pixels=PixelOptions((0.0,), (255.0,)))
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    [table] = ort.InferenceSession(path).run(None, {"images": x.transpose(0, 3, 1, 2)})[0]
    assert {yolo.decoder for yolo in imported.network.yolos} == {decoder}  # type: ignore[attr-defined]
    assert any("does not decode its boxes" in note and "--decoder" in note for note in imported.notes)
    heads = np.concatenate([head.reshape(-1, 4 * 8 + CLASSES) for head in heads_of(imported, x)])
    np.testing.assert_allclose(1 / (1 + np.exp(-heads[:, 32:])), table[:, :CLASSES], rtol=2e-5)
    np.testing.assert_allclose(heads[:, :32], table[:, CLASSES:], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["PicoDet", "PicoDet of 2021"])
def test_tables_of_each_grid_that_are_not_decoded(name: str, importing: Callable[..., tuple[Path, Imported]]) -> None:
    family = FAMILIES[name]
    _, decoded = importing(detector(family), pixels=PixelOptions((0.0,), (255.0,)))
    _, apart = importing(detector(family, "apart"), pixels=PixelOptions((0.0,), (255.0,)))
    assert (_without_names(apart.cfg), apart.weights) == (_without_names(decoded.cfg), decoded.weights)
    [note] = [note for note in apart.notes if "does not decode its boxes" in note]
    assert note.startswith("the file does not decode its boxes: PicoDet's way is assumed, distances from the middle of cells")
    assert ("--decoder rtmdet" in note) is (not family.aligned)


def test_named_heads_behind_a_logistic_function_give_the_tensors_before_it(
    importing: Callable[..., tuple[Path, Imported]],
) -> None:
    model = detector(FAMILIES["DAMO-YOLO"])
    choices = {"decoder": "rtmdet", "keys": (("reg_max", "8"),), "pixels": PixelOptions((0.0,), (255.0,))}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    heads = tuple(
        (boxes.output[0], gate.output[0])
        for boxes, gate in zip(
            [node for node in convolutions if len(node.input) and _filters(model, node) == 32],
            [node for node in model.graph.node if node.op_type == "Sigmoid"],
            strict=True,
        )
    )
    _, found = importing(model, pixels=PixelOptions((0.0,), (255.0,)))
    _, named = importing(model, heads=heads, **choices)
    assert (named.cfg, named.weights) == (found.cfg, found.weights)
    assert sum("went through a logistic function" in note for note in named.notes) == 3


def _without_names(cfg: str) -> list[str]:
    """Return a cfg's lines but those that name nodes."""
    return [line for line in cfg.splitlines() if not line.startswith(("#", "source="))]


def _filters(model: Any, node: Any) -> int:
    return next(int(constant.dims[0]) for constant in model.graph.initializer if constant.name == node.input[1])


def test_distances_from_elsewhere_are_refused(importing: Callable[..., tuple[Path, Imported]]) -> None:
    with pytest.raises(FormatError, match=r"no box decoding that mpnet knows; name the\s+head tensors with --heads"):
        importing(detector(Family("", bins=8, point=0.25)))


def test_inputs_that_say_sizes_are_set(importing: Callable[..., tuple[Path, Imported]]) -> None:
    """PaddleDetection's files take the image's size and its scale, by which their boxes are divided."""
    model = detector(FAMILIES["YOLO-NAS, PP-YOLOE"])
    boxes, scores = (output.name for output in model.graph.output)
    del model.graph.output[:]
    for name in ("im_shape", "scale_factor"):
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]))
    model.graph.node.append(onnx.helper.make_node("Concat", ["scale_factor", "scale_factor"], ["factors"], axis=1))
    model.graph.node.append(onnx.helper.make_node("Div", [boxes, "factors"], ["divided"]))
    for name in ("divided", scores):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    _, with_sizes = importing(model)
    _, without = importing(detector(FAMILIES["YOLO-NAS, PP-YOLOE"]))
    assert (with_sizes.cfg, with_sizes.weights) == (without.cfg, without.weights)
    assert {note.partition(":")[0] for note in with_sizes.notes[:2]} == {
        f"the input im_shape is set to {SIDE} and {SIDE}",
        "the input scale_factor is set to 1 and 1",
    }
