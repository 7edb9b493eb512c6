# SPDX-License-Identifier: MIT
"""Detections -> the metrics of a result, and agreement with a baseline's detections: for runs and sweeps alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import AGREEMENT, names_of
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.agreement import Agreement, inside_images
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator, CocoResult, darknet_ap50, darknet_map50
from mpnet.evaluation.upper_bound import PartialOutcomes, UpperBound, most_informative
from mpnet.model.task import DETECTION
from mpnet.quantization.measure import sqnr_db
from mpnet.trial.run_result import ClassResult


@dataclass(frozen=True, eq=False)
class Measured:
    """values: of `config.measures` by name; coco, darknet_ap50: what they were made of, for tables per class."""

    values: dict[str, float]
    coco: CocoResult
    darknet_ap50: NDArray[np.float64] | None


class Meter:
    """A meter of any number of detections on one data set; what only data and baseline decide is made once."""

    def __init__(self, dataset: Dataset, baseline: Detections | None = None) -> None:
        self._evaluator = CocoEvaluator(dataset)
        self._agreement = None if baseline is None else Agreement(baseline, dataset.sizes, len(dataset.categories))

    def values(self, predictions: Detections, requested: Collection[str] | None = None) -> dict[str, float]:
        """Return the accuracy and agreement by name, as `trial.kit.Meter` says: sizes and Darknet's mAP take time."""
        return self.measure(
            predictions, sizes=requested is None, darknet=requested is None or "darknet_mAP50" in requested
        ).values

    def measure(self, detections: Detections, *, sizes: bool = True, darknet: bool = True) -> Measured:
        """Return the accuracy and, with a baseline, agreement, in percent; -1 where there are no truths.

        sizes: also what only runs store; darknet: also darknet_mAP50. Sweeps save the time of both.
        """
        coco = self._evaluator.evaluate(detections, sizes=sizes)
        values = dict(coco.summary)
        per_class = darknet_ap50(detections, self._evaluator.truths) if darknet else None
        if per_class is not None:
            values["darknet_mAP50"] = darknet_map50(per_class)
        if self._agreement is not None:
            values.update({AGREEMENT + name: value for name, value in self._agreement.measure(detections).items()})
        names = names_of("accuracy", "agreement", stored=None if sizes else "trials")
        return Measured({name: float(value) for name, value in values.items() if name in names}, coco, per_class)


def _bounded_truths(dataset: Dataset, baseline: Detections | None, measures: Collection[str]) -> dict[str, Truths]:
    """Return the truths of AP and of agreement, as far as these are wanted."""
    truths = {DETECTION.quality: Truths.of_dataset(dataset)}
    if baseline is not None:
        truths[DETECTION.agreement] = Agreement(baseline, dataset.sizes, len(dataset.categories)).truths
    return {name: of_measure for name, of_measure in truths.items() if name in measures}


def detection_image_order(
    dataset: Dataset, baseline: Detections | None, measures: Collection[str], sample: Detections
) -> NDArray[np.intp]:
    """Return positions of the images, those first on which a sample of runs loses most of the last measure that is wanted."""
    name, truths = _bounded_truths(dataset, baseline, measures).popitem()
    runs = sample.image_count // max(1, truths.image_count)
    clipped = inside_images(sample, np.tile(dataset.sizes, (runs, 1))) if name == DETECTION.agreement else sample
    return most_informative(truths, clipped)


class DetectionUpperBounds:
    """The upper bounds of `trial.kit.UpperBounds` for detectors; see `evaluation.upper_bound` for the proof."""

    def __init__(
        self, dataset: Dataset, baseline: Detections | None, measures: Collection[str], order: NDArray[np.intp] | None = None
    ) -> None:
        truths = _bounded_truths(dataset, baseline, measures)
        self.order = most_informative(next(reversed(truths.values()))) if order is None else order
        self._sizes = dataset.sizes[self.order]
        self._bounds = {name: UpperBound(of_measure.in_order(self.order)) for name, of_measure in truths.items()}

    def evidence(self, predictions: Detections, first: int, last: int) -> list[dict[str, PartialOutcomes]]:
        """Return the outcomes of the detections, by measure."""
        runs = predictions.image_count // (last - first)
        clipped = (
            inside_images(predictions, np.tile(self._sizes[first:last], (runs, 1)))
            if DETECTION.agreement in self._bounds
            else predictions
        )
        outcomes = [
            bound.partial_outcomes(clipped if name == DETECTION.agreement else predictions, first, last)
            for name, bound in self._bounds.items()
        ]
        return [dict(zip(self._bounds, of_run, strict=True)) for of_run in zip(*outcomes, strict=True)]

    def most(self, runs: Sequence[Sequence[Mapping[str, PartialOutcomes]]]) -> dict[str, NDArray[np.float64]]:
        """Return the upper bound of each measure in percent, float64 (runs,)."""
        return {name: bound.of([[group[name] for group in run] for run in runs]) for name, bound in self._bounds.items()}


def measure_detections(detections: Detections, dataset: Dataset) -> tuple[dict[str, float], list[ClassResult]]:
    """Return the `metrics` and `per_class` of a result, in percent; -1 where there are no truths."""
    measured = Meter(dataset).measure(detections)
    assert measured.darknet_ap50 is not None
    per_class = [
        ClassResult(
            category.id,
            category.name,
            int(row["truths"]),
            {**{name: float(row[name]) for name in ("AP", "AP50", "AR100")}, "darknet_AP50": float(darknet)},
        )
        for category, row, darknet in zip(dataset.categories, measured.coco.per_class(), measured.darknet_ap50, strict=True)
    ]
    return {name: measured.values[name] for name in names_of("accuracy", task=DETECTION)}, per_class


def decibel(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """Return 10 log10(signal / noise) of sums of squares by image, added in their order; infinite when nothing differs."""
    return sqnr_db(*(float(np.add.accumulate(values)[-1]) for values in (signal, noise)))
