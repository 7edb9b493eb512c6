# SPDX-License-Identifier: MIT
"""What stops the program, from its first moment on."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


def handle_signals() -> None:
    """Let SIGTERM and SIGHUP end the program by an exception, so that half-written files are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` asks for
            signal.signal(number, _terminated)


def _terminated(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)
