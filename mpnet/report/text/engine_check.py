# SPDX-License-Identifier: MIT
"""The front of a sweep as another engine runs it."""

from __future__ import annotations

from typing import Sequence

from rich.console import Console
from rich.text import Text

from mpnet.config.measures import DEPLOYED, measure
from mpnet.model.plan_key import short_key
from mpnet.model.task import DETECTION, TASKS
from mpnet.report.data.row_words import describe_configuration, row_key
from mpnet.report.data.words import clean
from mpnet.report.text.terminal import print_table
from mpnet.sweep.result import SweepResult, VerifiedRow


def print_engine_check(result: SweepResult, console: Console) -> None:
    """Print what of the front survives in another engine."""
    verified = result.verified
    if verified is None:
        return
    rows = verified.rows
    task = next((task for task in TASKS.values() if rows and task.quality in rows[0].measures), DETECTION)
    names = (task.quality, task.agreement)
    cells = [_cells(result, row, names) for row in rows]
    labels = [heading for name in names for heading in (measure(name).label, "there")]
    headings = ("precision", "key", *labels, "head error", "ms", "there", "")
    engine = f"{verified.engine} {verified.version}".strip()
    title = f"In {engine}: {sum(row.survived for row in rows)} of {len(rows)} configurations survive"
    print_table(console, headings, cells, title, left=(0, 1, len(headings) - 1), fold=(0,))
    for row in rows:
        if not row.survived:
            name = describe_configuration(result, row.precision, row.options)
            console.print(f"{name} ({short_key(row.precision)}) does not survive: {clean(row.why)}.")
    console.print(f"A configuration survives when {verified.rule.removeprefix('it survives when ')}.")
    for line in verified.notes:
        console.print(f"note: {line}")


def _cells(result: SweepResult, row: VerifiedRow, names: Sequence[str]) -> list[object]:
    figures = [row.measures.get(name) for base in names for name in (base, DEPLOYED + base)]
    times = [row.measures.get(name) for name in ("latency_ms", f"{DEPLOYED}latency_ms")]
    return [
        describe_configuration(result, row.precision, row.options),
        row_key(row.precision, row.options),
        *["" if value is None or value < 0 else f"{value:.2f}" for value in figures],
        "" if row.head_error is None else f"{row.head_error:.1e}",
        *["" if value is None else f"{value:.2f}" for value in times],
        Text("survives") if row.survived else Text("lost", style="bold red"),
    ]
