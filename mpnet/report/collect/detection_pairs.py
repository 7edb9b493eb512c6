# SPDX-License-Identifier: MIT
"""Runs on the same images, pair by pair: intervals, classes, sizes, and the objects that only one of them finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import AGREEMENT, names_of
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.errors import DataError
from mpnet.evaluation.agreement import BASELINE_SCORE, Agreement, inside_images
from mpnet.evaluation.compare import DRAWS, Differences, Draws, Interval, bootstrap, compare, draw_images, found_objects
from mpnet.evaluation.intervals import METHOD, agreement_interval
from mpnet.evaluation.metrics import SIZES, CocoEvaluator, CocoResult, size_of
from mpnet.explain.objects import NEAR
from mpnet.model.task import DETECTION
from mpnet.report.data.differences import Change, ClassRow, ImageScore, ObjectChange, Pair


@dataclass(frozen=True, eq=False)
class _Side:
    detections: Detections
    results: dict[str, CocoResult]
    draws: dict[str, Draws]


class Pairing:
    """Compares any number of runs with one baseline; what only the baseline needs is computed once.

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

    def pair(self, other: Detections) -> Pair:
        """Everything about one run against the baseline."""
        side = self._side(other)
        metrics: dict[str, Interval] = {}
        values: dict[str, float] = {}
        classes: tuple[ClassRow, ...] = ()
        for area, result in side.results.items():
            before = self._baseline.results[area]
            differences = compare(before, self._baseline.draws[area], result, side.draws[area])
            for name in differences.metrics if area == "all" else ("AP",):
                label = name if area == "all" else f"AP_{area}"
                if result.summary[name] >= 0:
                    metrics[label], values[label] = differences.metrics[name], result.summary[name]
            if area == "all":
                classes = self._classes(before, result, differences)
        agreement_values, agreement_metrics = self._agree(other)
        changes, images = self._changes(other)
        return Pair(metrics | agreement_metrics, values | agreement_values, classes, changes, images)

    def _side(self, detections: Detections) -> _Side:
        weight = self._labelled
        if weight is None:
            return _Side(detections, {}, {})
        results = {"all": self._evaluator.evaluate(detections, sizes=False)}
        for area in SIZES:
            if self._evaluator.truths.counted(area).any():
                results[area] = self._evaluator.evaluate_area(detections, area)
        return _Side(detections, results, {area: bootstrap(r, weight) for area, r in results.items()})

    def _classes(self, before: CocoResult, after: CocoResult, differences: Differences) -> tuple[ClassRow, ...]:
        tables = zip(self.dataset.names, before.per_class(), after.per_class(), differences.per_class["AP"], strict=True)
        return tuple(
            ClassRow(name, int(first["truths"]), first, second, interval)
            for name, first, second, interval in tables
            if first["truths"]
        )

    def _agree(self, other: Detections) -> tuple[dict[str, float], dict[str, Interval]]:
        """Agreement has no second run to pair with: its interval is that of the shortfall from 100."""
        values = self._agreement.measure(other)
        if values["AP"] < 0:
            return {}, {}
        result = CocoEvaluator(self._agreement.truths).evaluate(other, sizes=False)
        agreeing, baseline = bootstrap(result, self._weight).summary["AP"], self._baseline.draws.get("all")
        low, high = agreement_interval(values["AP"], agreeing, None if baseline is None else baseline.summary["AP"])
        named = {name: values[name.removeprefix(AGREEMENT)] for name in names_of("agreement", task=DETECTION)}
        return named, {"agreement_AP": Interval(values["AP"] - 100, low - 100, high - 100)}

    def _changes(self, other: Detections) -> tuple[tuple[Change, ...], tuple[ImageScore, ...]]:
        truths = self._evaluator.truths
        baseline = self._baseline.detections
        before, after = found_objects(baseline, truths), found_objects(other, truths)
        counted = ~self.dataset.crowd
        lost, gained = counted & (before >= 0) & (after < 0), counted & (before < 0) & (after >= 0)
        others = np.setdiff1d(np.flatnonzero(other.score >= np.float32(BASELINE_SCORE)), after[after >= 0])
        changes = [
            self._change("moved" if self._is_near(int(i), other, others) else "lost", int(i), baseline, int(before[i]))
            for i in np.flatnonzero(lost)
        ]
        changes += [self._change("gained", int(i), other, int(after[i])) for i in np.flatnonzero(gained)]
        changes.sort(key=lambda change: change.order)
        of_image = self.dataset.image_index
        count = len(self.dataset.images)
        lost_in = np.bincount(of_image[lost], minlength=count)
        gained_in = np.bincount(of_image[gained], minlength=count)
        doubts = unmatched(baseline, other, self.dataset) + unmatched(other, baseline, self.dataset)
        order = sorted(range(count), key=lambda i: (-int(lost_in[i] + gained_in[i]), -float(doubts[i]), i))
        images = tuple(ImageScore(i, int(lost_in[i]), int(gained_in[i]), float(doubts[i])) for i in order)
        return tuple(changes), images

    def _is_near(self, index: int, detections: Detections, candidates: NDArray[np.intp]) -> bool:
        """Whether one of the candidates, numbers of detections, is of the class of truth `index` and near its box."""
        same = detections.image_index[candidates] == self.dataset.image_index[index]
        same &= detections.category[candidates] == self.dataset.category[index]
        return any(overlap(self.dataset.box[index], detections.box[i]) > NEAR for i in candidates[same])

    def _change(self, kind: str, index: int, detections: Detections, hit: int) -> ObjectChange:
        x, y, width, height = (float(v) for v in self.dataset.box[index])
        box = (x, y, x + width, y + height)
        position = int(self.dataset.image_index[index])
        return ObjectChange(
            kind,
            self.dataset.images[position].path,
            self.dataset.names[int(self.dataset.category[index])],
            float(detections.score[hit]),
            overlap(self.dataset.box[index], detections.box[hit]),
            box,
            size_of(float(self.dataset.area[index])),
        )


def overlap(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Intersection over union of two boxes, each (4,): x, y, width, height."""
    low = np.maximum(a[:2], b[:2])
    high = np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    shared = float(np.prod(np.maximum(high - low, 0)))
    whole = float(a[2] * a[3] + b[2] * b[3]) - shared
    return shared / whole if whole > 0 else 0.0


def unmatched(first: Detections, second: Detections, dataset: Dataset) -> NDArray[np.float64]:
    """float64 (images,): sum of the scores, each 0.25 or more, of detections of `first` that `second` does not have
    at IoU 0.5."""
    # As the truths: what lies wholly outside of the image is none.
    inside = inside_images(first, dataset.sizes)
    sure = inside.select(inside.score >= np.float32(BASELINE_SCORE))
    truths = Agreement(first, dataset.sizes, len(dataset.categories)).truths
    finders = found_objects(second, truths, BASELINE_SCORE / 2)
    lonely = finders < 0
    sums = np.bincount(sure.image_index[lonely], weights=sure.score[lonely], minlength=first.image_count)
    return sums.astype(np.float64)
