# SPDX-License-Identifier: MIT
"""Owners of claims, and whether they still live.

On one machine the process decides, never a clock. It holds a lock on one byte of a file beside the store, which the kernel
drops with the process, also when it dies in a container that nobody else can look into. Where there are no such locks, an
owner is known by boot, process id and start time, so that a reused process id is not taken for it. Of other machines nothing
can be known but the heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import struct
import time
from dataclasses import astuple, dataclass, replace
from pathlib import Path

try:
    import fcntl
except ImportError:  # no POSIX: process ids have to do
    fcntl = None  # type: ignore[assignment]

_SET_LOCK, _GET_LOCK = (getattr(fcntl, name, None) for name in ("F_OFD_SETLK", "F_OFD_GETLK"))
_HAS_LOCKS = _SET_LOCK is not None and struct.calcsize("P") == 8
"""Locks of an open file, not of a process as older ones are, so that nothing else that a process closes drops them."""
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid
_ATTEMPTS = 100


@dataclass(frozen=True)
class Owner:
    """host, pid: for people. token: of this opening of the store, 8 hex digits. locked: `1` when its lock is held.

    machine, boot, namespace, start_ticks: as the system says, empty where it does not.
    """

    host: str
    pid: str
    token: str
    machine: str = ""
    boot: str = ""
    namespace: str = ""
    start_ticks: str = ""
    locked: str = ""

    def __str__(self) -> str:
        return ":".join(astuple(self))

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Parse the owner of a text; those of version 0.1.0 have no more than host, pid and token. None for what is none."""
        texts = text.split(":")
        if len(texts) not in (3, 8) or not re.fullmatch(r"[0-9]{1,9}", texts[1]):
            return None
        return Owner(*texts)


def this_process(locked: bool = False) -> Owner:
    """Return the calling process as an owner, under a new token."""
    return Owner(
        host_name(),
        str(os.getpid()),
        secrets.token_hex(4),
        _read_line("/etc/machine-id"),
        _read_line("/proc/sys/kernel/random/boot_id"),
        _read_namespace(),
        _read_start_ticks(os.getpid()) or "",
        "1" if locked else "",
    )


def format_owner(owner: str) -> str:
    """Return an owner as people read it: host, process id, token."""
    return ":".join(owner.split(":")[:3])


class Owners:
    """The calling process among the owners of a store.

    me: this owner's name, which is in the store's claims.
    """

    def __init__(self, store: Path, *, join: bool) -> None:
        """Join the owners of a store, or only look at them. join: take part, under a lock of one's own."""
        self._path = Path(os.path.realpath(store) + "-owners")
        self._file = -1
        self._this = this_process()
        if join:
            with contextlib.suppress(OSError):
                self._join()
        if self._file >= 0:
            self._this = replace(self._this, locked="1")
        self.me = str(self._this) if join else ""

    def _join(self) -> None:
        """Lock one byte of the file, whose place is the token."""
        if not _HAS_LOCKS:
            return
        for _ in range(_ATTEMPTS):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with contextlib.suppress(OSError):
                # The last owner to leave removes the file; what was opened before that is nobody's any more.
                if _lock(file, int(self._this.token, 16), 1) and os.path.samestat(os.fstat(file), os.stat(self._path)):
                    self._file = file
                    return
            os.close(file)
            time.sleep(0.01)

    def leave(self) -> None:
        """Give the lock back; the last owner removes the file."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            if _lock(self._file, 0, 1 << 32):
                os.unlink(self._path)
        os.close(self._file)
        self._file = -1

    def is_alive(self, name: str) -> bool | None:
        """Return whether an owner's process lives; None when that cannot be known here and its heartbeat has to decide."""
        owner = Owner.parse(name)
        if owner is None:
            return None
        this = self._this
        if owner.boot != this.boot or not this.boot:
            if owner.boot and owner.machine and (owner.machine, owner.host) == (this.machine, this.host):
                return False  # of an earlier boot of this machine
            return None if owner.boot or owner.host != this.host else self._may_live(owner)
        is_locked = self._is_locked(owner) if owner.locked else None
        if is_locked is not None or owner.namespace != this.namespace:
            return is_locked
        start_ticks = _read_start_ticks(int(owner.pid))
        return (
            start_ticks == owner.start_ticks if start_ticks is not None else None if _process_exists(int(owner.pid)) else False
        )

    @staticmethod
    def _may_live(owner: Owner) -> bool | None:
        """Tell whether an owner of only a process id may live: one that is gone is dead, another may be anybody."""
        return None if _process_exists(int(owner.pid)) and _read_start_ticks(int(owner.pid)) != "" else False

    def _is_locked(self, owner: Owner) -> bool | None:
        try:
            offset = int(owner.token, 16)
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return None
        try:
            return _is_held(file, offset)
        except OSError:
            return None
        finally:
            os.close(file)


def host_name() -> str:
    """Return this machine's name, without the separator of owners."""
    return re.sub(r"[^\w.-]", "-", platform.node()) or "localhost"


def _lock(file: int, start: int, length: int) -> bool:
    """Lock bytes of an open file for ourselves; False when somebody else has one of them."""
    assert _SET_LOCK is not None
    try:
        fcntl.fcntl(file, _SET_LOCK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_held(file: int, offset: int) -> bool | None:
    if not _HAS_LOCKS:
        return None
    assert _GET_LOCK is not None
    answer = fcntl.fcntl(file, _GET_LOCK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _read_line(path: str) -> str:
    try:
        return re.sub(r"[^\w-]", "", Path(path).read_text(encoding="ascii", errors="replace")[:80])
    except OSError:
        return ""


def _read_namespace() -> str:
    """Return the namespace of process ids; two processes that have the same one see each other."""
    try:
        return re.sub(r"[^0-9]", "", os.readlink("/proc/self/ns/pid"))
    except OSError:
        return ""


def _read_start_ticks(pid: int) -> str | None:
    """Return when a process began, in ticks since boot; empty for a dead one that its parent has not noticed yet.

    None when the system does not say.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return "" if fields[:1] in (["Z"], ["X"]) else fields[19] if len(fields) > 19 else None


def _process_exists(pid: int) -> bool:
    """Return whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
