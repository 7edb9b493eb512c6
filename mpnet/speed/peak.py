# SPDX-License-Identifier: MIT
"""What the machine could do at most: the rate of multiply-adds in registers, measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from mpnet.kernels._core import ffi, lib
from mpnet.kernels.native import NativeKernels
from mpnet.model.precision import Precision
from mpnet.speed.clock import in_turn, once

_CHAINS = 12
_LEAST_MS = 10
_REPEATS = 8


@dataclass(frozen=True)
class Peak:
    """Multiply-adds per second of one thread of one ISA level, in thousands of millions.

    fp32: measured. int8: derived from it, by what the level's best int8 instruction does in the time of an fp32 one.
    """

    fp32: float
    int8: float

    def of(self, precision: Precision) -> float:
        """The peak for products of a precision: halves are multiplied as fp32, narrow codes as int8, int16 as two of these."""
        if not precision.carries_scale:
            return self.fp32
        return self.int8 / precision.stored.item_bytes


def measure_peak(kernels: NativeKernels) -> Peak:
    """The best of several short measurements, so that what disturbs one does not count."""
    table = kernels.table
    start = np.linspace(0.1, 0.9, _CHAINS * lib.mp_lanes(table), dtype=np.float32)
    run = partial(lib.mp_multiply_adds, table, ffi.cast("float *", start.ctypes.data))
    result = ffi.new("float *")
    rounds = 1000
    while once(partial(run, rounds, result)) < _LEAST_MS:
        rounds *= 2
    [times] = in_turn(partial(run, rounds, result), repeats=_REPEATS, warm_up=0)
    fp32 = 1e-6 * run(rounds, result) / times.min_ms
    return Peak(fp32, fp32 * lib.mp_int8_rate(table))
