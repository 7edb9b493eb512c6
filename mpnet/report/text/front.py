# SPDX-License-Identifier: MIT
"""The front of a sweep as a table, and as a chart while it grows."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.messages import bytes_text, count_text, counted
from mpnet.report.data.row_words import row_key, row_words
from mpnet.report.text.terminal import Share, blocks, print_table
from mpnet.sweep.problem.front import evenly

_BAR = 24


LATENCY = "latency_ms"


FRONT_ROWS = 32
"""Most rows of a front, beside those that were picked."""


def front_chart(points: Sequence[tuple[float, float, str]], rows: int) -> list[str]:
    """Return one line per point (quality, cost, name): bar of the quality over the range shown; evenly thinned to `rows`."""
    if not points:
        return []
    points = evenly(points, rows)
    low, high = min(p[0] for p in points), max(p[0] for p in points)
    quality_range = (high - low) or 1.0
    return [f"{name}  {bar((quality - low) / quality_range)} {quality:8.2f}  {cost:.4g}" for quality, cost, name in points]


def bar(share: float) -> str:
    """Return a bar of eighths of characters; all bars are equally long."""
    return blocks(round(min(1.0, max(0.0, share)) * _BAR * 8)).ljust(_BAR)


def print_front(document: Mapping[str, Any], console: Console) -> None:
    """Print the front with its objectives, and beside it baseline, best configuration and picks."""
    front: Sequence[Mapping[str, Any]] = document["front"]
    if not front:
        console.print("no configuration was tried")
        return
    objectives = document["objectives"]
    marks = _marks(document)
    rows = _thinned(front, [row["trial"] in marks for row in front])
    shown_trials = {row["trial"] for row in rows}
    for row in (document["baseline"], document["best"], *(document.get("picks") or {}).values()):
        if row is not None and row["trial"] not in shown_trials:
            shown_trials.add(row["trial"])
            rows.append(row)
    columns: list[tuple[str, list[object]]] = [
        ("precision", [row_words(row) for row in rows]),
        ("key", [row_key(row) for row in rows]),
    ]
    for name in list_measures(document, rows):
        columns.append((measure(name).label, [value_text(row_value(row, name), name) for row in rows]))
        if any(name in row.get("held_out", {}) for row in rows):
            columns.append(("held out", [value_text(row.get("held_out", {}).get(name), name) for row in rows]))
    values = [row_value(row, objectives[0]) for row in rows]
    low, high = min(values), max(values)
    columns.append(("", [", ".join(marks.get(row["trial"], ())) for row in rows]))
    columns.append((measure(objectives[0]).label, [Share((value - low) / ((high - low) or 1.0)) for value in values]))
    title = f"Front: {len(front)} configuration{'' if len(front) == 1 else 's'} that no other beats"
    holdout = document["holdout"]
    if holdout["held_out"]:
        title += f"; on the {counted(holdout['selecting'])} that select, and on the {holdout['held_out']} held out"
    _print_columns(console, columns, title)
    if len(front) > FRONT_ROWS:
        console.print(f"{FRONT_ROWS} of the front's {len(front)} are shown; --json and `mpnet report` have all")


def _marks(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by trial what it is: baseline, its picks, and chosen where that is none of these."""
    marks: dict[str, list[str]] = {}
    for name, row in (("baseline", document["baseline"]), *(document.get("picks") or {}).items()):
        if row is not None:
            marks.setdefault(row["trial"], []).append(name)
    best = document["best"]
    if best is not None and best["trial"] not in marks:
        marks[best["trial"]] = ["chosen"]
    return marks


def _thinned(front: Sequence[Mapping[str, Any]], marked: Sequence[bool]) -> list[Mapping[str, Any]]:
    """Return at most FRONT_ROWS rows, evenly spread, and those that are marked."""
    even = set(evenly(range(len(front)), FRONT_ROWS))
    return [row for number, row in enumerate(front) if number in even or marked[number]]


def list_measures(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the measures that a sweep ranked by, and a board's latency wherever its table gives one."""
    has_latency = any(LATENCY in row["costs"] for row in rows)
    costs = [name for name in document["objectives"] if measure(name).cost]
    return [*list_qualities(document), *costs, *([LATENCY] if has_latency and LATENCY not in document["objectives"] else [])]


def list_qualities(document: Mapping[str, Any]) -> list[str]:
    """Return the objectives that are no costs, without those that the images have no labels for."""
    baseline = document["baseline"] or {"metrics": {}}
    names = [name for name in document["objectives"] if not measure(name).cost]
    return [name for name in names if baseline["metrics"].get(name, 0.0) >= 0] or names


def _print_columns(console: Console, columns: Sequence[tuple[str, Sequence[object]]], title: str) -> None:
    names, cells = zip(*columns, strict=True)
    print_table(console, names, list(zip(*cells, strict=True)), title, left=(0, 1, len(names) - 2), fold=(0,))


def row_value(row: Mapping[str, Any], name: str) -> float:
    """Return a row's metric or cost; NaN where it has none of this name."""
    return float(row["metrics"].get(name, row["costs"].get(name, float("nan"))))


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
