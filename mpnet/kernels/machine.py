# SPDX-License-Identifier: MIT
"""The properties of the machine that csrc/ can measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from mpnet.arrays import FloatArray
from mpnet.kernels._core import ffi, lib

if TYPE_CHECKING:
    from mpnet.kernels._core import CData

_CHAINS = 12


def multiply_adds(table: CData) -> Callable[[int], int]:
    """Return a function that runs rounds of independent multiply-adds in registers and returns how many that were.

    table: of an ISA level, `NativeKernels.table`.
    """
    start = np.linspace(0.1, 0.9, _CHAINS * lib.mp_lanes(table), dtype=np.float32)
    address, result = ffi.cast("float *", start.ctypes.data), ffi.new("float *")

    def run(rounds: int, _start: FloatArray = start) -> int:  # _start keeps the memory alive
        return int(lib.mp_multiply_adds(table, address, rounds, result))

    return run


def int8_rate(table: CData) -> int:
    """Return how many int8 products the table's best instruction makes in the time of an fp32 one."""
    return int(lib.mp_int8_rate(table))
