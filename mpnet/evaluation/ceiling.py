"""The most that a detector's average precision can still be, once it was seen on part of the pictures.

On the pictures not seen it is taken to find every object, with a higher score than all else, and nothing besides. Going
there from whatever it really finds on them only takes away wrong boxes, moves right ones up and adds missing ones, none of
which lowers the precision at any recall: a proof, not an estimate. Each IoU threshold and class has its own, so the mean
over both is bounded as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.evaluation.match import Truths, match
from mpnet.evaluation.metrics import mean_of_present
from mpnet.spec.detections import Detections


class Ceiling:
    """Of AP with respect to `truths`, after the first `seen` images of them."""

    def __init__(self, truths: Truths, seen: int) -> None:
        self._seen = truths.first(seen)
        self._given = truths.counted()[seen:].sum(axis=0, dtype=np.int32)

    def of(self, detections: Detections) -> float:
        """Percent; the AP itself when all images are seen. detections: of the images seen."""
        return mean_of_present(match(detections, self._seen).average_precision(given=self._given)[0])


def most_telling(truths: Truths) -> NDArray[np.intp]:
    """The images in the order in which they lower a ceiling soonest: by the share of AP that is decided on each.

    An image has as much of it as it has of each class's truths; equal ones keep their order.
    """
    counted = truths.counted()
    shares = (counted / np.maximum(1, counted.sum(axis=0))).sum(axis=1)
    return np.argsort(-shares, kind="stable")
