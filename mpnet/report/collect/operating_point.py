# SPDX-License-Identifier: MIT
"""Errors of a run at one score threshold."""

from __future__ import annotations

from mpnet.evaluation.operating_point import OperatingErrors, OperatingPoint
from mpnet.model.task import DETECTION
from mpnet.trial.experiment import RunReport


def measure_operating_point(report: RunReport) -> OperatingErrors | None:
    """Count a run's errors at one score threshold; None of a classifier.

    The threshold is `detection.deployed`, else the one with the best F1 of the baseline, without one of the run itself.
    """
    bench, result = report.bench, report.deployed or report.result
    if result.task is not DETECTION:
        return None
    predictions = [bench.kit.read(run.predictions_path, bench.dataset) for run in (report.baseline, result) if run is not None]
    point = OperatingPoint(bench.dataset, predictions[0], bench.experiment.detection.deployed)
    return point.of(predictions[1] if len(predictions) > 1 else None)
