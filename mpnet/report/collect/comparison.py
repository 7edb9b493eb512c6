# SPDX-License-Identifier: MIT
"""Finished runs side by side: metrics with intervals, costs, classes, layers, and objects lost and gained.

The first run is the baseline. Everything is one JSON document; `report.text.comparison` shows it in the terminal.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from mpnet.config.measures import AGREEMENT, measure, names_of
from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError
from mpnet.evaluation.compare import DRAWS, Interval, verdict
from mpnet.evaluation.operating_point import OperatingPoint
from mpnet.model.task import DETECTION, Task
from mpnet.report.collect.task import prediction_tools
from mpnet.report.data.comparison import Comparison
from mpnet.report.data.differences import ClassRow, RunDifferences
from mpnet.trial.result import Result


def compare_results(
    results: Sequence[Result],
    dataset: Dataset | None = None,
    predictions: Sequence[Any] = (),
    *,
    draws: int = DRAWS,
    seed: int = 0,
    score: float | None = None,
    reason: str = "",
) -> Comparison:
    """Compare every run with the first.

    score: threshold at which detectors' errors are counted; None: the one with the best F1 of the first.

    dataset, predictions: detections or classes of all runs, for intervals, agreement and what is lost; without them `reason`
    says why.
    Raises: ConfigError for fewer than two runs, or runs on different images or labels.
    """
    if len(results) < 2:
        raise ConfigError("compare needs at least two runs; name a baseline and one or more others")
    baseline = results[0]
    for result in results[1:]:
        if result.document["digests"].get("data") != baseline.document["digests"].get("data"):
            raise ConfigError(
                f"{result.folder}: was evaluated on other data than {baseline.folder}; only runs on the same images "
                "and labels can be compared"
            )
    task, intervals_by = baseline.task, ""
    points: list[dict[str, Any] | None] = [None] * len(results)
    pairs: tuple[RunDifferences, ...] = ()
    if dataset is not None:
        pairing = prediction_tools(task).pairing(dataset, predictions[0], draws, seed)
        pairs, intervals_by = tuple(pairing.pair(result) for result in predictions[1:]), pairing.intervals_by
        if task is DETECTION:
            point = OperatingPoint(dataset, predictions[0], score, draws, seed)
            points = [None, *(point.of(result) for result in predictions[1:])]
    pair_of_result: list[RunDifferences | None] = [None, *pairs] if pairs else [None] * len(results)
    protocols = [result.document["protocol"] for result in results]
    document = {
        "baseline": baseline.id,
        "task": task.name,
        "draws": draws if pairs and task is DETECTION else 0,
        "intervals_by": intervals_by,
        "missing": reason,
        "protocol_differences": [
            sorted(key for key in {*protocols[0], *result} if protocols[0].get(key) != result.get(key)) for result in protocols
        ],
        "runs": [
            {**_describe_run(result, baseline, pair, task), "operating_point": point}
            for result, pair, point in zip(results, pair_of_result, points, strict=True)
        ],
        "layers": _layers(results),
        "per_class": _per_class(results, pairs, task.quality),
    }
    return Comparison(document, pairs)


def check_limits(document: Mapping[str, Any], limits: Mapping[str, float]) -> list[str]:
    """Return one line for each run whose difference to the baseline is below a limit, such as {"AP": -0.5}.

    Raises: ConfigError for a metric that was not compared.
    """
    broken = []
    for run in document["runs"][1:]:
        for name, limit in limits.items():
            if name not in run["differences"]:
                raise ConfigError(f"--fail-under {name}: was not compared; known are {', '.join(run['differences'])}")
            difference = run["differences"][name]
            if difference < limit:
                name_of_run = f"{run['name']} {run['id'][:8]}"
                broken.append(f"{name_of_run}: {name} differs by {difference:+.2f}, the limit is {limit:+g}")
    return broken


def _describe_run(result: Result, baseline: Result, pair: RunDifferences | None, task: Task) -> dict[str, Any]:
    metrics = dict(result.metrics)
    differences: dict[str, float] = (
        {}
        if result is baseline
        else {
            name: metrics[name] - baseline.metrics[name]
            for name in metrics
            if name in baseline.metrics and metrics[name] >= 0 and baseline.metrics[name] >= 0
        }
    )
    agreement = _agreement(result, baseline, pair, task)
    if agreement is not None and result is not baseline:
        differences[task.agreement] = agreement[task.agreement.removeprefix(AGREEMENT)] - 100
    return {
        "name": result.name,
        "id": result.id,
        "folder": str(result.folder),
        "precision": result.document["precision"].get("key", ""),
        "words": result.words,
        "metrics": metrics,
        "differences": differences,
        "intervals": {} if pair is None else {name: _interval(name, interval) for name, interval in pair.metrics.items()},
        "cost": dict(result.document["cost"]),
        "latency": result.document.get("latency"),
        "deployed": result.document.get("deployed"),
        "agreement": agreement,
        "selection": result.document.get("selection"),
        "held_out": result.document.get("held_out"),
        "changes": [] if pair is None else [change.as_json() for change in pair.changes],
        "verdict": "" if pair is None else pair.verdict,
    }


def _agreement(result: Result, baseline: Result, pair: RunDifferences | None, task: Task) -> dict[str, Any] | None:
    """Return the agreement with *this* baseline.

    It is computed anew where there are detections; SQNR of heads is there only if the baseline was the run's own.
    """
    stored_agreement = result.document.get("agreement")
    comparable = stored_agreement if stored_agreement is not None and stored_agreement.get("baseline") == baseline.id else None
    if pair is None or task.agreement not in pair.values:
        return comparable
    values: dict[str, Any] = {name.removeprefix(AGREEMENT): pair.values[name] for name in names_of("agreement", task=task)}
    return {"baseline": baseline.id, **values, "head_sqnr_db": comparable["head_sqnr_db"] if comparable else None}


def _interval(name: str, interval: Interval) -> dict[str, Any]:
    """Return an interval as JSON; `within_noise` is None of what gets no verdict (`Measure.judged`)."""
    judgement = verdict(measure(name), interval)
    return {
        "difference": interval.difference,
        "low": interval.low,
        "high": interval.high,
        "within_noise": None if judgement is None else judgement == "noise",
    }


def _layers(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the layers with weights, or with a precision that differs between runs."""
    rows = []
    tables = [{layer["index"]: layer for layer in result.document["precision"].get("layers", [])} for result in results]
    for index, layer in tables[0].items():
        layers = [table.get(index, {}) for table in tables]
        precisions = [str(layer.get("precision", "-")) for layer in layers]
        if layer.get("parameters") or len(set(precisions)) > 1:
            rows.append(
                {
                    "index": index,
                    "type": layer.get("type", ""),
                    "name": layer.get("name", ""),
                    "macs": layer.get("macs", 0),
                    "precisions": precisions,
                    "differs": len(set(precisions)) > 1,
                    "weight_bytes": [layer.get("weight_bytes", 0) for layer in layers],
                }
            )
    return rows


def _per_class(results: Sequence[Result], pairs: Sequence[RunDifferences], quality: str) -> list[dict[str, Any]]:
    intervals: list[dict[str, ClassRow]] = [{row.name: row for row in pair.classes} for pair in pairs]
    rows = []
    # The data are the same, and so are the classes, unless somebody edited a result.
    for baseline_row, *other_rows in zip(*(result.document["per_class"] for result in results), strict=False):
        values = [row[quality] for row in (baseline_row, *other_rows)]
        of_classes = [table.get(baseline_row["name"]) for table in intervals]
        rows.append(
            {
                "id": baseline_row["id"],
                "name": baseline_row["name"],
                "truths": baseline_row["truths"],
                quality: values,
                "differences": [value - values[0] for value in values],
                "intervals": [
                    None if row is None or row.interval is None else _interval(quality, row.interval) for row in of_classes
                ],
            }
        )
    return rows
