# SPDX-License-Identifier: MIT
"""Salvage: what can still be read of a damaged store is written into a new one."""

from __future__ import annotations

import glob
import json
import os
import re
import sqlite3
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping

from mpnet.config.identity import digest_of
from mpnet.config.measures import trial_columns
from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.formats.files.atomic import atomic_path
from mpnet.json_values import Json, JsonObject
from mpnet.messages import named
from mpnet.model.keys import json_key
from mpnet.sweep.store.documents import DOCUMENTS, read_document
from mpnet.sweep.store.failed import FailedTrial, has_failed, parse_failed_trial
from mpnet.sweep.store.notes import ContextDocument
from mpnet.sweep.store.reading import open_for_reading, require_file
from mpnet.sweep.store.ruled_out import RuledOut, has_ruled_out, unpack_keys
from mpnet.sweep.store.store_file import BUSY_SECONDS
from mpnet.sweep.store.trial import Subject, Trial, parse_trial
from mpnet.sweep.store.trial_store import TrialStore

_BATCH = 2_000


@dataclass(frozen=True)
class Salvaged:
    """What was saved of a damaged store, as `mpnet sweep --salvage --json` prints it.

    new_store: what the trials were written to. trials, contexts: how many of each. losses: what could not be read, a line each.
    """

    store: str
    new_store: str = field(metadata=json_key("salvaged"))
    trials: int
    contexts: int
    losses: tuple[str, ...] = field(metadata=json_key("lost"))


def salvage(path: Path, out: Path) -> Salvaged:
    """Read the store `path` as far as that goes and write whole, sensible trials to a new store `out`.

    The new store appears when it is complete.
    Raises: StoreError when `out` exists, or when not even the beginning can be read.
    """
    path = require_file(path)
    if os.path.lexists(out):
        raise StoreError(f"{named(out)}: exists already; name another file with --store")
    losses: list[str] = []
    with ExitStack() as stack:
        try:
            db = open_for_reading(path, BUSY_SECONDS, stack)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{named(path)}: nothing of it can be read ({error}); restore it from a backup, or sweep "
                f"again with another --store"
            ) from None
        db.text_factory = lambda content: content.decode("utf-8", "replace")
        contexts = _read_contexts(db, losses)
        subject = _read_subject(db, contexts)
        if subject is None:
            raise StoreError(
                f"{named(path)}: what it was about cannot be read, so its trials are of no use; restore it "
                f"from a backup, or sweep again with another --store"
            )
        trial_count = 0
        _remove_leftovers(out.parent, f".{glob.escape(out.name[:100])}.*.part{out.suffix}-*")
        with atomic_path(out) as temporary_path:
            try:
                with TrialStore.open(temporary_path, subject) as new_store:
                    numbers = {old_number: new_store.context(document) for old_number, document in contexts.items()}
                    for old_number, trials in _read_trials(db, losses):
                        if old_number in numbers:
                            trial_count += new_store.add(numbers[old_number], trials)
                    for old_number, ruled_out in _read_ruled_out(db, losses):
                        if old_number in numbers:
                            new_store.add(numbers[old_number], (), ruled_out=ruled_out)
                    for old_number, failed_trials in _read_failed(db, losses).items():
                        if old_number in numbers:
                            new_store.add(numbers[old_number], (), failed_trials=failed_trials)
                    for name, document in _read_notes(db, losses, numbers).items():
                        new_store.set_note(name, json.dumps(document))
            finally:  # Ctrl-C while the store opens leaves what only an open one removes
                _remove_leftovers(temporary_path.parent, f"{glob.escape(temporary_path.name)}-*")
    return Salvaged(str(path), str(out), trial_count, len(contexts), tuple(losses))


def _remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove files that stand beside a store that nobody has open: `atomic_path` removes the store itself alone."""
    for leftover in folder.glob(pattern):
        leftover.unlink(missing_ok=True)


def _read_rows(db: sqlite3.Connection, table: str, order: str, losses: list[str]) -> Iterator[dict[str, Any]]:
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
                losses.append(f"part of the {table} ({error})")


def _read_contexts(db: sqlite3.Connection, losses: list[str]) -> dict[int, JsonObject]:
    contexts: dict[int, JsonObject] = {}
    for row in _read_rows(db, "contexts", "id", losses):
        try:
            document = read_document("context", row["document"]) or {}
            # A digest that does not fit tells of a change that left valid JSON.
            if digest_of(document) != row["digest"]:
                raise ValueError("another digest")
            contexts[int(row["id"])] = document
        except (ValueError, KeyError, TypeError, AttributeError):
            losses.append(f"context {str(row.get('id'))[:20]} and its trials")
    return contexts


def _read_subject(db: sqlite3.Connection, contexts: Mapping[int, JsonObject]) -> Subject | None:
    with suppress(sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
        text = db.execute("SELECT value FROM meta WHERE name = 'subject'").fetchone()[0]
        return build(Subject, read_document("subject", text) or {})
    for context in contexts.values():
        identity = build(ContextDocument, context).identity_of()
        if identity is not None:
            return Subject(identity.cfg, identity.weights, identity.data, digest_of(identity.protocol))
    return None


def _read_trials(db: sqlite3.Connection, losses: list[str]) -> Iterator[tuple[int, list[Trial]]]:
    """Return batches of whole trials of one context."""
    batch: list[Trial] = []
    measures = trial_columns()
    batch_context, broken_count = None, 0
    for row in _read_rows(db, "trials", "context, key", losses):
        context = row.pop("context", None)
        key = row.pop("key", None)
        try:
            trial = parse_trial(context, key, row, measures)
        except ValueError:
            broken_count += 1
            continue
        if batch and (context != batch_context or len(batch) == _BATCH):
            yield int(batch_context or 0), batch
            batch = []
        batch_context = context if isinstance(context, int) else 0
        batch.append(trial)
    if batch:
        yield int(batch_context or 0), batch
    if broken_count:
        losses.append(f"{broken_count} trials whose values or checksums are wrong")


def _read_ruled_out(db: sqlite3.Connection, losses: list[str]) -> Iterator[tuple[int, RuledOut]]:
    """Yield what was ruled out, row by row."""
    with suppress(sqlite3.Error):
        if not has_ruled_out(db):
            return
    for row in _read_rows(db, "ruled_out", "context, first", losses):
        try:
            yield int(row["context"]), RuledOut(str(row["front"]), unpack_keys(row["keys"]))
        except (ValueError, TypeError):
            losses.append("some configurations that were ruled out")


def _read_failed(db: sqlite3.Connection, losses: list[str]) -> dict[int, list[FailedTrial]]:
    """Collect the configurations without figures, by context."""
    failed_trials: dict[int, list[FailedTrial]] = {}
    with suppress(sqlite3.Error):
        if not has_failed(db):
            return failed_trials
    for row in _read_rows(db, "failed", "context, key", losses):
        try:
            failed_trials.setdefault(int(row["context"]), []).append(parse_failed_trial(**row))
        except (ValueError, TypeError):
            losses.append("some configurations that failed")
    return failed_trials


def _read_notes(db: sqlite3.Connection, losses: list[str], numbers: dict[int, int]) -> dict[str, JsonObject]:
    """Return the notes that are whole, about the new numbers of contexts; those about contexts that are lost are left out."""
    notes: dict[str, JsonObject] = {}
    for row in _read_rows(db, "meta", "name", losses):
        name = str(row.get("name"))
        if name.partition("/")[0] not in DOCUMENTS or name == "subject":
            continue
        try:
            document = read_document(name, str(row.get("value")))
        except ValueError:
            losses.append(f"the note {name!r}")
            continue
        renamed = _rename_note(name, numbers)
        if document is not None and renamed is not None:
            notes[renamed] = _renumber(name.partition("/")[0], document, numbers)
    return notes


def _rename_note(name: str, numbers: dict[int, int]) -> str | None:
    """Rename a note that is called after contexts: `findings/2,3`, `verified/2:openvino`; None when these are lost."""
    kind, slash, suffix = name.partition("/")
    contexts, colon, qualifier = suffix.partition(":")
    if not slash or kind in ("conditions", "times") or not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", contexts):
        return name
    new_numbers = [str(numbers[old_number]) for old_number in map(int, contexts.split(",")) if old_number in numbers]
    return f"{kind}/{','.join(new_numbers)}{colon}{qualifier}" if new_numbers else None


def _renumber(kind: str, document: JsonObject, numbers: dict[int, int]) -> JsonObject:
    """Return a document about the new numbers of contexts."""
    if kind in (
        "losses",
        "tested",
        "shown",
        "conditions",
        "conditions_failed",
    ):  # by `context:key`, `context:baseline:key` and so on
        rows = ((*name.partition(":"), losses) for name, losses in document.items())
        return {
            f"{numbers[int(old_number)]}:{key}": losses
            for old_number, colon, key, losses in rows
            if colon and old_number.isdigit() and int(old_number) in numbers
        }
    renumbered = _renumber_rows(document, numbers)
    contexts, verified = document.get("contexts"), document.get("verified")
    if isinstance(contexts, list):
        renumbered["contexts"] = [numbers[old_number] for old_number in contexts if old_number in numbers]
    if isinstance(verified, dict):
        renumbered["verified"] = _renumber_rows(verified, numbers)
    return renumbered


def _renumber_rows(document: JsonObject, numbers: dict[int, int]) -> dict[str, Json]:
    """Return the rows of a verification about the new numbers of contexts."""
    rows = document.get("rows")
    if not isinstance(rows, list):
        return dict(document)
    return {**document, "rows": [{**row, "context": numbers[row["context"]]} for row in rows if row["context"] in numbers]}
