"""Writes files and folders completely or not at all: beside their place, flushed to disk, then renamed.

Whatever a killed process leaves is a file or folder whose name begins with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, Iterator, Mapping

from mpnet.errors import MpnetError, StoreError
from mpnet.messages import reason_of

REPLACE_ATTEMPTS = 100


@contextlib.contextmanager
def atomic_path(path: str | Path, *, durable: bool = True) -> Iterator[Path]:
    """A file of another name, and the same suffix, to write to; it takes its name when the block ends without an error.

    Missing parent folders are made. On any error, Ctrl-C included, the file is removed and one that was there before
    stays as it was. durable: False leaves it to the system when the disk has it; after a power cut it may be damaged.
    Raises: StoreError when the place cannot be written.
    """
    target, part = Path(path), ""
    try:
        with _named(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, part = tempfile.mkstemp(f".part{target.suffix}", f".{target.name[:100]}.", target.parent)
            os.close(descriptor)
            yield Path(part)
            if durable:
                _flush(Path(part))
            # mkstemp makes private files; results are for everyone whom the umask allows.
            os.chmod(part, 0o666 & ~_umask())
            os.replace(part, target)
            part = ""
            if durable:
                with contextlib.suppress(OSError):  # some file systems cannot make a new name durable
                    _flush(target.parent)
    finally:
        if part:
            with contextlib.suppress(OSError):
                os.unlink(part)


@contextlib.contextmanager
def atomic_file(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write into, as `atomic_path`. Raises: StoreError."""
    with atomic_path(path, durable=durable) as part, open(part, "wb") as file:
        yield file


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file of bytes. Raises: StoreError."""
    with atomic_file(path) as file:
        file.write(content)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write some whole files; none takes its name before all are written. Raises: StoreError."""
    with contextlib.ExitStack() as stack:
        for path, content in files.items():
            stack.enter_context(atomic_path(path)).write_bytes(content)


def write_text(path: str | Path, content: str) -> None:
    """Write a whole file of UTF-8 text, line ends as given. Raises: StoreError."""
    write_bytes(path, content.encode("utf-8"))


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of these files, which replaces one that is there already. Raises: StoreError."""
    scratch: Path | None = None
    try:
        with _named(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            scratch = _beside(folder)
            for name, content in files.items():
                _write(scratch / name, content)
            scratch.chmod(0o777 & ~_umask())
            _put_in_place(scratch, folder)
            scratch = None
            _flush(folder.parent)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def write_link(link: Path, target: str) -> None:
    """Let the symbolic link `link` point to `target`; it never points nowhere in between. Raises: StoreError."""
    with _named(link):
        if link.is_symlink() and os.readlink(link) == target:
            return
        scratch = link.with_name(f".{link.name}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(target)
        os.replace(scratch, link)


def check_writable(folder: str | Path) -> None:
    """Raise StoreError unless files can be put into a folder, which need not be there yet; leaves nothing behind.

    For the beginning of long work, so that it is not lost at its end.
    """
    with _named(Path(folder)):
        place = Path(os.path.abspath(folder))
        while not place.exists() and not place.is_symlink():
            place = place.parent
        if not place.is_dir():
            raise StoreError(f"{folder}: cannot be written: {place} is not a folder; choose another place")
        with tempfile.TemporaryFile(dir=place, prefix=".mpnet"):
            pass


def _put_in_place(scratch: Path, folder: Path) -> None:
    """Give `scratch` the name of `folder`; what had that name goes. Other processes may do so at the same time."""
    old: Path | None = None
    try:
        for _ in range(REPLACE_ATTEMPTS):
            try:
                os.rename(scratch, folder)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            aside = _beside(folder)
            try:
                os.rename(folder, aside)  # an empty folder gives way
            except FileNotFoundError:  # somebody else was quicker
                aside.rmdir()
                continue
            if old is not None:
                shutil.rmtree(old, ignore_errors=True)
            old = aside
        raise StoreError(f"{folder}: is replaced by others all the time; let one process write it")
    except BaseException:
        if old is not None and not folder.exists():
            os.rename(old, folder)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _named(target: Path) -> Iterator[None]:
    """What goes wrong, as one line about `target`."""
    try:
        yield
    except MpnetError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{target}: cannot be written: {reason_of(error)}; check the space and the permissions, or choose another place"
        ) from None


def _beside(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _flush(path)


def _flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The umask; os.umask can only be read by setting it."""
    current = os.umask(0o022)
    os.umask(current)
    return current
