"""What the machine could do at most: the rate of multiply-adds in registers, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from mpnet.kernels._core import ffi, lib
from mpnet.kernels.native import NativeKernels

_CHAINS = 12
_SECONDS = 0.01
_REPEATS = 8


@dataclass(frozen=True)
class Peak:
    """Multiply-adds per second of one thread of one ISA level, in thousands of millions.

    fp32: measured. int8: derived from it, by what the level's best int8 instruction does in the time of an fp32 one.
    """

    fp32: float
    int8: float

    def of(self, storage_bits: int) -> float:
        """The peak for products of this many bits; halves are multiplied as fp32."""
        return self.int8 if storage_bits == 8 else self.fp32


def measure_peak(kernels: NativeKernels) -> Peak:
    """The best of several short measurements, so that what disturbs one does not count."""
    table = kernels.table
    start = np.linspace(0.1, 0.9, _CHAINS * lib.mp_lanes(table), dtype=np.float32)
    result = ffi.new("float *")
    pointer = ffi.cast("float *", start.ctypes.data)

    def rate(rounds: int) -> tuple[float, float]:
        begin = time.perf_counter()
        done = lib.mp_multiply_adds(table, pointer, rounds, result)
        taken = time.perf_counter() - begin
        return taken, done / max(taken, 1e-9)

    rounds = 1000
    while rate(rounds)[0] < _SECONDS:
        rounds *= 2
    fp32 = max(rate(rounds)[1] for _ in range(_REPEATS)) / 1e9
    return Peak(fp32, fp32 * lib.mp_int8_rate(table))
