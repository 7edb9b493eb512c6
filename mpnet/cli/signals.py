# SPDX-License-Identifier: MIT
"""Signals that stop the program, from its first moment on."""

from __future__ import annotations

import signal
from types import FrameType

AGAIN_SECONDS = 0.005


def handle_signals() -> None:
    """Let SIGTERM and SIGHUP end the program by an exception, as SIGINT does, so that half-written files are removed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` asks for
            signal.signal(number, _stopped)


def _stopped(number: int, frame: FrameType | None) -> None:
    # Python ignores what is raised in a callback of its import system, of which there is one for each import.
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        signal.signal(signal.SIGALRM, lambda _, frame: _stopped(number, frame))
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        return
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
