# SPDX-License-Identifier: MIT
"""Files and folders written completely or not at all: beside their place, flushed to disk, then renamed.

Whatever a killed process leaves is a file or folder whose name begins with a dot; who next writes the same removes it. It is
known by its lock, which a living writer holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, Mapping

from mpnet.errors import MpnetError, StoreError
from mpnet.formats.files.bounded import kind_of
from mpnet.messages import reason_of

try:
    import fcntl
except ImportError:  # no POSIX: nothing is known to be left, and nothing removed
    fcntl = None  # type: ignore[assignment]

REPLACE_ATTEMPTS = 100
_OLD = ".old"


@contextlib.contextmanager
def atomic_path(path: str | Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a file of another name and the same suffix to write to; it takes its name if the block ends without an error.

    Missing parent folders are made. On any error, Ctrl-C included, the file is removed and one that was there before
    stays as it was. durable: False leaves it to the system when the disk has it; after a power cut it may be damaged.
    Raises: StoreError when the place cannot be written.
    """
    # A link stays a link; what it leads to is replaced.
    target, part = Path(os.path.realpath(path)), ""
    try:
        with _named(Path(path)):
            if os.path.exists(target) and not os.path.isfile(target):
                raise OSError(errno.EINVAL, f"it is {kind_of(os.stat(target).st_mode)}")
            target.parent.mkdir(parents=True, exist_ok=True)
            ends = f".{target.name[:100]}.", f".part{target.suffix}"
            for left in _left(target.parent, *ends):
                left.unlink()
            with _lock_new(lambda: _file_beside(target, *ends)) as part:
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
    """Open a binary file to write into, as `atomic_path`; a pipe or character device is written to. Raises: StoreError."""
    if _is_stream(path):
        with _named(Path(path)), open(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            os.set_blocking(file.fileno(), True)  # opening a pipe that nobody reads must not wait
            yield file
        return
    with atomic_path(path, durable=durable) as part, open(part, "wb") as file:
        yield file


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file of bytes. Raises: StoreError."""
    with atomic_file(path) as file:
        file.write(content)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write some whole files; none takes its name before all are on the disk. Raises: StoreError."""
    with contextlib.ExitStack() as stack:
        for path, content in files.items():
            file = stack.enter_context(atomic_file(path))
            file.write(content)
            file.flush()  # a full disk is met here, while every older file still has its name
            if not _is_stream(path):
                os.fsync(file.fileno())


def write_text(path: str | Path, content: str) -> None:
    r"""Write a whole file of UTF-8 text, line ends as given; half characters, which a name may hold, as `\udcff`.

    Raises: StoreError.
    """
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of these files, which replaces one that is there already. Raises: StoreError."""
    scratch: Path | None = None
    try:
        with _named(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            recover(folder)
            with _lock_new(lambda: _beside(folder)) as made:
                scratch = Path(made)
                for name, content in files.items():
                    _write(scratch / name, content)
                scratch.chmod(0o777 & ~_umask())
                _flush(scratch)
                _put_in_place(scratch, folder)
            _flush(folder.parent)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def recover(folder: Path) -> None:
    """Remove what killed writers of a folder left; put it back when one died while nothing had its name."""
    for path in _left(folder.parent, f".{folder.name}.", ""):
        if path.name.endswith(_OLD):
            with contextlib.suppress(OSError):  # it is there
                os.rename(path, folder)
        shutil.rmtree(path, ignore_errors=True)


def write_link(link: Path, target: str) -> None:
    """Let the symbolic link `link` point to `target`; it never points nowhere in between. Raises: StoreError."""
    with _named(link):
        if link.is_symlink() and os.readlink(link) == target:
            return
        for _ in range(REPLACE_ATTEMPTS):
            # One name for all: what a killed process left is taken, not kept.
            scratch = link.with_name(f".{link.name}.part")
            with contextlib.suppress(FileExistsError):
                scratch.symlink_to(target)
            try:
                os.replace(scratch, link)
                if os.readlink(link) == target:
                    return
            except FileNotFoundError:  # another process took it for its own
                pass
            except OSError:
                scratch.unlink(missing_ok=True)
                raise
        raise OSError(errno.EBUSY, "is replaced by others all the time")


def _is_stream(path: str | Path) -> bool:
    """Return whether a path is written to, not replaced: a character device, a pipe, an open file in /dev or /proc."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode):
        return os.path.realpath(os.path.dirname(os.path.abspath(path))).startswith(("/proc/", "/dev/fd")) or (
            os.path.dirname(os.path.abspath(path)) == "/dev"
        )
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def check_writable(path: str | Path, is_folder: bool = True) -> None:
    """Raise StoreError unless files can be put into a folder, or at a path, which need not be there yet; leaves nothing behind.

    For the beginning of long work, so that it is not lost at its end.
    """
    if not is_folder and _is_stream(path):
        return
    with _named(Path(path)):
        existing = Path(os.path.abspath(path) if is_folder else os.path.realpath(path))
        if not is_folder and existing.exists() and not existing.is_file():
            raise OSError(errno.EINVAL, f"it is {kind_of(os.stat(existing).st_mode)}")
        existing = existing if is_folder else existing.parent
        while not existing.exists() and not existing.is_symlink():
            existing = existing.parent
        if not existing.is_dir():
            raise StoreError(f"{path}: cannot be written: {existing} is not a folder; choose another place")
        with tempfile.TemporaryFile(dir=existing, prefix=".mpnet"):
            pass


def _put_in_place(scratch: Path, folder: Path) -> None:
    """Give `scratch` the name of `folder`; what had that name gets the other. Other processes may do so at the same time."""
    for _ in range(REPLACE_ATTEMPTS):
        try:
            os.rename(scratch, folder)  # an empty folder gives way
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _exchange(scratch, folder):
            return
        # Without an exchange there is a moment in which nothing has the name; `recover` knows what had it by its ending.
        with contextlib.suppress(FileNotFoundError, BlockingIOError), _locked(folder):  # somebody else was quicker
            aside = _beside(folder, _OLD)
            os.rename(folder, aside)
            try:
                os.rename(scratch, folder)
            except BaseException:
                os.rename(aside, folder)
                raise
            shutil.rmtree(aside, ignore_errors=True)
            return
    raise StoreError(f"{folder}: is replaced by others all the time; let one process write it")


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change names at once; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    at, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(at, os.fsencode(one), at, os.fsencode(other), exchange) == 0)


def _left(parent: Path, start: str, end: str) -> Iterator[Path]:
    """Yield what dead writers have left, each locked until the next is asked for; a living one locks what it works on."""
    if fcntl is None or not parent.is_dir():
        return
    for path in list(parent.iterdir()):
        if path.name.startswith(start) and path.name.endswith(end) and not path.is_symlink():
            with contextlib.suppress(OSError), _locked(path):
                yield path


@contextlib.contextmanager
def _lock_new(make: Callable[[], str]) -> Iterator[str]:
    """Lock what `make` makes, for the block or as long as the process lives, before anybody takes it for abandoned."""
    for _ in range(REPLACE_ATTEMPTS):
        path = make()
        try:
            with contextlib.suppress(FileNotFoundError, BlockingIOError), contextlib.ExitStack() as stack:
                stack.enter_context(_locked(Path(path)))
                os.stat(path)
                lock = stack.pop_all()
                break
        except BaseException:
            with contextlib.suppress(OSError):
                (os.rmdir if os.path.isdir(path) else os.unlink)(path)
            raise
    else:
        raise OSError(errno.EBUSY, "is replaced by others all the time")
    with lock:
        yield path


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder. Raises: BlockingIOError when somebody else has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if fcntl is not None:
            with contextlib.suppress(PermissionError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(target: Path) -> Iterator[None]:
    """Turn what goes wrong in the block into a StoreError of one line about `target`."""
    try:
        yield
    except MpnetError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{target}: cannot be written: {reason_of(error)}; check the space and the permissions, or choose another place"
        ) from None


def _file_beside(target: Path, start: str, end: str) -> str:
    descriptor, path = tempfile.mkstemp(end, start, target.parent)
    os.close(descriptor)
    return path


def _beside(folder: Path, ending: str = "") -> str:
    return tempfile.mkdtemp(ending, f".{folder.name}.", folder.parent)


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
    """Return the umask; os.umask can only be read by setting it."""
    current = os.umask(0o022)
    os.umask(current)
    return current
