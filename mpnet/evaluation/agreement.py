# SPDX-License-Identifier: MIT
"""Agreement: how far a run finds what a baseline run found. Finer than AP on few images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import Detections
from mpnet.errors import DataError
from mpnet.evaluation.compare import bootstrap
from mpnet.evaluation.intervals import Resampled, left_out
from mpnet.evaluation.match import COCO_THRESHOLDS, Truths
from mpnet.evaluation.metrics import PERCENT, CocoEvaluator

BASELINE_SCORE = 0.25
AT_95 = len(COCO_THRESHOLDS) - 1


class Agreement:
    """A measure of runs against one baseline: its detections with score >= 0.25 are taken as truth.

    sizes: float32 (images, 2), width and height of the images; both runs' boxes are clipped to them.
    """

    def __init__(self, baseline: Detections, sizes: NDArray[np.float32], category_count: int) -> None:
        inside = inside_images(baseline, sizes)
        sure = inside.select(inside.score >= np.float32(BASELINE_SCORE)).clipped(sizes)
        self.truths = Truths.of(sizes, category_count, sure.image_index, sure.category, sure.box)
        self._evaluator = CocoEvaluator(self.truths)

    def measure(self, detections: Detections) -> dict[str, float]:
        """Return AP (mean over the ten IoU thresholds), AP50, AP75 and AP95 of the detections against the baseline, percent.

        -1 when the baseline found nothing with that score.
        """
        result = self._evaluator.evaluate(inside_images(detections, self.truths.sizes), sizes=False)
        return {name: result.summary[name] for name in ("AP", "AP50", "AP75")} | {"AP95": result.mean_at(AT_95)}

    def resampled(self, detections: Detections, weight: NDArray[np.int32]) -> list[tuple[float, Resampled]]:
        """Return (AP of the detections against the baseline in percent, the same on resampled images), twice.

        First the mean over the classes, then the area under the curve with the objects of all classes in one list.

        weight: `draw_images`.
        """
        result = self._evaluator.evaluate(inside_images(detections, self.truths.sizes), sizes=False)
        pooled = result.matches.pooled()
        value, drawn, left = (PERCENT * pooled.precision_area(counts) for counts in (None, weight, left_out(weight.shape[1])))
        return [
            (result.summary["AP"], bootstrap(result, weight).summary["AP"]),
            (float(np.nan_to_num(value[0], nan=-1.0)), Resampled(drawn, left, weight.shape[1])),
        ]


def inside_images(detections: Detections, sizes: NDArray[np.float32]) -> Detections:
    """Return the detections that overlap their image: nothing could match the others if they were truths."""
    if len(sizes) != detections.image_count:
        raise DataError(f"the baseline has {len(sizes)} images, the other run {detections.image_count}")
    keep = np.ones(len(detections), np.bool_)
    # Column by column: sweeps ask often, and NumPy is slow over rows of two.
    for axis in range(2):
        low, size = detections.box[:, axis], detections.box[:, 2 + axis]
        keep &= (low < sizes[:, axis][detections.image_index]) & (low + size > 0) & (size > 0)
    return detections if keep.all() else detections.select(keep)
