# SPDX-License-Identifier: MIT
"""Records of configurations that have no figures, since values of a layer are not finite: fp16 that overflows."""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass
from typing import Iterable, Iterator, Sequence

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


def add_failed(db: sqlite3.Connection, context: int, failed_trials: Iterable[FailedTrial]) -> None:
    """Write rows, within a transaction; one that is there already stays as it is."""
    db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
    rows = (
        (context, trial.key, trial.layer, trial.reason, _checksum(context, trial.key, trial.layer, trial.reason))
        for trial in failed_trials
    )
    db.executemany("INSERT OR IGNORE INTO failed VALUES (?, ?, ?, ?, ?)", rows)


def has_failed(db: sqlite3.Connection) -> bool:
    """Return whether the store has the table."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'failed'").fetchone() is not None


def read_failed(db: sqlite3.Connection, context: int, keys: Sequence[str] | None = None) -> Iterator[FailedTrial]:
    """Yield the failed configurations of a context, by rising key; keys: only these, few enough for one statement.

    Raises: ValueError for a row that is damaged.
    """
    if has_failed(db):
        key_condition = "" if keys is None else f" AND key IN ({', '.join('?' * len(keys))})"
        query = f"SELECT context, key, layer, reason, checksum FROM failed WHERE context = ?{key_condition} ORDER BY key"
        for row in db.execute(query, (context, *(keys or ()))):
            yield parse_failed_trial(*row)


def parse_failed_trial(context: int, key: str, layer: int, reason: str, checksum: int) -> FailedTrial:
    """Return a failed configuration from the columns of its row. Raises: ValueError for what nobody wrote."""
    problem = mismatch(key, KEY, "key of a failed configuration") or mismatch(layer, int, f"failed {shown(key)}: layer")
    problem = problem or mismatch(reason, str, f"failed {shown(key)}: reason")
    if problem is None and checksum != _checksum(context, key, layer, reason):
        problem = f"failed configuration {key}: its checksum does not match"
    if problem is not None:
        raise ValueError(problem)
    return FailedTrial(key, layer, reason)


def _checksum(context: int, key: str, layer: int, reason: str) -> int:
    return zlib.crc32(f"{context}\0{key}\0{layer}\0{reason}".encode("utf-8", "replace"))
