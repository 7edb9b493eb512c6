# SPDX-License-Identifier: MIT
"""Stops a child process at every one of its system calls, by ptrace, and sends it a signal there or looks at its files."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Callable

import pytest

_TRACEME, _SYSCALL, _SETOPTIONS, _SYSGOOD = 0, 24, 0x4200, 1
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, pid: int, data: int = 0) -> int:
    return int(_libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(data)))


def killed_at(
    work: Callable[[], object],
    number: int | None,
    signal_number: int = signal.SIGKILL,
    look: Callable[[], object] = lambda: None,
) -> tuple[bool, int]:
    """Run `work` in a fork and kill it at its `number`-th stop, of which every system call has one before and one after.

    signal_number: the signal; work may become another program. look: called at every stop.
    Result: whether it was killed, and how many stops there were; None as number lets it end.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if _ptrace(_TRACEME, 0) != 0:
                os._exit(77)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status):
        pytest.skip("SKIPPED: no ptrace for this user")
    _ptrace(_SETOPTIONS, pid, _SYSGOOD)
    stops, passed_on = 0, 0
    while True:
        _ptrace(_SYSCALL, pid, passed_on)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return False, stops
        if os.WIFSIGNALED(status):
            return True, stops
        passed_on = 0
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            # A trap alone: it has become another program.
            passed_on = 0 if os.WSTOPSIG(status) == signal.SIGTRAP else os.WSTOPSIG(status)
            continue
        stops += 1
        try:
            look()
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        if stops == number:
            os.kill(pid, signal_number)
            if signal_number == signal.SIGKILL:
                os.waitpid(pid, 0)
                return True, stops


def every_stop(
    prepare: Callable[[], object],
    work: Callable[[], object],
    check: Callable[[bool], object],
    step: int = 1,
    signal_number: int = signal.SIGKILL,
) -> int:
    """Run prepare(); work() until its n-th stop; check(whether it was killed): for every n, or every `step`-th, until it ends.

    Result: how many stops there were, about.
    """
    _need_linux()
    number = 1
    while True:
        prepare()
        killed, _ = killed_at(work, number, signal_number)
        check(killed)
        if not killed:
            return number - 1
        number += step


def every_state(
    folder: Path, prepare: Callable[[], object], work: Callable[[], object], check: Callable[[bool], object]
) -> int:
    """Run prepare(); work() once; check(True) of what a kill at each of its stops would leave in `folder`; check(False) at its
    end.

    A kill leaves what the files hold at that moment, and frees locks. So does a copy, which stands in the folder's place while
    it is checked. Where nothing changed since the last stop there is nothing new to check.

    Result: how many stops there were.
    """
    _need_linux()
    aside, previous = folder.with_name(f"{folder.name}-aside"), None

    def look() -> None:
        nonlocal previous
        state = _state(folder)
        if state == previous:
            return
        previous = state
        folder.rename(aside)
        try:
            shutil.copytree(aside, folder, symlinks=True)
            check(True)
        finally:
            shutil.rmtree(folder)
            aside.rename(folder)

    prepare()
    killed, stops = killed_at(work, None, look=look)
    assert not killed
    check(False)
    return stops


def _state(folder: Path) -> list[tuple[str, int, object]]:
    """Return names, modes and contents of all that lies in a folder."""
    return [
        (str(path), path.lstat().st_mode, os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes())
        for path in sorted(folder.rglob("*"))
    ]


def _need_linux() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("SKIPPED: ptrace is used as Linux has it")
