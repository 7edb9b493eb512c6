# SPDX-License-Identifier: MIT
"""The heap of a worker process."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = (1 << 31) - 1


def keep_heap() -> None:
    """Let this process keep free memory for the next tensors, where the C library can (glibc).

    By default it gives large blocks back at once, and the system clears each page anew before the next tensor is written:
    3 to 4 % of an exhaustive sweep. A worker's tensors are bounded (`evaluator.LIVE_BYTES`), and so is what it keeps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        mallopt(parameter, _LARGEST)
