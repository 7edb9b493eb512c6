# SPDX-License-Identifier: MIT
"""Writes what can still be read of a damaged store into a new one."""

from __future__ import annotations

import glob
import json
import os
import re
import sqlite3
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Iterator

from mpnet.config.identity import digest_of
from mpnet.config.measures import trial_columns
from mpnet.errors import StoreError
from mpnet.formats.files.atomic import atomic_path
from mpnet.messages import named
from mpnet.sweep.store.documents import DOCUMENTS, read_document
from mpnet.sweep.store.failed import FailedTrial, failed_trial, has_failed
from mpnet.sweep.store.reading import existing, open_for_reading
from mpnet.sweep.store.ruled_out import RuledOut, has_ruled_out, unpacked
from mpnet.sweep.store.trial_store import BUSY_SECONDS, Subject, Trial, TrialStore, trial_of

_BATCH = 2_000


def salvage(path: Path, out: Path) -> dict[str, Any]:
    """Read the store `path` as far as that goes and write whole, sensible trials to a new store `out`, which appears when it is
    complete.

    Result: the document of `mpnet sweep --salvage --json`: how many trials were written, what was lost.
    Raises: StoreError when `out` exists, or when not even the beginning can be read.
    """
    path = existing(path)
    if os.path.lexists(out):
        raise StoreError(f"{named(out)}: exists already; name another file with --store")
    lost: list[str] = []
    with ExitStack() as stack:
        try:
            db = open_for_reading(path, BUSY_SECONDS, stack)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{named(path)}: nothing of it can be read ({error}); restore it from a backup, or sweep "
                f"again with another --store"
            ) from None
        db.text_factory = lambda content: content.decode("utf-8", "replace")
        contexts = _contexts(db, lost)
        subject = _subject(db, contexts)
        if subject is None:
            raise StoreError(
                f"{named(path)}: what it was about cannot be read, so its trials are of no use; restore it "
                f"from a backup, or sweep again with another --store"
            )
        written = 0
        for left in out.parent.glob(f".{glob.escape(out.name[:100])}.*.part{out.suffix}-*"):
            left.unlink()  # beside what a killed one wrote, which `atomic_path` removes
        with atomic_path(out) as part, TrialStore.open(part, subject) as new:
            numbers = {old: new.context(document) for old, document in contexts.items()}
            for old, trials in _trials(db, lost):
                if old in numbers:
                    written += new.add(numbers[old], trials)
            for old, ruled_out in _ruled_out(db, lost):
                if old in numbers:
                    new.add(numbers[old], (), ruled_out=ruled_out)
            for old, failed in _failed(db, lost).items():
                if old in numbers:
                    new.add(numbers[old], (), failed_trials=failed)
            for name, document in _notes(db, lost, numbers).items():
                new.set_note(name, json.dumps(document))
    return {"store": str(path), "salvaged": str(out), "trials": written, "contexts": len(contexts), "lost": lost}


def _rows(db: sqlite3.Connection, table: str, order: str, lost: list[str]) -> Iterator[dict[str, Any]]:
    """Return all rows of a table that can be read: from its beginning to the damage, and from its end back to it."""
    for direction in ("ASC", "DESC"):
        keys = ", ".join(f"{name} {direction}" for name in order.split(", "))
        try:
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {keys}")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))
            return
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if direction == "ASC":
                lost.append(f"part of the {table} ({error})")


def _contexts(db: sqlite3.Connection, lost: list[str]) -> dict[int, Any]:
    contexts = {}
    for row in _rows(db, "contexts", "id", lost):
        try:
            document = read_document("context", row["document"])
            # A digest that does not fit tells of a change that left valid JSON.
            if digest_of(document) != row["digest"]:
                raise ValueError("another digest")
            contexts[int(row["id"])] = document
        except (ValueError, KeyError, TypeError, AttributeError):
            lost.append(f"context {str(row.get('id'))[:20]} and its trials")
    return contexts


def _subject(db: sqlite3.Connection, contexts: dict[int, Any]) -> Subject | None:
    with suppress(sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
        text = db.execute("SELECT value FROM meta WHERE name = 'subject'").fetchone()[0]
        document = read_document("subject", text)
        return Subject(**{field.name: document[field.name] for field in fields(Subject)})
    for context in contexts.values():
        identity = context.get("identity")
        if identity:
            return Subject(identity["cfg"], identity["weights"], identity["data"], digest_of(identity["protocol"]))
    return None


def _trials(db: sqlite3.Connection, lost: list[str]) -> Iterator[tuple[int, list[Trial]]]:
    """Return batches of whole trials of one context."""
    batch: list[Trial] = []
    measures = trial_columns()
    of, broken = None, 0
    for row in _rows(db, "trials", "context, key", lost):
        context = row.pop("context", None)
        key = row.pop("key", None)
        try:
            trial = trial_of(context, key, row, measures)
        except ValueError:
            broken += 1
            continue
        if batch and (context != of or len(batch) == _BATCH):
            yield int(of or 0), batch
            batch = []
        of = context if isinstance(context, int) else 0
        batch.append(trial)
    if batch:
        yield int(of or 0), batch
    if broken:
        lost.append(f"{broken} trials whose values or checksums are wrong")


def _ruled_out(db: sqlite3.Connection, lost: list[str]) -> Iterator[tuple[int, RuledOut]]:
    """Yield what was ruled out, row by row."""
    with suppress(sqlite3.Error):
        if not has_ruled_out(db):
            return
    for row in _rows(db, "ruled_out", "context, first", lost):
        try:
            yield int(row["context"]), RuledOut(str(row["front"]), unpacked(row["keys"]))
        except (ValueError, TypeError):
            lost.append("some configurations that were ruled out")


def _failed(db: sqlite3.Connection, lost: list[str]) -> dict[int, list[FailedTrial]]:
    """Collect the configurations without figures, by context."""
    failed: dict[int, list[FailedTrial]] = {}
    with suppress(sqlite3.Error):
        if not has_failed(db):
            return failed
    for row in _rows(db, "failed", "context, key", lost):
        try:
            failed.setdefault(int(row["context"]), []).append(failed_trial(**row))
        except (ValueError, TypeError):
            lost.append("some configurations that failed")
    return failed


def _notes(db: sqlite3.Connection, lost: list[str], numbers: dict[int, int]) -> dict[str, Any]:
    """Return the notes that are whole, about the new numbers of contexts; those about contexts that are lost are left out."""
    notes: dict[str, Any] = {}
    for row in _rows(db, "meta", "name", lost):
        name = str(row.get("name"))
        if name.partition("/")[0] not in DOCUMENTS or name == "subject":
            continue
        try:
            document = read_document(name, str(row.get("value")))
        except ValueError:
            lost.append(f"the note {name!r}")
            continue
        renamed = _renamed(name, numbers)
        if document is not None and renamed is not None:
            notes[renamed] = _renumbered(name.partition("/")[0], document, numbers)
    return notes


def _renamed(name: str, numbers: dict[int, int]) -> str | None:
    """Rename a note that is called after contexts: `findings/2,3`, `verified/2:openvino`; None when these are lost."""
    kind, slash, about = name.partition("/")
    contexts, colon, rest = about.partition(":")
    if not slash or kind in ("conditions", "times") or not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", contexts):
        return name
    kept = [str(numbers[old]) for old in map(int, contexts.split(",")) if old in numbers]
    return f"{kind}/{','.join(kept)}{colon}{rest}" if kept else None


def _renumbered(kind: str, document: Any, numbers: dict[int, int]) -> Any:
    """Return a document about the new numbers of contexts."""
    if kind in (
        "losses",
        "tested",
        "shown",
        "conditions",
        "conditions_failed",
    ):  # by `context:key`, `context:baseline:key` and so on
        pairs = ((*name.split(":", 1), losses) for name, losses in document.items() if ":" in name)
        return {f"{numbers[int(old)]}:{key}": losses for old, key, losses in pairs if old.isdigit() and int(old) in numbers}
    if "contexts" in document:
        document["contexts"] = [numbers[old] for old in document["contexts"] if old in numbers]
    for verified in (document, document.get("verified") or {}):
        if "rows" in verified:
            verified["rows"] = [
                {**row, "context": numbers[row["context"]]} for row in verified["rows"] if row["context"] in numbers
            ]
    return document
