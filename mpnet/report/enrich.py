"""Adds to a report what needs detections or tensors: intervals, classes, pictures; and says what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np

from mpnet.report.model import Configurations, LayerError, Missing, ReportData
from mpnet.report.paired import Pair, named
from mpnet.report.pictures import Gallery
from mpnet.spec.measures import MEASURES

WORST_PICTURES = 6
CROPS = 24


def with_pairs(data: ReportData, pairs: Mapping[int, Pair], draws: int, gallery: Gallery | None = None) -> ReportData:
    """`data` with intervals of the rows in `pairs`, and everything that compares the chosen row with the baseline.

    gallery: of baseline and chosen configuration, for pictures; None leaves them out.
    """
    table = _filled(data.configurations, pairs)
    intervals = {**data.intervals, **{row: pair.metrics for row, pair in pairs.items()}}
    chosen = pairs.get(table.chosen) if table.chosen is not None else None
    found = replace(data, configurations=table, intervals=intervals, draws=draws)
    if chosen is None:
        return found
    changes = chosen.changes
    pictures = data.pictures
    if gallery is not None:
        changes = gallery.changes(changes, CROPS)
        pictures = gallery.worst(chosen.pictures, WORST_PICTURES)
    harmed_first = sorted(chosen.classes, key=lambda row: row.interval.difference if row.interval else 0.0)
    names = {change.picture: Path(change.picture).name for change in changes}
    return replace(found, classes=tuple(harmed_first), changes=named(changes, names), pictures=pictures)


def _filled(table: Configurations, pairs: Mapping[int, Pair]) -> Configurations:
    """Columns that pairs know and the table does not: agreement with this baseline."""
    columns = dict(table.columns)
    for name, itself in ((m.name, m.itself) for m in MEASURES if m.itself is not None):
        values = {row: pair.values[name] for row, pair in pairs.items() if name in pair.values}
        if values and name not in columns:
            column = np.full(len(table), np.nan)
            for row, value in values.items():
                column[row] = value
            if table.baseline is not None:
                column[table.baseline] = itself
            columns[name] = column
    return replace(table, columns=columns)


def with_errors(data: ReportData, errors: Sequence[LayerError]) -> ReportData:
    """`data` with the error of every layer of the chosen configuration."""
    return replace(data, errors=tuple(errors))


def with_missing(data: ReportData, *missing: Missing) -> ReportData:
    """`data` saying what it cannot show and why."""
    return replace(data, missing=(*data.missing, *missing))
