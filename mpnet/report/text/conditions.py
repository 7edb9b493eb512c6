# SPDX-License-Identifier: MIT
"""A sweep under other conditions, for the terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.report.data.conditions import condition_tables
from mpnet.report.text.terminal import print_table
from mpnet.sweep.result import SweepResult


def print_conditions(result: SweepResult, console: Console) -> None:
    """Print a sweep's `conditions`, if it has any: one row per condition, one column per pick; and what changes."""
    tables = condition_tables(result)
    if tables is None:
        return
    print_table(console, tables.picks.columns, tables.picks.rows, tables.picks.title)
    for line in tables.lines:
        console.print(line)
