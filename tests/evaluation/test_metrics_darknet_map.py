# SPDX-License-Identifier: MIT
"""Darknet's mAP@0.5: its rules by hand, and the printed numbers of the reference programs."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.evaluation.metrics import darknet_ap50, darknet_map50
from mpnet.formats.documents.detections import read_detections
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.yolo import read_names

TRUTH = [10.0, 10.0, 20.0, 20.0]
DISTANT_BOX = [70.0, 70.0, 10.0, 10.0]


def dataset(boxes: list, crowd: bool = False) -> Dataset:
    return Dataset.of(
        [ImageRecord(1, "a.jpg", 100, 100, "")],
        [Category(1, "thing"), Category(2, "other")],
        [(0, 0, box, 1.0, crowd) for box in boxes],
    )


def ap(truths: list, scored_boxes: list[tuple[float, list]], category: int = 0) -> float:
    detections = Detections.of(
        1,
        [0] * len(scored_boxes),
        [category] * len(scored_boxes),
        [score for score, _ in scored_boxes],
        [box for _, box in scored_boxes],
    )
    return float(darknet_ap50(detections, dataset(truths))[0])


def test_a_repeated_match_does_not_count_at_all() -> None:
    second_truth = [50.0, 50.0, 20.0, 20.0]
    assert ap([TRUTH, second_truth], [(0.9, TRUTH), (0.8, TRUTH), (0.7, second_truth)]) == 100.0


def test_a_false_one_lowers_the_precision_after_it() -> None:
    # Precision 1 up to recall 0.5 (points 0 to 0.5, as 5 * 0.1 is 0.5), then 2/3 for the five beyond.
    second_truth = [50.0, 50.0, 20.0, 20.0]
    assert ap([TRUTH, second_truth], [(0.9, TRUTH), (0.8, DISTANT_BOX), (0.7, second_truth)]) == pytest.approx(
        (6 + 5 * 2 / 3) / 11 * 100
    )


def test_the_third_point_is_slightly_above_0_3() -> None:
    """Recall 3/10 is below the point 3 * 0.1 = 0.30000000000000004: three of ten reach points 0, 1 and 2."""
    boxes = [[10.0 * i, 0.0, 8.0, 8.0] for i in range(10)]
    assert ap(boxes, [(0.9, box) for box in boxes[:3]]) == pytest.approx(3 / 11 * 100)


def test_an_overlap_of_exactly_one_half_is_no_match() -> None:
    assert ap([[0.0, 0.0, 20.0, 10.0]], [(0.9, [0.0, 0.0, 10.0, 10.0])]) == 0.0
    assert ap([[0.0, 0.0, 20.0, 10.0]], [(0.9, [0.0, 0.0, 10.5, 10.0])]) == 100.0


def test_boxes_are_not_clipped() -> None:
    assert ap([[0.0, 0.0, 40.0, 40.0]], [(0.9, [-40.0, 0.0, 80.0, 40.0])]) == 0.0


def test_classes_are_apart_and_those_without_truths_do_not_count() -> None:
    assert ap([TRUTH], [(0.9, TRUTH)], category=1) == 0.0
    values = darknet_ap50(Detections.of(1, [], [], [], []), dataset([TRUTH]))
    assert values.tolist() == [0.0, -1.0]


def test_crowds_are_no_truths() -> None:
    detections = Detections.of(1, [0], [0], [0.9], [TRUTH])
    assert darknet_map50(darknet_ap50(detections, dataset([TRUTH], crowd=True))) == -1.0


@pytest.mark.parametrize(
    ("file", "number"),
    [("yolov3-tiny-aix2022_fp32_plain_dev", 83.34), ("yolov3-tiny-aix2022_fork-int8-zero_center_dev", 82.78)],
)
def test_reference_detections_give_the_printed_numbers(shared_data, file: str, number: float) -> None:
    # The files hold clipped boxes and the programs count unclipped ones; on these images it does not show.
    data = load_dataset(
        "coco",
        shared_data / "aix2022/images",
        annotations=shared_data / "aix2022/instances_dev.json",
        names=read_names(shared_data / "aix2022/yolohw.names"),
    )
    detections = read_detections(shared_data / "reference" / f"{file}.json", data)
    values = darknet_ap50(detections, data)
    assert round(darknet_map50(values), 2) == number
    assert np.isclose(values.mean(), darknet_map50(values))
