"""Reads whole files, never more than a stated limit, and says in one line what is wrong with them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mpnet.errors import FormatError


def file_size(path: str | Path, what: str) -> int:
    """The size in bytes of a regular file. Raises FormatError for anything that is not one."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FormatError(f"{path}: cannot read the {what}: {reason}") from None
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: the {what} is not a regular file")
    return status.st_size


def read_bounded(path: str | Path, limit_bytes: int, what: str) -> bytes:
    """The file's bytes, or FormatError when it is missing, no regular file, unreadable or larger than the limit."""
    size_bytes = file_size(path, what)
    if size_bytes > limit_bytes:
        raise FormatError(f"{path}: the {what} has {size_bytes} bytes, more than the limit of {limit_bytes}")
    try:
        with open(path, "rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot read the {what}: {error.strerror}") from None
    if len(content) > limit_bytes:
        raise FormatError(f"{path}: the {what} grew beyond the limit of {limit_bytes} bytes while being read")
    return content
