# SPDX-License-Identifier: MIT
"""Results and sweeps below a folder as tables: how each is named in other commands."""

from __future__ import annotations

from typing import Sequence

from rich.console import Console

from mpnet.messages import counted
from mpnet.model.plan_key import short_key
from mpnet.report.text.terminal import print_table
from mpnet.resolve.inventory import Inventory, ListedResult, ListedSweep


def print_inventory(inventory: Inventory, console: Console) -> None:
    """Print results, sweeps, and what cannot be read."""
    results, sweeps = inventory.results, inventory.sweeps
    if results:
        _print_results(results, console)
    if sweeps:
        _print_sweeps(sweeps, console)
    if not results and not sweeps:
        console.print(f"{inventory.folder}: holds no results and no sweeps")
    for row in inventory.unreadable:
        console.print(f"cannot be read: {row.reason}")


def _print_results(results: Sequence[ListedResult], console: Console) -> None:
    has_engines = any(row.engine for row in results)
    cells = [
        [
            row.folder,
            "*" if row.is_latest else "",
            short_key(row.precision),
            " ".join(f"{name} {value:.2f}" for name, value in row.quality.items() if value is not None),
            "" if row.agreement is None else f"{row.agreement:.2f}",
            row.images,
            _minute(row.created),
            *([row.engine or ""] if has_engines else []),
        ]
        for row in results
    ]
    headings = ("result", "", "precision", "quality", "agreement", "images", "created", *(["engine"] if has_engines else []))
    title = f"{counted(len(results), 'result')}; *: the latest, for which its folder stands as well"
    optional = (4, *([7] if has_engines else []), 6, 5)
    print_table(console, headings, cells, title, left=(0, 1, 2, 3, 7), keys=2, optional=optional, fold=(0,))


def _print_sweeps(sweeps: Sequence[ListedSweep], console: Console) -> None:
    cells = [
        [
            row.store,
            "*" if row.is_latest else "",
            row.number,
            row.strategy or "",
            row.state,
            f"{row.trials:,}",
            f"{100 * (row.holdout or 0):.0f} %",
            ", ".join(row.objectives or ()),
            "; ".join(row.options),
            _minute(row.created),
        ]
        for row in sweeps
    ]
    headings = ("sweep", "", "N", "strategy", "state", "trials", "held out", "objectives", "options", "created")
    title = (
        f"{counted(len(sweeps), 'sweep')}; configurations are named STORE:recommended, STORE:KEY, STORE:N/KEY; *: the latest, "
        "for which its folder stands as well"
    )
    print_table(console, headings, cells, title, left=(0, 1, 3, 4, 7, 8), keys=3, optional=(6, 8, 7, 9), fold=(0, 7))


def _minute(created: str | None) -> str:
    """Return a time as far as its minute: `2026-11-27 18:12`."""
    return (created or "")[:16].replace("T", " ")
