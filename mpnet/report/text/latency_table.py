# SPDX-License-Identifier: MIT
"""The latency table of a board: how well sums of step times predict whole passes."""

from __future__ import annotations

from typing import Mapping

from rich.console import Console

from mpnet.json_values import Json
from mpnet.model.plan_key import short_key
from mpnet.report.data.words import clean
from mpnet.report.text.terminal import print_table
from mpnet.speed.latency_table import LatencyTable

STATE = ("board", "core", "governor", "fastest_mhz", "slowest_mhz", "hottest_c", "doubt")
"""What a table may hold of its board, beside CPU, ISA and threads."""


def print_latency_table(table: LatencyTable, console: Console) -> None:
    """Print how many steps were timed, the configurations that check the table, and its errors."""
    machine = table.machine
    console.print(f"{len(table.step_ms)} steps on {machine['cpu']}, {machine['isa']}, {machine['threads']} threads")
    print_board_state(machine, console)
    headings = ("configuration", "measured ms", "sum of steps ms")
    rows = [[short_key(check.precision), f"{check.measured_ms:.3f}", f"{check.predicted_ms:.3f}"] for check in table.checks]
    print_table(console, headings, rows)
    mean, largest = table.errors_percent
    console.print(f"predictions are off by {mean:.1f} % on average, {largest:.1f} % at most")


def print_board_state(machine: Mapping[str, Json], console: Console) -> None:
    """Print what a board said of itself, nothing where it said nothing."""
    state = [f"{name.replace('_', ' ')} {value}" for name in STATE if (value := machine.get(name))]
    if state:
        console.print(clean(", ".join(state)), soft_wrap=True)
