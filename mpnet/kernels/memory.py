# SPDX-License-Identifier: MIT
"""Host memory for kernels: aligned, and scratch memory of the calling thread."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes: one cache line, and the widest vector."""
_local = threading.local()


def aligned(size_bytes: int) -> NDArray[np.uint8]:
    """Return uninitialised bytes that start at a multiple of ALIGNMENT."""
    raw = np.empty(size_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size_bytes]


def scratch(size_bytes: int) -> NDArray[np.uint8]:
    """Return the calling thread's scratch memory, grown when needed."""
    buffer: NDArray[np.uint8] | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size_bytes:
        buffer = _local.buffer = aligned(size_bytes)
    return buffer
