# SPDX-License-Identifier: MIT
"""The area under precision over recall, beside a count by hand and the 101 points of COCO."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.evaluation.compare import draw_images
from mpnet.evaluation.match import Outcomes


def outcomes(matched: list[int], image: list[int], truths: list[int], thresholds: int = 2) -> Outcomes:
    """Make the outcomes of one category. matched: bit t for threshold t, by falling score."""
    count = len(matched)
    return Outcomes(
        np.linspace(0.5, 0.9, thresholds),
        np.array([0, count]),
        np.array(image, np.int32),
        np.linspace(0.9, 0.1, count).astype(np.float32),
        np.zeros(count, np.int32),
        np.array(matched, np.uint16),
        np.zeros(count, np.uint16),
        np.array(truths, np.int32)[:, None],
    )


def test_each_truth_counts_with_the_best_precision_from_there_on() -> None:
    # At the first threshold right, wrong, right, right of four truths: 1, 3/4, 3/4; at the second the first alone.
    matches = outcomes([3, 0, 1, 1], [0, 0, 1, 1], [2, 2])
    assert matches.precision_area() == pytest.approx([((1 + 0.75 + 0.75) / 4 + 1 / 4) / 2])


def test_an_image_that_counts_twice_is_there_twice() -> None:
    matches = outcomes([3, 0, 1, 1], [0, 0, 1, 1], [2, 2])
    # Right, right, wrong, wrong, right, right of six truths; and the two at the second threshold.
    assert matches.precision_area(np.array([[2, 1], [0, 0]], np.int32)) == pytest.approx(
        [((2 + 2 * 4 / 6) / 6 + 2 / 6) / 2, np.nan], nan_ok=True
    )


def test_what_is_ignored_is_neither_right_nor_wrong() -> None:
    matches = outcomes([0, 1], [0, 0], [1], thresholds=1)
    matches.ignored[0] = 1
    assert matches.precision_area() == [1.0]


def test_one_lost_truth_of_many_costs_its_share_and_not_a_point() -> None:
    matches = outcomes([1] * 399, [0] * 399, [400], thresholds=1)
    assert matches.precision_area() == pytest.approx([399 / 400])
    assert matches.average_precision()[0][0, 0] == pytest.approx(100 / 101)


def test_of_many_truths_it_is_the_mean_of_101_points() -> None:
    random = np.random.RandomState(3)
    matches = outcomes(random.randint(0, 4, 3000).tolist(), random.randint(0, 40, 3000).tolist(), [80] * 40)
    weight = draw_images(40, 100)
    points = matches.average_precision(weight)[0][:, 0].mean(axis=-1)
    assert np.abs(matches.precision_area(weight) - points).max() < 0.01
