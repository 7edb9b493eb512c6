"""Reads whole files, never more than a stated limit, and says in one line what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

from mpnet.errors import FormatError, MpnetError
from mpnet.messages import bytes_text, named, reason_of


def file_size(path: str | Path) -> int:
    """The size in bytes of a file. Raises: FormatError when it cannot be read."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError) as problem:
        raise FormatError(f"{named(path)}: cannot be read ({reason_of(problem)}); check the path") from None


def read_bounded(
    path: str | Path, limit_bytes: int, what: str, error: type[MpnetError] = FormatError, remedy: str = "check the path"
) -> bytes:
    """The bytes of a file, or `error` when it is missing, a folder, unreadable or larger than the limit.

    what: it should be, such as `picture file`.
    """
    try:
        with open(path, "rb") as file:
            # A pipe has no size to check before.
            data = file.read(limit_bytes + 1) if os.fstat(file.fileno()).st_size <= limit_bytes else None
    except IsADirectoryError:
        raise error(f"{named(path)}: is a folder; name a {what}") from None
    except (OSError, ValueError) as problem:
        raise error(f"{named(path)}: cannot be read ({reason_of(problem)}); {remedy}") from None
    if data is None or len(data) > limit_bytes:
        raise error(f"{named(path)}: is larger than {bytes_text(limit_bytes)}; this is no {what}")
    return data
