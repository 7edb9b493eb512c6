# SPDX-License-Identifier: MIT
"""Confusion matrices, counted by hand and against what else counts objects."""

from __future__ import annotations

import numpy as np

from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.evaluation.compare import found_objects
from mpnet.evaluation.confusion import classifier_confusion, detector_confusion
from mpnet.evaluation.match import Truths
from tests.evaluation.evaluation_cases import random_dataset, random_detections

IMAGES = tuple(ImageRecord(i + 1, f"{i}.png", 100, 100, f"{i:064d}") for i in range(2))
CLASSES = tuple(Category(i + 1, name) for i, name in enumerate(("circle", "square", "star")))
BOX = (10.0, 10.0, 30.0, 30.0)
DISTANT_BOX = (60.0, 60.0, 20.0, 20.0)


def test_objects_are_found_taken_for_others_missed_and_invented() -> None:
    dataset = Dataset.of(
        IMAGES,
        CLASSES,
        [
            (0, 0, BOX, 900.0, False),
            (0, 1, DISTANT_BOX, 400.0, False),
            (1, 2, BOX, 900.0, False),
            (1, 0, DISTANT_BOX, 400.0, True),
        ],
    )
    detections = Detections.of(
        2,
        [0, 0, 0, 1, 1, 1],
        [0, 1, 2, 0, 0, 1],
        [0.5, 0.9, 0.8, 0.7, 0.6, 0.1],
        [BOX, BOX, DISTANT_BOX, BOX, DISTANT_BOX, DISTANT_BOX],
    )
    # circle found although a surer square lies on it; the square taken for a star; the star for a circle; the circle of
    # the crowd counts nowhere; the surer square is nothing's; a doubtful one is no detection.
    expected = [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert detector_confusion(detections, dataset).tolist() == expected


def test_rows_are_the_objects_columns_the_detections_and_the_diagonal_what_is_found() -> None:
    dataset = random_dataset(3)
    detections = random_detections(dataset, 4)
    matrix = detector_confusion(detections, dataset)
    is_counted = ~dataset.crowd
    detection_of = found_objects(detections, Truths.of_dataset(dataset))
    assert matrix[:-1].sum(axis=1).tolist() == np.bincount(dataset.category[is_counted], minlength=len(matrix) - 1).tolist()
    assert np.trace(matrix) == np.count_nonzero(is_counted & (detection_of >= 0))
    sure = np.bincount(detections.category[detections.score >= np.float32(0.25)], minlength=len(matrix) - 1)
    on_crowds = np.unique(detection_of[dataset.crowd & (detection_of >= 0)]).size
    assert matrix[:, :-1].sum() == sure.sum() - on_crowds


def test_a_classifier_names_one_class_for_each_image() -> None:
    dataset = Dataset.labelled(IMAGES, CLASSES, [0, 2])
    classifications = Classifications.of([[0, 1, 2], [1, 2, 0]], [[0.9, 0.1, 0.0], [0.8, 0.1, 0.1]], 3)
    assert classifier_confusion(classifications, dataset).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
