# SPDX-License-Identifier: MIT
"""mAP@0.5 as Darknet's `detector map` counts it: 11 recall points, and its own rule for repeated matches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.match import Truths, best_overlap

RECALL_POINTS: tuple[float, ...] = tuple(point * 0.1 for point in range(11))  # 3 * 0.1 is slightly above 0.3


def darknet_ap50(detections: Detections, dataset: Dataset | Truths) -> NDArray[np.float64]:
    """Average precision per category in percent, float64 (categories,); -1 without truths. Boxes are not clipped.

    A detection takes the truth of its image and class with the highest IoU, if that is > 0.5. By falling score, the
    first taker of a truth is right, later ones do not count at all, and detections without a truth are wrong. AP is
    the mean over the recalls 0, 0.1, ... 1 of the highest precision at that recall or beyond.
    Crowds are no truths here: Darknet's label files have none.
    """
    truths = dataset if isinstance(dataset, Truths) else Truths.of_dataset(dataset)
    detections, truths = truths.of_labelled(detections), truths.without_crowds()
    taken = best_overlap(detections, truths, 0.5)
    order = np.argsort(-detections.score, kind="stable")
    truth_of = taken[order]
    first = np.zeros(len(order), dtype=bool)
    first[np.unique(truth_of, return_index=True)[1]] = True
    right = first & (truth_of >= 0)
    wrong = truth_of < 0
    category = detections.category[order]
    positives = truths.counted().sum(axis=0)
    result = np.full(truths.category_count, -1.0)
    for c in np.flatnonzero(positives):
        mine = category == c
        hits, misses = np.cumsum(right[mine]), np.cumsum(wrong[mine])
        seen = hits + misses > 0
        recall = hits[seen] / positives[c]
        precision = hits[seen] / (hits + misses)[seen]
        result[c] = 100.0 * np.mean([precision[recall >= point].max(initial=0.0) for point in RECALL_POINTS])
    return result


def darknet_map50(per_category: NDArray[np.float64]) -> float:
    """Mean of what `darknet_ap50` gives over the categories that have truths, percent; -1 when none has."""
    present = per_category[per_category > -1]
    return float(present.mean()) if present.size else -1.0
