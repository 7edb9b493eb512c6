"""Every ISA level gives the scalar table's bits, and the scalar table the NumPy oracle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.kernels import isa
from mpnet.kernels.reference import ReferenceKernels
from mpnet.spec.precision import precision
from tests.kernels.cases import ConvCase, conv_arguments, conv_cases, output_shape

GUARD = 0x5A
LEVELS = isa.usable_levels()


def run(kernels: Any, case: ConvCase, threads: int = 1) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """(result, ranges); raises when bytes around the result were touched."""
    weights, x, options = conv_arguments(case)
    dtype = np.dtype(case.out)
    shape = output_shape(case)
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.full(size + 128, GUARD, np.uint8)
    out = room[64 : 64 + size].view(dtype).reshape(shape)
    ranges = np.empty((case.images, 2), np.float32)
    packed = kernels.pack_conv(case.shape, precision(case.precision), weights)
    kernels.conv(packed, x, out, ranges=ranges, threads=threads, **options)
    assert (room[:64] == GUARD).all(), case
    assert (room[64 + size :] == GUARD).all(), case
    return out, ranges


def same(expected: NDArray[Any], actual: NDArray[Any]) -> bool:
    """Equal bits, so that -0 and 0 differ."""
    return expected.tobytes() == actual.tobytes()


@pytest.mark.parametrize("case", conv_cases(), ids=str)
def test_every_level_equals_scalar_and_scalar_equals_oracle(case: ConvCase) -> None:
    scalar, scalar_ranges = run(isa.kernels("scalar"), case)
    oracle, oracle_ranges = run(ReferenceKernels(), case)
    assert same(oracle, scalar), f"scalar differs from the oracle: {case}"
    assert same(oracle_ranges, scalar_ranges), f"scalar ranges differ from the oracle: {case}"
    for level in LEVELS:
        for threads in (1, 2, 3):
            actual, ranges = run(isa.kernels(level), case, threads)
            assert same(scalar, actual), f"{level} with {threads} threads differs from scalar: {case}"
            assert same(scalar_ranges, ranges), f"{level} with {threads} threads: ranges differ from scalar: {case}"
