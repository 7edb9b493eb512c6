# SPDX-License-Identifier: MIT
"""The upper bound of a detector's average precision, once it was run on part of the images.

On the remaining images it is assumed to detect every object with the highest scores of all and to make no wrong detection.
To get there from its real detections, wrong boxes are removed, right ones get higher scores and missing ones are added. None of
these steps lowers the precision at any recall, so this is a proof, not an estimate. It holds for each IoU threshold and class,
and so for their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import Detections
from mpnet.evaluation.match import COCO_THRESHOLDS, Outcomes, Truths, by_category, find_matches
from mpnet.evaluation.metrics import PERCENT

MOST_GROUPS = 1000
"""Of images that are taken to be perfect together, so that many images take no longer than their passes."""


@dataclass(frozen=True, eq=False)
class PartialOutcomes:
    """The matches of one run's detections in some of the images, in their order; fields as those of `Outcomes`."""

    images: int
    category: NDArray[np.int32]
    score: NDArray[np.float32]
    rank: NDArray[np.int32]
    matched: NDArray[np.uint16]
    ignored: NDArray[np.uint16]


class UpperBound:
    """The upper bound of AP with respect to `truths`, whose images come in their order.

    It takes many runs at once, since one alone costs less than the calls of NumPy.
    """

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._counted = truths.counted()
        self._between: dict[tuple[int, int], Truths] = {}

    def partial_outcomes(self, detections: Detections, first: int, last: int) -> list[PartialOutcomes]:
        """Judge the detections of runs over the images first .. last - 1, one run after the other."""
        if (first, last) not in self._between:
            self._between[first, last] = self._truths.between(first, last)
        rank, matched, ignored, _ = find_matches(detections, self._between[first, last])
        return [
            PartialOutcomes(
                last - first,
                detections.category[start:end],
                detections.score[start:end],
                rank[start:end],
                matched[start:end],
                ignored[start:end],
            )
            for start, end in pairwise(detections.offsets[:: last - first].tolist())
        ]

    def of(self, runs: Sequence[Sequence[PartialOutcomes]]) -> NDArray[np.float64]:
        """Return the bounds, float64 (runs,), percent: the AP itself when the groups are of all images.

        runs: of each run what was seen of it in consecutive groups of images, the same groups for all.
        """
        parts = [part for run in runs for part in run]
        count, categories = len(runs), self._truths.category_count
        # A run's categories are its own, so that all are one table.
        offsets = np.repeat(
            np.arange(count, dtype=np.int32) * categories, [sum(len(part.score) for part in run) for run in runs]
        )
        category, score, rank, matched, ignored = (
            np.concatenate([np.zeros(0, kind), *(getattr(part, name) for part in parts)])
            for name, kind in (
                ("category", np.int32),
                ("score", np.float32),
                ("rank", np.int32),
                ("matched", np.uint16),
                ("ignored", np.uint16),
            )
        )
        order, start = by_category(count * categories, category + offsets, score)
        images = sum(part.images for part in runs[0])
        counted = self._counted[:images].sum(axis=0, dtype=np.int32)
        unseen = self._counted[images:].sum(axis=0, dtype=np.int32)
        outcomes = Outcomes(
            COCO_THRESHOLDS,
            start,
            np.zeros(len(order), np.int32),
            score[order],
            rank[order],
            matched[order],
            ignored[order],
            np.tile(counted, count)[None],
        )
        precision = outcomes.average_precision(given=np.tile(unseen, count))[0].reshape(count, categories, -1)
        present = np.ascontiguousarray(precision[:, counted + unseen > 0]).reshape(count, -1)
        return PERCENT * present.mean(axis=1) if present.size else np.full(count, -1.0)


def most_informative(truths: Truths, sample: Detections | None = None) -> NDArray[np.intp]:
    """Return the positions of the images, those first that lower a bound soonest.

    They are ordered by the AP that a sample of runs would gain if it made no error in an image, misses, wrong boxes and low
    scores alike; without a sample, and among images of equal gain, by the share of each class's truths that an image has.
    Equal ones keep their order.

    sample: of the truths' images, one run after the other.
    """
    counted = truths.counted()
    order = np.argsort(-(counted / np.maximum(1, counted.sum(axis=0))).sum(axis=1), kind="stable")
    if sample is None or len(order) == 0:
        return order
    groups = np.array_split(order, min(len(order), MOST_GROUPS))
    gains = np.repeat(_gains(truths, sample, groups), [len(group) for group in groups])
    return order[np.argsort(-gains, kind="stable")]


def _gains(truths: Truths, sample: Detections, groups: Sequence[NDArray[np.intp]]) -> NDArray[np.float64]:
    """Return float64 (groups,): by how much the runs' APs would rise together, per image of a group, if the group were perfect.

    In the sum over classes and thresholds, as fractions.
    """
    rank, matched, ignored, _ = find_matches(sample, truths)
    counted, images = truths.counted(), truths.image_count
    total = counted.sum(axis=0, dtype=np.int32)
    group_of = np.empty(images, np.intp)
    group_of[np.concatenate(groups)] = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    gains = np.zeros(len(groups))
    for start, end in pairwise(sample.offsets[::images].tolist()):
        rows = start + np.flatnonzero(total[sample.category[start:end]])  # of classes that count
        order, _ = by_category(truths.category_count, sample.category[rows], sample.score[rows])
        rows = rows[order]
        group = group_of[sample.image_index[rows] % images]

        def average_precision(kept: NDArray[np.bool_], given: NDArray[np.int32], rows: NDArray[np.intp] = rows) -> float:
            """Sum average precision over classes and thresholds; the truths in `given` are found by detections not kept."""
            here = rows[kept]
            outcomes = Outcomes(
                COCO_THRESHOLDS,
                np.searchsorted(sample.category[here], np.arange(truths.category_count + 1)),
                np.zeros(len(here), np.int32),
                sample.score[here],
                rank[here],
                matched[here],
                ignored[here],
                (total - given)[None],
            )
            return float(outcomes.average_precision(given=given)[0][total > 0].sum())

        before = average_precision(np.ones(len(rows), np.bool_), np.zeros_like(total))
        for number, members in enumerate(groups):
            given = counted[members].sum(axis=0, dtype=np.int32)
            gains[number] += (average_precision(group != number, given) - before) / len(members)
    return gains
