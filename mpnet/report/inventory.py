"""What lies below a folder: results of runs, and stores with their sweeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

from rich.console import Console

from mpnet.errors import MpnetError
from mpnet.messages import one_line
from mpnet.model.plan_key import short_key
from mpnet.report.terminal import print_table
from mpnet.sweep.findings import sweep_status
from mpnet.sweep.latest import LATEST_STORE, is_store
from mpnet.trial.result import LATEST, RESULT_FILE, Result, read_result

DEEPEST = 6
"""Folders below the one that is named."""


def inventory(folder: Path) -> dict[str, Any]:
    """The document of `mpnet list --json`: results, sweeps, and what cannot be read with the reason; by path."""
    results, sweeps, unreadable = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, str]]()
    for path in _found(folder, DEEPEST):
        try:
            if path.name == RESULT_FILE:
                results.append(_result(read_result(path)))
            else:
                sweeps += _sweeps(path)
        except MpnetError as error:
            unreadable.append({"path": str(path), "reason": one_line(str(error))})
    return {"folder": str(folder), "results": results, "sweeps": sweeps, "unreadable": unreadable}


def _found(folder: Path, deep: int) -> Iterator[Path]:
    """result.json files and stores, links left out; no folder below a result is looked at."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == RESULT_FILE and entry.is_file() for entry in entries):
        yield folder / RESULT_FILE
        return
    for entry in entries:
        path = folder / entry.name
        if entry.is_symlink() or entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _found(path, deep - 1) if deep else ()
        elif path.suffix == ".sqlite" and is_store(path):
            yield path


def _result(result: Result) -> dict[str, Any]:
    document, folder = result.document, result.folder
    task = result.task
    agreement = document.get("agreement") or {}
    return {
        "folder": str(folder),
        "name": result.name,
        "id": result.id,
        "created": document.get("created"),
        "latest": _leads_to(folder.parent / LATEST, folder.name),
        "images": document["protocol"].get("images"),
        "precision": document["precision"].get("key"),
        "quality": {task.quality: result.metrics.get(task.quality)},
        "agreement": agreement.get(task.agreement.removeprefix("agreement_")),
        "engine": (document.get("deployed") or {}).get("engine"),
    }


def _sweeps(store: Path) -> list[dict[str, Any]]:
    status = sweep_status(store)
    latest = _leads_to(store.parent / LATEST_STORE, store.name)
    return [
        {
            "store": str(store),
            "name": row["name"],
            "latest": latest and row["last"],
            "state": status["state"] if row["last"] else row["state"],
            **row,
        }
        for row in status["sweeps"]
    ]


def _leads_to(link: Path, name: str) -> bool:
    return link.is_symlink() and os.readlink(link) == name


def print_inventory(document: dict[str, Any], out: Console) -> None:
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
