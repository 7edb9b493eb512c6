# SPDX-License-Identifier: MIT
"""One plot of a report as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence


@dataclass(frozen=True)
class Series:
    """One set of marks. colour: a role that page and SVG translate (accent, muted, baseline, a base precision)."""

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    colour: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    mode: str = "points"


@dataclass(frozen=True)
class Figure:
    """One plot.

    kind: 'xy' (numbers against numbers), 'bars' (categories), 'heat' (codes in cells) or 'histogram'.

    log: whether x is drawn by its logarithm. lines: vertical lines as (x, label).
    cells: for 'heat', one precision string per row; rows: their labels.
    """

    name: str
    kind: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...] = ()
    cells: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    lines: tuple[tuple[float, str], ...] = ()
    note: str = ""
    log: bool = False
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
