# SPDX-License-Identifier: MIT
"""The picks of a sweep as a table: what each loses and saves, and the command that exports it."""

from __future__ import annotations

import shlex
from typing import Any, Mapping

from rich.console import Console

from mpnet.config.measures import DROP, measure
from mpnet.messages import limits_text
from mpnet.packages import program
from mpnet.report.data.row_words import describe_configuration, row_words
from mpnet.report.data.sweep_sentences import change_text, images_text, judged_by, time_lines
from mpnet.report.text.front import LATENCY, list_measures, row_value, value_text
from mpnet.report.text.safety import print_safety
from mpnet.report.text.terminal import print_table
from mpnet.speed.steps import doubt_of
from mpnet.sweep.choose.picks import rule_of


def print_picks(document: Mapping[str, Any], console: Console) -> None:
    """Print the picks with what each loses and saves, and the command that exports one."""
    nearest, picks = document.get("nearest"), document.get("picks") or {}
    if nearest is not None:
        excesses = ", ".join(
            f"{key} by {value_text(excess, key.removesuffix(DROP))}" for key, excess in nearest["beyond"].items()
        )
        console.print(
            f"Nothing meets the limits ({limits_text(document['limits'])}). Nearest: "
            f"{describe_configuration(document, nearest)}, beyond {excesses}; its name is {document['store']}:nearest."
        )
    if not picks:
        return
    costs = [name for name in list_measures(document, list(picks.values())) if measure(name).cost]
    quality = _quality(picks)
    sets = {images_text(row["losses"]) for row in picks.values()} - {""}
    columns: list[tuple[str, list[object]]] = [
        ("pick", list(picks)),
        ("precision", [row_words(row) + (f" ({row['options']})" if row["options"] else "") for row in picks.values()]),
        (f"{quality} change, 95 % interval", [change_text(row["losses"]) for row in picks.values()]),
    ]
    picked_again = (document.get("stability") or {}).get("picks") or {}
    if picked_again:
        columns.append(("picked again", [f"{picked_again[name]:.0f} %" if name in picked_again else "" for name in picks]))
    for cost in costs:
        if cost == LATENCY:
            columns.append((measure(cost).label, [value_text(row_value(row, cost), cost) + " ms" for row in picks.values()]))
        columns.append(
            (
                f"{measure(cost).label} saved",
                [f"{row['saves'][cost]:.1f} %" if cost in row["saves"] else "" for row in picks.values()],
            )
        )
    times = document.get("times") or {}
    if times:
        columns.append(("time here", [_time_text(times[name]) if name in times else "" for name in picks]))
    names, cells = zip(*columns, strict=True)
    title = "What you could take" + (f"; {quality} on {', '.join(sorted(sets))}" if sets else "")
    print_table(console, names, list(zip(*cells, strict=True)), title, left=(0, 1))
    for name, row in picks.items():
        if row.get("words", row_words(row)) != row_words(row):  # which were too long for the table
            console.print(f"{name}: {row['words']}")
    for line in time_lines(times):
        console.print(line)
    print_safety(document, console)
    first_name = next(iter(picks))
    command = f"{program()} export {shlex.quote(document['store'] + ':' + first_name)} -o mixed.cfg"
    console.print(f"{first_name}: {rule_of(first_name, document)}; {command}", soft_wrap=True)
    if document.get("limits") and first_name != "smallest" in picks:
        console.print(f"smallest: {rule_of('smallest', document)}")


def _time_text(latency: Mapping[str, Any]) -> str:
    return f"{'unreliable, ' if doubt_of(latency) else ''}{latency['median_ms']:.2f} ms"


def _quality(picks: Mapping[str, Any]) -> str:
    """Return the label of the measure that the losses are of."""
    judged_names = {name: 1 for row in picks.values() for loss in row["losses"].values() for name in loss}
    name = judged_by(judged_names)
    return measure(name).label if name else "accuracy"
