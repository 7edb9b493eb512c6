# SPDX-License-Identifier: MIT
"""The inventory of a folder: results of runs, and stores with their sweeps."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, Mapping

from mpnet.errors import MpnetError
from mpnet.messages import one_line
from mpnet.model.keys import json_key
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.store.latest import LATEST_STORE, is_store
from mpnet.trial.result import LATEST, RESULT_FILE, Result, read_result

DEEPEST = 6
"""Folders below the one that is named."""


@dataclass(frozen=True, kw_only=True)
class ListedResult:
    """The result of a run. folder: that holds it. is_latest: whether its experiment's folder stands for it.

    quality:   of the task by measure, percent. agreement: with the baseline, percent; None without one.
    precision: its precision string. engine: that it ran in, None: mpnet's own.
    """

    folder: str
    name: str
    id: str
    created: str | None
    is_latest: bool = field(metadata=json_key("latest"))
    images: int
    precision: str
    quality: Mapping[str, float | None]
    agreement: float | None
    engine: str | None


@dataclass(frozen=True, kw_only=True)
class ListedSweep:
    """A sweep of a store, with what `SweepSummary` says of it. is_latest: whether its store's folder stands for it."""

    store: str
    name: str | None
    is_latest: bool = field(metadata=json_key("latest"))
    state: str
    number: int = field(metadata=json_key("sweep"))
    contexts: tuple[int, ...]
    strategy: str | None
    trials: int
    options: tuple[str, ...]
    holdout: float | None
    objectives: tuple[str, ...] | None
    created: str | None
    is_last: bool = field(metadata=json_key("last"))


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Inventory:
    """The results and sweeps below a folder, and what cannot be read; by path."""

    folder: str
    results: tuple[ListedResult, ...]
    sweeps: tuple[ListedSweep, ...]
    unreadable: tuple[Unreadable, ...]


def inventory(folder: Path) -> Inventory:
    """Return what lies below a folder, as `mpnet list` prints it."""
    results, sweeps, unreadable = list[ListedResult](), list[ListedSweep](), list[Unreadable]()
    for path in _results_and_stores(folder, DEEPEST):
        try:
            if path.name == RESULT_FILE:
                results.append(_result(read_result(path)))
            else:
                sweeps += _sweeps(path)
        except MpnetError as error:
            unreadable.append(Unreadable(str(path), one_line(str(error))))
    return Inventory(str(folder), tuple(results), tuple(sweeps), tuple(unreadable))


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


def _result(result: Result) -> ListedResult:
    run, folder, task = result.run, result.folder, result.task
    agreement = {} if run.agreement is None else run.agreement.values
    return ListedResult(
        folder=str(folder),
        name=result.name,
        id=result.id,
        created=run.created or None,
        is_latest=_leads_to(folder.parent / LATEST, folder.name),
        images=run.images,
        precision=run.precision.key,
        quality={task.quality: result.metrics.get(task.quality)},
        agreement=agreement.get(task.agreement.removeprefix("agreement_")),
        engine=None if run.deployed is None else run.deployed.engine,
    )


def _sweeps(store: Path) -> list[ListedSweep]:
    latest = _leads_to(store.parent / LATEST_STORE, store.name)
    status = sweep_status(store)
    return [
        ListedSweep(
            store=str(store),
            name=summary.name,
            is_latest=latest and summary.is_last,
            # Whether the last sweep works at this moment is no part of its record.
            state=status.state if summary.number == status.number else summary.state,
            number=summary.number,
            contexts=summary.contexts,
            strategy=summary.strategy,
            trials=summary.trials,
            options=summary.options,
            holdout=summary.holdout,
            objectives=summary.objectives,
            created=summary.created,
            is_last=summary.is_last,
        )
        for summary in status.sweeps
    ]


def _leads_to(link: Path, name: str) -> bool:
    return link.is_symlink() and os.readlink(link) == name
