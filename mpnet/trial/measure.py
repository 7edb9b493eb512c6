"""Detections -> the metrics of a result, and agreement with a baseline's detections: for runs and sweeps alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.darknet_map import darknet_ap50, darknet_map50
from mpnet.evaluation.metrics import CocoEvaluator, CocoResult
from mpnet.spec.dataset import Dataset
from mpnet.spec.detections import Detections
from mpnet.spec.measures import AGREEMENT, names_of


@dataclass(frozen=True, eq=False)
class Measured:
    """values: of `spec.measures` by name; coco, darknet_ap50: what they were made of, for tables per class."""

    values: dict[str, float]
    coco: CocoResult
    darknet_ap50: NDArray[np.float64] | None


class Meter:
    """Measures any number of detections on one data set; what only data and baseline decide is made once."""

    def __init__(self, dataset: Dataset, baseline: Detections | None = None) -> None:
        self._evaluator = CocoEvaluator(dataset)
        self._agreement = None if baseline is None else Agreement(baseline, dataset.sizes, len(dataset.categories))

    def measure(self, detections: Detections, *, sizes: bool = True, darknet: bool = True) -> Measured:
        """Accuracy and, with a baseline, agreement, in percent; -1 where there are no truths.

        sizes: also what only runs store; darknet: also darknet_mAP50. Sweeps save the time of both.
        """
        coco = self._evaluator.evaluate(detections, sizes=sizes)
        values = dict(coco.summary)
        per_class = darknet_ap50(detections, self._evaluator.truths) if darknet else None
        if per_class is not None:
            values["darknet_mAP50"] = darknet_map50(per_class)
        if self._agreement is not None:
            values.update({AGREEMENT + name: value for name, value in self._agreement.measure(detections).items()})
        known = {*names_of("accuracy", "agreement")}
        return Measured({name: float(value) for name, value in values.items() if name in known}, coco, per_class)


def measure_detections(detections: Detections, dataset: Dataset) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The `metrics` and `per_class` of a result, in percent; -1 where there are no truths."""
    found = Meter(dataset).measure(detections)
    assert found.darknet_ap50 is not None
    per_class = [
        {
            "id": category.id,
            "name": category.name,
            "truths": int(row["truths"]),
            **{name: float(row[name]) for name in ("AP", "AP50", "AR100")},
            "darknet_AP50": float(darknet),
        }
        for category, row, darknet in zip(dataset.categories, found.coco.per_class(), found.darknet_ap50, strict=True)
    ]
    return {name: found.values[name] for name in names_of("accuracy")}, per_class


def measure_agreement(
    baseline: Detections, detections: Detections, dataset: Dataset, baseline_id: str, head_sqnr_db: list[float]
) -> dict[str, Any]:
    """The `agreement` of a result: AP, AP75, AP95 against the baseline's sure detections, and SQNR of the heads.

    A head that equals the baseline's bit for bit has no error to compare with: its SQNR is None.
    """
    values = Meter(dataset, baseline).measure(detections, sizes=False, darknet=False).values
    return {
        "baseline": baseline_id,
        **{name.removeprefix(AGREEMENT): values[name] for name in names_of("agreement")},
        "head_sqnr_db": [value if np.isfinite(value) else None for value in head_sqnr_db],
    }


def best_of_each(detections: Detections, limit: int | None) -> Detections:
    """The `limit` best of each picture; equal scores in their order."""
    if limit is None or len(detections) == 0:
        return detections
    order = np.lexsort((-detections.score, detections.image_index))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - detections.offsets[detections.image_index[order]]
    return detections.select(rank < limit)


def decibel(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """10 log10(signal / noise) of sums of squares by picture, added in their order; infinite when nothing differs."""
    total, error = (float(np.add.accumulate(values)[-1]) for values in (signal, noise))
    if error == 0:
        return float("inf")
    return float(10 * np.log10(total / error)) if total else float("-inf")
