"""The cache on disk: where it is, how large it may grow, and a store of blocks of bytes in it that any process may use.

Nothing in the cache is needed: whatever is missing, damaged or cannot be written is made anew, without a word.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import ConfigError, StoreError
from mpnet.messages import shown

Bytes = NDArray[np.uint8]

LIMIT_VARIABLE = "MPNET_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 2 * 1000**3
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_ALIGN = 64
_MAGIC = np.frombuffer(b"mpcache1", np.uint64)[0]
# Of an entry, in words of 8 bytes: magic, sum of all words that follow, 4 of the key, number of blocks, their sizes.
_KEY, _COUNT, _SIZES = 2, 6, 7
_MOST_BLOCKS = 8
# What a killed process left is swept away when it is older than any write could take.
_STALE_S = 3600.0


class Usage(NamedTuple):
    """What a cache holds."""

    entries: int
    size_bytes: int


def cache_folder() -> Path:
    """$MPNET_CACHE, else $XDG_CACHE_HOME/mpnet, else ~/.cache/mpnet."""
    if own := os.environ.get("MPNET_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "mpnet"


def cache_limit() -> int:
    """Bytes that prepared weights may take: $MPNET_CACHE_LIMIT, such as 500M or 2G; 0: there is no cache.

    Raises: ConfigError for a value that is no size.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return DEFAULT_LIMIT_BYTES
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise ConfigError(f"{LIMIT_VARIABLE}: {shown(text)} is no size such as 500M or 2G; 0 turns the cache off")
    return int(match[1]) * _UNITS[match[2]]


def open_cache() -> FileCache | None:
    """The cache of prepared weights as the environment says; None when it is off. Raises: ConfigError."""
    limit = cache_limit()
    return _opened(cache_folder() / "prepared", limit) if limit else None


@lru_cache(maxsize=8)
def _opened(folder: Path, limit_bytes: int) -> FileCache:
    return FileCache(folder, limit_bytes)


class FileCache:
    """Entries of a few blocks of bytes by key, one file each; the longest unused go when the limit is passed.

    Processes and threads may share a folder: entries appear whole, are never changed, and stay readable for whom has
    mapped them when somebody else removes them. keys: SHA-256 in hex.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._writable = True
        self._unseen_bytes: int | None = None  # written since the folder was last looked through; None: never was

    def load(self, key: str) -> tuple[Bytes, ...] | None:
        """The blocks of an entry, mapped, read-only and aligned to 64; None when there is none or it is damaged."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < _ALIGN * 2 or size % _ALIGN:
                    return None
                # Populated: all of it is about to be read, and a fault per page costs more than the reading.
                flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
                mapped = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ)
            blocks = _blocks(np.frombuffer(mapped, np.uint64), key)
            if blocks is not None:
                os.utime(path)  # the time of last use
        except (OSError, ValueError):
            return None
        return blocks

    def store(self, key: str, blocks: Sequence[NDArray[Any]]) -> None:
        """Keep contiguous arrays under a key; does nothing where that is impossible."""
        content = [np.frombuffer(block, np.uint8) for block in blocks]
        header = np.zeros(_ALIGN // 4, np.uint64)
        size = header.nbytes + sum(_padded(block.size) for block in content)
        if not self._writable or size > self.limit_bytes:
            return
        header[_KEY:_COUNT] = np.frombuffer(bytes.fromhex(key), np.uint64)
        header[_COUNT] = len(content)
        header[_SIZES : _SIZES + len(content)] = [block.size for block in content]
        padded = [np.pad(block, (0, -block.size % _ALIGN)) for block in content]
        total = _sum(header) + sum(_sum(block.view(np.uint64)) for block in padded)
        header[:2] = _MAGIC, total % 2**64
        from mpnet.formats.files.atomic import atomic_file  # reading does without

        try:
            # Damage is noticed, so that nobody need wait for the disk.
            with atomic_file(self._path(key), durable=False) as file:
                parts: list[NDArray[Any]] = [header, *padded]
                for part in parts:
                    file.write(part.tobytes())
        except StoreError:  # no space, no permission: the command at hand has better things to say
            self._writable = False
            return
        self._evict(size)

    def usage(self) -> Usage:
        """What it holds at the moment."""
        found = self._entries()
        return Usage(len(found), sum(size for _, size, _ in found))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.mpc"

    def _evict(self, written: int) -> None:
        """Remove the longest unused entries until the rest is within the limit."""
        if self._unseen_bytes is not None and self._unseen_bytes + written < self.limit_bytes // 32:
            self._unseen_bytes += written
            return
        self._unseen_bytes = 0
        found = sorted(self._entries())
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):  # somebody else removed it
                os.unlink(path)
            total -= size

    def _entries(self) -> list[tuple[float, int, str]]:
        """(time of last use, bytes, path) of every entry; what a killed process left is removed on the way."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    state = file.stat(follow_symlinks=False)
                    if not file.name.startswith("."):
                        found.append((state.st_mtime, state.st_size, file.path))
                    elif state.st_mtime < time.time() - _STALE_S:
                        os.unlink(file.path)
        return found


def _padded(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _sum(words: NDArray[np.uint64]) -> int:
    return int(np.add.reduce(words, initial=np.uint64(0)))


def _blocks(words: NDArray[np.uint64], key: str) -> tuple[Bytes, ...] | None:
    """The blocks of a file, or None when it is not what was written under this key."""
    count = int(words[_COUNT])
    if words[0] != _MAGIC or words[_KEY:_COUNT].tobytes().hex() != key or count > _MOST_BLOCKS:
        return None
    sizes = words[_SIZES : _SIZES + count].tolist()
    if _ALIGN * 2 + sum(map(_padded, sizes)) != words.nbytes or words[1] != _sum(words[2:]):
        return None
    content, at, blocks = words.view(np.uint8), _ALIGN * 2, []
    for size in sizes:
        blocks.append(content[at : at + size])
        at += _padded(size)
    return tuple(blocks)
