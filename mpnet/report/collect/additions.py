# SPDX-License-Identifier: MIT
"""Report data with what comparing predictions adds: intervals, changes, explanations, errors, confusion."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np

from mpnet.config.measures import MEASURES
from mpnet.data.dataset import Dataset
from mpnet.diagnose.explain import explain
from mpnet.evaluation.operating_point import OperatingPoint
from mpnet.model.task import DETECTION
from mpnet.progress import Progress
from mpnet.report.collect.rerun import NetworkRunner
from mpnet.report.collect.task import PredictionTools, Shows
from mpnet.report.data.differences import Change, Confusion, ObjectChange, RunDifferences
from mpnet.report.data.explanation import sentence
from mpnet.report.data.report_data import Omission, ReportData
from mpnet.report.data.task_words import words_of
from mpnet.resolve.configurations import Configurations
from mpnet.trial.kit import Predictions, detections_of

WORST_IMAGES = 6
CROPS = 48


def with_pairs(data: ReportData, pairs: Mapping[int, RunDifferences], intervals_by: str, prefix: str = "") -> ReportData:
    """Return `data` with the intervals of the rows in `pairs`.

    prefix: what the columns begin with whose images the intervals are of.
    """
    table = _filled(data.configurations, pairs, prefix)
    intervals_by_row = {
        row: {prefix + name: interval for name, interval in pair.metrics.items()} for row, pair in pairs.items()
    }
    intervals = {
        row: {**data.intervals.get(row, {}), **intervals_by_row.get(row, {})} for row in {**data.intervals, **intervals_by_row}
    }
    has_interval = any(interval.tells for by_name in intervals.values() for interval in by_name.values())
    return replace(data, configurations=table, intervals=intervals, intervals_by=intervals_by if has_interval else "")


def with_changes(data: ReportData, pair: RunDifferences, gallery: Shows | None = None) -> ReportData:
    """Return `data` with everything that compares the chosen configuration with the baseline, on all images.

    pair:    the chosen configuration against the baseline.
    gallery: draws the images of both; None leaves images out.
    """
    changes, images = pair.changes, data.worst
    if gallery is not None:
        changes = gallery.changes(_rank_by_class(changes), CROPS)
        images = gallery.worst(pair.images, WORST_IMAGES)
    harmed_first = sorted(
        pair.classes, key=lambda of_class: (of_class.is_few, of_class.interval.difference if of_class.interval else 0.0)
    )
    changes = tuple(replace(change, image=Path(change.image).name) for change in changes)
    return replace(data, classes=tuple(harmed_first), changes=changes, worst=images, verdict=pair.verdict)


def with_explained(
    data: ReportData,
    runner: NetworkRunner,
    keys: tuple[str, str],
    predictions: Sequence[Predictions],
    worst: int,
    progress: Progress,
) -> ReportData:
    """Return `data` whose lost and moved objects say which layers lose them.

    keys:        precision strings of the baseline and of the configuration that the page is about.
    predictions: those of both. worst: how many objects are explained, those whose score fell most.
    """
    if data.task is not DETECTION:
        return data
    baseline, configuration = (runner.plan(key).precision for key in keys)
    explanation = explain(
        runner.bench,
        configuration,
        baseline,
        (detections_of(predictions[0]), detections_of(predictions[-1])),
        worst=worst,
        progress=progress,
    )
    explanations = {}
    for row in explanation.document().objects:
        x, y, width, height = row.box
        shares = tuple((share.name, share.percent) for share in row.shares)
        explanations[Path(row.image).name, (x, y, x + width, y + height)] = sentence(row), shares

    def with_shares(change: Change) -> Change:
        if not isinstance(change, ObjectChange) or (change.image, change.box) not in explanations:
            return change
        text, shares = explanations[change.image, change.box]
        return replace(change, explained=text, shares=shares)

    changes = map(with_shares, data.changes)
    return replace(data, changes=tuple(changes))


def _rank_by_class(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with the highest scores of every class first: images are drawn of the first ones."""
    counts: Counter[tuple[str, str]] = Counter()
    ranked = []
    for change in sorted(changes, key=lambda change: -change.score):
        counts[change.kind, change.name] += 1
        ranked.append((counts[change.kind, change.name], change))
    return [change for _, change in sorted(ranked, key=lambda pair: pair[0])]


def with_operating_point(
    data: ReportData,
    dataset: Dataset,
    baseline: Predictions,
    predictions: Predictions,
    score: float | None,
    draws: int,
    seed: int,
) -> ReportData:
    """Return `data` with errors at one score threshold; of a classifier unchanged."""
    if data.task is not DETECTION:
        return data
    point = OperatingPoint(dataset, detections_of(baseline), score, draws, seed)
    return replace(data, operating_point=point.of(detections_of(predictions)))


def with_confusion(
    data: ReportData, tools: PredictionTools, dataset: Dataset, baseline: Predictions, predictions: Predictions
) -> ReportData:
    """Return `data` with the confusion matrices of baseline and chosen configuration."""
    nothing = words_of(data.task).nothing
    names = (*dataset.names, nothing) if nothing else dataset.names
    return replace(data, confusion=Confusion(names, tools.confusion(baseline, dataset), tools.confusion(predictions, dataset)))


def _filled(table: Configurations, pairs: Mapping[int, RunDifferences], prefix: str) -> Configurations:
    """Return the table with agreement with this baseline, which pairs know and stored results may not."""
    columns = dict(table.columns)
    for name, baseline_value in ((m.name, m.itself) for m in MEASURES if m.itself is not None):
        values = {row: pair.values[name] for row, pair in pairs.items() if name in pair.values}
        if not values:
            continue
        column = np.full(len(table), np.nan)
        column[list(values)] = list(values.values())
        if table.baseline is not None:
            column[table.baseline] = baseline_value
        stored_column = columns.get(prefix + name, column)
        columns[prefix + name] = np.where(np.isnan(stored_column), column, stored_column)
    return replace(table, columns=columns)


def with_omissions(data: ReportData, *omissions: Omission) -> ReportData:
    """Return `data` that also says what it cannot show and why."""
    return replace(data, omissions=(*data.omissions, *omissions))
