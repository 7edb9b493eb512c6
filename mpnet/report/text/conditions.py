# SPDX-License-Identifier: MIT
"""A sweep under other conditions, for the terminal."""

from __future__ import annotations

from typing import Any, Mapping

from rich.console import Console

from mpnet.report.data.conditions import condition_tables
from mpnet.report.text.terminal import print_table


def print_conditions(document: Mapping[str, Any], console: Console) -> None:
    """Print a sweep's `conditions`, if it has any: one row per condition, one column per pick; and what changes."""
    tables = condition_tables(document)
    if tables is None:
        return
    print_table(console, tables.picks.columns, tables.picks.rows, tables.picks.title)
    for line in tables.lines:
        console.print(line)
