# SPDX-License-Identifier: MIT
"""Digests of large files, known again as long as nobody touched the file: by its place, size and times, as git does."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpnet.formats.files.cache import FileCache

SETTLED_SECONDS = 60.0
"""A file that changed less than this ago may change again without another time: within one tick of the file system's clock,
and through a memory map until the system has written the page back, after half a minute."""


class FileState(NamedTuple):
    """The facts that change when a file's content does: the system sets changed_ns, which no program can set back."""

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @property
    def key(self) -> str:
        """Return the key of this state in the cache: SHA-256 in hex."""
        return hashlib.sha256(repr(("file", *self)).encode(errors="surrogateescape")).hexdigest()


def file_state(path: str | Path) -> FileState | None:
    """Return the state of a file at this moment; None when it cannot be had."""
    try:
        real = os.path.realpath(path)
        state = os.stat(real)
    except (OSError, ValueError):
        return None
    return FileState(real, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def known_digest(state: FileState, cache: FileCache) -> str | None:
    """Return the SHA-256 (hex) of a file in this state, or None when it has not been remembered."""
    blocks = cache.load(state.key)
    return blocks[0].tobytes().hex() if blocks is not None and len(blocks) == 1 and blocks[0].size == 32 else None


def remember_digest(state: FileState, digest: str, cache: FileCache) -> None:
    """Keep the SHA-256 of what was read after the state was taken.

    Not if it could be that of another content: the file has changed since, or so lately that its times may not show it.
    """
    if time.time_ns() - state.changed_ns > SETTLED_SECONDS * 1e9 and file_state(state.path) == state:
        cache.store(state.key, [np.frombuffer(bytes.fromhex(digest), np.uint8)])
