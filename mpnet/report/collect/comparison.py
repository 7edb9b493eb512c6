# SPDX-License-Identifier: MIT
"""Finished runs compared with the first one: metrics with intervals, costs, classes, layers, and objects lost and gained."""

from __future__ import annotations

from typing import Mapping, Sequence

from mpnet.config.measures import AGREEMENT, names_of
from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError
from mpnet.evaluation.compare import DRAWS
from mpnet.evaluation.operating_point import OperatingErrors, OperatingPoint
from mpnet.messages import number_text, separating_digits
from mpnet.model.task import DETECTION, Task
from mpnet.report.collect.task import prediction_tools
from mpnet.report.data.comparison import (
    ClassComparison,
    ComparedRun,
    Comparison,
    DifferenceInterval,
    LayerPrecisions,
    RunAgreement,
)
from mpnet.report.data.differences import ClassRow, RunDifferences
from mpnet.trial.kit import Predictions, detections_of
from mpnet.trial.result import Result


def compare_results(
    results: Sequence[Result],
    dataset: Dataset | None = None,
    predictions: Sequence[Predictions] = (),
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
        if result.run.digests.get("data") != baseline.run.digests.get("data"):
            raise ConfigError(
                f"{result.folder}: was evaluated on other data than {baseline.folder}; only runs on the same images "
                "and labels can be compared"
            )
    task, intervals_by = baseline.task, ""
    points: list[OperatingErrors | None] = [None] * len(results)
    pairs: tuple[RunDifferences, ...] = ()
    if dataset is not None:
        pairing = prediction_tools(task).pairing(dataset, predictions[0], draws, seed)
        pairs, intervals_by = tuple(pairing.pair(other) for other in predictions[1:]), pairing.intervals_by
        if task is DETECTION:
            point = OperatingPoint(dataset, detections_of(predictions[0]), score, draws, seed)
            points = [None, *(point.of(detections_of(other)) for other in predictions[1:])]
    pair_of_result: list[RunDifferences | None] = [None, *pairs] if pairs else [None] * len(results)
    return Comparison(
        task=task,
        draws=draws if pairs and task is DETECTION else 0,
        intervals_by=intervals_by,
        missing=reason,
        protocol_differences=_protocol_differences(results),
        runs=tuple(
            _compared_run(result, baseline, pair, task, point)
            for result, pair, point in zip(results, pair_of_result, points, strict=True)
        ),
        layers=_layers(results),
        per_class=_per_class(results, pairs, task.quality),
        pairs=pairs,
    )


def check_limits(comparison: Comparison, limits: Mapping[str, float]) -> list[str]:
    """Return one line for each run whose difference to the baseline is below a limit, such as {"AP": -0.5}.

    Raises: ConfigError for a metric that was not compared.
    """
    broken = []
    for run in comparison.runs[1:]:
        for name, limit in limits.items():
            if name not in run.differences:
                raise ConfigError(f"--fail-under {name}: was not compared; known are {', '.join(run.differences)}")
            difference = run.differences[name]
            if difference < limit:
                text = number_text(difference, separating_digits([difference], limit), signed=True)
                broken.append(f"{run.name} {run.id[:8]}: {name} differs by {text}, the limit is {limit:+g}")
    return broken


def _protocol_differences(results: Sequence[Result]) -> tuple[tuple[str, ...], ...]:
    first, *_ = protocols = [result.run.protocol for result in results]
    return tuple(
        tuple(sorted(key for key in {*first, *protocol} if first.get(key) != protocol.get(key))) for protocol in protocols
    )


def _compared_run(
    result: Result, baseline: Result, pair: RunDifferences | None, task: Task, point: OperatingErrors | None
) -> ComparedRun:
    run, agreement = result.run, _agreement(result, baseline, pair, task)
    differences = {} if result is baseline else _metric_differences(result, baseline)
    if agreement is not None and result is not baseline:
        differences[task.agreement] = (agreement.values[task.agreement.removeprefix(AGREEMENT)] or 0.0) - 100
    return ComparedRun(
        name=result.name,
        id=result.id,
        folder=str(result.folder),
        precision=run.precision.key,
        words=result.words,
        metrics=dict(result.metrics),
        differences=differences,
        intervals={} if pair is None else {name: DifferenceInterval.of(name, i) for name, i in pair.metrics.items()},
        cost=run.cost,
        latency=run.latency,
        deployed=run.deployed,
        agreement=agreement,
        selection=run.selection,
        held_out=run.held_out,
        changes=() if pair is None else pair.changes,
        verdict="" if pair is None else pair.verdict,
        operating_point=point,
    )


def _metric_differences(result: Result, baseline: Result) -> dict[str, float]:
    """Return the differences of the metrics that both runs have."""
    return {
        name: value - baseline.metrics[name]
        for name, value in result.metrics.items()
        if value >= 0 and baseline.metrics.get(name, -1) >= 0
    }


def _agreement(result: Result, baseline: Result, pair: RunDifferences | None, task: Task) -> RunAgreement | None:
    """Return the agreement with *this* baseline.

    It is computed anew where there are detections; SQNR of heads is there only if the baseline was the run's own.
    """
    stored = result.run.agreement
    is_own = stored is not None and stored.baseline == baseline.id
    head_sqnr_db = stored.head_sqnr_db if stored is not None and is_own else None
    if pair is not None and task.agreement in pair.values:
        values = {name.removeprefix(AGREEMENT): pair.values[name] for name in names_of("agreement", task=task)}
        return RunAgreement(baseline.id, values, head_sqnr_db)
    return RunAgreement(baseline.id, stored.values, head_sqnr_db) if stored is not None and is_own else None


def _layers(results: Sequence[Result]) -> tuple[LayerPrecisions, ...]:
    """Return the layers with weights, or with a precision that differs between runs."""
    rows = []
    tables = [{layer.index: layer for layer in result.run.precision.layers} for result in results]
    for index, layer in tables[0].items():
        layers = [table.get(index) for table in tables]
        precisions = tuple("-" if of_run is None else of_run.precision for of_run in layers)
        differs = len(set(precisions)) > 1
        if layer.parameters or differs:
            weight_bytes = tuple(0 if of_run is None else of_run.weight_bytes for of_run in layers)
            rows.append(LayerPrecisions(index, layer.type, layer.name, layer.macs, precisions, differs, weight_bytes))
    return tuple(rows)


def _per_class(results: Sequence[Result], pairs: Sequence[RunDifferences], quality: str) -> tuple[ClassComparison, ...]:
    classes: list[dict[str, ClassRow]] = [{row.name: row for row in pair.classes} for pair in pairs]
    rows = []
    # The data are the same, and so are the classes, unless somebody edited a result.
    for class_rows in zip(*(result.run.per_class for result in results), strict=False):
        baseline_row, values = class_rows[0], tuple(row.values[quality] for row in class_rows)
        intervals = [None if row is None else row.interval for row in (table.get(baseline_row.name) for table in classes)]
        rows.append(
            ClassComparison(
                id=baseline_row.id,
                name=baseline_row.name,
                truths=baseline_row.truths,
                values=values,
                differences=tuple(value - values[0] for value in values),
                intervals=tuple(None if i is None else DifferenceInterval.of(quality, i) for i in intervals),
            )
        )
    return tuple(rows)
