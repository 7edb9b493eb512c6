# SPDX-License-Identifier: MIT
"""Shares of images by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.data.classifications import Classifications, best_classes
from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.errors import DataError
from mpnet.evaluation.classification import agreement, per_class, right, share
from mpnet.formats.documents.typed import as_json
from mpnet.report.collect.class_pairs import ClassPairing
from mpnet.trial.classification import ClassMeter, measure_classifications

LABELS = np.array([0, 0, 1, 6], np.int32)
# Best first: right, second, right, sixth and so not kept.
FIRST_ORDERS = [[0, 1, 2, 3, 4, 5, 6], [1, 0, 2, 3, 4, 5, 6], [1, 0, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 6, 5]]
SECOND_ORDERS = [[1, 0, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6], [1, 0, 2, 3, 4, 5, 6], [2, 1, 0, 3, 6, 4, 5]]


def run(orders: list[list[int]]) -> Classifications:
    scores = np.zeros((len(orders), 7), np.float32)
    for row, order in enumerate(orders):
        scores[row, order] = np.linspace(0.7, 0.1, 7)
    return best_classes(scores)


def data() -> Dataset:
    return Dataset.labelled(
        [ImageRecord(i + 1, f"{i}.png", 8, 8, f"{i:064x}") for i in range(4)],
        [Category(c + 1, f"class {c}") for c in range(7)],
        LABELS.tolist(),
    )


def test_top_one_and_five() -> None:
    classifications = run(FIRST_ORDERS)
    assert right(classifications, LABELS, 1).tolist() == [True, False, True, False]
    assert right(classifications, LABELS, 5).tolist() == [True, True, True, False]
    assert ClassMeter(data(), run(SECOND_ORDERS)).values(classifications) == {
        "top1": 50.0,
        "top5": 75.0,
        "agreement_top1": 25.0,
    }
    assert agreement(classifications, classifications) == 100.0
    assert share(np.zeros(0, bool)) == -1.0
    assert per_class(classifications, LABELS, 7)[0] == {"truths": 2, "top1": 50.0, "top5": 100.0}
    assert per_class(classifications, LABELS, 7)[3] == {"truths": 0, "top1": -1.0, "top5": -1.0}
    assert as_json(measure_classifications(classifications, data())[1][6]) == {
        "id": 7,
        "name": "class 6",
        "truths": 1,
        "top1": 0.0,
        "top5": 0.0,
    }
    with pytest.raises(DataError, match="the run has 4 images, the data set 3"):
        right(classifications, LABELS[:3], 1)


def test_a_pair_says_what_was_lost_gained_and_moved() -> None:
    pair = ClassPairing(data(), run(FIRST_ORDERS)).pair(run(SECOND_ORDERS))
    assert [(c.kind, c.image, c.name, c.before.name, c.after.name) for c in pair.changes] == [  # type: ignore[attr-defined]
        ("lost", "0.png", "class 0", "class 0", "class 1"),
        ("gained", "1.png", "class 0", "class 1", "class 0"),
    ]
    assert pair.values == {"top1": 50.0, "top5": 100.0, "agreement_top1": 25.0}
    assert (pair.metrics["top1"].difference, pair.metrics["top5"].difference) == (0.0, 25.0)
    assert pair.metrics["agreement_top1"].difference == -75.0
    assert pair.metrics["top1"].low < 0 < pair.metrics["top1"].high
    assert pair.verdict == "McNemar's test: mid-p 0.5, exact p 1; 1 more went from one wrong class to another"
    assert [(row.name, row.truths) for row in pair.classes] == [("class 0", 2), ("class 1", 1), ("class 6", 1)]


def test_boxes_are_no_labels() -> None:
    boxes = Dataset.of(data().images, data().categories, [(0, 0, (0, 0, 4, 4), 16, False)])
    with pytest.raises(DataError, match="a classifier needs images of one class each"):
        ClassMeter(boxes)
