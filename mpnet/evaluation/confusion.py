# SPDX-License-Identifier: MIT
"""The confusion matrix of classes: true classes against those that a run predicts, counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.agreement import BASELINE_SCORE
from mpnet.evaluation.compare import found_objects
from mpnet.evaluation.match import Truths


def detector_confusion(detections: Detections, dataset: Dataset, score: float = BASELINE_SCORE) -> NDArray[np.int64]:
    """Return int64 (classes + 1, classes + 1): rows true classes, last: no object; columns found classes, last: not found.

    Detections of at least `score` count. Each object is first matched within its class, as `found_objects` does, so that
    the diagonal is the number of objects that are found; what is left is matched at IoU 0.5 whatever its class. Crowds, and
    what finds them, count nowhere.
    """
    classes = len(dataset.categories)
    detections = dataset.of_labelled(detections)
    sure = detections.select(detections.score >= np.float32(score))
    truths = Truths.of_dataset(dataset)
    finders = found_objects(sure, truths, score)
    matrix = np.zeros((classes + 1, classes + 1), dtype=np.int64)
    right = ~dataset.crowd & (finders >= 0)
    np.add.at(matrix, (dataset.category[right], dataset.category[right]), 1)
    left = np.ones(len(sure), dtype=bool)
    left[finders[finders >= 0]] = False
    missed, others = ~dataset.crowd & (finders < 0), sure.select(left)
    alike = replace(others, category=np.zeros_like(others.category))
    order = np.lexsort((-alike.score, alike.image_index))
    alike = Detections(alike.image_count, alike.image_index[order], alike.category, alike.score[order], alike.box[order])
    confused = found_objects(
        alike,
        Truths.of(
            dataset.sizes[: dataset.labelled_count],
            1,
            dataset.image_index[missed],
            np.zeros(int(missed.sum()), dtype=np.int32),
            dataset.box[missed],
        ),
        score,
    )
    named = others.category[order]
    columns = np.where(confused >= 0, named[confused], classes) if len(named) else np.full(len(confused), classes)
    np.add.at(matrix, (dataset.category[missed], columns), 1)
    alone = np.ones(len(named), dtype=bool)
    alone[confused[confused >= 0]] = False
    np.add.at(matrix, (np.full(int(alone.sum()), classes), named[alone]), 1)
    return matrix


def classifier_confusion(classifications: Classifications, dataset: Dataset) -> NDArray[np.int64]:
    """Return int64 (classes, classes): rows true classes, columns the best class of the run."""
    classes = len(dataset.categories)
    cell = dataset.labels.astype(np.int64) * classes + dataset.of_labelled(classifications).best
    return np.bincount(cell, minlength=classes * classes).reshape(classes, classes)
