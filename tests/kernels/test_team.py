# SPDX-License-Identifier: MIT
"""Threads that share a call: any number of callers at once, in forked children as well, always the same bits."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.interface import ConvShape
from mpnet.kernels.isa import active_level, kernels
from mpnet.model.precision import precision

SHAPE = ConvShape(64, 48, 24, 40, 3, 1, 1)


def convolved(seed: int, threads: int) -> NDArray[np.float32]:
    """Run a convolution of several blocks."""
    table, rng = kernels(active_level()), np.random.Generator(np.random.PCG64(seed))
    weights = rng.standard_normal((SHAPE.out_channels, SHAPE.in_channels, SHAPE.size, SHAPE.size)).astype(np.float32)
    x = rng.standard_normal((3, SHAPE.in_h, SHAPE.in_w, SHAPE.in_channels)).astype(np.float32)
    out = np.empty((3, SHAPE.out_h, SHAPE.out_w, SHAPE.out_channels), np.float32)
    packed = table.pack_conv(SHAPE, precision("fp32"), weights)
    table.conv(packed, x, out, bias=np.zeros(SHAPE.out_channels, np.float32), activation="leaky", threads=threads)
    return out


def test_callers_at_once_do_not_mix_their_items() -> None:
    expected = [convolved(seed, 1) for seed in range(4)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            seeds = [seed for seed in range(4) for _ in range(4)]
            results = pool.map(convolved, seeds, [2, 3, 5, 9] * 4)
            assert all(np.array_equal(actual, expected[seed]) for seed, actual in zip(seeds, results, strict=True))


def test_a_forked_child_has_threads_of_its_own() -> None:
    expected = convolved(0, 2)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(convolved(0, 2), expected) and np.array_equal(convolved(1, 3), convolved(1, 1)) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert np.array_equal(convolved(0, 2), expected)
