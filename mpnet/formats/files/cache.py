# SPDX-License-Identifier: MIT
"""The cache on disk: where it is, how large it may grow, and a store of blocks of bytes in it that any process may use.

Nothing in the cache is needed: whatever is missing, damaged, written by somebody else or cannot be written is made anew,
without a word.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import ConfigError
from mpnet.messages import shown

Bytes = NDArray[np.uint8]

LIMIT_VARIABLE = "MPNET_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 2 * 1000**3
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_ALIGN = 64
_MAGIC = np.frombuffer(b"mpcache2", np.uint64)[0]
# Of an entry, in words of 8 bytes: magic, CRC-32C of all bytes that follow, 4 of the key, number of blocks, their sizes.
_KEY, _COUNT, _SIZES = 2, 6, 7
_MOST_BLOCKS = 8
_HEADER_BYTES = 2 * _ALIGN
_SUFFIX = ".mpc"
# What a killed process left is swept away when it is older than any write could take.
_STALE_S = 3600.0


class Usage(NamedTuple):
    """The number of entries of a cache, and their size."""

    entries: int
    size_bytes: int


def cache_folder() -> Path:
    """Return $MPNET_CACHE, else $XDG_CACHE_HOME/mpnet, else ~/.cache/mpnet."""
    if folder := os.environ.get("MPNET_CACHE"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "mpnet"


def cache_limit() -> int:
    """Return the bytes that prepared weights may take: $MPNET_CACHE_LIMIT, such as 500M or 2G; 0: there is no cache.

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
    """Open the cache of prepared weights as the environment says; None when it is off. Raises: ConfigError."""
    limit = cache_limit()
    return _opened(cache_folder() / "prepared", limit) if limit else None


@lru_cache(maxsize=8)
def _opened(folder: Path, limit_bytes: int) -> FileCache:
    return FileCache(folder, limit_bytes)


class FileCache:
    """Entries of a few blocks of bytes by key, one file each; the longest unused go when the limit is passed.

    Processes and threads of one user may share a folder: entries appear whole, and what was read is the reader's own,
    whatever becomes of the file. Nobody else may write entries: a link, a pipe, or a file that another user owns or may
    write is no entry. keys: SHA-256 in hex.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._writable = True
        self._unseen_bytes: int | None = None  # written since the folder was last looked through; None: never was

    def load(self, key: str) -> tuple[Bytes, ...] | None:
        """Return the blocks of an entry, read-only and aligned to 64; None when there is none or it is damaged."""
        try:
            # A named pipe must not be waited for, nor a link be followed to a file that somebody chose.
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                state = os.fstat(descriptor)
                if not _is_own(state) or not _HEADER_BYTES <= state.st_size <= self.limit_bytes or state.st_size % _ALIGN:
                    return None
                # Not mapped: pages of a file that is cut or changed in use would be missing, or not those that were checked.
                content = _aligned(state.st_size)
                if file.readinto(content.data) != content.size:
                    return None
                blocks = _blocks(content.view(np.uint64), key)
                if blocks is not None:
                    os.utime(descriptor)  # the time of last use
        except (OSError, ValueError, MemoryError):
            return None
        return blocks

    def store(self, key: str, blocks: Sequence[NDArray[Any]]) -> None:
        """Keep contiguous arrays under a key; does nothing where that is impossible."""
        content = [np.frombuffer(block, np.uint8) for block in blocks]
        size = _HEADER_BYTES + sum(_padded(block.size) for block in content)
        if not self._writable or size > self.limit_bytes:
            return
        entry = np.zeros(size // 8, np.uint64)
        entry[_KEY:_COUNT] = np.frombuffer(bytes.fromhex(key), np.uint64)
        entry[_COUNT] = len(content)
        entry[_SIZES : _SIZES + len(content)] = [block.size for block in content]
        offset = _HEADER_BYTES
        for block in content:
            entry.view(np.uint8)[offset : offset + block.size] = block
            offset += _padded(block.size)
        entry[:_KEY] = _MAGIC, _checksum(entry[_KEY:])
        try:
            self._write(self._path(key), entry)
        except OSError:  # no space, no permission: the command at hand has better things to say
            self._writable = False
            return
        self._evict(size)

    def usage(self) -> Usage:
        """Count the entries that the cache holds at this moment, and their size."""
        entries = self._entries()
        return Usage(len(entries), sum(size for _, size, _ in entries))

    def _write(self, path: Path, entry: NDArray[np.uint64]) -> None:
        """Write an entry that appears whole. Damage is noticed, so that nobody need wait for the disk. Raises: OSError."""
        import tempfile  # reading does without

        os.makedirs(self.folder, 0o700, exist_ok=True)
        descriptor, part = tempfile.mkstemp(_SUFFIX, f".{path.stem}.", self.folder)  # which only its owner may touch
        try:
            with open(descriptor, "wb") as file:
                file.write(entry.data)
            os.replace(part, path)  # a link that has the name is replaced, not what it leads to
        except BaseException:
            os.unlink(part)
            raise

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _evict(self, written: int) -> None:
        """Remove the longest unused entries until the rest is within the limit."""
        if self._unseen_bytes is not None and self._unseen_bytes + written < self.limit_bytes // 32:
            self._unseen_bytes += written
            return
        self._unseen_bytes = 0
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):  # somebody else removed it
                os.unlink(path)
            total -= size

    def _entries(self) -> list[tuple[float, int, str]]:
        """Yield (time of last use, bytes, path) of every entry; what a killed process left is removed on the way."""
        entries = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    state = file.stat(follow_symlinks=False)
                    if not file.name.endswith(_SUFFIX):
                        continue  # no file of the cache
                    if not file.name.startswith("."):
                        entries.append((state.st_mtime, state.st_size, file.path))
                    elif state.st_mtime < time.time() - _STALE_S:
                        os.unlink(file.path)
        return entries


def _padded(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _aligned(size: int) -> Bytes:
    from mpnet.kernels.memory import aligned  # commands that only ask where the cache is do without

    return aligned(size)


def _checksum(words: NDArray[np.uint64]) -> int:
    """Return CRC-32C: unlike a sum it notices what has changed places."""
    from mpnet.kernels.core import crc32c

    return crc32c(words)


def _is_own(state: os.stat_result) -> bool:
    """Return whether this is a regular file that nobody but this user, or the system's administrator, can have written."""
    return stat.S_ISREG(state.st_mode) and state.st_uid in (os.geteuid(), 0) and not state.st_mode & 0o022


def _blocks(words: NDArray[np.uint64], key: str) -> tuple[Bytes, ...] | None:
    """Return the blocks of a file, or None when it is not what was written under this key."""
    count = int(words[_COUNT])
    if words[0] != _MAGIC or words[_KEY:_COUNT].tobytes().hex() != key or count > _MOST_BLOCKS:
        return None
    sizes = words[_SIZES : _SIZES + count].tolist()
    if _HEADER_BYTES + sum(map(_padded, sizes)) != words.nbytes or words[1] != _checksum(words[_KEY:]):
        return None
    content, offset, blocks = words.view(np.uint8), _HEADER_BYTES, []
    content.flags.writeable = False
    for size in sizes:
        blocks.append(content[offset : offset + size])
        offset += _padded(size)
    return tuple(blocks)
