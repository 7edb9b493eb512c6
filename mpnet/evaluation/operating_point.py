# SPDX-License-Identifier: MIT
"""The errors of a detector at the one score threshold that it is deployed with, beside a baseline on the same images.

Boxes count at IoU 0.5, as in `compare.found_objects`. Thresholds are multiples of 0.001, so that the number that is printed is
the number that was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.agreement import BASELINE_SCORE, inside_images
from mpnet.evaluation.compare import DRAWS, draw_images, found_objects
from mpnet.evaluation.error_kinds import FOREGROUND, KINDS, RIGHT, Judged, judge
from mpnet.evaluation.intervals import Resampled, difference_interval, left_out
from mpnet.evaluation.match import Truths

THRESHOLDS: NDArray[np.float64] = np.arange(1, 1000) / 1000
MEASURES: tuple[str, ...] = ("missed", "false_alarms", "recall", "precision")
BEST_F1 = "the best F1 of the baseline"


@dataclass(frozen=True, eq=False)
class _Counts:
    """int64 (images, classes): objects, those that are detected, and detections of nothing, with a score of at least some."""

    objects: NDArray[np.int64]
    detected: NDArray[np.int64]
    alarms: NDArray[np.int64]

    def weighted(self, weight: NDArray[np.integer], scale: NDArray[np.float64] | float = 1.0) -> dict[str, NDArray[np.float64]]:
        """Return the MEASURES, each float64 (draws, classes + 1), the last of all classes; NaN where nothing is to be found.

        weight: (draws, images), how often each image counts; scale: (draws,), what makes numbers those of all images.
        """
        objects, detected, alarms = (weight @ _with_total(count) for count in (self.objects, self.detected, self.alarms))
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.reshape(scale, (-1, 1))
            return {
                "missed": (objects - detected) * scaled,
                "false_alarms": alarms * scaled,
                "recall": 100 * detected / objects,
                "precision": 100 * detected / (detected + alarms),
            }


def _with_total(count: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([count, count.sum(axis=1, keepdims=True)], axis=1)


Figures: TypeAlias = "dict[str, float | int | None]"
"""The MEASURES of one side: counts, and percent where there is something to find."""
Differences: TypeAlias = "dict[str, dict[str, float] | None]"
"""Paired differences by measure: `difference`, and the ends `low` and `high` of its 95 % interval; None: nothing to tell."""


class SameRecall(TypedDict):
    """The highest threshold with the baseline's recall, and what both sides have at theirs on images that did not choose it."""

    score: float
    chosen_on: int
    judged_on: int
    baseline: dict[str, float]
    run: dict[str, float]


class ScoreShift(TypedDict):
    """The change of the scores of the baseline's detections that a run makes as well. below: of these, under the threshold."""

    detections: int
    in_both: int
    below: int
    mean: float
    quartiles: list[float]


class ClassErrors(TypedDict, total=False):
    """The errors of one class. truths: how often it is labelled. run, differences: only beside a baseline."""

    id: int
    name: str
    truths: int
    baseline: Figures
    run: Figures
    differences: Differences


class KindErrors(TypedDict):
    """Errors of one kind: how many, and the AP50 that repairing them gives back."""

    count: int
    AP50_back: float


class _Threshold(TypedDict):
    score: float
    chosen_by: str
    iou: float
    images: int


class OperatingErrors(_Threshold, total=False):
    """What `--json` says of a run at one threshold (docs/evaluation.md).

    objects, baseline, per_class, errors: of images with labels. run, differences, same_recall: of a run beside the baseline,
    on such images. confidence: of such a run on all images. errors: by kind, and there by side.
    """

    objects: int
    baseline: Figures
    run: Figures
    differences: Differences
    same_recall: SameRecall | None
    per_class: list[ClassErrors]
    errors: dict[str, dict[str, KindErrors]]
    confidence: ScoreShift | None


class OperatingPoint:
    """One baseline beside any number of runs at one score threshold.

    score: the threshold; None: the one with the best F1 of the baseline, BASELINE_SCORE where no image has labels.
    chosen_by: who said so, in words.
    """

    def __init__(
        self, dataset: Dataset, baseline: Detections, score: float | None = None, draws: int = DRAWS, seed: int = 0
    ) -> None:
        self._dataset, self._baseline_detections = dataset, baseline
        self._truths = Truths.of_dataset(dataset)
        self._baseline = judge(baseline, self._truths) if dataset.labelled_count else None
        self.score = score if score is not None else self._best_f1()
        self.chosen_by = "as asked for" if score is not None else BEST_F1 if self._baseline is not None else "without labels"
        images = dataset.labelled_count
        self._drawn = draw_images(images, draws, seed) if images > 1 else None
        self._half = np.zeros(images, dtype=bool)
        self._half[np.random.RandomState(seed).permutation(images)[: images // 2]] = True

    def _best_f1(self) -> float:
        if self._baseline is None:
            return BASELINE_SCORE
        every = np.ones(self._truths.image_count, dtype=bool)
        objects, detected, alarms = self._totals(self._baseline, every)
        return float(THRESHOLDS[int(np.argmax(2 * detected / np.maximum(detected + alarms + objects, 1)))])

    def _totals(self, judged: Judged, images: NDArray[np.bool_]) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        """Return the objects of these images, and how many are found, and detections of nothing, at each of THRESHOLDS."""
        of_images = images[judged.detections.image_index]
        cuts = THRESHOLDS.astype(np.float32)
        detected, alarms = (
            np.count_nonzero(kept) - np.searchsorted(np.sort(judged.detections.score[kept]), cuts)
            for kept in (of_images & (judged.kind == RIGHT), of_images & (judged.kind >= 0))
        )
        return int(self._truths.counted()[images].sum()), detected, alarms

    def _counts(self, judged: Judged, score: float) -> _Counts:
        shape = (self._truths.image_count, self._truths.category_count)
        sure, detections = judged.detections.score >= np.float32(score), judged.detections
        cell = detections.image_index.astype(np.int64) * shape[1] + detections.category
        detected, alarms = (
            np.bincount(cell[sure & kept], minlength=shape[0] * shape[1]).reshape(shape)
            for kept in (judged.kind == RIGHT, judged.kind >= 0)
        )
        return _Counts(self._truths.counted().astype(np.int64), detected.astype(np.int64), alarms.astype(np.int64))

    def of(self, other: Detections | None = None) -> OperatingErrors:
        """Return what `--json` says of a run at this threshold; None: of the baseline alone."""
        document: OperatingErrors = {
            "score": self.score,
            "chosen_by": self.chosen_by,
            "iou": FOREGROUND,
            "images": self._dataset.labelled_count,
        }
        if self._baseline is not None:
            judged = None if other is None else judge(other, self._truths)
            self._judge_against_labels(document, self._baseline, judged)
        if other is not None:
            document["confidence"] = self._confidence(other)
        return document

    def _judge_against_labels(self, document: OperatingErrors, baseline: Judged, other: Judged | None) -> None:
        """Add what the labels say of both sides."""
        images = self._truths.image_count
        sides = [judged for judged in (baseline, other) if judged is not None]
        counts = [self._counts(judged, self.score) for judged in sides]
        values = [side.weighted(np.ones((1, images), dtype=np.int64)) for side in counts]
        names = ("baseline", "run")[: len(sides)]
        intervals = self._intervals(counts, values)
        classes = self._truths.category_count
        document["objects"] = int(counts[0].objects.sum())
        document["baseline"] = _of_class(values[0], classes)
        if other is not None:
            document["run"] = _of_class(values[1], classes)
            document["differences"] = intervals[classes]
            document["same_recall"] = self._same_recall(baseline, other)
        document["per_class"] = []
        for number, category in enumerate(self._dataset.categories):
            row: ClassErrors = {
                "id": category.id,
                "name": category.name,
                "truths": int(counts[0].objects[:, number].sum()),
                "baseline": _of_class(values[0], number),
            }
            if other is not None:
                row["run"] = _of_class(values[1], number)
                row["differences"] = intervals[number]
            document["per_class"].append(row)
        kinds, gains = [judged.counts(self.score) for judged in sides], [judged.gains() for judged in sides]
        document["errors"] = {
            kind: {
                name: {"count": int(kinds[side][number]), "AP50_back": float(gains[side][number])}
                for side, name in enumerate(names)
            }
            for number, kind in enumerate(KINDS)
        }

    def _intervals(self, counts: list[_Counts], values: list[dict[str, NDArray[np.float64]]]) -> list[Differences]:
        """Return paired differences with 95 % intervals, per class and of all together, by measure; None: nothing to tell."""
        columns = self._truths.category_count + 1
        if len(counts) < 2:
            return [{}] * columns
        images, groups = self._truths.image_count, left_out(self._truths.image_count)
        kept = images / np.maximum(groups.sum(axis=1), 1)
        drawn, left = (
            [side.weighted(weight, scale) for side in counts]
            for weight, scale in ((self._drawn if self._drawn is not None else groups, 1.0), (groups, kept))
        )
        several = np.append(np.count_nonzero(counts[0].objects, axis=0), images) > 1
        table: list[Differences] = []
        for column in range(columns):
            row: Differences = {}
            for name in ("false_alarms", "recall", "precision"):
                before, after = (float(side[name][0, column]) for side in values)
                first, second = (
                    Resampled(of_draws[name][:, column], of_left[name][:, column], images)
                    for of_draws, of_left in zip(drawn, left, strict=True)
                )
                most = math.inf if name == "false_alarms" else 100.0
                ends = difference_interval(after - before, first, second, most) if several[column] else (math.inf, math.inf)
                known = self._drawn is not None and all(map(math.isfinite, (before, after, *ends)))
                row[name] = {"difference": after - before, "low": ends[0], "high": ends[1]} if known else None
            # Of these objects: how many objects other images have is not what is asked.
            recall, objects = row["recall"], _with_total(counts[0].objects)[:, column].sum() / 100
            signs = {"difference": "difference", "low": "high", "high": "low"}
            row["missed"] = None if recall is None else {end: float(-recall[of] * objects) for end, of in signs.items()}
            table.append({name: row[name] for name in MEASURES})
        return table

    def _same_recall(self, baseline: Judged, other: Judged) -> SameRecall | None:
        """Find the highest threshold with which the run finds as many objects as the baseline with its own.

        It is chosen on half of the images and judged on the others; None where a half has no objects, or the run finds too few
        at any threshold.
        """
        chosen, judged = self._half, ~self._half
        at = int(np.searchsorted(THRESHOLDS, self.score - 1e-9).clip(0, len(THRESHOLDS) - 1))
        if not all(self._truths.counted()[half].any() for half in (chosen, judged)):
            return None
        wanted = self._totals(baseline, chosen)[1][at]
        enough = np.flatnonzero(self._totals(other, chosen)[1] >= wanted)
        if not len(enough):
            return None
        score = float(THRESHOLDS[enough[-1]])
        objects = int(self._truths.counted()[judged].sum())

        def on_others(side: Judged, number: int) -> dict[str, float]:
            _, detected, alarms = self._totals(side, judged)
            right, wrong = int(detected[number]), int(alarms[number])
            return {"recall": 100 * right / objects, "precision": 100 * right / max(1, right + wrong)}

        return {
            "score": score,
            "chosen_on": int(chosen.sum()),
            "judged_on": int(judged.sum()),
            "baseline": on_others(baseline, at),
            "run": on_others(other, int(enough[-1])),
        }

    def _confidence(self, other: Detections) -> ScoreShift | None:
        """Return how the scores change of the baseline's detections that the run makes as well, on all images."""
        dataset = self._dataset
        inside = inside_images(self._baseline_detections, dataset.sizes)
        sure = inside.select(inside.score >= np.float32(self.score)).clipped(dataset.sizes)
        truths = Truths.of(dataset.sizes, len(dataset.categories), sure.image_index, sure.category, sure.box)
        partner = found_objects(other, truths, 0.0)
        both = partner >= 0
        if not both.any():
            return None
        shift = other.score[partner[both]].astype(np.float64) - sure.score[both].astype(np.float64)
        return {
            "detections": len(sure),
            "in_both": int(both.sum()),
            "below": int(np.count_nonzero(other.score[partner[both]] < np.float32(self.score))),
            "mean": float(shift.mean()),
            "quartiles": [float(value) for value in np.quantile(shift, (0.25, 0.5, 0.75))],
        }


def _of_class(values: dict[str, NDArray[np.float64]], category: int) -> Figures:
    figures: Figures = {}
    for name in MEASURES:
        value = float(values[name][0, category])
        figures[name] = None if math.isnan(value) else int(value) if name in ("missed", "false_alarms") else value
    return figures
