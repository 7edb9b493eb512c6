"""Detections -> the metrics of a result, and agreement with a baseline's detections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.darknet_map import darknet_ap50, darknet_map50
from mpnet.evaluation.metrics import CocoEvaluator
from mpnet.spec.dataset import Dataset
from mpnet.spec.detections import Detections

METRICS: tuple[str, ...] = (
    "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR1", "AR10", "AR100", "darknet_mAP50",
)


def measure_detections(detections: Detections, dataset: Dataset) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The `metrics` and `per_class` of a result, in percent; -1 where there are no truths."""
    coco = CocoEvaluator(dataset).evaluate(detections)
    darknet = darknet_ap50(detections, dataset)
    summary = dict(coco.summary, darknet_mAP50=darknet_map50(darknet))
    per_class = [
        {
            "id": category.id,
            "name": category.name,
            "truths": int(row["truths"]),
            **{name: float(row[name]) for name in ("AP", "AP50", "AR100")},
            "darknet_AP50": float(darknet[position]),
        }
        for position, (category, row) in enumerate(zip(dataset.categories, coco.per_class(), strict=True))
    ]
    return {name: float(summary[name]) for name in METRICS}, per_class


def measure_agreement(
    baseline: Detections, detections: Detections, dataset: Dataset, baseline_id: str, head_sqnr_db: list[float]
) -> dict[str, Any]:
    """The `agreement` of a result: AP, AP75, AP95 against the baseline's sure detections, and SQNR of the heads.

    A head that equals the baseline's bit for bit has no error to compare with: its SQNR is None.
    """
    values = Agreement(baseline, dataset.sizes, len(dataset.categories)).measure(detections)
    return {
        "baseline": baseline_id,
        **{name: values[name] for name in ("AP", "AP75", "AP95")},
        "head_sqnr_db": [value if np.isfinite(value) else None for value in head_sqnr_db],
    }


def decibel(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """10 log10(signal / noise) of sums of squares by picture, added in their order; infinite when nothing differs."""
    total, error = (float(np.add.accumulate(values)[-1]) for values in (signal, noise))
    if error == 0:
        return float("inf")
    return float(10 * np.log10(total / error)) if total else float("-inf")
