# SPDX-License-Identifier: MIT
"""The tables of a sweep's store, and what the store says when something is wrong."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Iterator, Mapping

from mpnet.config.measures import trial_columns
from mpnet.errors import StoreError
from mpnet.messages import named
from mpnet.sweep.store.claims import TABLE as CLAIMS

FORMAT = "mpnet-sweep"
VERSION = 2
"""1: what 0.1.0 wrote, its columns known by their place. 2: columns are known by their names, so there may be more."""

CHECKSUM = "checksum"
"""Column of the trials with a CRC-32 of the rest of the row; empty in rows that a version without it wrote."""
# Keys are short texts and most columns 8-byte floats, empty ones 1 byte: about 150 bytes for each trial. A store that
# was made before a measure existed gets its column when it is next written (`add_columns`): SQLite then only notes the
# name, and rows from before hold nothing there.
SCHEMA: tuple[str, ...] = tuple(
    f"CREATE TABLE IF NOT EXISTS {table}"
    for table in (
        "meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "contexts (id INTEGER PRIMARY KEY, digest TEXT UNIQUE NOT NULL, document TEXT NOT NULL)",
        "trials (context INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (context, key)) WITHOUT ROWID",
        "work (context INTEGER PRIMARY KEY, macs REAL NOT NULL, seconds REAL NOT NULL)",
        CLAIMS,
    )
)


def columns_of(db: sqlite3.Connection) -> tuple[str, ...]:
    """Return all columns of the trials but context and key, those of a newer mpnet among them."""
    return tuple(str(row[1]) for row in db.execute("PRAGMA table_info(trials)") if row[1] not in ("context", "key"))


def add_columns(db: sqlite3.Connection) -> None:
    """Give the store a column for every measure, and for checksums; call it within a transaction."""
    columns = columns_of(db)
    for name in (*trial_columns(), CHECKSUM):
        if name not in columns:
            db.execute(f'ALTER TABLE trials ADD COLUMN "{name}" {"INTEGER" if name == CHECKSUM else "REAL"}')


def checksum(context: int, key: str, values: Mapping[str, float]) -> int:
    """Return CRC-32 of a trial: its context, key, and all values by column, in the order of their names."""
    names = sorted(values)
    text = "\0".join((str(context), key, *names)).encode("utf-8", "replace")
    return zlib.crc32(struct.pack(f"<{len(names)}d", *(values[name] for name in names)), zlib.crc32(text))


def damage_error(path: Path, reason: str) -> StoreError:
    """Return the error for a store whose content is wrong."""
    return StoreError(
        f"{named(path)}: the store is damaged: {reason}; `mpnet sweep --salvage STORE` writes what is readable into a new one"
    )


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """Return the error that says what went wrong with a store, and what to do, in one line."""
    text = str(error)
    safe = "finished trials are safe"
    if "is full" in text or "No space left" in text or "File too large" in text:
        return StoreError(f"{path}: the disk is full; {safe}; free some space and run the same command again")
    if "readonly" in text or "read-only" in text.lower() or "Permission denied" in text:
        return StoreError(f"{path}: cannot be written; choose another --store or output folder")
    if "unable to open" in text or isinstance(error, OSError):
        return StoreError(f"{path}: cannot be opened ({text}); check the folder, or choose another --store")
    if "not a database" in text:
        return StoreError(f"{path}: not a store (not an SQLite file); choose another --store")
    if "locked" in text or "busy" in text:
        return StoreError(
            f"{path}: another process has held the store for a minute; {safe}; stop that process or choose another --store"
        )
    if "Could not decode" in text:
        return damage_error(path, "it holds a text that is not UTF-8")
    if "malformed" in text or "corrupt" in text:
        return damage_error(path, text)
    if "disk I/O error" in text:
        return StoreError(
            f"{path}: the disk cannot be written or read ({text}), perhaps full; {safe}; mend that and "
            f"run the same command again"
        )
    return StoreError(f"{path}: {text}; choose another --store")


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's complaints into one StoreError each."""
    try:
        yield
    except UnicodeDecodeError:  # even what SQLite says of a damaged file may be none
        raise damage_error(path, "it holds a text that is not UTF-8") from None
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error
