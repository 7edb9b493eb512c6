# SPDX-License-Identifier: MIT
"""What a store keeps of configurations that have no figures, since values of a layer are not finite: fp16 that overflows."""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Sequence

from mpnet.formats.documents.schema import mismatch
from mpnet.messages import shown
from mpnet.trial.run_result import KEY

TABLE = (
    "failed (context INTEGER NOT NULL, key TEXT NOT NULL, layer INTEGER NOT NULL, reason TEXT NOT NULL, "
    "checksum INTEGER NOT NULL, PRIMARY KEY (context, key)) WITHOUT ROWID"
)
"""Made with the first row, so that stores without one stay as older versions write them. Those do not look into it."""


@dataclass(frozen=True)
class FailedTrial:
    """A configuration without figures. layer: index of the layer that failed first; reason: in words, with the layer's name."""

    key: str
    layer: int
    reason: str


def add_failed(db: sqlite3.Connection, context: int, failed: Iterable[FailedTrial]) -> None:
    """Write rows, within a transaction; one that is there already stays as it is."""
    db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
    rows = ((context, one.key, one.layer, one.reason, _checksum(context, one.key, one.layer, one.reason)) for one in failed)
    db.executemany("INSERT OR IGNORE INTO failed VALUES (?, ?, ?, ?, ?)", rows)


def has_failed(db: sqlite3.Connection) -> bool:
    """Return whether the store has the table."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'failed'").fetchone() is not None


def failed_rows(db: sqlite3.Connection, context: int, keys: Sequence[str] | None = None) -> Iterator[FailedTrial]:
    """Yield the failed configurations of a context, by rising key; keys: only these, few enough for one statement.

    Raises: ValueError for a row that is damaged.
    """
    if has_failed(db):
        chosen = "" if keys is None else f" AND key IN ({', '.join('?' * len(keys))})"
        query = f"SELECT context, key, layer, reason, checksum FROM failed WHERE context = ?{chosen} ORDER BY key"
        for row in db.execute(query, (context, *(keys or ()))):
            yield failed_trial(*row)


def failed_trial(context: Any, key: Any, layer: Any, reason: Any, checksum: Any) -> FailedTrial:
    """Return a failed configuration from the columns of its row. Raises: ValueError for what nobody wrote."""
    wrong = mismatch(key, KEY, "key of a failed configuration") or mismatch(layer, int, f"failed {shown(key)}: layer")
    wrong = wrong or mismatch(reason, str, f"failed {shown(key)}: reason")
    if wrong is None and checksum != _checksum(context, key, layer, reason):
        wrong = f"failed configuration {key}: its checksum does not match"
    if wrong is not None:
        raise ValueError(wrong)
    return FailedTrial(key, layer, reason)


def _checksum(context: int, key: str, layer: int, reason: str) -> int:
    return zlib.crc32(f"{context}\0{key}\0{layer}\0{reason}".encode("utf-8", "replace"))
