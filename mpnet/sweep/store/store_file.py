# SPDX-License-Identifier: MIT
"""The SQLite file of a store: how it is opened, what it is about, its notes and contexts, and who works on what."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, ParamSpec, Sequence, TypeVar, cast

from mpnet.config.identity import digest_of
from mpnet.config.measures import trial_columns
from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.json_values import JsonObject
from mpnet.sweep.store.claims import Claims
from mpnet.sweep.store.documents import check_text, read_document
from mpnet.sweep.store.owners import Owners
from mpnet.sweep.store.reading import open_for_reading, require_file
from mpnet.sweep.store.schema import CHECKSUM, FORMAT, SCHEMA, VERSION, add_columns, columns_of, damage_error, translate_errors
from mpnet.sweep.store.trial import Subject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Given = ParamSpec("_Given")
_Note = TypeVar("_Note", bound="DataclassInstance")
_Parsed = TypeVar("_Parsed")
_Store = TypeVar("_Store", bound="StoreFile")
BUSY_SECONDS = 60.0


class StoreFile:
    """A store without its trials. Several processes may hold the same file; each opens its own.

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
        self._resources = ExitStack()

    @classmethod
    def open(cls: type[_Store], path: str | Path, subject: Subject | None = None) -> _Store:
        """Open a store; with a subject, create it when it is missing.

        Raises: StoreError when the file is no store, is one of another subject, is missing (without a subject), or
        cannot be read or written.
        """
        path = require_file(path) if subject is None or os.path.exists(path) else Path(path)
        with translate_errors(path):
            if subject is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        store = cls(path, connection, Owners(path, join=True))
        return store._begin(lambda: store._prepare(subject))

    @classmethod
    def open_or_read(cls: type[_Store], path: str | Path, subject: Subject) -> _Store:
        """Open a store as `open`; one that is there but cannot be written is opened for reading, `writable` says so."""
        try:
            return cls.open(path, subject)
        except StoreError:
            if not os.path.isfile(path) or all(os.access(target, os.W_OK) for target in (path, Path(path).absolute().parent)):
                raise
        store = cls.read(path)
        return store._begin(lambda: store._check_subject(subject))

    @classmethod
    def read(cls: type[_Store], path: str | Path) -> _Store:
        """Open an existing store for reading only, also from a folder that cannot be written and while others write."""
        path = require_file(path)
        with ExitStack() as stack:
            with translate_errors(path):
                connection = open_for_reading(path, BUSY_SECONDS, stack)
            store = cls(path, connection, Owners(path, join=False))
            store._resources = stack.pop_all()
        return store._begin(store._check_format)

    def _begin(self: _Store, check: Callable[[], object]) -> _Store:
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
        self._resources.close()
        self._owners.leave()

    def __enter__(self: _Store) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what the store is about

    def _prepare(self, subject: Subject | None) -> None:
        with translate_errors(self.path):
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
        with translate_errors(self.path):
            self._db.execute("PRAGMA journal_mode = WAL")
            # FULL: a finished trial survives a power cut as well.
            self._db.execute("PRAGMA synchronous = FULL")

    def _check_format(self) -> int:
        """Return the version of the format, and learn which columns the store has."""
        with translate_errors(self.path):
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
        stored = self.subject
        words = {"network": "network (cfg)", "data": "data set", "protocol": "detection protocol"}
        for name, word in words.items():
            stored_digest, digest = getattr(stored, name), getattr(subject, name)
            if stored_digest != digest:
                raise StoreError(
                    f"{self.path}: a store of another {word} (digest {stored_digest[:12]}, this experiment's is "
                    f"{digest[:12]}); choose another --store"
                )

    @property
    def writable(self) -> bool:
        """Return whether it was opened to be written."""
        return bool(self.owner)

    @property
    def subject(self) -> Subject:
        """Return the digests that the store was made for."""
        return build(Subject, self.document("subject"))

    def note(self, name: str) -> str | None:
        """Return the text kept under a name, or None."""
        with translate_errors(self.path):
            row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        self._parse(check_text, name, row[0])
        return str(row[0])

    def notes(self, prefix: str) -> tuple[str, ...]:
        """Return the names of all texts whose name begins so."""
        with translate_errors(self.path):
            rows = self._db.execute("SELECT name FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)).fetchall()
        return tuple(str(row[0]) for row in rows)

    def document(self, name: str) -> JsonObject:
        """Return the JSON document kept under a name, as `documents` describes it; {} when there is none."""
        return self._parse(read_document, name, self.note(name)) or {}

    def read_note(self, name: str, declared: type[_Note]) -> _Note | None:
        """Return the document kept under a name as the dataclass that `documents` has for it; None when there is none."""
        document = self.document(name)
        return build(declared, document) if document else None

    def read_notes(self, name: str, declared: type[_Note]) -> dict[str, _Note]:
        """Return the values of the document kept under a name, each as the dataclass that `documents` has for it."""
        return {key: build(declared, value) for key, value in self.document(name).items() if isinstance(value, dict)}

    def read_figures(self, name: str) -> dict[str, dict[str, float]]:
        """Return the document kept under a name, of which `documents` says that it holds figures by name, by key."""
        return cast("dict[str, dict[str, float]]", self.document(name))

    def _parse(self, parse: Callable[_Given, _Parsed], *values: _Given.args, **named_values: _Given.kwargs) -> _Parsed:
        """Return what `parse` makes of something that the store holds. Raises: StoreError when it is damaged."""
        try:
            return parse(*values, **named_values)
        except ValueError as error:
            raise damage_error(self.path, str(error)) from None

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

    def context(self, document: JsonObject) -> int:
        """Return the number of a context: quantisation options, arithmetic version, whatever else decides a result.

        Equal documents have equal numbers, in any process. Raises: StoreError for a new one where it cannot be written.
        """
        digest = digest_of(document)
        with translate_errors(self.path):
            row = self._db.execute("SELECT id FROM contexts WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            with self._transaction():
                self._db.execute(
                    "INSERT OR IGNORE INTO contexts (digest, document) VALUES (?, ?)",
                    (digest, json.dumps(document, sort_keys=True)),
                )
                row = self._db.execute("SELECT id FROM contexts WHERE digest = ?", (digest,)).fetchone()
        return int(row[0])

    def contexts(self) -> dict[int, JsonObject]:
        """Return all contexts by number."""
        with translate_errors(self.path):
            rows = self._db.execute("SELECT id, document FROM contexts ORDER BY id").fetchall()
        for number, _ in rows:
            if not isinstance(number, int):
                raise damage_error(self.path, f"the number of a context is {number!r}")
        contexts = {}
        for number, text in rows:
            document = self._parse(read_document, "context", text)
            contexts[number] = document or {}
        return contexts

    # ---- claims: who works on what (see `claims`)

    def claim(self, names: Sequence[str]) -> list[str]:
        """Take work under its names; the result are those that nobody alive has. They are ours until committed."""
        with self._transaction():
            return self._parse(self._claims.take, names)

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
        with translate_errors(self.path):
            return self._parse(self._claims.find_active)

    def is_alive(self, owner: str) -> bool | None:
        """Return whether an owner's process lives; None when that cannot be known here."""
        return self._owners.is_alive(owner)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run one short write. IMMEDIATE takes the write lock first: writers wait, they never deadlock."""
        with translate_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
