"""Writes a file completely or not at all: into a temporary file beside the target, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Iterator

from mpnet.errors import StoreError


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file to write into; it takes its name only when the block ends without an error.

    Missing parent folders are made. On any error, Ctrl-C included, the temporary file is removed and a file that was
    there before stays as it was. Raises: StoreError when the place cannot be written.
    """
    target = Path(path)
    temporary = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            # mkstemp makes private files; results are for everyone whom the umask allows.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = ""
        _sync_folder(target.parent)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(f"{target}: cannot be written: {reason}") from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file of bytes. Raises: StoreError."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: str | Path, content: str) -> None:
    """Write a whole file of UTF-8 text, line ends as given. Raises: StoreError."""
    write_bytes(path, content.encode("utf-8"))


def _umask() -> int:
    """The umask; os.umask can only be read by setting it."""
    current = os.umask(0o022)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
