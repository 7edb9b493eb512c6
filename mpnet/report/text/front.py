# SPDX-License-Identifier: MIT
"""The front of a sweep as a table, and as a chart while it grows."""

from __future__ import annotations

from typing import Container, Sequence

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.messages import bytes_text, count_text, counted
from mpnet.report.data.row_words import row_key, row_words
from mpnet.report.text.terminal import Share, blocks, print_table
from mpnet.sweep.choose.recommend import named_configurations
from mpnet.sweep.problem.front import evenly
from mpnet.sweep.result import ConfigurationRow, FrontRow, Pick, SweepResult

_BAR = 24
LATENCY = "latency_ms"
FRONT_ROWS = 32
"""Most rows of a front, beside those that were picked."""


def front_chart(points: Sequence[tuple[float, str, str]], rows: int) -> list[str]:
    """Return one line per point (quality, cost in words, name): bar of the quality over the range shown.

    They are evenly thinned to `rows`.
    """
    if not points:
        return []
    points = evenly(points, rows)
    low, high = min(p[0] for p in points), max(p[0] for p in points)
    quality_range = (high - low) or 1.0
    width = max(len(name) for _, _, name in points)
    return [f"{name:<{width}}  {bar((q - low) / quality_range)} {q:8.2f}  {cost}" for q, cost, name in points]


def bar(share: float) -> str:
    """Return a bar of eighths of characters; all bars are equally long."""
    return blocks(round(min(1.0, max(0.0, share)) * _BAR * 8)).ljust(_BAR)


def print_front(result: SweepResult, console: Console) -> None:
    """Print the front with its objectives, and beside it baseline, best configuration and picks."""
    front = result.front
    if not front:
        console.print("no configuration was tried")
        return
    quality = result.objectives[0]
    marks = _marks(result)
    rows = _shown_rows(result, marks)
    columns: list[tuple[str, list[object]]] = [
        ("precision", [row_words(row.precision, row.words) for row in rows]),
        ("key", [row_key(row.precision, row.options) for row in rows]),
    ]
    for name in list_measures(result, rows):
        columns.append((measure(name).label, [value_text(row_value(row, name), name) for row in rows]))
        if any(name in row.held_out for row in rows):
            columns.append(("held out", [value_text(row.held_out.get(name), name) for row in rows]))
    values = [row_value(row, quality) for row in rows]
    low, high = min(values), max(values)
    columns.append(("", [", ".join(marks.get(row.trial, ())) for row in rows]))
    columns.append((measure(quality).label, [Share((value - low) / ((high - low) or 1.0)) for value in values]))
    title = f"Front: {len(front)} configuration{'' if len(front) == 1 else 's'} that no other beats"
    if result.holdout.held_out:
        selecting = counted(result.holdout.selecting)
        title += f"; on the {selecting} that select, and on the {result.holdout.held_out} held out"
    _print_columns(console, columns, title)
    if len(front) > FRONT_ROWS:
        console.print(f"{FRONT_ROWS} of the front's {len(front)} are shown; --json and `mpnet report` have all")


def _marks(result: SweepResult) -> dict[str, list[str]]:
    """Return by trial what it is: baseline, recommended, its picks, and chosen where that is none of these."""
    marks: dict[str, list[str]] = {}
    for name, row in (("baseline", result.baseline), *named_configurations(result).items()):
        if row is not None:
            marks.setdefault(row.trial, []).append(name)
    if result.best is not None and result.best.trial not in marks:
        marks[result.best.trial] = ["chosen"]
    return marks


def _shown_rows(result: SweepResult, marks: Container[str]) -> list[FrontRow | Pick]:
    """Return at most FRONT_ROWS rows of the front, evenly spread, those with marks, and what is marked beside the front."""
    even = set(evenly(range(len(result.front)), FRONT_ROWS))
    rows: list[FrontRow | Pick] = [row for number, row in enumerate(result.front) if number in even or row.trial in marks]
    trials = {row.trial for row in rows}
    for row in (result.baseline, result.best, *named_configurations(result).values()):
        if row is not None and row.trial not in trials:
            trials.add(row.trial)
            rows.append(row)
    return rows


def list_measures(result: SweepResult, rows: Sequence[ConfigurationRow]) -> list[str]:
    """Return the measures that a sweep ranked by, and a board's latency wherever its table gives one."""
    has_latency = any(LATENCY in row.costs for row in rows)
    costs = [name for name in result.objectives if measure(name).cost]
    return [*list_qualities(result), *costs, *([LATENCY] if has_latency and LATENCY not in result.objectives else [])]


def list_qualities(result: SweepResult) -> list[str]:
    """Return the objectives that are no costs, without those that the images have no labels for."""
    metrics = {} if result.baseline is None else result.baseline.metrics
    names = [name for name in result.objectives if not measure(name).cost]
    return [name for name in names if metrics.get(name, 0.0) >= 0] or names


def _print_columns(console: Console, columns: Sequence[tuple[str, Sequence[object]]], title: str) -> None:
    names, cells = zip(*columns, strict=True)
    print_table(console, names, list(zip(*cells, strict=True)), title, left=(0, 1, len(names) - 2), fold=(0, len(names) - 2))


def row_value(row: ConfigurationRow, name: str) -> float:
    """Return a row's metric or cost; NaN where it has none of this name."""
    return float(row.metrics.get(name, row.costs.get(name, float("nan"))))


def value_text(value: float | None, name: str) -> str:
    """Return the value of a measure for a table; '' where it is not known, - for -1, where there was nothing to measure."""
    if value is None:
        return ""
    quantity = measure(name)
    if quantity.unit == "B":
        return bytes_text(value)
    if quantity.whole:
        return count_text(value)
    return "-" if value < 0 and not quantity.cost else f"{value:,.2f}"
