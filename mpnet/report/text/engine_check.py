# SPDX-License-Identifier: MIT
"""The front of a sweep as another engine runs it."""

from __future__ import annotations

from typing import Any, Mapping

from rich.console import Console
from rich.text import Text

from mpnet.config.measures import measure
from mpnet.model.plan_key import short_key
from mpnet.model.task import DETECTION, TASKS
from mpnet.report.data.row_words import describe_configuration, row_key
from mpnet.report.data.words import clean
from mpnet.report.text.terminal import print_table


def print_engine_check(document: Mapping[str, Any], console: Console) -> None:
    """Print what of the front survives in another engine."""
    verified = document.get("verified")
    if verified is None:
        return
    engine = f"{verified['engine']} {verified['version']}".strip()
    rows = verified["rows"]
    task = next((task for task in TASKS.values() if rows and task.quality in rows[0]), DETECTION)
    names, labels = (task.quality, task.agreement), [measure(name).label for name in (task.quality, task.agreement)]
    cells: list[list[object]] = []
    for row in rows:
        figures = [row.get(name) for base in names for name in (base, f"deployed_{base}")]
        times = [row.get(name) for name in ("latency_ms", "deployed_latency_ms")]
        outcome = Text("survives") if row["survived"] else Text("lost", style="bold red")
        cells.append(
            [
                describe_configuration(document, row),
                row_key(row),
                *["" if value is None or value < 0 else f"{value:.2f}" for value in figures],
                "" if row.get("head_error") is None else f"{row['head_error']:.1e}",
                *["" if value is None else f"{value:.2f}" for value in times],
                outcome,
            ]
        )
    headings = ("precision", "key", labels[0], "there", labels[1], "there", "head error", "ms", "there", "")
    survived = sum(row["survived"] for row in rows)
    title = f"In {engine}: {survived} of {len(rows)} configurations survive"
    print_table(console, headings, cells, title, left=(0, 1, len(headings) - 1), fold=(0,))
    for row in rows:
        if not row["survived"]:
            name = describe_configuration(document, row)
            console.print(f"{name} ({short_key(row['precision'])}) does not survive: {clean(row['why'])}.")
    console.print(f"A configuration survives when {verified['rule'].removeprefix('it survives when ')}.")
    for line in verified["notes"]:
        console.print(f"note: {line}")
