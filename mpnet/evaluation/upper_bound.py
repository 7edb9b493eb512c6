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
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import Detections
from mpnet.evaluation.match import COCO_THRESHOLDS, Outcomes, Truths, by_category, find_matches
from mpnet.evaluation.metrics import PERCENT


@dataclass(frozen=True, eq=False)
class PartialOutcomes:
    """What became of the detections of one run in some of the images, in their order; fields as those of `Outcomes`."""

    images: int
    category: NDArray[np.int32]
    score: NDArray[np.float32]
    rank: NDArray[np.int32]
    matched: NDArray[np.uint16]
    ignored: NDArray[np.uint16]


class UpperBound:
    """The upper bound of AP with respect to `truths`, whose images come in their order. It takes many runs at once, since one
    alone costs less than the calls of NumPy."""

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._counted = truths.counted()
        self._between: dict[tuple[int, int], Truths] = {}

    def partial_outcomes(self, detections: Detections, first: int, last: int) -> list[PartialOutcomes]:
        """What becomes of the detections of runs over the images first .. last - 1, one run after the other."""
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
        """float64 (runs,), percent: of each run what was seen of it in consecutive groups of images, the same groups for all.
        The AP itself when they are of all images."""
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
    """Positions of the images, those first that lower a bound soonest: by the share of each class's truths that a sample of
    runs misses on each, or, without one, that each has. Equal ones keep their order.

    sample: of the truths' images, one run after the other.
    """
    counted = truths.counted()
    missed: NDArray[Any] = counted
    if sample is not None:
        _, matched, ignored, _ = find_matches(sample, truths)
        thresholds = len(COCO_THRESHOLDS)
        right = (((matched & ~ignored)[:, None] >> np.arange(thresholds, dtype=np.uint16)) & 1).sum(axis=1)
        hits = np.zeros(counted.shape)
        np.add.at(hits, (sample.image_index % truths.image_count, sample.category), right)
        missed = counted - hits / (thresholds * (sample.image_count // truths.image_count))
    shares = (missed / np.maximum(1, counted.sum(axis=0))).sum(axis=1)
    return np.argsort(-shares, kind="stable")
