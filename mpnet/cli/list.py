# SPDX-License-Identifier: MIT
"""`mpnet list`: which results and sweeps there are, and how they are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mpnet.cli.options import PATH, declare
from mpnet.cli.output import print_result
from mpnet.config.experiment import DEFAULT_OUTPUT
from mpnet.errors import StoreError
from mpnet.model.plan_key import short_key
from mpnet.report.text.terminal import print_table
from mpnet.resolve.inventory import inventory


@declare("mpnet list", "mpnet list runs/demo --json", quiet=False)
@click.argument("folder", type=PATH, default=DEFAULT_OUTPUT)
def command(folder: Path, as_json: bool) -> None:
    """List the results and sweeps below FOLDER (runs/), sweeps with their strategies, holdouts and options.

    Other commands take what is listed as it stands here. Columns for which there is no room are in --json.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; name one that `mpnet run` or `mpnet sweep` wrote to")
    document = inventory(folder)
    print_result(document, as_json, _print)


def _print(document: dict[str, Any], out: Console) -> None:
    """Results and sweeps, and how each is named in other commands."""
    results, sweeps = document["results"], document["sweeps"]
    if results:
        engines = any(row["engine"] for row in results)
        cells = [
            [
                row["folder"],
                "*" if row["latest"] else "",
                short_key(row["precision"] or ""),
                " ".join(f"{name} {value:.2f}" for name, value in row["quality"].items() if value is not None),
                "" if row["agreement"] is None else f"{row['agreement']:.2f}",
                row["images"],
                _minute(row["created"]),
                *([row["engine"] or ""] if engines else []),
            ]
            for row in results
        ]
        headings = ("result", "", "precision", "quality", "agreement", "images", "created", *(["engine"] if engines else []))
        print_table(
            out,
            headings,
            cells,
            f"{_counted(results, 'result')}; *: the latest, for which its folder stands as well",
            left=(0, 1, 2, 3, 7),
            keys=2,
            optional=(4, *([7] if engines else []), 6, 5),
            fold=(0,),
        )
    if sweeps:
        cells = [
            [
                row["store"],
                "*" if row["latest"] else "",
                row["sweep"],
                row["strategy"] or "",
                row["state"],
                f"{row['trials']:,}",
                f"{100 * (row['holdout'] or 0):.0f} %",
                ", ".join(row["objectives"] or ()),
                "; ".join(row["options"]),
                _minute(row["created"]),
            ]
            for row in sweeps
        ]
        headings = ("sweep", "", "N", "strategy", "state", "trials", "held out", "objectives", "options", "created")
        title = (
            f"{_counted(sweeps, 'sweep')}; configurations are named STORE:safe, STORE:KEY, STORE:N/KEY; *: the latest, "
            "for which its folder stands as well"
        )
        print_table(out, headings, cells, title, left=(0, 1, 3, 4, 7, 8), keys=3, optional=(6, 8, 7, 9), fold=(0, 7))
    if not results and not sweeps:
        out.print(f"{document['folder']}: holds no results and no sweeps")
    for row in document["unreadable"]:
        out.print(f"cannot be read: {row['reason']}")


def _counted(rows: list[dict[str, Any]], what: str) -> str:
    return f"{len(rows)} {what}{'' if len(rows) == 1 else 's'}"


def _minute(created: str | None) -> str:
    return (created or "")[:16].replace("T", " ")
