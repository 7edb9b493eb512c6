# SPDX-License-Identifier: MIT
"""The picks of a sweep as a table: what each loses and saves, and the command that exports it."""

from __future__ import annotations

import shlex
from typing import Sequence

from rich.console import Console

from mpnet.config.measures import DROP, measure
from mpnet.messages import limits_text
from mpnet.packages import program
from mpnet.report.data.row_words import describe_configuration, row_words
from mpnet.report.data.sweep_sentences import change_text, images_text, judged_by, time_lines
from mpnet.report.text.front import LATENCY, list_measures, row_value, value_text
from mpnet.report.text.safety import print_safety
from mpnet.report.text.terminal import print_table
from mpnet.speed.latency import Latency, doubt_of
from mpnet.sweep.choose.picks import rule_of
from mpnet.sweep.result import NearestRow, Pick, SweepResult


def print_picks(result: SweepResult, console: Console) -> None:
    """Print the picks with what each loses and saves, and the command that exports one."""
    if result.nearest is not None:
        _print_nearest(result, result.nearest, console)
    if not result.picks:
        return
    _print_table(result, console)
    for name, row in result.picks.items():
        if row.words and row.words != row_words(row.precision, row.words):  # which were too long for the table
            console.print(f"{name}: {row.words}")
    for line in time_lines(result.times):
        console.print(line)
    print_safety(result, console)
    first_name = next(iter(result.picks))
    command = f"{program()} export {shlex.quote(result.store + ':' + first_name)} -o mixed.cfg"
    console.print(f"{first_name}: {rule_of(first_name, result)}; {command}", soft_wrap=True)
    if result.limits and first_name != "smallest" in result.picks:
        console.print(f"smallest: {rule_of('smallest', result)}")


def _print_nearest(result: SweepResult, nearest: NearestRow, console: Console) -> None:
    excesses = ", ".join(f"{key} by {value_text(excess, key.removesuffix(DROP))}" for key, excess in nearest.beyond.items())
    console.print(
        f"Nothing meets the limits ({limits_text(result.limits)}). Nearest: "
        f"{describe_configuration(result, nearest.precision, nearest.options)}, beyond {excesses}; "
        f"its name is {result.store}:nearest."
    )


def _print_table(result: SweepResult, console: Console) -> None:
    picks, rows = result.picks, list(result.picks.values())
    quality = _quality(rows)
    columns: list[tuple[str, list[object]]] = [
        ("pick", list(picks)),
        ("precision", [row_words(row.precision, row.words) + (f" ({row.options})" if row.options else "") for row in rows]),
        (f"{quality} change, 95 % interval", [change_text(row.losses) for row in rows]),
    ]
    picked_again = result.stability.picks
    if picked_again:
        columns.append(("picked again", [f"{picked_again[name]:.0f} %" if name in picked_again else "" for name in picks]))
    for cost in (name for name in list_measures(result, rows) if measure(name).cost):
        label = measure(cost).label
        if cost == LATENCY:
            columns.append((label, [value_text(row_value(row, cost), cost) + " ms" for row in rows]))
        columns.append((f"{label} saved", [f"{row.saves[cost]:.1f} %" if cost in row.saves else "" for row in rows]))
    if result.times:
        columns.append(("time here", [_time_text(result.times[name]) if name in result.times else "" for name in picks]))
    names, cells = zip(*columns, strict=True)
    sets = {images_text(row.losses) for row in rows} - {""}
    title = "What you could take" + (f"; {quality} on {', '.join(sorted(sets))}" if sets else "")
    print_table(console, names, list(zip(*cells, strict=True)), title, left=(0, 1))


def _time_text(latency: Latency) -> str:
    return f"{'unreliable, ' if doubt_of(latency) else ''}{latency.median_ms:.2f} ms"


def _quality(picks: Sequence[Pick]) -> str:
    """Return the label of the measure that the losses are of."""
    name = judged_by({name for pick in picks for of_set in pick.losses.values() for name in of_set.losses})
    return measure(name).label if name else "accuracy"
