# SPDX-License-Identifier: MIT
"""One SQLite file per sweep that loses nothing: finished trials, who works on what, and how the sweep went.

A trial's identity is the digest of everything that decides its result (`Subject`, its context, its key), so a resumed
sweep cannot take over a stale result. Trials are committed in batches, each in one transaction: a process that is
killed at any moment loses what it was computing and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import struct
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence, TypeVar

from mpnet.config.identity import TrialIdentity, digest_of
from mpnet.config.measures import trial_columns
from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.sweep.store.claims import Claims
from mpnet.sweep.store.documents import check_text, check_trial, check_work, read_document
from mpnet.sweep.store.failed import FailedTrial, add_failed, failed_rows
from mpnet.sweep.store.owners import Owners
from mpnet.sweep.store.reading import existing, open_for_reading
from mpnet.sweep.store.ruled_out import RuledOut, add_ruled_out, once_each, ruled_out_rows, unpacked
from mpnet.sweep.store.schema import CHECKSUM, FORMAT, SCHEMA, VERSION, add_columns, checksum, columns_of, damaged, translated

_Read = TypeVar("_Read")
BUSY_SECONDS = 60.0
_AFTER = "ruled_out_after"  # name of a note
_SLICE = 500  # names in one SQL statement, well below SQLite's limit of variables


@dataclass(frozen=True)
class Subject:
    """What a store is about: SHA-256 digests (hex) of cfg, data and protocol, which never change.

    weights: of the sweep that began the store, which its usual name tells. Each context says which weights its trials have, so
    that sweeps of other weights of the network may go into the same store.
    """

    network: str
    weights: str
    data: str
    protocol: str


@dataclass(frozen=True)
class Trial:
    """A finished trial. key: canonical text of its plan; values: metrics and costs by column name."""

    key: str
    values: Mapping[str, float]

    def get(self, name: str) -> float:
        """Return the value called `name`; NaN when it was not measured."""
        return self.values.get(name, math.nan)


@dataclass(frozen=True)
class Work:
    """macs: multiply-accumulates that were executed, all images; seconds: of wall clock."""

    macs: float = 0.0
    seconds: float = 0.0


def trial_of(context: Any, key: Any, columns: Mapping[str, Any], measures: Collection[str]) -> Trial:
    """Read a trial from what a store holds of it, by column; of its values only those of `measures` are read.

    Raises: ValueError for values that no trial has, or another checksum.
    """
    values = {name: value for name, value in columns.items() if value is not None}
    kept = values.pop(CHECKSUM, None)
    trial = Trial(key, {name: value for name, value in values.items() if name in measures})
    check_trial(key, trial.values)
    try:
        is_whole = kept is None or kept == checksum(context, key, values)
    except struct.error:  # a value of a newer mpnet that is no number
        is_whole = False
    if not is_whole:
        raise ValueError(f"trial {key}: its checksum does not match")
    return trial


class TrialStore:
    """The trials of one sweep. Several processes may hold the same file; each opens its own.

    Not for use by several threads at once.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, owners: Owners) -> None:
        self.path = path
        self.owner = owners.me
        self._owners = owners
        self._db = connection
        self._claims = Claims(connection, owners)
        # All columns of the trials, and those of them that are measures which this mpnet knows.
        self._columns: tuple[str, ...] = ()
        self._measures: tuple[str, ...] = ()
        self._opened = ExitStack()

    @staticmethod
    def open(path: str | Path, subject: Subject | None = None) -> TrialStore:
        """Open a store; with a subject, create it when it is missing.

        Raises: StoreError when the file is no store, is one of another subject, is missing (without a subject), or
        cannot be read or written.
        """
        path = existing(path) if subject is None or os.path.exists(path) else Path(path)
        with translated(path):
            if subject is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        store = TrialStore(path, connection, Owners(path, join=True))
        return store._begun(lambda: store._prepare(subject))

    @staticmethod
    def open_or_read(path: str | Path, subject: Subject) -> TrialStore:
        """Open a store as `open`; one that is there but cannot be written is opened for reading, `writable` says so."""
        try:
            return TrialStore.open(path, subject)
        except StoreError:
            if not os.path.isfile(path) or all(os.access(written, os.W_OK) for written in (path, Path(path).absolute().parent)):
                raise
        store = TrialStore.read(path)
        return store._begun(lambda: store._check_subject(subject))

    @staticmethod
    def read(path: str | Path) -> TrialStore:
        """Open an existing store for reading only, also from a folder that cannot be written and while others write."""
        path = existing(path)
        with ExitStack() as stack:
            with translated(path):
                connection = open_for_reading(path, BUSY_SECONDS, stack)
            store = TrialStore(path, connection, Owners(path, join=False))
            store._opened = stack.pop_all()
        return store._begun(store._check_format)

    def _begun(self, check: Callable[[], object]) -> TrialStore:
        try:
            check()
        except BaseException:
            self._leave()
            raise
        return self

    def close(self) -> None:
        """Release this owner's claims and close the file."""
        if self.owner:
            with contextlib.suppress(StoreError), self._transaction():
                self._claims.release()
        self._leave()

    def _leave(self) -> None:
        self._db.close()
        self._opened.close()
        self._owners.leave()

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what the store is about

    def _prepare(self, subject: Subject | None) -> None:
        with translated(self.path):
            tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables and subject is not None:
            self._write_safely()
            with self._transaction():
                for statement in SCHEMA:
                    self._db.execute(statement)
                self._db.executemany(
                    "INSERT OR IGNORE INTO meta VALUES (?, ?)",
                    [
                        ("format", FORMAT),
                        ("version", str(VERSION)),
                        ("created", str(time.time())),
                        ("subject", json.dumps(asdict(subject), sort_keys=True)),
                    ],
                )
                add_columns(self._db)
        version = self._check_format()
        if subject is not None:
            self._check_subject(subject)
        self._write_safely()
        if version < VERSION or not {*trial_columns(), CHECKSUM} <= {*self._columns}:
            with self._transaction():
                add_columns(self._db)
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'version'", (str(VERSION),))
            self._check_format()

    def _write_safely(self) -> None:
        with translated(self.path):
            self._db.execute("PRAGMA journal_mode = WAL")
            # FULL: a finished trial survives a power cut as well.
            self._db.execute("PRAGMA synchronous = FULL")

    def _check_format(self) -> int:
        """Return the version of the format, and learn which columns the store has."""
        with translated(self.path):
            tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            meta = dict(self._db.execute("SELECT name, value FROM meta")) if "meta" in tables else {}
            self._columns = columns_of(self._db)
            self._measures = tuple(name for name in trial_columns() if name in self._columns)
        if meta.get("format") != FORMAT:
            raise StoreError(f"{self.path}: an SQLite file, but not a store of mpnet; choose another --store")
        version = str(meta.get("version", ""))
        if not (version.isascii() and version.isdigit() and 1 <= int(version) <= VERSION):
            raise StoreError(
                f"{self.path}: a store of format version {version[:20]}, this mpnet reads 1 to {VERSION}; "
                f"use the newer mpnet that wrote it, or choose another --store"
            )
        return int(version)

    def _check_subject(self, subject: Subject) -> None:
        here = self.subject
        words = {"network": "network (cfg)", "data": "data set", "protocol": "detection protocol"}
        for name, word in words.items():
            held, wanted = getattr(here, name), getattr(subject, name)
            if held != wanted:
                raise StoreError(
                    f"{self.path}: a store of another {word} (digest {held[:12]}, this experiment's is "
                    f"{wanted[:12]}); choose another --store"
                )

    @property
    def writable(self) -> bool:
        """Return whether it was opened to be written."""
        return bool(self.owner)

    @property
    def subject(self) -> Subject:
        """Return the digests that the store was made for."""
        document = self.document("subject")
        return Subject(**{field.name: document[field.name] for field in fields(Subject)})

    def note(self, name: str) -> str | None:
        """Return the text kept under a name, or None."""
        with translated(self.path):
            row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        self._read(check_text, name, row[0])
        return str(row[0])

    def notes(self, prefix: str) -> tuple[str, ...]:
        """Return the names of all texts whose name begins so."""
        with translated(self.path):
            rows = self._db.execute("SELECT name FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)).fetchall()
        return tuple(str(row[0]) for row in rows)

    def document(self, name: str) -> Any:
        """Return the JSON document kept under a name, as `documents` describes it; {} or None when there is none."""
        return self._read(read_document, name, self.note(name))

    def _read(self, read: Callable[..., _Read], *values: Any) -> _Read:
        """Return what `read` makes of something that the store holds. Raises: StoreError when it is damaged."""
        try:
            return read(*values)
        except ValueError as error:
            raise damaged(self.path, str(error)) from None

    def set_note(self, name: str, value: str) -> None:
        """Keep a text under a name; where the store cannot be written it is not kept."""
        if not self.writable:
            return
        with self._transaction():
            self._write_note(name, value)

    def _write_note(self, name: str, value: str) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
        )

    # ---- contexts: what may differ between trials besides their key

    def context(self, document: Mapping[str, Any]) -> int:
        """Return the number of a context: quantisation options, arithmetic version, whatever else decides a result.

        Equal documents have equal numbers, in any process. Raises: StoreError for a new one where it cannot be written.
        """
        digest = digest_of(document)
        with translated(self.path):
            held = self._db.execute("SELECT id FROM contexts WHERE digest = ?", (digest,)).fetchone()
        if held is None:
            with self._transaction():
                self._db.execute(
                    "INSERT OR IGNORE INTO contexts (digest, document) VALUES (?, ?)",
                    (digest, json.dumps(document, sort_keys=True)),
                )
                held = self._db.execute("SELECT id FROM contexts WHERE digest = ?", (digest,)).fetchone()
        return int(held[0])

    def contexts(self) -> dict[int, dict[str, Any]]:
        """Return all contexts by number."""
        with translated(self.path):
            rows = self._db.execute("SELECT id, document FROM contexts ORDER BY id").fetchall()
        for number, _ in rows:
            if not isinstance(number, int):
                raise damaged(self.path, f"the number of a context is {number!r}")
        return {number: self._read(read_document, "context", document) for number, document in rows}

    def trial_digest(self, context: int, key: str) -> str:
        """Return the identity of a trial, SHA-256 hex; the same as that of a run of its configuration.

        Raises: StoreError for a context whose document has no `identity`.
        """
        parts = self.contexts()[context].get("identity")
        if not isinstance(parts, dict):
            raise StoreError(f"{self.path}: context {context} names no identity; choose another --store")
        digest = self._read(lambda: build(TrialIdentity, {**parts, "plan": key}).digests()["trial"])
        assert digest is not None
        return digest

    # ---- trials

    def add(
        self,
        context: int,
        trials: Iterable[Trial],
        claim: str | None = None,
        work: Work | None = None,
        ruled_out: RuledOut | None = None,
        failed_trials: Sequence[FailedTrial] = (),
    ) -> int:
        """Commit finished trials, all or none, and which others need none or failed, end the claim that they were computed
        under, and count their work.

        A trial that is already there stays as it is: results are reproducible, so both are the same. Result: how many
        were new. Raises: StoreError for a value of an unknown name.
        """
        rows = []
        known = frozenset(self._measures)
        for trial in trials:
            unknown = trial.values.keys() - known
            if unknown:
                raise StoreError(f"{self.path}: no column for {sorted(unknown)}; columns are {', '.join(self._measures)}")
            # SQLite keeps no NaN, and no sign of zero.
            values = {name: float(value) + 0.0 for name, value in trial.values.items() if not math.isnan(value)}
            values_by_column = (values.get(name) for name in self._measures)
            rows.append((context, trial.key, checksum(context, trial.key, values), *values_by_column))
        columns = ", ".join(f'"{name}"' for name in ("context", "key", CHECKSUM, *self._measures))
        marks = ", ".join("?" * (3 + len(self._measures)))
        with self._transaction():
            before = self._db.total_changes
            self._db.executemany(f"INSERT OR IGNORE INTO trials ({columns}) VALUES ({marks})", rows)
            new = self._db.total_changes - before
            if ruled_out is not None and ruled_out.keys:
                add_ruled_out(self._db, context, ruled_out)
                if ruled_out.image_counts:
                    self._count_after(context, ruled_out)
            if failed_trials:
                add_failed(self._db, context, failed_trials)
            if claim is not None:
                self._claims.end(claim)
            if work is not None:
                self._db.execute(
                    "INSERT INTO work VALUES (?, ?, ?) ON CONFLICT (context) DO UPDATE SET "
                    "macs = macs + excluded.macs, seconds = seconds + excluded.seconds",
                    (context, work.macs, work.seconds),
                )
        return new

    def ruled_out(self, context: int, front: str, keys: Collection[str]) -> set[str]:
        """Return those of the keys that are known to be no part of a front (see `ruled_out`)."""
        held = self._ruled_out(context, front, min(keys), max(keys)) if keys else ()
        return {key for key in held if key in keys}

    def all_ruled_out(self, context: int, front: str) -> Iterator[str]:
        """Return all keys that are known to be no part of that front."""
        return self._ruled_out(context, front)

    def count_ruled_out(self, contexts: Iterable[int], front: str) -> int:
        """Count the ruled out configurations."""
        return sum(1 for context in contexts for _ in self.all_ruled_out(context, front))

    def _ruled_out(self, context: int, front: str, *within: str) -> Iterator[str]:
        with translated(self.path):
            rows = ruled_out_rows(self._db, context, front, *within)
            yield from once_each(self._read(unpacked, packed) for packed in rows)

    def ruled_out_after(self, contexts: Iterable[int], front: str) -> dict[int, int]:
        """Count the configurations ruled out after so many images, fewest images first.

        Those that a version ruled out which did not count them are missing.
        """
        total: Counter[int] = Counter()
        for context in contexts:
            counts = self.document(f"{_AFTER}/{context}").get(front, {})
            total.update(self._read(lambda counts: {int(images): count for images, count in counts.items()}, counts))
        return dict(sorted(total.items()))

    def _count_after(self, context: int, ruled_out: RuledOut) -> None:
        """Add to `ruled_out_after`, within a transaction."""
        name = f"{_AFTER}/{context}"
        document = self.document(name)
        counts = document.setdefault(ruled_out.front, {})
        for images, count in ruled_out.image_counts:
            counts[str(images)] = counts.get(str(images), 0) + count
        self._write_note(name, json.dumps(document))

    def failed_trials(self, context: int) -> Iterator[FailedTrial]:
        """Return all configurations that have no figures, by rising key."""
        with translated(self.path):
            rows = failed_rows(self._db, context)
            while (one := self._read(next, rows, None)) is not None:
                yield one

    def find_failed(self, context: int, keys: Sequence[str]) -> list[FailedTrial]:
        """Find those of the keys that have no figures."""
        failed: list[FailedTrial] = []
        with translated(self.path):
            for start in range(0, len(keys), _SLICE):
                failed += self._read(list, failed_rows(self._db, context, keys[start : start + _SLICE]))
        return failed

    def work(self) -> Work:
        """Return all work that went into the finished trials."""
        with translated(self.path):
            rows = self._db.execute("SELECT macs, seconds FROM work").fetchall()
        for row in rows:
            self._read(check_work, *row)
        return Work(sum(float(macs) for macs, _ in rows), sum(float(seconds) for _, seconds in rows))

    def count(self, context: int | None = None) -> int:
        """Count the finished trials."""
        where, values = ("", ()) if context is None else (" WHERE context = ?", (context,))
        with translated(self.path):
            return int(self._db.execute(f"SELECT count(*) FROM trials{where}", values).fetchone()[0])

    def measured(self, contexts: Iterable[int]) -> tuple[str, ...]:
        """Return the measures that any finished trial of these contexts has, in the order of the columns."""
        counts = ", ".join(f'count("{name}")' for name in self._measures)
        numbers = ", ".join(str(int(context)) for context in contexts)
        with translated(self.path):
            row = self._db.execute(f"SELECT {counts} FROM trials WHERE context IN ({numbers})").fetchone()
        return tuple(name for name, count in zip(self._measures, row, strict=True) if count)

    def trials(self, context: int) -> Iterator[Trial]:
        """Return all finished trials, by rising key."""
        with translated(self.path):
            for row in self._db.execute(f"SELECT {self._row} FROM trials WHERE context = ? ORDER BY key", (context,)):
                yield self._read(self._trial, row)

    def find(self, context: int, keys: Sequence[str]) -> dict[str, Trial]:
        """Find those of the keys that are finished."""
        trials: dict[str, Trial] = {}
        with translated(self.path):
            for start in range(0, len(keys), _SLICE):
                part = keys[start : start + _SLICE]
                marks = ", ".join("?" * len(part))
                for row in self._db.execute(
                    f"SELECT {self._row} FROM trials WHERE context = ? AND key IN ({marks})", (context, *part)
                ):
                    trials[row[1]] = self._read(self._trial, row)
        return trials

    @property
    def _row(self) -> str:
        """Return the columns of a trial in SQL, by name: files have them in the order in which they were added."""
        return ", ".join(["context", "key", *(f'"{name}"' for name in self._columns)])

    def _trial(self, row: Sequence[Any]) -> Trial:
        """Return the trial of a row. Raises: ValueError for a damaged one."""
        return trial_of(row[0], row[1], dict(zip(self._columns, row[2:], strict=True)), self._measures)

    # ---- claims: who works on what (see `claims`)

    def claim(self, names: Sequence[str]) -> list[str]:
        """Take work under its names; the result are those that nobody alive has. They are ours until committed."""
        with self._transaction():
            return self._read(self._claims.take, names)

    def heartbeat(self) -> None:
        """Say that this process still works on what it claimed; call it every few seconds."""
        with self._transaction():
            self._claims.beat()

    def release(self, name: str) -> None:
        """Give claimed work back."""
        with self._transaction():
            self._claims.release(name)

    def claims(self) -> dict[str, str]:
        """Return claimed work by name, with its owner (see `owners`), dead owners' left out."""
        with translated(self.path):
            return self._read(self._claims.held)

    def lives(self, owner: str) -> bool | None:
        """Return whether an owner's process lives; None when that cannot be known here."""
        return self._owners.lives(owner)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run one short write. IMMEDIATE takes the write lock first: writers wait, they never deadlock."""
        with translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
