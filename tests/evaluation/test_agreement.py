# SPDX-License-Identifier: MIT
"""Agreement with a baseline's detections."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.errors import DataError
from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.compare import draw_images
from tests.evaluation.coco_oracle import pycocotools_summary
from tests.evaluation.evaluation_cases import random_dataset, random_detections


def test_a_run_agrees_with_itself() -> None:
    dataset = random_dataset(1)
    detections = random_detections(dataset, 2, extra=60)
    values = Agreement(detections, dataset.sizes, 4).measure(detections)
    assert values == {"AP": 100.0, "AP50": 100.0, "AP75": 100.0, "AP95": 100.0}


def test_equals_pycocotools_with_the_sure_detections_as_truth() -> None:
    dataset = random_dataset(3)
    baseline, detections = random_detections(dataset, 4), random_detections(dataset, 4, noise=0.2)
    # Boxes wholly outside the image are left out on both sides.
    baseline, detections = (
        run.select((run.clipped(dataset.sizes).box[:, 2:] > 0).all(axis=1)) for run in (baseline, detections)
    )
    sure = baseline.select(baseline.score >= 0.25).clipped(dataset.sizes)
    truth = Dataset.of(
        dataset.images,
        dataset.categories,
        [
            (int(i), int(c), b.tolist(), float(b[2]) * float(b[3]), False)
            for i, c, b in zip(sure.image_index, sure.category, sure.box, strict=True)
        ],
    )
    expected = pycocotools_summary(truth, detections)
    actual = Agreement(baseline, dataset.sizes, 4).measure(detections)
    for name in ("AP", "AP50", "AP75"):
        assert abs(actual[name] - expected[name]) <= 1e-9
    assert actual["AP50"] >= actual["AP75"] >= actual["AP95"] >= 0


def test_the_score_of_the_baseline_decides_what_is_truth() -> None:
    sizes = np.array([[100, 100]], np.float32)
    boxes = [[0, 0, 20, 20], [50, 50, 20, 20]]
    baseline = Detections.of(1, [0, 0], [0, 0], [0.25, 0.24], boxes)
    agreement = Agreement(baseline, sizes, 1)
    assert agreement.measure(baseline.select(baseline.score > 0.24))["AP"] == 100.0
    assert agreement.measure(baseline.select(baseline.score < 0.25))["AP"] == 0.0


def test_nothing_sure_in_the_baseline_is_minus_one() -> None:
    sizes = np.array([[100, 100]], np.float32)
    unsure = Detections.of(1, [0], [0], [0.1], [[0, 0, 20, 20]])
    assert Agreement(unsure, sizes, 1).measure(unsure) == {"AP": -1.0, "AP50": -1.0, "AP75": -1.0, "AP95": -1.0}


def test_other_images_are_an_error() -> None:
    one_image, two_images = Detections.of(1, [], [], [], []), Detections.of(2, [], [], [], [])
    with pytest.raises(DataError, match="has 2 images, the other run 1"):
        Agreement(one_image, np.ones((2, 2), np.float32), 3)
    with pytest.raises(DataError, match="has 1 images, the other run 2"):
        Agreement(one_image, np.ones((1, 2), np.float32), 3).measure(two_images)


def test_in_one_list_a_class_with_many_objects_counts_as_many_times() -> None:
    """Of ten classes nine have one object each, which is detected; of the tenth's nine objects none is."""
    sizes, boxes = np.array([[100, 100]] * 18, np.float32), [[10, 10, 30, 30]] * 18
    baseline = Detections.of(18, list(range(18)), [*range(9), *[9] * 9], [0.9] * 18, boxes)
    (averaged, _), (pooled, resampled) = Agreement(baseline, sizes, 10).resampled(
        baseline.select(baseline.category < 9), draw_images(18)
    )
    assert averaged == pytest.approx(90.0)
    assert pooled == 50.0
    assert (resampled.left[:9] < pooled).all()
    assert (resampled.left[9:] > pooled).all()
