# SPDX-License-Identifier: MIT
"""The machine's measured peak: what `mpnet bench` compares with."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.kernels._core import ffi, lib
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.model.precision import FP16, FP32, INT4, INT8, INT16
from mpnet.speed.peak import measure_peak


@pytest.mark.parametrize("level", usable_levels())
def test_as_many_multiply_adds_are_done_as_are_counted(level: str) -> None:
    table = kernels(level).table
    lanes = lib.mp_lanes(table)
    start = np.arange(12 * lanes, dtype=np.float32)
    result = ffi.new("float *")
    assert lib.mp_multiply_adds(table, ffi.cast("float *", start.ctypes.data), 3, result) == 3 * 12 * lanes
    chains = start.reshape(12, lanes)[:, 0].astype(np.float64)
    for _ in range(3):
        chains = chains * float(np.float32(0.999)) + float(np.float32(1e-3))
    assert result[0] == pytest.approx(chains.sum(), rel=1e-6)


@pytest.mark.parametrize("rounds", [0, -1, 2**62])
def test_bad_rounds_do_nothing(rounds: int) -> None:
    table = kernels("scalar").table
    start = np.zeros(12, np.float32)
    assert lib.mp_multiply_adds(table, ffi.cast("float *", start.ctypes.data), rounds, ffi.new("float *")) == 0


def test_vectors_multiply_int8_at_least_as_fast_as_fp32() -> None:
    peak = measure_peak(kernels())
    assert 0 < peak.fp32 <= peak.int8
    assert peak.of(INT8) == peak.of(INT4) == peak.int8 == 2 * peak.of(INT16)
    assert peak.of(FP16) == peak.of(FP32) == peak.fp32
