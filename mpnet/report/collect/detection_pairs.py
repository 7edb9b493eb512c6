# SPDX-License-Identifier: MIT
"""Runs on the same images, pair by pair: intervals, classes, sizes, and the objects that only one of them finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import AGREEMENT, names_of
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.diagnose.objects import NEAR_IOU
from mpnet.errors import DataError
from mpnet.evaluation.agreement import BASELINE_SCORE, Agreement, inside_images
from mpnet.evaluation.compare import DRAWS, Differences, Draws, Interval, bootstrap, compare, draw_images, found_objects
from mpnet.evaluation.intervals import METHOD, agreement_interval
from mpnet.evaluation.metrics import SIZES, CocoEvaluator, CocoResult, size_of
from mpnet.model.task import DETECTION
from mpnet.report.data.differences import Change, ClassRow, ImageScore, ObjectChange, RunDifferences


@dataclass(frozen=True, eq=False)
class _Side:
    detections: Detections
    results: dict[str, CocoResult]
    draws: dict[str, Draws]


class Pairing:
    """A comparison of any number of runs with one baseline; what only the baseline needs is computed once.

    Raises: DataError when detections are not of the data set's images; ConfigError for an impossible `draws`.
    """

    def __init__(self, dataset: Dataset, baseline: Detections, draws: int = DRAWS, seed: int = 0) -> None:
        if not len(dataset.images):
            raise DataError("the data set has no images; nothing can be compared")
        self.dataset = dataset
        self.intervals_by = f"{METHOD}, {draws:,} draws"
        self._evaluator = CocoEvaluator(dataset)
        self._weight = draw_images(len(dataset.images), draws, seed)
        labelled = dataset.labelled_count
        self._labelled = self._weight if not dataset.unlabelled else draw_images(labelled, draws, seed) if labelled else None
        self._agreement = Agreement(baseline, dataset.sizes, len(dataset.categories))
        self._baseline = self._side(baseline)

    def pair(self, detections: Detections) -> RunDifferences:
        """Compare one run with the baseline."""
        side = self._side(detections)
        metrics: dict[str, Interval] = {}
        values: dict[str, float] = {}
        classes: tuple[ClassRow, ...] = ()
        for area, result in side.results.items():
            baseline_result = self._baseline.results[area]
            differences = compare(baseline_result, self._baseline.draws[area], result, side.draws[area])
            for name in differences.metrics if area == "all" else ("AP",):
                label = name if area == "all" else f"AP_{area}"
                if result.summary[name] >= 0:
                    metrics[label], values[label] = differences.metrics[name], result.summary[name]
            if area == "all":
                classes = self._classes(baseline_result, result, differences)
        agreement_values, agreement_metrics = self._agree(detections)
        changes, images = self._changes(detections)
        return RunDifferences(metrics | agreement_metrics, values | agreement_values, classes, changes, images)

    def _side(self, detections: Detections) -> _Side:
        weight = self._labelled
        if weight is None:
            return _Side(detections, {}, {})
        results = {"all": self._evaluator.evaluate(detections, sizes=False)}
        for area in SIZES:
            if self._evaluator.truths.counted(area).any():
                results[area] = self._evaluator.evaluate_area(detections, area)
        return _Side(detections, results, {area: bootstrap(r, weight) for area, r in results.items()})

    def _classes(self, baseline_result: CocoResult, result: CocoResult, differences: Differences) -> tuple[ClassRow, ...]:
        tables = zip(
            self.dataset.names, baseline_result.per_class(), result.per_class(), differences.per_class["AP"], strict=True
        )
        return tuple(
            ClassRow(name, int(baseline_row["truths"]), baseline_row, row, interval)
            for name, baseline_row, row, interval in tables
            if baseline_row["truths"]
        )

    def _agree(self, detections: Detections) -> tuple[dict[str, float], dict[str, Interval]]:
        """Return the measures of agreement and their intervals.

        There is no second run to pair with: the interval is that of the shortfall from 100.
        """
        values = self._agreement.measure(detections)
        if values["AP"] < 0:
            return {}, {}
        result = CocoEvaluator(self._agreement.truths).evaluate(detections, sizes=False)
        agreeing, baseline = bootstrap(result, self._weight).summary["AP"], self._baseline.draws.get("all")
        low, high = agreement_interval(values["AP"], agreeing, None if baseline is None else baseline.summary["AP"])
        named_values = {name: values[name.removeprefix(AGREEMENT)] for name in names_of("agreement", task=DETECTION)}
        return named_values, {"agreement_AP": Interval(values["AP"] - 100, low - 100, high - 100)}

    def _changes(self, detections: Detections) -> tuple[tuple[Change, ...], tuple[ImageScore, ...]]:
        truths = self._evaluator.truths
        baseline = self._baseline.detections
        baseline_hits, hits = found_objects(baseline, truths), found_objects(detections, truths)
        is_countable = ~self.dataset.crowd
        is_lost, is_gained = is_countable & (baseline_hits >= 0) & (hits < 0), is_countable & (baseline_hits < 0) & (hits >= 0)
        unmatched_detections = np.setdiff1d(np.flatnonzero(detections.score >= np.float32(BASELINE_SCORE)), hits[hits >= 0])
        changes = [
            self._change(
                "moved" if self._is_near(int(i), detections, unmatched_detections) else "lost",
                int(i),
                baseline,
                int(baseline_hits[i]),
            )
            for i in np.flatnonzero(is_lost)
        ]
        changes += [self._change("gained", int(i), detections, int(hits[i])) for i in np.flatnonzero(is_gained)]
        changes.sort(key=lambda change: change.order)
        of_image = self.dataset.image_index
        count = len(self.dataset.images)
        lost_in = np.bincount(of_image[is_lost], minlength=count)
        gained_in = np.bincount(of_image[is_gained], minlength=count)
        doubts = unmatched(baseline, detections, self.dataset) + unmatched(detections, baseline, self.dataset)
        order = sorted(range(count), key=lambda i: (-int(lost_in[i] + gained_in[i]), -float(doubts[i]), i))
        images = tuple(ImageScore(i, int(lost_in[i]), int(gained_in[i]), float(doubts[i])) for i in order)
        return tuple(changes), images

    def _is_near(self, index: int, detections: Detections, candidates: NDArray[np.intp]) -> bool:
        """Return whether one of the candidates, numbers of detections, is of the class of truth `index` and near its box."""
        is_candidate = detections.image_index[candidates] == self.dataset.image_index[index]
        is_candidate &= detections.category[candidates] == self.dataset.category[index]
        return any(overlap(self.dataset.box[index], detections.box[i]) > NEAR_IOU for i in candidates[is_candidate])

    def _change(self, kind: str, index: int, detections: Detections, detection: int) -> ObjectChange:
        x, y, width, height = (float(v) for v in self.dataset.box[index])
        box = (x, y, x + width, y + height)
        position = int(self.dataset.image_index[index])
        return ObjectChange(
            kind,
            self.dataset.images[position].path,
            self.dataset.names[int(self.dataset.category[index])],
            float(detections.score[detection]),
            overlap(self.dataset.box[index], detections.box[detection]),
            box,
            size_of(float(self.dataset.area[index])),
        )


def overlap(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Return the intersection over union of two boxes, each (4,): x, y, width, height."""
    corner_low = np.maximum(a[:2], b[:2])
    corner_high = np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    intersection = float(np.prod(np.maximum(corner_high - corner_low, 0)))
    union = float(a[2] * a[3] + b[2] * b[3]) - intersection
    return intersection / union if union > 0 else 0.0


def unmatched(detections: Detections, others: Detections, dataset: Dataset) -> NDArray[np.float64]:
    """Return for each image the sum of the scores of those `detections` that `others` lacks at IoU 0.5.

    Only scores of 0.25 or more count. Result: float64 (images,).
    """
    # As the truths: what lies wholly outside of the image is none.
    visible = inside_images(detections, dataset.sizes)
    confident = visible.select(visible.score >= np.float32(BASELINE_SCORE))
    truths = Agreement(detections, dataset.sizes, len(dataset.categories)).truths
    finders = found_objects(others, truths, BASELINE_SCORE / 2)
    is_unmatched = finders < 0
    sums = np.bincount(
        confident.image_index[is_unmatched], weights=confident.score[is_unmatched], minlength=detections.image_count
    )
    return sums.astype(np.float64)
