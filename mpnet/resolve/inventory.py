# SPDX-License-Identifier: MIT
"""The inventory of a folder: results of runs, and stores with their sweeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

from mpnet.errors import MpnetError
from mpnet.messages import one_line
from mpnet.sweep.choose.findings import sweep_status
from mpnet.sweep.store.latest import LATEST_STORE, is_store
from mpnet.trial.result import LATEST, RESULT_FILE, Result, read_result

DEEPEST = 6
"""Folders below the one that is named."""


def inventory(folder: Path) -> dict[str, Any]:
    """Return the document of `mpnet list --json`: results, sweeps, and what cannot be read with the reason; by path."""
    results, sweeps, unreadable = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, str]]()
    for path in _results_and_stores(folder, DEEPEST):
        try:
            if path.name == RESULT_FILE:
                results.append(_result(read_result(path)))
            else:
                sweeps += _sweeps(path)
        except MpnetError as error:
            unreadable.append({"path": str(path), "reason": one_line(str(error))})
    return {"folder": str(folder), "results": results, "sweeps": sweeps, "unreadable": unreadable}


def _results_and_stores(folder: Path, deep: int) -> Iterator[Path]:
    """Return result.json files and stores, links left out; no folder below a result is looked at."""
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
            yield from _results_and_stores(path, deep - 1) if deep else ()
        elif path.suffix == ".sqlite" and is_store(path):
            yield path


def _result(result: Result) -> dict[str, Any]:
    run, folder, task = result.run, result.folder, result.task
    agreement = {} if run.agreement is None else run.agreement.values
    return {
        "folder": str(folder),
        "name": result.name,
        "id": result.id,
        "created": run.created or None,
        "latest": _leads_to(folder.parent / LATEST, folder.name),
        "images": run.protocol["images"],
        "precision": run.precision.key,
        "quality": {task.quality: result.metrics.get(task.quality)},
        "agreement": agreement.get(task.agreement.removeprefix("agreement_")),
        "engine": None if run.deployed is None else run.deployed.engine,
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
