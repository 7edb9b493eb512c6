# SPDX-License-Identifier: MIT
"""The progress of a sweep, the sweeps of a store, and what was saved of a damaged one."""

from __future__ import annotations

import shlex
from typing import Sequence

from rich.console import Console

from mpnet.report.text.front import print_front
from mpnet.report.text.sweep import print_failed
from mpnet.report.text.terminal import print_table
from mpnet.sweep.choose.status import SweepStatus
from mpnet.sweep.store.records import SweepSummary
from mpnet.sweep.store.salvage import Salvaged


def print_sweeps(sweeps: Sequence[SweepSummary], shown_sweep: int | None, console: Console) -> None:
    """Print one row per sweep of a store; `shown_sweep` is marked."""
    cells: list[list[object]] = [
        [
            f"{sweep.number}{' *' if sweep.number == shown_sweep else ''}",
            sweep.strategy or "",
            f"{sweep.trials:,}",
            f"{100 * (sweep.holdout or 0):.0f} %",
            ", ".join(sweep.objectives or ()),
            "; ".join(sweep.options),
        ]
        for sweep in sweeps
    ]
    print_table(
        console,
        ("sweep", "strategy", "trials", "held out", "objectives", "options"),
        cells,
        "Sweeps of this store: name one as STORE:N/KEY or --sweep N",
        left=(1, 4, 5),
    )


def print_status(status: SweepStatus, console: Console) -> None:
    """Print one sweep's state."""
    total = f" of {status.total:,}" if status.total else ""
    ruled_out = f", {status.ruled_out:,} ruled out" if status.ruled_out else ""
    console.print(
        f"{status.store}: {status.state}, {status.trials:,}{total} trials{ruled_out}, "
        f"{status.seconds:.1f} s so far" + (f", strategy {status.strategy}" if status.strategy else "")
    )
    print_failed(status.failed, console)
    if status.stored_trials > status.trials:
        console.print(f"the store knows {status.stored_trials:,} configurations under these options")
    if len(status.sweeps) > 1:
        print_sweeps(status.sweeps, status.number, console)
    if status.workers:
        console.print(f"working on it: {', '.join(status.workers)}")
    if status.state == "interrupted":
        console.print("the same `mpnet sweep` command goes on from there")
    if status.result is not None:
        print_front(status.result, console)


def print_salvaged(salvaged: Salvaged, console: Console) -> None:
    """Print what was saved of a damaged store."""
    console.print(f"{salvaged.new_store}: {salvaged.trials:,} trials of {salvaged.store}")
    for loss in salvaged.losses:
        console.print(f"lost: {loss}")
    console.print(f"the same `mpnet sweep` command with --store {shlex.quote(str(salvaged.new_store))} goes on from there")
