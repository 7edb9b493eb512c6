# SPDX-License-Identifier: MIT
"""Records of configurations that need no trial: which ones cannot be on which front."""

from __future__ import annotations

import re
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Iterable, Iterator

from mpnet.trial.run_result import KEY

TABLE = "ruled_out (context INTEGER NOT NULL, front TEXT NOT NULL, first TEXT NOT NULL, last TEXT NOT NULL, keys BLOB NOT NULL)"
"""One row for each unit; keys: rising, one a line, by zlib; first and last of them by themselves, to find them."""
_KEYS = re.compile(rf"(?:{KEY.pattern})(?:\n(?:{KEY.pattern}))*")
_MAX_KEY_BYTES = 1 << 28
"""Bytes that the keys of a row may take: far more than any unit has."""


@dataclass(frozen=True)
class RuledOut:
    """front: of what, as `Problem.front_name`. keys: of configurations that measured ones dominate for certain, rising.

    image_counts: (images, how many of them needed so many).
    """

    front: str
    keys: tuple[str, ...]
    image_counts: tuple[tuple[int, int], ...] = ()


def add_ruled_out(db: sqlite3.Connection, context: int, ruled_out: RuledOut) -> None:
    """Write a row, within a transaction; into a store of an older mpnet the table as well."""
    db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
    keys = ruled_out.keys
    packed = zlib.compress("\n".join(keys).encode())
    db.execute("INSERT INTO ruled_out VALUES (?, ?, ?, ?, ?)", (context, ruled_out.front, keys[0], keys[-1], packed))


def has_ruled_out(db: sqlite3.Connection) -> bool:
    """Return whether the store has the table: those of older versions do not."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'ruled_out'").fetchone() is not None


def read_ruled_out(
    db: sqlite3.Connection, context: int, front: str, first_key: str = "", last_key: str = "~"
) -> Iterator[bytes]:
    """Yield every row with some keys from `first_key` to `last_key`, unless said all, packed, by rising first key."""
    if has_ruled_out(db):
        for (packed,) in db.execute(
            "SELECT keys FROM ruled_out WHERE context = ? AND front = ? AND first <= ? AND last >= ? ORDER BY first",
            (context, front, last_key, first_key),
        ):
            yield packed


def merge_keys(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the keys of rows in the order of their first key, each once.

    Rows overlap where chunks were cut differently, or a store was salvaged.

    """
    previous: set[str] = set()
    end = ""
    for keys in rows:
        if keys[0] > end:
            previous.clear()
        yield from (key for key in keys if key not in previous)
        previous.update(keys)
        end = max(end, keys[-1])


def unpack_keys(packed: bytes) -> tuple[str, ...]:
    """Unpack the keys of a row. Raises: ValueError when they are none."""
    try:
        text = zlib.decompressobj().decompress(packed, _MAX_KEY_BYTES).decode("ascii")
    except (zlib.error, TypeError, UnicodeDecodeError):
        raise ValueError("keys that were ruled out cannot be read") from None
    if not _KEYS.fullmatch(text):
        raise ValueError("a key that was ruled out is no precision string")
    return tuple(text.split("\n"))
