# SPDX-License-Identifier: MIT
"""COCO's metrics, equal to pycocotools to 1e-9 but made for sweeps; and Darknet's mAP@0.5.

A hundred images take a few milliseconds. Darknet's has 11 points of recall and its own rule for repeated matches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.match import AREA_RANGES, Matches, Truths, best_overlap, match

AT_50, AT_75 = 0, 5  # positions in COCO_THRESHOLDS
SIZES: tuple[str, ...] = ("small", "medium", "large")  # of AREA_RANGES
PERCENT = 100.0
DARKNET_RECALLS: tuple[float, ...] = tuple(point * 0.1 for point in range(11))  # 3 * 0.1 is slightly above 0.3


def mean_of_present(values: NDArray[np.float64]) -> float:
    """Return the mean in percent over categories that have truths (the others hold -1); -1 when none has."""
    present = values[values > -1]
    return float(present.mean() * PERCENT) if present.size else -1.0


@dataclass(frozen=True, eq=False)
class CocoResult:
    """Metrics in percent; -1 where nothing could be measured (no truths), as COCO has it.

    summary:   AP, AP50, AP75, AR100; with sizes also AP_small, AP_medium, AP_large, AR1, AR10, AR_small, AR_medium,
               AR_large.
    precision: float64 (categories, 10), average precision per IoU threshold in percent, -1 without truths.
    recall:    the same for the recall with up to 100 detections.
    truths:    int64 (categories,), truths that count.
    matches:   the matching behind it, for bootstrap draws.
    """

    summary: dict[str, float]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    truths: NDArray[np.int64]
    matches: Matches

    def mean_at(self, threshold: int) -> float:
        """Return the mean over the categories of the average precision at one of the ten thresholds, percent, or -1."""
        present = self.precision[self.truths > 0, threshold]
        return float(present.mean()) if present.size else -1.0

    def per_class(self) -> list[dict[str, float]]:
        """Return for each category truths, AP, AP50, AP75, AR100 (percent, -1 without truths)."""
        return [
            {
                "truths": int(self.truths[c]),
                "AP": float(self.precision[c].mean()),
                "AP50": float(self.precision[c, AT_50]),
                "AP75": float(self.precision[c, AT_75]),
                "AR100": float(self.recall[c].mean()),
            }
            for c in range(len(self.truths))
        ]


def _to_percent(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn fractions into percent; -1 (nothing to measure) stays."""
    return np.where(values > -1, values * PERCENT, -1.0)


class CocoEvaluator:
    """An evaluator of any number of runs on one data set; the truths are put in order once.

    Thread-safe: nothing changes after construction.
    """

    def __init__(self, dataset: Dataset | Truths) -> None:
        self.truths = dataset if isinstance(dataset, Truths) else Truths.of_dataset(dataset)

    def evaluate(self, detections: Detections, *, sizes: bool = True) -> CocoResult:
        """Compute all metrics of the detections, whose boxes are clipped to the images first.

        sizes: also small, medium, large, AR1 and AR10 (three more matchings; a sweep leaves them out).
        Raises: DataError for detections of other images or classes.
        """
        result = self.evaluate_area(detections, "all")
        if sizes:
            summary = result.summary
            for count in (1, 10):
                summary[f"AR{count}"] = mean_of_present(result.matches.average_precision(max_rank=count)[1])
            for area in SIZES:
                ap, ar = match(detections, self.truths, area).average_precision()
                summary[f"AP_{area}"], summary[f"AR_{area}"] = mean_of_present(ap), mean_of_present(ar)
        return result

    def evaluate_area(self, detections: Detections, area: str) -> CocoResult:
        """Compute AP, AP50, AP75 and AR100 with respect to the truths of one of AREA_RANGES."""
        matches = match(detections, self.truths, area)
        precision, recall = matches.average_precision()
        summary = {
            "AP": mean_of_present(precision),
            "AP50": mean_of_present(precision[:, AT_50]),
            "AP75": mean_of_present(precision[:, AT_75]),
            "AR100": mean_of_present(recall),
        }
        return CocoResult(
            summary, _to_percent(precision), _to_percent(recall), matches.positives.sum(axis=0, dtype=np.int64), matches
        )


def size_of(area: float) -> str:
    """Return the name of a size, as COCO bounds them; area: of the truth, square pixels."""
    return next(name for name in SIZES if area <= AREA_RANGES[name][1])


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
        result[c] = 100.0 * np.mean([precision[recall >= point].max(initial=0.0) for point in DARKNET_RECALLS])
    return result


def darknet_map50(per_category: NDArray[np.float64]) -> float:
    """Return the mean of what `darknet_ap50` gives over the categories that have truths, percent; -1 when none has."""
    present = per_category[per_category > -1]
    return float(present.mean()) if present.size else -1.0
