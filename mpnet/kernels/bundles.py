# SPDX-License-Identifier: MIT
"""The records of csrc/mprun/bundle.h as bytes."""

from __future__ import annotations

from typing import Sequence

from mpnet.kernels._core import ffi
from mpnet.kernels.core import CFields


def record_size(kind: str) -> int:
    """Return the size of a record of this C type, in bytes."""
    return int(ffi.sizeof(kind))


def record(kind: str, fields: CFields) -> bytes:
    """Return a record of this C type; fields that are not given are 0."""
    return bytes(ffi.buffer(ffi.new(f"{kind} *", dict(fields))))


def records(kind: str, rows: Sequence[CFields]) -> bytes:
    """Return records of this C type, one after the other."""
    return bytes(ffi.buffer(ffi.new(f"{kind}[]", [dict(row) for row in rows])))
