# SPDX-License-Identifier: MIT
"""Codes in whole numbers alone: every table gives the oracle's bits, and the oracle those of TensorFlow Lite's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels import isa
from mpnet.kernels.interface import CodeRules, ConvShape, IntegerOutput, LeakySteps, TensorQuant
from mpnet.kernels.reference_math import times_32, times_64
from mpnet.model.precision import INT8, INT16, INT16W5, Precision
from tests.kernels.gpus import usable_gpu_kernels
from tests.kernels.oracle import oracle

ORACLE = oracle()
LEVELS = isa.usable_levels()
TABLES = {**{level: isa.kernels(level) for level in LEVELS}, **{gpu.name: gpu for gpu in usable_gpu_kernels()}}
# Tiles, panels and pixels that are full and not, Winograd, groups, depthwise (also beside each other, and of too many taps for
# sums of 32 bits).
SHAPES = [
    ConvShape(7, 9, 3, 16, 3, 1, 1),
    ConvShape(13, 11, 24, 70, 1),
    ConvShape(10, 12, 32, 48, 3, 1, 1),
    ConvShape(9, 8, 20, 33, 3, 2, 1),
    ConvShape(8, 6, 24, 18, 3, 1, 1, 1, 3),
    ConvShape(11, 9, 37, 37, 3, 1, 1, 1, 37),
    ConvShape(6, 8, 12, 10, 1),
    ConvShape(7, 8, 10, 10, 3, 1, 1, 1, 10),
    ConvShape(23, 23, 18, 18, 23, groups=18),
]


def call(kernels: Any, function: str, x: NDArray[Any], *arguments: Any, threads: int = 1) -> None:
    """Run a call of what has no method."""
    kernels.run_function(function, x, *arguments, threads=threads)


def factors(rng: np.random.Generator, count: int, low: int, high: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return multipliers, the least and the largest among them, and shifts; the last is 0."""
    multiplier = rng.choice(np.array([1 << 30, (1 << 31) - 1, *rng.integers(1 << 30, 1 << 31, 6)]), count).astype(np.int32)
    shift = rng.integers(low, high + 1, count).astype(np.int32)
    multiplier[-1] = shift[-1] = 0
    return multiplier, shift


def convolved(
    kernels: Any, shape: ConvShape, row: Precision, result_precision: Precision, leaky: bool, pool: int | None, threads: int = 1
) -> NDArray[Any]:
    """Return codes of two images."""
    rng = np.random.default_rng(shape.depth + shape.out_channels)
    largest = row.largest_code
    weights = rng.integers(
        -largest, largest + 1, (shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size)
    )
    ends = np.iinfo(row.stored.dtype)
    x = rng.integers(ends.min, ends.max + 1, (2, shape.in_h, shape.in_w, shape.in_channels)).astype(row.stored.dtype)
    ones, zeros, is_byte = np.ones(2, np.float32), np.zeros(2, np.float32), result_precision is INT8
    steps = np.iinfo(result_precision.stored.dtype)
    bias = rng.integers(-20000, 20001, shape.out_channels)
    smallest_shift = -22 if is_byte else -14 if row is INT8 else -24
    multiplier, shift = factors(rng, shape.out_channels, smallest_shift, 2 if is_byte else 7)
    shift[: shape.out_channels // 2] = smallest_shift // 2
    zero_points = np.array([-7, 100], np.int32) * (row is INT8)
    out_zero_points = np.array([-128, 3], np.int32) * is_byte
    leaky_factors = factors(rng, 3, -4, 1)
    height, width = shape.out_h, shape.out_w
    if pool is not None:
        height, width = (height + pool) // 2, (width + pool) // 2
    out = np.empty((2, height, width, shape.out_channels), result_precision.stored.dtype)
    packed = kernels.pack_conv(shape, row, weights.astype(np.int8))
    kernels.conv(
        packed,
        x,
        out,
        bias=np.zeros(shape.out_channels, np.float32),
        weight_scale=np.ones(shape.out_channels, np.float32),
        in_quant=TensorQuant(ones, zero_points, zeros),
        out_quant=TensorQuant(ones, out_zero_points, zeros),
        out_rules=CodeRules(low=steps.min + 3, high=steps.max),
        pool=pool is not None,
        integer=IntegerOutput(
            bias.astype(np.int32 if is_byte else np.int64),
            multiplier,
            shift,
            LeakySteps(leaky_factors[0][:2].copy(), leaky_factors[1][:2].copy(), (steps.min - 5, steps.max)) if leaky else None,
        ),
        threads=threads,
    )
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("row", "result_precision"), [(INT8, INT8), (INT16, INT16), (INT8, INT16), (INT16W5, INT16)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions_give_the_same_codes_everywhere(
    level: str, row: Precision, result_precision: Precision, shape: ConvShape
) -> None:
    kernels = isa.kernels(level)
    for leaky in (False, True):
        for pool in (None, 0, 1) if shape.out_h > 1 else (None,):
            expected = convolved(ORACLE, shape, row, result_precision, leaky, pool)
            for threads in (1, 3):
                assert convolved(kernels, shape, row, result_precision, leaky, pool, threads).tobytes() == expected.tobytes(), (
                    leaky,
                    pool,
                )


@pytest.mark.parametrize("level", list(TABLES))
@pytest.mark.parametrize("source", [np.int8, np.int16])
@pytest.mark.parametrize("target", [np.int8, np.int16])
def test_rescaling_gives_the_same_codes_everywhere(level: str, source: Any, target: Any) -> None:
    rng, ends, target_bounds = np.random.default_rng(3), np.iinfo(source), np.iinfo(target)
    x = np.arange(ends.min, ends.max + 1).astype(source)
    for low, high in ((-31, 0), (0, 14 if source is np.int16 else 22)):
        multiplier, shift = factors(rng, 5, low, high)
        for i in range(4):
            rules = (
                5 * (source is np.int8),
                -9 * (target is np.int8),
                target_bounds.min,
                target_bounds.max,
                *(int(v[j]) for j in (i, i + 1) for v in (multiplier, shift)),
            )
            expected, out = np.empty((2, x.size), target)
            call(ORACLE, "rescale", x, x.dtype, expected, expected.dtype, *rules, x.size)
            call(TABLES[level], "rescale", x, x.dtype, out, out.dtype, *rules, x.size, threads=2)
            assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("level", list(TABLES))
@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_sums_give_the_same_codes_everywhere(level: str, kind: Any) -> None:
    rng, ends = np.random.default_rng(4), np.iinfo(kind)
    a, b = rng.integers(ends.min, ends.max + 1, (2, 20_001)).astype(kind)
    for _ in range(5):
        multipliers, shifts = (numbers[:3].copy() for numbers in factors(rng, 4, -16, 0))
        shifts[:2] = -shifts[:2] // 8 * -1
        zero_points = np.array([-128, 5, 127], np.int32) * (kind is np.int8)
        expected, out = np.empty((2, a.size), kind)
        rules = (zero_points, multipliers, shifts, ends.min, ends.max - 1, a.size)
        call(ORACLE, "add_codes", a, b, expected, a.dtype, *rules)
        call(TABLES[level], "add_codes", a, b, out, a.dtype, *rules, threads=2)
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("level", list(TABLES))
def test_reals_are_divided_and_rounded_half_away(level: str) -> None:
    rng, kernels = np.random.default_rng(5), TABLES[level]
    ties = ((np.arange(-300, 300) + 0.5) * 0.25).astype(np.float32)
    x = np.concatenate([ties, np.nextafter(ties, np.float32(0)), rng.standard_normal(20_001).astype(np.float32) * 100])
    for kind, zero_point in ((np.int8, -128), (np.int8, 3), (np.int16, 0)):
        for scale in (0.25, 1 / 255, 0.0071):
            expected, out = np.empty((2, x.size), kind)
            call(ORACLE, "quantize_by_division", x, expected, expected.dtype, scale, zero_point, x.size)
            call(kernels, "quantize_by_division", x, out, out.dtype, scale, zero_point, x.size, threads=2)
            assert out.tobytes() == expected.tobytes()
    for value in (np.nan, np.inf):
        with pytest.raises(KernelError, match="NaN or infinite"):
            call(kernels, "quantize_by_division", np.full(70, value, np.float32), out, out.dtype, 0.5, 0, 70)


def test_factors_round_as_tensorflow_lite_does() -> None:
    one_half = np.int64(1) << 30  # times one half
    x = np.array([-5, -3, -1, 0, 1, 3, 5])
    assert times_32(x, one_half, np.int64(0)).tolist() == [-2, -1, 0, 0, 1, 2, 3]  # half up
    assert times_32(x, (1 << 31) - 1, np.int64(-1)).tolist() == [-3, -2, -1, 0, 1, 2, 3]  # half away from zero
    assert times_64(x, np.array([one_half]), np.array([0])).tolist() == [-2, -1, 0, 0, 1, 2, 3]
    assert times_64(np.array([1 << 46]), np.array([one_half]), np.array([-30])).tolist() == [1 << 15]


@pytest.mark.parametrize("level", list(TABLES))
def test_what_cannot_be_scaled_is_refused(level: str) -> None:
    x, out = np.zeros(8, np.int16), np.zeros(8, np.int8)
    codes, kernels = (-128, 127), TABLES[level]
    for rules in (
        (0, 0, *codes, 5, 0, 1 << 30, 0),
        (1, 0, *codes, 1 << 30, 0, 1 << 30, 0),
        (0, 0, -129, 127, 1 << 30, 0, 1 << 30, 0),
    ):
        with pytest.raises(KernelError, match="out of range"):
            call(kernels, "rescale", x, x.dtype, out, out.dtype, *rules, 8)
    with pytest.raises(KernelError):
        call(kernels, "rescale", x, x.dtype, out, out.dtype, 0, 0, *codes, 1 << 30, 15, 1 << 30, 0, 8)
    reals = np.zeros(8, np.float32)
    for scale, zero_point in ((0.0, 0), (np.inf, 0), (0.5, 128)):
        with pytest.raises(KernelError, match="out of range"):
            call(kernels, "quantize_by_division", reals, out, out.dtype, scale, zero_point, 8)
    whole = [np.zeros(3, np.int32), np.full(3, 1 << 30, np.int32), np.zeros(3, np.int32)]
    for position, value in ((0, 128), (1, 5), (2, 1), (2, -32)):
        rules = [array.copy() for array in whole]
        rules[position][1] = value
        with pytest.raises(KernelError, match="an argument is out of range"):
            call(kernels, "add_codes", out, out.copy(), np.zeros_like(out), out.dtype, *rules, *codes, 8)
    with pytest.raises(KernelError, match="this shape cannot be computed"):
        call(kernels, "gather", out, out.copy(), out.dtype, 1, 8, 8, np.full(8, 8, np.int32), np.zeros(1, np.int32))


@pytest.mark.parametrize("level", list(TABLES))
@pytest.mark.parametrize("position", ["in_quant", "out_quant"])
def test_a_zero_point_that_is_no_code_is_refused(level: str, position: str) -> None:
    shape, kernels = ConvShape(4, 4, 3, 8, 1), TABLES[level]
    packed = kernels.pack_conv(shape, INT8, np.ones((8, 3, 1, 1), np.int8))
    x, out = np.zeros((2, 4, 4, 3), np.int8), np.zeros((2, 4, 4, 8), np.int8)
    right, wrong = (
        TensorQuant(np.ones(2, np.float32), np.array([0, zero], np.int32), np.zeros(2, np.float32)) for zero in (1, 300)
    )
    quants = {"in_quant": right, "out_quant": right, position: wrong}
    with pytest.raises(KernelError, match=r"zero point|out of range"):
        kernels.conv(
            packed, x, out, bias=np.zeros(8, np.float32), weight_scale=np.ones(8, np.float32),
            out_rules=CodeRules("half_to_even", -128, 127), **quants,
        )  # fmt: skip
