# SPDX-License-Identifier: MIT
"""Claims of work under its name, until it is committed or released, or its owner is found dead."""

from __future__ import annotations

import sqlite3
import time
from typing import Sequence

from mpnet.sweep.store.documents import check_claim
from mpnet.sweep.store.owners import Owners

TABLE = "claims (name TEXT PRIMARY KEY, owner TEXT NOT NULL, heartbeat REAL NOT NULL) WITHOUT ROWID"
LEASE_SECONDS = 600.0  # only for other machines: here a dead process is found at once


class Claims:
    """The claims of a store, as one owner sees and changes them.

    All methods but `find_active` write: call them within a transaction. Raises: ValueError for a damaged table.
    """

    def __init__(self, db: sqlite3.Connection, owners: Owners) -> None:
        self._db, self._owners = db, owners

    def take(self, names: Sequence[str]) -> list[str]:
        """Claim those of the names that nobody alive has; they are the result."""
        granted = []
        claims = {name: (owner, heartbeat) for name, owner, heartbeat in self._read_rows()}
        for name in names:
            owner, heartbeat = claims.get(name, ("", 0.0))
            if owner in ("", self._owners.me) or not self._is_active(owner, heartbeat):
                self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (name, self._owners.me, time.time()))
                granted.append(name)
        return granted

    def beat(self) -> None:
        """Say that this owner still works on what it claimed."""
        self._db.execute("UPDATE claims SET heartbeat = ? WHERE owner = ?", (time.time(), self._owners.me))

    def end(self, name: str) -> None:
        """End a claim: its work is done, whoever has it by now."""
        self._db.execute("DELETE FROM claims WHERE name = ?", (name,))

    def release(self, name: str | None = None) -> None:
        """Give back what this owner claimed under a name, or all of it."""
        self._db.execute("DELETE FROM claims WHERE owner = ? AND name = coalesce(?, name)", (self._owners.me, name))

    def find_active(self) -> dict[str, str]:
        """Return claimed work by name, with its owner, dead owners' left out."""
        return {name: owner for name, owner, heartbeat in self._read_rows() if self._is_active(owner, heartbeat)}

    def _read_rows(self) -> list[tuple[str, str, float]]:
        claims = self._db.execute("SELECT name, owner, heartbeat FROM claims ORDER BY name").fetchall()
        for claim in claims:
            check_claim(*claim)
        return claims

    def _is_active(self, owner: str, heartbeat: float) -> bool:
        """Return whether a claim still counts. heartbeat: its time.time()."""
        is_alive = self._owners.is_alive(owner)
        return abs(time.time() - heartbeat) < LEASE_SECONDS if is_alive is None else is_alive
