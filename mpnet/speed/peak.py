# SPDX-License-Identifier: MIT
"""The highest rate of the machine: multiply-adds in registers, measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mpnet.kernels.environment import cpu_count
from mpnet.kernels.machine import int8_rate, multiply_adds
from mpnet.kernels.native import NativeKernels
from mpnet.model.precision import Precision
from mpnet.speed.clock import in_turn, once

_LEAST_MS = 10
_REPEATS = 8


@dataclass(frozen=True)
class Peak:
    """Multiply-adds per second of one thread of one ISA level, in thousands of millions.

    fp32: measured. int8: derived from it, by what the level's best int8 instruction does in the time of an fp32 one.
    doubt: why the measurement should not be believed, '' where nothing speaks against it.
    """

    fp32: float
    int8: float
    doubt: str = ""

    def of(self, precision: Precision) -> float:
        """Return the peak for products of a precision: fp16 counts as fp32, narrow codes as int8, int16 as two of these."""
        if not precision.carries_scale:
            return self.fp32
        return self.int8 / precision.stored.item_bytes


def measure_peak(kernels: NativeKernels) -> Peak:
    """Return the best of several short measurements, so that what disturbs one does not count."""
    run = multiply_adds(kernels.table)
    rounds = 1000
    while once(partial(run, rounds)) < _LEAST_MS:
        rounds *= 2
    [times] = in_turn(partial(run, rounds), repeats=_REPEATS, warm_up=0)
    fp32 = 1e-6 * run(rounds) / times.min_ms
    return Peak(fp32, fp32 * int8_rate(kernels.table), times.doubt(1, cpu_count()))
