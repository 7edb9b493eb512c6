# SPDX-License-Identifier: MIT
"""The picks of a sweep as a table: what each loses and saves, and the command that exports it."""

from __future__ import annotations

import shlex
from typing import Sequence

from rich.console import Console

from mpnet.config.measures import DROP, measure
from mpnet.messages import limits_text, percent_text
from mpnet.packages import program
from mpnet.report.data.row_words import describe_configuration, row_words
from mpnet.report.data.sweep_sentences import change_text, images_text, judged_by, recommendation_text, time_lines, times_of
from mpnet.report.text.front import LATENCY, list_measures, row_value, value_text
from mpnet.report.text.safety import print_safety
from mpnet.report.text.terminal import print_table
from mpnet.speed.latency import Latency, doubt_of
from mpnet.sweep.choose.picks import rule_of
from mpnet.sweep.choose.recommend import RECOMMENDED, labelled_configurations
from mpnet.sweep.result import NearestRow, Pick, SweepResult


def print_picks(result: SweepResult, console: Console) -> None:
    """Print what a sweep recommends and its picks, and what each loses and saves."""
    if result.nearest is not None:
        _print_nearest(result, result.nearest, console)
    labelled = labelled_configurations(result)
    if labelled:
        _print_alternatives(result, labelled, console)


def print_recommendation(result: SweepResult, console: Console) -> None:
    """Print what a sweep recommends and the command that exports it, or why it recommends nothing."""
    if result.nearest is not None:  # which is said already, with what comes nearest
        return
    sentence = recommendation_text(result)
    if sentence:
        console.print(sentence)
    if result.recommended is not None:
        source = shlex.quote(f"{result.store}:{RECOMMENDED}")
        console.print(f"{program()} export {source} -o mixed.cfg", soft_wrap=True)


def _print_alternatives(result: SweepResult, labelled: Sequence[tuple[str, Pick]], console: Console) -> None:
    _print_table(result, labelled, console)
    for name, row in labelled:
        if row.words and row.words != row_words(row.precision, row.words):  # which were too long for the table
            console.print(f"{name}: {row.words}")
    for line in time_lines(result.times):
        console.print(line)
    print_safety(result, console)
    if result.limits and "smallest" in result.picks:
        console.print(f"smallest: {rule_of('smallest', result)}")


def _print_nearest(result: SweepResult, nearest: NearestRow, console: Console) -> None:
    excesses = ", ".join(f"{key} by {value_text(excess, key.removesuffix(DROP))}" for key, excess in nearest.beyond.items())
    console.print(
        f"Nothing meets the limits ({limits_text(result.limits)}). Nearest: "
        f"{describe_configuration(result, nearest.precision, nearest.options)}, beyond {excesses}; "
        f"its name is {result.store}:nearest."
    )


def _print_table(result: SweepResult, labelled: Sequence[tuple[str, Pick]], console: Console) -> None:
    picks, rows = [label for label, _ in labelled], [row for _, row in labelled]
    names_of = [label.split(", ") for label in picks]
    times = times_of(result)
    quality = _quality(rows)
    columns: list[tuple[str, list[object]]] = [
        ("name", list(picks)),
        ("precision", [row_words(row.precision, row.words) + (f" ({row.options})" if row.options else "") for row in rows]),
        (f"{quality} change, 95 % interval", [change_text(row.losses) for row in rows]),
    ]
    picked_again = result.stability.picks
    if picked_again:
        shares = [next((picked_again[name] for name in names if name in picked_again), None) for names in names_of]
        columns.append(("picked again", ["" if share is None else f"{share:.0f} %" for share in shares]))
    for cost in (name for name in list_measures(result, rows) if measure(name).cost):
        label = measure(cost).label
        if cost == LATENCY:
            columns.append((label, [value_text(row_value(row, cost), cost) + " ms" for row in rows]))
        columns.append((f"{label} saved", [percent_text(row.saves[cost]) if cost in row.saves else "" for row in rows]))
    if times:
        columns.append(("time here", [_time_text(times[names[0]]) if names[0] in times else "" for names in names_of]))
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
