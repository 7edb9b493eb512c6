# SPDX-License-Identifier: MIT
"""The progress of a sweep, the sweeps of a store, and what was saved of a damaged one."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from rich.console import Console

from mpnet.formats.documents.typed import build
from mpnet.report.text.front import print_front
from mpnet.report.text.sweep import print_failed
from mpnet.report.text.terminal import print_table
from mpnet.sweep.result import FailedLayer, SweepResult


def print_sweeps(sweeps: Sequence[Mapping[str, Any]], shown_sweep: int | None, console: Console) -> None:
    """Print one row per sweep of a store; `shown_sweep` is marked."""
    cells: list[list[object]] = [
        [
            f"{row['sweep']}{' *' if row['sweep'] == shown_sweep else ''}",
            row["strategy"] or "",
            f"{row['trials']:,}",
            f"{100 * (row['holdout'] or 0):.0f} %",
            ", ".join(row["objectives"] or ()),
            "; ".join(row["options"]),
        ]
        for row in sweeps
    ]
    print_table(
        console,
        ("sweep", "strategy", "trials", "held out", "objectives", "options"),
        cells,
        "Sweeps of this store: name one as STORE:N/KEY or --sweep N",
        left=(1, 4, 5),
    )


def print_status(document: Mapping[str, Any], console: Console) -> None:
    """Print one sweep's state."""
    total = f" of {document['total']:,}" if document["total"] else ""
    ruled_out = f", {document['ruled_out']:,} ruled out" if document["ruled_out"] else ""
    console.print(
        f"{document['store']}: {document['state']}, {document['trials']:,}{total} trials{ruled_out}, "
        f"{document['seconds']:.1f} s so far" + (f", strategy {document['strategy']}" if document["strategy"] else "")
    )
    failures = [build(FailedLayer, row) for row in document["failed"]]
    print_failed(failures, console)
    if document["known"] > document["trials"]:
        console.print(f"the store knows {document['known']:,} configurations under these options")
    if len(document["sweeps"]) > 1:
        print_sweeps(document["sweeps"], document["sweep"], console)
    if document["workers"]:
        console.print(f"working on it: {', '.join(document['workers'])}")
    if document["state"] == "interrupted":
        console.print("the same `mpnet sweep` command goes on from there")
    if document["findings"]:
        print_front(build(SweepResult, document["findings"]), console)


def print_salvaged(document: Mapping[str, Any], console: Console) -> None:
    """Print what was saved of a damaged store."""
    console.print(f"{document['salvaged']}: {document['trials']:,} trials of {document['store']}")
    for loss in document["lost"]:
        console.print(f"lost: {loss}")
    console.print(f"the same `mpnet sweep` command with --store {document['salvaged']} goes on from there")
