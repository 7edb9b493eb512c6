# SPDX-License-Identifier: MIT
"""COCO's metrics: equality with pycocotools on hard random cases and on the reference programs' detections."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.errors import DataError
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator, mean_of_present
from mpnet.formats.documents.detections import read_detections
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.yolo import read_names
from tests.evaluation.coco_oracle import pycocotools_summary
from tests.evaluation.evaluation_cases import random_dataset, random_detections

EQUAL = 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_equals_pycocotools(seed: int) -> None:
    dataset = random_dataset(seed)
    detections = random_detections(dataset, seed + 100, noise=0.02 + 0.03 * (seed % 4))
    expected = pycocotools_summary(dataset, detections)
    actual = CocoEvaluator(dataset).evaluate(detections).summary
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert abs(actual[name] - value) <= EQUAL, name


def test_more_than_a_hundred_detections_per_image_and_class() -> None:
    dataset = random_dataset(1, images=2, categories=2, per_image=60)
    detections = random_detections(dataset, 2, extra=600)
    assert np.bincount(detections.image_index * 2 + detections.category).max() > 150
    expected = pycocotools_summary(dataset, detections)
    actual = CocoEvaluator(dataset).evaluate(detections).summary
    for name, value in expected.items():
        assert abs(actual[name] - value) <= EQUAL, name


def test_per_class_equals_the_evaluation_of_that_class() -> None:
    dataset = random_dataset(3)
    detections = random_detections(dataset, 4)
    table = CocoEvaluator(dataset).evaluate(detections).per_class()
    for c, row in enumerate(table):
        keep = dataset.category == c
        class_dataset = Dataset(
            dataset.images,
            dataset.categories,
            dataset.image_index[keep],
            dataset.category[keep],
            dataset.box[keep],
            dataset.area[keep],
            dataset.crowd[keep],
        )
        assert row["truths"] == int((~class_dataset.crowd).sum())
        expected = pycocotools_summary(class_dataset, detections.select(detections.category == c))
        for name in ("AP", "AP50", "AP75", "AR100"):
            assert abs(row[name] - expected[name]) <= EQUAL, (c, name)


def one_image(boxes: list, crowd: bool = False) -> Dataset:
    rows = [(0, 0, box, box[2] * box[3], crowd) for box in boxes]
    return Dataset.of([ImageRecord(1, "a.jpg", 100, 100, "")], [Category(1, "thing"), Category(2, "other")], rows)


def test_perfect_detections_give_exactly_100() -> None:
    dataset = one_image([[10, 10, 40, 40], [60, 60, 30, 30]])
    detections = Detections.of(1, [0, 0], [0, 0], [0.9, 0.8], dataset.box)
    summary = CocoEvaluator(dataset).evaluate(detections).summary
    assert [summary[name] for name in ("AP", "AP50", "AP75", "AR100")] == [100.0] * 4


def test_no_detections_give_zero_and_no_truths_minus_one() -> None:
    empty = Detections.of(1, [], [], [], [])
    for dataset, value in (
        (one_image([[10, 10, 40, 40]]), 0.0),
        (one_image([]), -1.0),
        (one_image([[10, 10, 40, 40]], crowd=True), -1.0),
    ):
        summary = CocoEvaluator(dataset).evaluate(empty).summary
        assert [summary[name] for name in ("AP", "AP50", "AP75", "AR100")] == [value] * 4
        assert pycocotools_summary(dataset, empty)["AP"] == value


def test_boxes_are_clipped_to_the_image() -> None:
    dataset = one_image([[0, 0, 40, 40]])
    detections = Detections.of(1, [0], [0], [0.9], [[-40, -40, 80, 80]])
    assert CocoEvaluator(dataset).evaluate(detections).summary["AP"] == 100.0


def test_weights_of_zero_and_one_equal_the_evaluation_of_a_part() -> None:
    dataset = random_dataset(7)
    detections = random_detections(dataset, 8)
    subset = np.array([0, 2, 3, 8, 11])
    weight = np.zeros(len(dataset.images), np.int32)
    weight[subset] = 1
    matches = CocoEvaluator(dataset).evaluate(detections).matches
    expected = CocoEvaluator(dataset.subset(subset)).evaluate(detections.of_images(subset)).summary
    precision, recall = matches.average_precision(weight)
    assert mean_of_present(precision) == expected["AP"]
    assert mean_of_present(recall) == expected["AR100"]


def test_weights_equal_repeated_images() -> None:
    """An image with weight w counts like w copies of it, as in a bootstrap draw, also through pycocotools."""
    dataset = random_dataset(9)
    detections = random_detections(dataset, 10)
    # Scores that differ: copies of tied detections would interleave.
    detections = Detections.of(
        detections.image_count,
        detections.image_index,
        detections.category,
        np.random.RandomState(0).permutation(len(detections)) / 1e4,
        detections.box,
    )
    weight = np.random.RandomState(11).randint(0, 4, len(dataset.images)).astype(np.int32)
    rows, columns, records = [], [], []
    for image, times in enumerate(weight):
        for _ in range(times):
            copy_index = len(records)
            records.append(ImageRecord(copy_index + 1, "", 640, 480, ""))
            for k in np.flatnonzero(dataset.image_index == image):
                rows.append((copy_index, int(dataset.category[k]), dataset.box[k], dataset.area[k], dataset.crowd[k]))
            mine = detections.select(detections.image_index == image)
            columns.append((np.full(len(mine), copy_index), mine.category, mine.score, mine.box))
    copies = Dataset.of(records, dataset.categories, rows)
    copied = Detections.of(len(records), *(np.concatenate(column) for column in zip(*columns, strict=True)))
    precision, recall = CocoEvaluator(dataset).evaluate(detections).matches.average_precision(weight)
    expected = pycocotools_summary(copies, copied)
    assert abs(mean_of_present(precision) - expected["AP"]) <= EQUAL
    assert abs(mean_of_present(precision[:, 0]) - expected["AP50"]) <= EQUAL
    assert abs(mean_of_present(recall) - expected["AR100"]) <= EQUAL


def test_a_matrix_of_weights_equals_one_by_one() -> None:
    dataset = random_dataset(12)
    matches = CocoEvaluator(dataset).evaluate(random_detections(dataset, 13)).matches
    weights = np.random.RandomState(0).randint(0, 3, (5, len(dataset.images))).astype(np.int32)
    precision, recall = matches.average_precision(weights)
    for row, p, r in zip(weights, precision, recall, strict=True):
        np.testing.assert_array_equal(p, matches.average_precision(row)[0])
        np.testing.assert_array_equal(r, matches.average_precision(row)[1])


def test_wrong_arguments() -> None:
    dataset = random_dataset(0)
    evaluator = CocoEvaluator(dataset)
    with pytest.raises(DataError, match="3 images"):
        evaluator.evaluate(Detections.of(3, [], [], [], []))
    with pytest.raises(DataError, match="class index 4"):
        evaluator.evaluate(Detections.of(len(dataset.images), [0], [4], [0.5], [[0, 0, 5, 5]]))
    matches = evaluator.evaluate(random_detections(dataset, 1)).matches
    with pytest.raises(DataError, match="weights"):
        matches.average_precision(np.ones(3, np.int32))
    with pytest.raises(DataError, match="weights"):
        matches.average_precision(np.full(len(dataset.images), -1, np.int32))


def test_truths_keep_where_they_came_from() -> None:
    dataset = random_dataset(5)
    truths = Truths.of_dataset(dataset)
    np.testing.assert_array_equal(truths.box, dataset.box[truths.source])
    assert truths.cell_offsets[-1] == len(dataset.box)
    assert truths.counted().sum() == (~dataset.crowd).sum()


# File in reference/, data set, names, and the printed numbers of its data sheet.
REFERENCE = [
    ("yolov3-tiny-aix2022_fp32_plain_dev", "aix2022", "aix2022/yolohw.names", (44.58, 84.24, 41.82, 52.47)),
    ("yolov3-tiny-aix2022_fork-int8-zero_center_dev", "aix2022", "aix2022/yolohw.names", (40.69, 83.41, 33.91, 49.41)),
    ("yolo-fastest-1.1_fp32_plain_dev", "coco", "yolo-fastest/coco.names", (15.26, 32.27, 11.83, 26.91)),
    ("yolo-fastest-1.1_fp32_plain_iou-nms_dev", "coco", "yolo-fastest/coco.names", (15.00, 32.44, 11.82, 25.31)),
]


@pytest.mark.parametrize(("file", "folder", "names", "numbers"), REFERENCE, ids=[row[0] for row in REFERENCE])
def test_reference_detections_give_the_printed_numbers(shared_data, file, folder, names, numbers) -> None:
    dataset = load_dataset(
        "coco",
        shared_data / folder / "images",
        names=read_names(shared_data / names),
        annotations=shared_data / folder / "instances_dev.json",
    )
    detections = read_detections(shared_data / "reference" / f"{file}.json", dataset)
    summary = CocoEvaluator(dataset).evaluate(detections).summary
    assert tuple(round(summary[name], 2) for name in ("AP", "AP50", "AP75", "AR100")) == numbers
    for name, value in pycocotools_summary(dataset, detections).items():
        assert abs(summary[name] - value) <= EQUAL, name
