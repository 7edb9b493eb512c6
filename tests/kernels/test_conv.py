# SPDX-License-Identifier: MIT
"""Every ISA level gives the scalar table's bits, and the scalar table the NumPy oracle's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels import isa
from mpnet.kernels.arguments import CODES, FLOAT, REALS
from mpnet.kernels.interface import CodeRules, ConvShape, TensorQuant
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.precision import INT16, PRECISIONS, STORED_TYPES, Precision, precision
from mpnet.model.reals import narrowed
from tests.kernels.cases import ConvCase, conv_arguments, conv_cases, output_shape
from tests.kernels.oracle import oracle

GUARD = 0x5A
ORACLE = oracle()
LEVELS = isa.usable_levels()


def run(kernels: Any, case: ConvCase, threads: int = 1) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return (result, ranges, zeros where none are measured); raises when bytes around the result were touched."""
    weights, x, options = conv_arguments(case)
    dtype = STORED_TYPES[case.result_type].dtype
    shape = output_shape(case)
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.full(size + 128, GUARD, np.uint8)
    out = room[64 : 64 + size].view(dtype).reshape(shape)
    ranges = np.zeros((case.images, 2), np.float32)
    measured_ranges = None if case.pool is not None and dtype in CODES else ranges
    packed = kernels.pack_conv(case.shape, precision(case.precision), weights)
    kernels.conv(packed, x, out, ranges=measured_ranges, pool=case.pool is not None, threads=threads, **options)
    assert (room[:64] == GUARD).all(), case
    assert (room[64 + size :] == GUARD).all(), case
    return out, ranges


def have_same_bits(expected: NDArray[Any], actual: NDArray[Any]) -> bool:
    """Return whether bits are equal, so that -0 and 0 differ."""
    return expected.tobytes() == actual.tobytes()


def is_slow(number: int, case: ConvCase) -> bool:
    """Return whether a shape is among the largest, or two thirds of those that are no small ones: together they take long."""
    return case.products > 1 << 21 or (case.products > 1 << 17 and number % 3 > 0)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if is_slow(number, case) else ()) for number, case in enumerate(conv_cases())],
    ids=str,
)
def test_every_level_equals_scalar_and_scalar_equals_oracle(case: ConvCase) -> None:
    scalar, scalar_ranges = run(isa.kernels("scalar"), case)
    expected, expected_ranges = run(ORACLE, case)
    assert have_same_bits(expected, scalar), f"scalar differs from the oracle: {case}"
    assert have_same_bits(expected_ranges, scalar_ranges), f"scalar ranges differ from the oracle: {case}"
    for level in LEVELS:
        for threads in (1, 2, 3):
            actual, ranges = run(isa.kernels(level), case, threads)
            assert have_same_bits(scalar, actual), f"{level} with {threads} threads differs from scalar: {case}"
            assert have_same_bits(scalar_ranges, ranges), f"{level} with {threads} threads: ranges differ from scalar: {case}"


@pytest.mark.parametrize("level", ["oracle", *LEVELS])
@pytest.mark.parametrize(("rows", "negative"), [(1, True), (3, True), (4, False)], ids=str)
def test_empty_edges_are_not_summed_where_half_of_the_taps_are_left(level: str, rows: int, negative: bool) -> None:
    """Adding 0 * 0 to -0 gives 0."""
    shape = ConvShape(8, 9, 6, 20, 7, 1, 3)
    weights = np.zeros((20, 6, 7, 7), np.float32)
    weights[:, :, 2 : 2 + rows] = -1
    kernels = ORACLE if level == "oracle" else isa.kernels(level)
    out = np.empty((1, 8, 9, 20), np.float32)
    packed = kernels.pack_conv(shape, precision("fp32"), weights)
    kernels.conv(packed, np.zeros((1, 8, 9, 6), np.float32), out, bias=np.full(20, -0.0, np.float32))
    assert (out == 0).all()
    assert (np.signbit(out) == negative).all()


def call(level: str, shape: ConvShape, x: NDArray[np.float32], **change: Any) -> NDArray[np.float32]:
    """Run a plain fp32 convolution, all weights 1."""
    kernels = isa.kernels(level)
    weights = np.ones((shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size), np.float32)
    packed = kernels.pack_conv(shape, precision("fp32"), weights)
    out = np.empty((len(x), shape.out_h, shape.out_w, shape.out_channels), np.float32)
    options: dict[str, Any] = {"bias": np.zeros(shape.out_channels, np.float32), **change}
    kernels.conv(packed, x, options.pop("out", out), **options)
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("pixel", [(0, 0), (2, 3), (8, 8)], ids=str)
@pytest.mark.parametrize(
    "shape", [ConvShape(9, 9, 3, 20, 3, 1, 1), ConvShape(9, 9, 3, 16, 1), ConvShape(9, 9, 8, 8, 3, 1, 1, 1, 8)], ids=str
)
def test_a_result_that_is_not_finite_is_reported(level: str, value: float, pixel: tuple[int, int], shape: ConvShape) -> None:
    x = np.zeros((2, 9, 9, shape.in_channels), np.float32)
    assert (call(level, shape, x, activation="relu") == 0).all()
    x[(1, *pixel, 2)] = value
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        call(level, shape, x, activation="relu", threads=2)


@pytest.mark.parametrize("level", LEVELS)
def test_overflow_of_half_is_reported(level: str) -> None:
    shape = ConvShape(5, 5, 2, 3, 1)
    x = np.full((1, 5, 5, 2), 32752.0, np.float32)
    with pytest.raises(NonFiniteError):
        call(level, shape, x + 8, out=np.empty((1, 5, 5, 3), np.float16))
    call(level, shape, x, out=np.empty((1, 5, 5, 3), np.float16))


@pytest.mark.parametrize("level", LEVELS)
def test_bad_arguments_are_named(level: str) -> None:
    k = isa.kernels(level)
    shape = ConvShape(4, 4, 2, 3, 3, 1, 1)
    x = np.zeros((1, 4, 4, 2), np.float32)
    for change, message in (
        ({"threads": 0}, "threads is 0"),
        ({"threads": 2000}, "threads is 2000"),
        ({"activation": "glu"}, "'glu'"),
        ({"bias": np.zeros(2, np.float32)}, "bias has shape"),
        ({"out": np.empty((1, 4, 4, 4), np.float32)}, "out has shape"),
        ({"out": np.empty((1, 4, 4, 3), np.int8)}, "out_quant is missing"),
        ({"ranges": np.empty((2, 2), np.float32)}, "ranges"),
        ({"pool": True}, "out has shape .* pooling 4 makes 2"),
        ({"pool": True, "out": np.empty((1, 2, 2, 4), np.float32)}, "out has shape"),
    ):
        with pytest.raises(KernelError, match=message):
            call(level, shape, x, **change)
    with pytest.raises(KernelError, match="x has shape"):
        call(level, shape, np.zeros((1, 4, 5, 2), np.float32))
    with pytest.raises(KernelError, match="x is float16; it must be float32"):
        call(level, shape, x.astype(np.float16))
    with pytest.raises(KernelError, match="cannot be computed"):
        k.pack_conv(ConvShape(4, 4, 3, 3, 3, groups=2), precision("fp32"), np.zeros((3, 1, 3, 3), np.float32))
    with pytest.raises(KernelError, match="cannot be computed"):
        k.pack_conv(ConvShape(2, 2, 3, 3, 3), precision("fp32"), np.zeros((3, 3, 3, 3), np.float32))
    with pytest.raises(KernelError, match="below 2"):
        k.pack_conv(ConvShape(2**31, 2, 3, 3, 3), precision("fp32"), np.zeros((3, 3, 3, 3), np.float32))
    with pytest.raises(KernelError, match="were not packed by"):
        k.conv(
            ReferenceKernels().pack_conv(shape, precision("fp32"), np.ones((3, 2, 3, 3), np.float32)),
            x,
            np.empty((1, 4, 4, 3), np.float32),
            bias=np.zeros(3, np.float32),
        )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.carries_scale], ids=str)
def test_bounds_of_codes(level: str, row: Precision) -> None:
    k = isa.kernels(level)
    for code in {-row.largest_code - 1, min(row.largest_code + 1, 127)} - {row.largest_code}:
        weights = np.full((1, 1, 1, 1), code, np.int8)
        with pytest.raises(KernelError, match=rf"\[-{row.largest_code}, {row.largest_code}\]"):
            k.pack_conv(ConvShape(1, 1, 1, 1, 1), row, weights)
    with pytest.raises(KernelError, match="at most 66311 products"):
        k.pack_conv(ConvShape(1, 1, 66312, 1, 1), row, np.zeros((1, 66312, 1, 1), np.int8))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sign", [-127, 127])
def test_int8_sums_at_the_bound_are_exact(level: str, sign: int) -> None:
    """The deepest sum allowed: q - zero_point = 255 everywhere, |w| = 127."""
    depth = 66311
    k = isa.kernels(level)
    packed = k.pack_conv(ConvShape(1, 1, depth, 2, 1), precision("int8"), np.full((2, depth, 1, 1), sign, np.int8))
    out = np.empty((1, 1, 1, 2), np.float32)
    ones = np.ones(1, np.float32)
    k.conv(
        packed,
        np.full((1, 1, 1, depth), 127, np.int8),
        out,
        bias=np.zeros(2, np.float32),
        weight_scale=np.ones(2, np.float32),
        in_quant=TensorQuant(ones, np.array([-128], np.int32), 0 * ones),
    )
    assert out.tolist() == [[[[float(np.float32(255 * sign * depth))] * 2]]]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.tensor is INT16], ids=str)
@pytest.mark.parametrize("code", [-32768, 32767, 255, -129])
@pytest.mark.parametrize("sign", [-1, 1])
def test_int16_sums_at_the_bound_are_rounded_once(level: str, row: Precision, code: int, sign: int) -> None:
    """The deepest sum allowed, beyond int32, parts of whole groups of channels among them, and one that has few products."""
    kernels = isa.kernels(level)
    weight = sign * row.largest_code * (1 << (8 - row.weight_bits) if row.is_narrow else 1)  # a group's largest multiple
    for depth in (66311, 1028, 600, 5):
        packed = kernels.pack_conv(ConvShape(1, 1, depth, 2, 1), row, np.full((2, depth, 1, 1), weight, np.int8))
        out, ones = np.empty((1, 1, 1, 2), np.float32), np.ones(1, np.float32)
        x = np.full((1, 1, 1, depth), code, np.int16)
        scales: dict[str, Any] = {"bias": np.zeros(2, np.float32), "weight_scale": np.ones(2, np.float32)}
        kernels.conv(packed, x, out, in_quant=TensorQuant(ones, np.zeros(1, np.int32), 0 * ones), **scales)
        assert out.tolist() == [[[[float(np.float32(code * weight * depth))] * 2]]]
        with pytest.raises(KernelError, match="out of range"):
            kernels.conv(packed, x, out, in_quant=TensorQuant(ones, np.ones(1, np.int32), 0 * ones), **scales)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.tensor is INT16], ids=str)
@pytest.mark.parametrize("size", [5, 23])
def test_int16_depthwise_is_exact_at_every_depth(level: str, row: Precision, size: int) -> None:
    """Filters whose sums fit int32, and some that would leave it."""
    shape = ConvShape(size, size, 18, 18, size, groups=18)
    kernels, ones = isa.kernels(level), np.ones(1, np.float32)
    packed = kernels.pack_conv(shape, row, np.full((18, 1, size, size), -row.largest_code, np.int8))
    out = np.empty((1, 1, 1, 18), np.float32)
    kernels.conv(
        packed,
        np.full((1, size, size, 18), -32768, np.int16),
        out,
        bias=np.zeros(18, np.float32),
        weight_scale=np.ones(18, np.float32),
        in_quant=TensorQuant(ones, np.zeros(1, np.int32), 0 * ones),
    )
    assert set(out.ravel().tolist()) == {float(np.float32(32768 * row.largest_code * size * size))}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("magnitude", [3, 56, 64, 127])
@pytest.mark.parametrize(
    "shape",
    [ConvShape(6, 5, 512, 18, 3, 1, 1), pytest.param(ConvShape(17, 21, 512, 66, 3, 1, 1), marks=pytest.mark.slow)],
    ids=str,
)
def test_int8_winograd_and_direct_give_the_same_sums(level: str, shape: ConvShape, magnitude: int) -> None:
    """Small weights may take a faster algorithm, large ones may not; 3x3 depth 4608 with extreme codes."""
    rng, filters = np.random.default_rng(magnitude), shape.out_channels
    weights = np.full((filters, 512, 3, 3), magnitude, np.int8) * rng.choice(np.array([-1, 1], np.int8), (filters, 1, 1, 1))
    x = rng.choice(np.array([-128, 127], np.int8), (2, shape.in_h, shape.in_w, 512), p=[0.9, 0.1])
    quant = TensorQuant(np.ones(2, np.float32), np.array([127, -128], np.int32), np.zeros(2, np.float32))
    out, expected = np.empty((2, 2, shape.out_h, shape.out_w, filters), np.float32)
    for kernels, result in ((isa.kernels(level), out), (ORACLE, expected)):
        kernels.conv(
            kernels.pack_conv(shape, precision("int8"), weights),
            x,
            result,
            bias=np.zeros(filters, np.float32),
            weight_scale=np.ones(filters, np.float32),
            in_quant=quant,
        )
    assert have_same_bits(expected, out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.is_narrow], ids=str)
def test_sums_of_the_largest_narrow_weights_and_codes_are_exact(level: str, row: Precision) -> None:
    """Tiles may add products of these in int16, several steps at a time; depths that are no whole number of them."""
    k, rng = isa.kernels(level), np.random.default_rng(row.weight_bits)
    shapes = (
        ConvShape(4, 5, 1028, 17, 1),
        ConvShape(4, 5, 1040, 17, 1),
        ConvShape(6, 5, 16, 18, 3, 1, 1),
        ConvShape(20, 19, 66, 70, 3, 1, 1),
        ConvShape(5, 5, 76, 20, 3, 2, 1),
    )
    for shape, multiplier in product(shapes, (1, 2 ** (8 - row.weight_bits))):
        size = (shape.out_channels, shape.in_channels, shape.size, shape.size)
        signs = rng.choice(np.array([-1, 1]), size)
        signs[:2] = np.array([1, -1])[:, None, None, None]
        weights = (row.largest_code * multiplier * signs).astype(np.int8)
        ends = np.iinfo(row.stored.dtype)
        codes = np.array([ends.min, ends.max], ends.dtype)
        x = rng.choice(codes, (2, shape.in_h, shape.in_w, shape.in_channels), p=[0.1, 0.9])
        zero_points = np.array([-128, 127], np.int32) * row.multiplies_bytes
        quant = TensorQuant(np.ones(2, np.float32), zero_points, np.zeros(2, np.float32))
        options = {"bias": np.zeros(size[0], np.float32), "weight_scale": np.ones(size[0], np.float32), "in_quant": quant}
        out, expected = np.empty((2, 2, shape.out_h, shape.out_w, size[0]), np.float32)
        k.conv(k.pack_conv(shape, row, weights), x, out, **options)
        ORACLE.conv(ORACLE.pack_conv(shape, row, weights), x, expected, **options)
        assert have_same_bits(expected, out), shape


def in_groups(rng: np.random.Generator, row: Precision, shape: ConvShape) -> NDArray[np.int8]:
    """Return random codes, times a random multiplier for each filter, tap and 32 input channels."""
    channels = shape.in_channels // shape.groups
    size = (shape.out_channels, channels, shape.size, shape.size)
    codes = rng.integers(-row.largest_code, row.largest_code + 1, size)
    groups = rng.integers(1, 2 ** (8 - row.weight_bits) + 1, (size[0], -(-channels // 32), *size[2:]))
    return (codes * np.repeat(groups, 32, axis=1)[:, :channels]).astype(np.int8)


@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.is_narrow], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        ConvShape(5, 4, 64, 40, 1),
        ConvShape(7, 6, 17, 9, 3, 1, 1),
        ConvShape(6, 6, 96, 33, 3, 1, 1),
        ConvShape(9, 8, 3, 16, 3, 2, 1),
        ConvShape(6, 7, 80, 12, 3, 1, 2, 2),
        ConvShape(5, 5, 72, 70, 3, 1, 1, 1, 2),
        ConvShape(4, 3, 700, 34, 3, 2, 1),
        ConvShape(3, 2, 5000, 20, 1),
        ConvShape(3, 2, 6016, 20, 1),
        ConvShape(6, 5, 16, 18, 3, 1, 1),
        ConvShape(6, 5, 48, 18, 3, 2, 1),
    ],
    ids=str,
)
def test_weights_in_groups_are_int8_weights_that_take_less_memory(row: Precision, shape: ConvShape) -> None:
    rng, eight, ends = np.random.default_rng(shape.depth), row.tensor, np.iinfo(row.stored.dtype)
    weights = in_groups(rng, row, shape)
    x = rng.integers(ends.min, ends.max + 1, (2, shape.in_h, shape.in_w, shape.in_channels)).astype(ends.dtype)
    zero_points = np.array([-3, 100], np.int32) * row.multiplies_bytes
    quant = TensorQuant(np.full(2, 0.02, np.float32), zero_points, np.zeros(2, np.float32))
    options = {
        "bias": rng.standard_normal(shape.out_channels).astype(np.float32),
        "in_quant": quant,
        "weight_scale": np.full(shape.out_channels, 0.01, np.float32),
    }
    results = []
    for kernels in (*map(isa.kernels, LEVELS), *([ReferenceKernels()] if shape.depth < 2000 else [])):
        for precise in (eight, row):
            packed = kernels.pack_conv(shape, precise, weights)
            out = np.empty((2, shape.out_h, shape.out_w, shape.out_channels), np.float32)
            kernels.conv(packed, x, out, threads=2, **options)
            results.append(out)
    assert all(have_same_bits(results[0], result) for result in results)
    if shape.depth > 1000:
        sizes = {precise: isa.kernels().pack_conv(shape, precise, weights).data.nbytes for precise in (eight, row)}
        assert sizes[row] < sizes[eight] * (row.weight_bits + 1) / 8


@pytest.mark.parametrize("level", [*LEVELS, "oracle"])
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.is_narrow], ids=str)
def test_weights_that_are_no_multiples_of_codes_are_refused(level: str, row: Precision) -> None:
    k = ReferenceKernels() if level == "oracle" else isa.kernels(level)
    for unfitting in ([127] * 2, [row.largest_code + 1, 1], [-128, 0]):
        weights = np.zeros((3, 70, 1, 1), np.int8)
        weights[1, 62:64, 0, 0] = unfitting
        with pytest.raises(KernelError, match=rf"\[-{row.largest_code}, {row.largest_code}\]"):
            k.pack_conv(ConvShape(4, 4, 70, 3, 1), row, weights)


@pytest.mark.parametrize("rounding", ["half_to_even", "half_away", "truncate"])
@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "fp16_half", "fp16_half_winograd"])
def test_an_input_converted_on_its_way_is_one_converted_before(name: str, rounding: str) -> None:
    rng = np.random.default_rng(5)
    kind = precision(name)
    for shape in (
        ConvShape(9, 8, 3, 16, 3, 1, 1),
        ConvShape(6, 7, 5, 20, 1, 2),
        ConvShape(8, 8, 16, 16, 3, 1, 1),
        ConvShape(7, 7, 8, 8, 3, 2, 1, 1, 8),
    ):
        for source in REALS if kind.carries_scale else FLOAT:
            values = rng.standard_normal((2, shape.in_h, shape.in_w, shape.in_channels)).astype(np.float32)
            x = narrowed(values, source)
            options: dict[str, Any] = {"bias": rng.standard_normal(shape.out_channels).astype(np.float32)}
            weights: NDArray[Any] = rng.standard_normal(
                (shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size)
            ).astype(np.float32)
            rules = CodeRules(rounding, -127, 120) if kind.carries_scale else CodeRules()
            converted = np.empty(x.shape, kind.stored.dtype)
            if kind.carries_scale:
                weights = rng.integers(-127, 128, weights.shape).astype(np.int8)
                quant = TensorQuant(np.array([0.02, 0.013], np.float32), np.array([-3, 77], np.int32), np.zeros(2, np.float32))
                options |= {"in_quant": quant, "weight_scale": np.full(shape.out_channels, 0.01, np.float32)}
                ORACLE.quantize(x, converted, quant, rounding=rounding, low=-127, high=120)
            else:
                ORACLE.cast(x, converted)
            expected = np.empty((2, shape.out_h, shape.out_w, shape.out_channels), np.float32)
            ORACLE.conv(ORACLE.pack_conv(shape, kind, weights), converted, expected, **options)
            for kernels in (ORACLE, *(isa.kernels(level) for level in LEVELS)):
                packed = kernels.pack_conv(shape, kind, weights)
                for threads in (1, 3):
                    out = np.empty_like(expected)
                    kernels.conv(packed, x, out, converts=rules, threads=threads, **options)
                    assert have_same_bits(expected, out), f"{kernels.name}, {threads} threads: {shape}"
