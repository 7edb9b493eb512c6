# SPDX-License-Identifier: MIT
"""The kind of error of each wrong detection and each missed object, and the AP50 that each kind costs.

The kinds and their thresholds are those of TIDE (Bolya and others, A general toolbox for identifying object detection errors,
ECCV 2020): foreground from IoU 0.5, background up to IoU 0.1. The AP that a kind gives back is what AP50 gains when an oracle
repairs all errors of that kind and no others; the gains of several kinds do not add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import Detections
from mpnet.evaluation.match import MAX_DETECTIONS, Outcomes, Truths, by_category, find_matches
from mpnet.evaluation.metrics import PERCENT

FOREGROUND, BACKGROUND = 0.5, 0.1
"""IoU with a truth from which a detection is on it, and up to which it is on nothing."""
KINDS: tuple[str, ...] = ("class", "localisation", "both", "duplicate", "background", "missed")
_CLASS, _LOCALISATION, _BOTH, _DUPLICATE, _BACKGROUND, _MISSED = range(len(KINDS))
RIGHT, UNCOUNTED = -1, -2
_AT = np.array([FOREGROUND])


@dataclass(frozen=True, eq=False)
class Judged:
    """The detections of all images at IoU 0.5.

    kind:   int8 (n,): position in KINDS, RIGHT, or UNCOUNTED: on a crowd, or beyond the best 100 of image and class.
    truth:  int32 (n,): index in the truths of what is found, or would be but for a wrong class or place; else -1.
    missed: bool (truths,): objects that no detection finds, nor would with its class or place repaired.
    """

    detections: Detections
    truths: Truths
    kind: NDArray[np.int8]
    truth: NDArray[np.int32]
    missed: NDArray[np.bool_]

    def counts(self, score: float) -> NDArray[np.int64]:
        """Return int64 (len(KINDS),): errors of detections with at least this score; objects without one are missed."""
        sure = self.detections.score >= np.float32(score)
        kinds = np.bincount(self.kind[sure & (self.kind >= 0)], minlength=len(KINDS))
        reached = np.zeros(len(self.missed), dtype=bool)
        reached[self.truth[sure & (self.truth >= 0)]] = True
        kinds[_MISSED] = np.count_nonzero(~reached & (self.truths.crowd == 0))
        return kinds.astype(np.int64)

    def gains(self) -> NDArray[np.float64]:
        """Return float64 (len(KINDS),): points of AP50 that repairing each kind gives back.

        A wrong class or place becomes the truth's own; of several on one truth the right one stays, else the surest; both,
        duplicate and background are taken away; missed objects are no longer asked for. A class of which none is left
        counts 0, as in TIDE's program.
        """
        before = self._average_precision(np.ones(len(self.kind), dtype=bool), self.kind == RIGHT, self.detections.category)
        gains = np.zeros(len(KINDS))
        for kind in range(len(KINDS)):
            keep, right, category = np.ones(len(self.kind), dtype=bool), self.kind == RIGHT, self.detections.category
            if kind in (_CLASS, _LOCALISATION):
                keep, right, category = self._repaired(kind)
            elif kind != _MISSED:
                keep = self.kind != kind
            gains[kind] = self._average_precision(keep, right, category, kind == _MISSED) - before
        return gains

    def _repaired(self, kind: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int32]]:
        on_truth = np.flatnonzero((self.kind == RIGHT) | (self.kind == kind))
        wrong = self.kind[on_truth] != RIGHT
        order = on_truth[np.lexsort((-self.detections.score[on_truth], wrong, self.truth[on_truth]))]
        surest = np.ones(len(order), dtype=bool)
        surest[1:] = self.truth[order[1:]] != self.truth[order[:-1]]
        keep, right = np.ones(len(self.kind), dtype=bool), np.zeros(len(self.kind), dtype=bool)
        keep[order[~surest]] = False
        right[order[surest]] = True
        category = self.detections.category.copy()
        category[on_truth] = _categories(self.truths)[self.truth[on_truth]]
        return keep, right, category

    def _average_precision(
        self, keep: NDArray[np.bool_], right: NDArray[np.bool_], category: NDArray[np.int32], without_missed: bool = False
    ) -> float:
        """Return percent, the mean over the classes that have truths."""
        keep = keep & (self.kind != UNCOUNTED)
        chosen, score = np.flatnonzero(keep), self.detections.score[keep]
        order, start = by_category(self.truths.category_count, category[keep], score)
        positives, asked = self.truths.counted(), self.truths.counted().sum(axis=0) > 0
        if without_missed:
            cells = np.repeat(np.arange(positives.size), np.diff(self.truths.cell_offsets))
            missed = np.bincount(cells[self.missed], minlength=positives.size).reshape(positives.shape)
            positives = positives - missed.astype(np.int32)
        nothing = np.zeros(len(order), dtype=np.uint16)
        precision = Outcomes(
            _AT,
            start,
            self.detections.image_index[chosen][order],
            score[order],
            nothing.astype(np.int32),
            right[chosen][order].astype(np.uint16),
            nothing,
            np.ascontiguousarray(positives),
        ).average_precision()[0]
        return float(PERCENT * np.maximum(precision[asked, 0], 0).mean()) if asked.any() else 0.0


def _categories(truths: Truths) -> NDArray[np.int32]:
    """Return int32 (truths,): class of each."""
    cells = np.tile(np.arange(truths.category_count, dtype=np.int32), truths.image_count)
    return np.repeat(cells, np.diff(truths.cell_offsets))


def judge(detections: Detections, truths: Truths) -> Judged:
    """Return the kind of every detection of the truths' images. Raises: DataError when image counts or classes do not fit."""
    detections = truths.of_labelled(detections).clipped(truths.sizes)
    rank, matched, ignored, truth = find_matches(detections, truths, thresholds=_AT)
    kind = np.full(len(detections), UNCOUNTED, dtype=np.int8)
    kind[(matched > 0) & (ignored == 0)] = RIGHT
    wrong = (matched == 0) & (ignored == 0) & (rank < MAX_DETECTIONS)
    truth = np.where(kind == RIGHT, truth, -1).astype(np.int32)
    category = _categories(truths)
    first = truths.cell_offsets[:: truths.category_count] if truths.category_count else truths.cell_offsets
    for image in np.unique(detections.image_index[wrong]):
        of_image = np.flatnonzero(wrong & (detections.image_index == image))
        objects = np.arange(first[image], first[image + 1])
        objects = objects[truths.crowd[objects] == 0]
        kind[of_image], truth[of_image] = _kinds(
            overlaps(detections.box[of_image], truths.box[objects]),
            detections.category[of_image][:, None] == category[objects][None, :],
            objects,
        )
    reached = np.zeros(len(category), dtype=bool)
    reached[truth[truth >= 0]] = True
    return Judged(detections, truths, kind, truth, ~reached & (truths.crowd == 0))


def _kinds(
    iou: NDArray[np.float64], same_class: NDArray[np.bool_], objects: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return the kind and truth of the wrong detections of one image. iou, same_class: (detections, objects)."""
    if not iou.size:
        return np.full(len(iou), _BACKGROUND, dtype=np.int8), np.full(len(iou), -1, dtype=np.int32)
    of_class, of_others = np.where(same_class, iou, -1.0), np.where(same_class, -1.0, iou)
    best_own, best_other = of_class.max(axis=1), of_others.max(axis=1)
    # The first that fits, in the order of TIDE's program.
    misplaced = (best_own >= BACKGROUND) & (best_own < FOREGROUND)
    conditions = [misplaced, best_other >= FOREGROUND, best_own >= FOREGROUND, iou.max(axis=1) <= BACKGROUND]
    kind = np.select(conditions, [_LOCALISATION, _CLASS, _DUPLICATE, _BACKGROUND], _BOTH).astype(np.int8)
    meant = np.select(
        [kind == _LOCALISATION, kind == _CLASS], [objects[of_class.argmax(axis=1)], objects[of_others.argmax(axis=1)]], -1
    )
    return kind, meant.astype(np.int32)


def overlaps(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return float64 (n, m): intersection over union of boxes (n, 4) and (m, 4): x, y, width, height."""
    a, b = first.astype(np.float64)[:, None, :], second.astype(np.float64)[None, :, :]
    shared = np.prod(
        np.maximum(np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0),
        axis=-1,
    )
    whole = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - shared
    return np.asarray(np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0))
