# SPDX-License-Identifier: MIT
"""A store opened for reading, wherever it lies; nothing is left beside it.

A store is in SQLite's WAL mode: a reader needs the files -wal and -shm beside it, and makes them where they are missing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from mpnet.errors import StoreError
from mpnet.messages import named, reason_of


def open_for_reading(path: Path, busy_seconds: float, stack: ExitStack) -> sqlite3.Connection:
    """Open a connection that only reads, also while others write, and from a folder that cannot be written.

    stack: closes it. Raises: sqlite3.Error, OSError.
    """
    wal = Path(f"{os.path.realpath(path)}-wal")
    unmerged = wal.is_file() and wal.stat().st_size > 0
    # The last connection to close removes what it made, if it may write; with trials that are not merged yet the files
    # are there already, and whether to merge is the writers' business.
    for mode in ("mode=ro",) if unmerged else ("mode=rw", "mode=ro"):
        try:
            return _connect(path, mode, busy_seconds, stack)
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "decode" in str(error):
                raise
    if not unmerged:
        # Where nothing can be made, nobody writes.
        return _connect(path, "immutable=1", busy_seconds, stack)
    with open(path, "rb"):  # a process that can open no file is told so, and not that there is no temporary folder
        pass
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpnet-store-")))
    for name in (wal, Path(os.path.realpath(path))):
        shutil.copyfile(name, folder / ("store-wal" if name == wal else "store"))
    return _connect(folder / "store", "mode=rw", busy_seconds, stack)


def _connect(path: Path, mode: str, busy_seconds: float, stack: ExitStack) -> sqlite3.Connection:
    with ExitStack() as resources:
        connection = resources.enter_context(
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", timeout=busy_seconds, isolation_level=None, uri=True))
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        stack.push(resources.pop_all())
    return connection


def require_file(path: str | Path) -> Path:
    """Return the path of a file that is there. Raises: StoreError for one that is not, a folder, a pipe or a device."""
    try:
        if Path(path).is_file():
            return Path(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"{named(path)}: cannot be opened ({reason_of(error)}); choose another --store") from None
    if os.path.exists(path):
        raise StoreError(f"{named(path)}: is not a regular file, so it is no store; choose another --store")
    raise StoreError(f"{named(path)}: no such store; `mpnet sweep` writes one")
