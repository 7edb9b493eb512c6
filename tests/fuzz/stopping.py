# SPDX-License-Identifier: MIT
"""Stops a child process at every one of its system calls, by ptrace, and sends it a signal there."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from typing import Callable

import pytest

_TRACEME, _SYSCALL, _SETOPTIONS, _SYSGOOD = 0, 24, 0x4200, 1
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, pid: int, data: int = 0) -> int:
    return int(_libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(data)))


def killed_at(work: Callable[[], object], number: int | None, sent: int = signal.SIGKILL) -> tuple[bool, int]:
    """Run `work` in a fork and kill it at its `number`-th stop, of which every system call has one before and one after.

    sent: the signal; work may become another program.
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
        if stops == number:
            os.kill(pid, sent)
            if sent == signal.SIGKILL:
                os.waitpid(pid, 0)
                return True, stops


def every_stop(
    prepare: Callable[[], object],
    work: Callable[[], object],
    check: Callable[[bool], object],
    step: int = 1,
    sent: int = signal.SIGKILL,
) -> int:
    """prepare(); work() until its n-th stop; check(whether it was killed): for every n, or every `step`-th, until it ends.

    Result: how many stops there were, about.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("SKIPPED: ptrace is used as Linux has it")
    number = 1
    while True:
        prepare()
        killed, _ = killed_at(work, number, sent)
        check(killed)
        if not killed:
            return number - 1
        number += step
