# SPDX-License-Identifier: MIT
"""The sweep that is meant when only a folder is named: the one that ran last."""

from __future__ import annotations

import os
from pathlib import Path

from mpnet.errors import StoreError
from mpnet.formats.files.atomic import write_link

STORE_MAGIC = b"SQLite format 3\0"
LATEST_STORE = "latest.sqlite"


def is_store(path: Path) -> bool:
    """Return whether a path is a file that begins as SQLite databases do."""
    try:
        if not path.is_file():  # opening a named pipe would wait for a writer
            return False
        with path.open("rb") as file:
            return file.read(len(STORE_MAGIC)) == STORE_MAGIC
    except (OSError, ValueError):
        return False


def mark_latest_store(store: Path) -> None:
    """Let the link `latest.sqlite` beside a store point to it. Raises: StoreError when the link cannot be made."""
    write_link(store.parent / LATEST_STORE, store.name)


def stores_in(folder: Path) -> list[Path]:
    """List the stores of a folder by name, links left out."""
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix == ".sqlite" and not path.is_symlink() and is_store(path)
        )
    except (OSError, ValueError):
        return []


def store_at(path: Path) -> Path | None:
    """Find the store that a path names: itself, or the latest or only one of a folder; None when there is none.

    Raises: StoreError for a folder of several stores of which none is marked as the latest.
    """
    if is_store(path):
        return path
    stores = stores_in(path)
    link = path / LATEST_STORE
    if stores and link.is_symlink() and (path / os.readlink(link)) in stores:
        return path / os.readlink(link)
    if len(stores) > 1:
        names = ", ".join(store.name for store in stores[:8])
        raise StoreError(f"{path}: holds {len(stores)} sweeps ({names}); name one of them")
    return stores[0] if stores else None
