"""The most that a detector's average precision can still be, once it was seen on part of the pictures.

On the pictures not seen it is taken to find every object, with a higher score than all else, and nothing besides. Going
there from whatever it really finds on them only takes away wrong boxes, moves right ones up and adds missing ones, none of
which lowers the precision at any recall: a proof, not an estimate. Each IoU threshold and class has its own, so the mean
over both is bounded as well.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.evaluation.match import Outcomes, Truths, match
from mpnet.evaluation.metrics import mean_of_present
from mpnet.spec.detections import Detections


class Ceiling:
    """Of AP with respect to `truths`, whose images are looked at in their order."""

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._counted = truths.counted()
        self._between: dict[tuple[int, int], Truths] = {}

    def outcomes(self, detections: Detections, first: int, last: int) -> Outcomes:
        """What becomes of the detections of the images first .. last - 1."""
        if (first, last) not in self._between:
            self._between[first, last] = self._truths.between(first, last)
        return match(detections, self._between[first, last])

    def of(self, parts: Sequence[Outcomes]) -> float:
        """Percent, from the outcomes of consecutive groups of images; the AP itself when they are of all."""
        seen = Outcomes.joined(parts)
        unseen = self._counted[len(seen.positives):].sum(axis=0, dtype=np.int32)
        return mean_of_present(seen.average_precision(given=unseen)[0])


def most_telling(truths: Truths) -> NDArray[np.intp]:
    """The images in the order in which they lower a ceiling soonest: by the share of AP that is decided on each.

    An image has as much of it as it has of each class's truths; equal ones keep their order.
    """
    counted = truths.counted()
    shares = (counted / np.maximum(1, counted.sum(axis=0))).sum(axis=1)
    return np.argsort(-shares, kind="stable")
