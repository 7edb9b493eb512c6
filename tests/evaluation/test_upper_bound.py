# SPDX-License-Identifier: MIT
"""The most that AP can be after part of the images: never below what it turns out to be, and exact at the end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mpnet.data.detections import Detections
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator
from mpnet.evaluation.upper_bound import PartialOutcomes, UpperBound, most_informative
from tests.evaluation.evaluation_cases import random_dataset, random_detections


@pytest.mark.parametrize("seed", range(6))
def test_no_bound_is_below_the_result_and_none_rises(seed: int) -> None:
    dataset = random_dataset(seed)
    detections = random_detections(dataset, seed + 100)
    order = np.random.default_rng(seed).permutation(len(dataset.images))
    truths = Truths.of_dataset(dataset).in_order(order)
    index = np.argsort(order)[detections.image_index]
    reordered = Detections.of(len(order), index, detections.category, detections.score, detections.box)
    ap = CocoEvaluator(truths).evaluate(reordered, sizes=False).summary["AP"]
    bound, image_count = UpperBound(truths), len(order)
    bounds = [
        bound.of([bound.partial_outcomes(reordered.of_images(np.arange(end)), 0, end)])[0] for end in range(1, image_count + 1)
    ]
    assert bound.of([[]]) == pytest.approx([100], abs=1e-9)
    assert bounds[-1] == ap
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(bounds))
    assert bounds[image_count // 2] < 100
    for cuts in ((0, 3, image_count), (0, 1, 2, image_count // 2)):  # looked at in parts it is the same
        outcomes = [bound.partial_outcomes(reordered.of_images(np.arange(*segment)), *segment)[0] for segment in pairwise(cuts)]
        assert bound.of([outcomes])[0] == bounds[cuts[-1] - 1]


def test_many_runs_have_the_bounds_of_each() -> None:
    dataset = random_dataset(2)
    truths = Truths.of_dataset(dataset)
    runs, image_count = [random_detections(dataset, seed) for seed in (3, 4, 5)], len(dataset.images)
    bound = UpperBound(truths)

    def parts_of(segment_runs: list[Detections]) -> list[list[PartialOutcomes]]:
        """Return the outcomes of two parts of the images, one part after the other."""
        outcomes = []
        for segment in ((0, 4), (4, image_count - 2)):
            run_detections = [run.of_images(np.arange(*segment)) for run in segment_runs]
            images = segment[1] - segment[0]
            outcomes.append(
                bound.partial_outcomes(
                    Detections.of(
                        len(segment_runs) * images,
                        np.concatenate([run.image_index + i * images for i, run in enumerate(run_detections)]),
                        *(
                            np.concatenate([getattr(run, name) for run in run_detections])
                            for name in ("category", "score", "box")
                        ),
                    ),
                    *segment,
                )
            )
        return [list(of_run) for of_run in zip(*outcomes, strict=True)]

    together = bound.of(parts_of(runs))
    assert together.tolist() == [bound.of(parts_of([run]))[0] for run in runs]
    assert len(set(together.tolist())) == 3


def test_a_bound_is_reached_by_a_run_that_finds_everything_else() -> None:
    dataset = random_dataset(3)
    truths = Truths.of_dataset(dataset)
    image_count = 5
    detections = random_detections(dataset, 7).of_images(np.arange(image_count))
    image = np.repeat(np.arange(truths.image_count * truths.category_count), np.diff(truths.cell_offsets))
    later = (image // truths.category_count >= image_count) & (truths.crowd == 0)
    perfect = Detections.of(
        truths.image_count,
        np.concatenate([detections.image_index, image[later] // truths.category_count]),
        np.concatenate([detections.category, image[later] % truths.category_count]),
        np.concatenate([detections.score, np.full(later.sum(), 2.0)]),
        np.concatenate([detections.box, truths.box[later]]),
    )
    limits = np.full((truths.image_count, 2), 1e6, np.float32)  # nothing is cut, so that perfect boxes are
    unclipped_truths = Truths(
        truths.image_count,
        truths.category_count,
        truths.cell_offsets,
        truths.box,
        truths.area,
        truths.crowd,
        truths.source,
        limits,
    )
    reached = CocoEvaluator(unclipped_truths).evaluate(perfect, sizes=False).summary["AP"]
    bound = UpperBound(unclipped_truths)
    assert bound.of([bound.partial_outcomes(detections, 0, image_count)]) == pytest.approx([reached], abs=1e-9)


def test_some_images_of_another_order_are_those_images() -> None:
    dataset = random_dataset(5)
    truths = Truths.of_dataset(dataset)
    order = np.random.default_rng(1).permutation(truths.image_count)
    middle = truths.in_order(order).between(2, 6)
    for position, image in enumerate(order[2:6]):
        alone = Truths.of_dataset(dataset.subset([int(image)]))
        cells = middle.cell_offsets[position * truths.category_count : (position + 1) * truths.category_count + 1]
        np.testing.assert_array_equal(middle.box[cells[0] : cells[-1]], alone.box)
        np.testing.assert_array_equal(np.diff(cells), np.diff(alone.cell_offsets))


def test_images_that_decide_most_come_first() -> None:
    dataset = random_dataset(8)
    truths = Truths.of_dataset(dataset)
    truth_counts = truths.counted()
    shares = (truth_counts / np.maximum(1, truth_counts.sum(axis=0))).sum(axis=1)
    order = most_informative(truths)
    assert sorted(order) == list(range(truths.image_count))
    assert (np.diff(shares[order]) <= 0).all()


def test_images_on_which_a_sample_misses_most_come_first() -> None:
    dataset = random_dataset(4)
    truths = Truths.of_dataset(dataset)
    truth_counts, image_count = truths.counted(), truths.image_count
    worst, best = np.argsort(-(truth_counts / np.maximum(1, truth_counts.sum(axis=0))).sum(axis=1), kind="stable")[:2]
    image = np.repeat(np.arange(image_count * truths.category_count), np.diff(truths.cell_offsets))
    ordinary = truths.crowd == 0

    def finds(images: set[int], run: int) -> list[np.ndarray]:
        """Return all truths of these images, exactly."""
        is_detected = ordinary & np.isin(image // truths.category_count, list(images))
        return [
            image[is_detected] // truths.category_count + run * image_count,
            image[is_detected] % truths.category_count,
            np.full(is_detected.sum(), 0.5),
            truths.box[is_detected],
        ]

    everywhere = set(range(image_count))
    runs = [finds(everywhere - {int(worst)}, 0), finds(everywhere - {int(worst), int(best)}, 1)]
    columns = [np.concatenate(arrays) for arrays in zip(*runs, strict=True)]
    order = most_informative(truths, Detections.of(2 * image_count, *columns))
    assert order[:2].tolist() == [worst, best]
    assert order[2:].tolist() == [i for i in most_informative(truths) if i not in (worst, best)]


def test_images_with_wrong_boxes_come_first() -> None:
    dataset = random_dataset(4)
    truths = Truths.of_dataset(dataset)
    image = np.repeat(np.arange(truths.image_count * truths.category_count), np.diff(truths.cell_offsets))
    ordinary = truths.crowd == 0
    worst = int(most_informative(truths)[-1])
    category = int(image[ordinary][0] % truths.category_count)
    run = Detections.of(
        truths.image_count,
        np.append(image[ordinary] // truths.category_count, worst),
        np.append(image[ordinary] % truths.category_count, category),
        np.append(np.full(ordinary.sum(), 0.5), 0.9),
        np.concatenate([truths.box[ordinary], [[0.0, 0.0, 0.5, 0.5]]]),
    )
    assert most_informative(truths, run)[0] == worst
