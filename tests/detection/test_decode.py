# SPDX-License-Identifier: MIT
"""Head tensors -> candidates, against a plain second version and against the reference programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpnet.detection.decode import Candidates, Cells, YoloHead, decode_head, join_images
from mpnet.detection.nms import NmsOptions, suppress
from mpnet.detection.preprocess import geometry_array, plan_geometry
from mpnet.errors import ConfigError, DataError, EngineError
from tests.detection.detection_oracle import decode

YOLO = YoloHead(anchors=((10.0, 14.0), (81.0, 82.0)), classes=3, net_width=96, net_height=64)


def random_head(seed: int, images: int = 2, yolo: YoloHead = YOLO) -> np.ndarray:
    head = np.random.RandomState(seed).normal(-1, 1.5, (images, 2, 3, yolo.channels)).astype(np.float32)
    return 1 / (1 + np.exp(-head)) if yolo.new_coords else head


def rows_of(candidates: Candidates) -> list[tuple]:
    images = np.repeat(np.arange(candidates.image_count), np.diff(candidates.offsets))
    return list(
        zip(images.tolist(), candidates.category.tolist(), candidates.score.tolist(), candidates.box.tolist(), strict=True)
    )


@pytest.mark.parametrize("mode", ["stretch", "letterbox"])
@pytest.mark.parametrize(
    "yolo",
    [YOLO, replace(YOLO, scale_x_y=1.05), replace(YOLO, new_coords=True, scale_x_y=2.0)],
    ids=["plain", "scale_x_y", "new_coords"],
)
def test_equals_the_plain_version(mode: str, yolo: YoloHead) -> None:
    geometries = [plan_geometry(640, 480, 96, 64, mode), plan_geometry(300, 500, 96, 64, mode)]
    head = random_head(1, yolo=yolo).astype(np.float32)
    actual = rows_of(decode_head(head, yolo, geometries, 0.02))
    expected = sorted(decode(head, yolo, geometry_array(geometries), 0.02), key=lambda row: (row[0], row[1], -row[2]))
    assert len(actual) == len(expected) > 40
    for actual_row, expected_row in zip(actual, expected, strict=True):
        assert actual_row[:2] == expected_row[:2]
        # Scores: two logistics within 2.5 ulp each and a product; boxes: a few roundings of values up to 10.
        np.testing.assert_allclose(actual_row[2], expected_row[2], rtol=6 * 2**-23)
        np.testing.assert_allclose(actual_row[3], expected_row[3], rtol=8 * 2**-23, atol=8 * 2**-23)


def test_order_is_class_then_score_then_place() -> None:
    head = np.zeros((1, 2, 3, YOLO.channels), dtype=np.float32)  # all scores equal
    candidates = decode_head(head, YOLO, [plan_geometry(96, 64, 96, 64, "stretch")], 0.005)
    assert candidates.category.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    # Cells row by row, anchors within a cell.
    centres = [((c + 0.5) / 3, (r + 0.5) / 2) for r in range(2) for c in range(3) for _ in range(2)]
    np.testing.assert_array_equal(candidates.box[:12, :2], np.array(centres, dtype=np.float32))
    np.testing.assert_array_equal(candidates.box[:12, 2], np.array([10 / 96, 81 / 96] * 6, dtype=np.float32))


def test_order_of_thousands_with_ties() -> None:
    raw = np.random.RandomState(3).randint(-2, 3, (1, 16, 16, YOLO.channels)).astype(np.float32)
    geometry = geometry_array([plan_geometry(96, 64, 96, 64, "stretch")])
    candidates = decode_head(raw, YOLO, geometry, 0.02)
    expected = sorted(decode(raw, YOLO, geometry, 0.02), key=lambda row: (row[1], -row[2]))  # stable
    assert len(candidates) == len(expected) > 1000
    assert candidates.category.tolist() == [row[1] for row in expected]
    np.testing.assert_allclose(candidates.box, [row[3] for row in expected], rtol=8 * 2**-23, atol=8 * 2**-23)


def test_threshold_is_exclusive() -> None:
    head = np.zeros((1, 1, 1, 8), dtype=np.float32)  # objectness and classes 0.5: scores 0.25
    yolo = replace(YOLO, anchors=((10.0, 14.0),))
    geometry = [plan_geometry(96, 64, 96, 64, "stretch")]
    assert len(decode_head(head, yolo, geometry, 0.25)) == 0
    assert len(decode_head(head, yolo, geometry, float(np.nextafter(np.float32(0.25), np.float32(0))))) == 3


@pytest.mark.parametrize("confidence", [0.0, 1e-6, 0.005, 0.3, 0.9, 0.999, 0.9999])
def test_early_rejection_loses_nothing(confidence: float) -> None:
    """Raw values tightly around the bound: the cheap test must never reject what the exact one keeps."""
    p = max(confidence, 1e-7)
    bound = np.log(p / (1 - p))
    raw = (bound + np.linspace(-0.05, 0.05, 4001)).astype(np.float32)
    head = np.full((1, 1, len(raw), 6), 30.0, dtype=np.float32)  # logistic(30) is 1 in float32
    head[0, 0, :, :4] = 0
    yolo = YoloHead(((10.0, 14.0),), 1, 96, 64)
    geometry = [plan_geometry(96, 64, 96, 64, "stretch")]
    for channel in (4, 5):  # objectness, class
        tensor = head.copy()
        tensor[0, 0, :, channel] = raw
        candidates = decode_head(tensor, yolo, geometry, confidence)
        everything = decode_head(tensor, yolo, geometry, 0.0)
        assert len(everything) == len(raw)
        assert len(candidates) == int((everything.score > np.float32(confidence)).sum())


def test_a_batch_gives_the_bits_of_single_images() -> None:
    head = random_head(5, images=7)
    geometry = geometry_array([plan_geometry(100 + i, 80, 96, 64, "letterbox") for i in range(7)])
    batch_candidates = decode_head(head, YOLO, geometry, 0.01)
    joined = join_images([decode_head(head[i : i + 1], YOLO, geometry[i : i + 1], 0.01) for i in range(7)])
    for name in ("offsets", "category", "score", "box"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(batch_candidates, name))


@pytest.mark.parametrize("confidence", [0.0, 0.02, 0.3])
def test_some_cells_give_the_boxes_that_they_give_among_all(confidence: float) -> None:
    head = random_head(6, images=3)
    geometry = geometry_array([plan_geometry(100 + i, 80, 96, 64, "letterbox") for i in range(3)])
    cell_indices = np.array([0, 2, 5, -1, 1, 2, 3, 4, 5, -1], np.int32)
    starts = np.array([0, 4, 4, 10], np.int64)
    image = np.repeat(np.arange(3), np.diff(starts))
    rows = np.where(cell_indices[:, None] < 0, np.float32(np.nan), head.reshape(3, 6, -1)[image, cell_indices])
    candidates = decode_head(rows.reshape(2, 1, 5, -1), YOLO, geometry, confidence, Cells((2, 3), starts, cell_indices))
    silent = np.full_like(head.reshape(3, 6, -1), -1e35)
    silent[image[cell_indices >= 0], cell_indices[cell_indices >= 0]] = rows[cell_indices >= 0]
    assert rows_of(candidates) == rows_of(decode_head(silent.reshape(head.shape), YOLO, geometry, confidence))
    assert len(candidates) > 0
    assert np.diff(candidates.offsets)[1] == 0


def test_rows_that_are_not_those_of_the_cells() -> None:
    geometry = geometry_array([plan_geometry(96, 64, 96, 64, "stretch")])
    cells = Cells((2, 3), np.array([0, 4], np.int64), np.array([0, 1, 2, 3], np.int32))
    with pytest.raises(DataError, match="4 cells"):
        decode_head(np.zeros((1, 1, 3, YOLO.channels), np.float32), YOLO, geometry, 0.1, cells)


def test_more_entries_than_first_provided_for() -> None:
    head = np.full((1, 30, 30, YOLO.channels), 2.0, dtype=np.float32)
    candidates = decode_head(head, YOLO, [plan_geometry(96, 64, 96, 64, "stretch")], 0.0)
    assert len(candidates) == 30 * 30 * 2 * 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_box_that_is_not_finite_is_an_error(value: float) -> None:
    yolo = replace(YOLO, new_coords=True)
    head = np.full((2, 2, 3, yolo.channels), 0.5, dtype=np.float32)
    head[1, 1, 2, 2] = value
    geometry = geometry_array([plan_geometry(96, 64, 96, 64, "stretch")] * 2)
    with pytest.raises(EngineError, match="image 1 of the batch"):
        decode_head(head, yolo, geometry, 0.01)


def test_wrong_arguments() -> None:
    geometry = [plan_geometry(96, 64, 96, 64, "stretch")]
    with pytest.raises(DataError, match="16 channels"):
        decode_head(np.zeros((1, 2, 3, 15), np.float32), YOLO, geometry)
    with pytest.raises(DataError, match="2 images"):
        decode_head(random_head(0), YOLO, geometry)
    with pytest.raises(ConfigError, match="confidence"):
        decode_head(random_head(0, 1), YOLO, geometry, 1.0)
    with pytest.raises(ConfigError):
        join_images([])


AIX = ((10, 14), (23, 27), (37, 58), (81, 82), (135, 169), (344, 319))
FASTEST = ((12, 18), (37, 49), (52, 132), (115, 73), (119, 199), (242, 238))
GOLDEN = [
    ("golden_yolov3-tiny-aix2022", AIX, 60, ("L013", "L020"), "default", 0.005, "detections"),
    ("golden_yolov3-tiny-aix2022_fork-int8-zero_center", AIX, 60, ("L013", "L020"), "default", 0.005, "detections"),
    ("golden_yolo-fastest-1.1", FASTEST, 80, ("L120", "L129"), "greedynms", 0.001, "detections"),
    ("golden_yolo-fastest-1.1", FASTEST, 80, ("L120", "L129"), "default", 0.001, "detections_iou_nms"),
]


@pytest.mark.parametrize(
    ("name", "anchors", "classes", "layers", "kind", "confidence", "key"),
    GOLDEN,
    ids=["aix", "aix-fork-int8", "fastest-greedy", "fastest-iou"],
)
def test_detections_of_the_reference_programs(shared_data, name, anchors, classes, layers, kind, confidence, key):
    golden = np.load(shared_data / "golden" / f"{name}.npz")
    width, height = (int(v) for v in golden["image_wh"])
    geometry = [plan_geometry(width, height, 320, 320, "stretch")]
    heads = [
        decode_head(
            np.ascontiguousarray(golden[layer].transpose(1, 2, 0))[None],
            YoloHead(head_anchors, classes, 320, 320),
            geometry,
            confidence,
        )
        for layer, head_anchors in zip(layers, (anchors[3:], anchors[:3]), strict=True)
    ]
    detections = suppress(heads, np.array([[width, height]], np.float32), NmsOptions(kind, 0.45))
    corners = np.concatenate([detections.box[:, :2], detections.box[:, :2] + detections.box[:, 2:]], axis=1)
    actual = np.column_stack([detections.category, detections.score, corners]).astype(np.float64)
    expected = golden[key][np.lexsort((-golden[key][:, 1], golden[key][:, 0]))]
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual[:, 0], expected[:, 0])
    np.testing.assert_allclose(actual[:, 1], expected[:, 1], rtol=0, atol=1e-6)
    # Pixels of images up to 1920 wide: 2e-7 relative, a few roundings of float32.
    np.testing.assert_allclose(actual[:, 2:], expected[:, 2:], rtol=0, atol=5e-4)
