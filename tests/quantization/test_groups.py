# SPDX-License-Identifier: MIT
"""Weights in groups of 32 input channels: int8 weights of fewer bits that come nearer than one step per channel."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.kernels.interface import ConvShape
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.precision import precision
from mpnet.quantization.learnt_rounding import learn_codes
from mpnet.quantization.weights import LEARNT, WeightScheme, dequantize_weights, group_steps, multiplier_bytes, quantize_weights

NEAREST = "half_to_even"


def weights(filters: int, channels: int, size: int) -> NDArray[np.float32]:
    """Return filters, and groups of their inputs, of very different magnitudes; some are 0."""
    random = np.random.default_rng(filters + channels + size)
    w = random.standard_normal((filters, channels, size, size)) * random.random((filters, 1, 1, 1))
    w[:, 20:40] *= 0.1
    w[0] = 0
    w[-1, :32] = 0
    return w.astype(np.float32)


def squared_error(w: NDArray[np.float32], quantized: tuple[NDArray[np.int8], NDArray[np.float32]]) -> float:
    return float(((dequantize_weights(*quantized).astype(np.float64) - w) ** 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("bits", [3, 4, 5, 6])
@pytest.mark.parametrize(("channels", "size"), [(3, 3), (40, 3), (70, 1)])
@pytest.mark.parametrize("method", ["mse", "min_max"])
def test_they_come_nearer_and_kernels_take_them(bits: int, channels: int, size: int, method: str) -> None:
    w = weights(6, channels, size)
    grouped = quantize_weights(w, WeightScheme("per_group", method, NEAREST, bits))
    ungrouped = quantize_weights(w, WeightScheme("per_channel", method, NEAREST, bits))
    assert squared_error(w, grouped) < squared_error(w, ungrouped)
    assert grouped[1].shape == (6,)
    shape = ConvShape(4, 4, channels, 6, size)
    ReferenceKernels().pack_conv(shape, precision(f"int{bits}"), grouped[0])
    learnt = learn_codes(w, np.eye(channels * size**2)[None] * 1000, WeightScheme("per_group", method, LEARNT, bits))
    if method != "mse":
        assert np.array_equal(learnt[1], grouped[1])
    assert squared_error(w, learnt) < squared_error(w, ungrouped)
    ReferenceKernels().pack_conv(shape, precision(f"int{bits}"), learnt[0])


def test_a_group_reads_32_channels_at_one_tap() -> None:
    scales, multipliers = group_steps(weights(5, 70, 3), WeightScheme("per_group", "mse", NEAREST, 4))
    tap_multipliers = multipliers.reshape(5, 70, 9)
    assert scales.shape == (5,)
    assert set(np.unique(tap_multipliers)) <= set(range(1, 17))
    for start in (0, 32, 64):
        group = tap_multipliers[:, start : start + 32]
        assert (group == group[:, :1]).all()
    assert len(np.unique(tap_multipliers)) > 3


def test_filters_of_one_channel_have_one_step() -> None:
    w = weights(8, 1, 3)
    for rounding, learn in ((NEAREST, quantize_weights), (LEARNT, lambda w, s: learn_codes(w, np.eye(9)[None] * 1000, s))):
        a, b = (learn(w, WeightScheme(granularity, "mse", rounding, 4)) for granularity in ("per_group", "per_channel"))
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])


@pytest.mark.parametrize(("bits", "expected"), [(3, 135), (4, 108), (5, 81), (6, 54)])
def test_multipliers_have_the_bits_that_codes_leave_of_eight(bits: int, expected: int) -> None:
    assert multiplier_bytes(8, 9, 70, bits) == expected
