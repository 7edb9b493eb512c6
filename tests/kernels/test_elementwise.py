# SPDX-License-Identifier: MIT
"""Everything but convolutions: every ISA level and the NumPy oracle give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels import isa
from mpnet.kernels.arguments import ANY, CODES, REALS
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ACTIVATIONS, NORMALISATIONS, TensorQuant
from mpnet.model.quantization import ROUNDINGS
from mpnet.model.reals import narrowed, widened
from tests.kernels.gpus import usable_gpu_kernels
from tests.kernels.oracle import oracle

ORACLE = oracle()
LEVELS = isa.usable_levels()
TABLES = {**{level: isa.kernels(level) for level in LEVELS}, **{gpu.name: gpu for gpu in usable_gpu_kernels()}}
# Around every vector length, and one that several threads share.
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70001)


def agree(call: Any, out: NDArray[Any], description: str) -> None:
    """Compare call(kernels, out, threads) on the oracle and every level; guard bytes around out stay."""
    expected = np.empty_like(out)
    call(ORACLE, expected, 1)
    for level, kernels in TABLES.items():
        for threads in (1, 3):
            room = np.full(out.nbytes + 64, 0x5A, np.uint8)
            actual = room[32 : 32 + out.nbytes].view(out.dtype).reshape(out.shape)
            call(kernels, actual, threads)
            assert actual.tobytes() == expected.tobytes(), f"{level}, {threads} threads, {description}"
            assert (room[:32] == 0x5A).all(), f"{level} wrote before the output, {description}"
            assert (room[32 + out.nbytes :] == 0x5A).all(), f"{level} wrote behind the output, {description}"


def values(seed: int, count: int, dtype: Any) -> NDArray[Any]:
    """Return random values with ties, zeros of both signs, subnormals and the largest finite numbers among them."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(np.float32)
    special = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-41, -1e-41, 6e-8, 65504, -65504, 0.49999997, 12.75])
    is_special = rng.random(count) < 0.3
    x[is_special] = rng.choice(special, int(is_special.sum())).astype(np.float32)
    return to_stored_type(x, dtype)


def to_stored_type(x: NDArray[np.float32], dtype: Any) -> NDArray[Any]:
    """Return x, or the codes nearest to it."""
    return np.clip(x, -128, 127).astype(dtype) if dtype in CODES else narrowed(x, dtype)


def quant(seed: int, images: int, offset: bool = False) -> TensorQuant:
    """Return parameters with exact halves as results, so that ties occur."""
    rng = np.random.default_rng(seed)
    return TensorQuant(
        rng.choice(np.array([1.0, 0.5, 0.037, 2.0**-20], np.float32), images),
        rng.integers(-128, 128, images).astype(np.int32),
        (rng.standard_normal(images) * offset).astype(np.float32),
    )


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_quantize(dtype: Any, rounding: str) -> None:
    for count in COUNTS:
        x = values(count, 2 * count, dtype).reshape(2, 1, count, 1)
        for low in (-128, -127):
            q = quant(count - low, 2)
            agree(
                lambda k, out, t, x=x, q=q, low=low: k.quantize(x, out, q, rounding=rounding, low=low, threads=t),
                np.empty(x.shape, np.int8),
                f"count {count}, low {low}",
            )


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_dequantize(dtype: Any) -> None:
    for count in COUNTS:
        x = np.random.default_rng(count).integers(-128, 128, (3, 1, count, 1)).astype(np.int8)
        q = quant(count, 3, offset=count % 2 == 0)
        agree(lambda k, out, t, x=x, q=q: k.dequantize(x, out, q, threads=t), np.empty(x.shape, dtype), f"count {count}")


@pytest.mark.parametrize("dtype", [dtype for dtype in REALS if dtype.itemsize == 2], ids=str)
def test_cast_rounds_every_real_of_16_bits_and_its_neighbours(dtype: Any) -> None:
    reals = np.arange(65536, dtype=np.uint16).view(dtype)
    reals = reals[np.isfinite(widened(reals))]
    exact = widened(reals)
    assert narrowed(exact, dtype).tobytes() == reals.tobytes()
    middle = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    floats = np.concatenate(
        [
            exact,
            middle,
            np.nextafter(middle, np.float32(np.inf)),
            np.nextafter(middle, np.float32(-np.inf)),
            np.array([65519.996, 65520, 1e30, -1e30, 3.4e38, 3.3961775e38, 1e-45, 2.9802322e-08, 2.9802326e-08], np.float32),
        ]
    )
    agree(lambda k, out, t: k.cast(floats, out, threads=t), np.empty(floats.shape, dtype), "all halves")
    agree(lambda k, out, t: k.cast(reals, out, threads=t), np.empty(reals.shape, np.float32), "all halves")


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_value_range(dtype: Any) -> None:
    for count in COUNTS:
        x = values(count, 2 * count, dtype).reshape(2, 1, count, 1)
        expected = ORACLE.value_range(x)
        for level, kernels in TABLES.items():
            for threads in (1, 2):
                assert kernels.value_range(x, threads=threads).tobytes() == expected.tobytes(), (level, count)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_value_range_refuses_what_is_not_finite(value: float) -> None:
    for kernels in TABLES.values():
        for channel in (0, 7, 8, 40000, 70000):
            x = np.zeros((1, 1, 1, 70001), np.float32)
            x[0, 0, 0, channel] = value
            with pytest.raises(NonFiniteError):
                kernels.value_range(x, threads=2)


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_add_and_activations(dtype: Any, activation: str) -> None:
    for count in COUNTS:
        a, b = values(count, count, dtype), values(count + 1, count, dtype)
        for out_type in REALS:
            agree(
                lambda k, out, t, a=a, b=b: k.add(a, b, out, activation=activation, threads=t),
                np.empty(count, out_type),
                f"count {count} {activation}",
            )


def test_activations_far_out() -> None:
    x = np.concatenate([np.linspace(-120, 120, 4801), np.geomspace(1e-30, 3e38, 300), -np.geomspace(1e-30, 3e38, 300)])
    x = x.astype(np.float32)
    for activation in ACTIVATIONS:
        agree(
            lambda k, out, t, activation=activation: k.add(x, np.zeros_like(x), out, activation=activation, threads=t),
            np.empty_like(x),
            activation,
        )


@pytest.mark.parametrize("dtype", ANY, ids=str)
@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(2, 2, 1), (2, 1, 1), (2, 2, 0), (3, 2, 2), (3, 1, 2), (5, 1, 4), (9, 1, 8), (1, 1, 0), (2, 3, 5), (4, 2, 9)],
)
def test_maxpool(dtype: Any, size: int, stride: int, padding: int) -> None:
    for h, w, c in ((5, 7, 3), (13, 13, 16), (4, 9, 33), (9, 4, 70), (40, 41, 40)):
        n = 2
        if h + padding < size or w + padding < size:
            continue
        x = values(h * w * c, n * h * w * c, np.float32)
        x = to_stored_type(np.clip(x, -128, 127), dtype).reshape(n, h, w, c)
        shape = (n, (h + padding - size) // stride + 1, (w + padding - size) // stride + 1, c)
        agree(
            lambda k, out, t, x=x: k.maxpool(x, out, size=size, stride=stride, padding=padding, threads=t),
            np.empty(shape, dtype),
            f"{h}x{w}x{c} size {size} stride {stride} padding {padding}",
        )


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_avgpool(dtype: Any) -> None:
    for h, w, c in ((1, 1, 1), (7, 5, 17), (13, 13, 64), (3, 2, 33)):
        x = narrowed(values(h + c, 2 * h * w * c, np.float32) / 100, dtype).reshape(2, h, w, c)
        agree(lambda k, out, t, x=x: k.avgpool(x, out, threads=t), np.empty((2, 1, 1, c), dtype), f"{h}x{w}x{c}")


def bound(function: str, x: NDArray[Any], *arguments: Any) -> Any:
    """Return a call for `agree` of what has no method of its own; out follows x, threads come last."""

    def call(kernels: Kernels, out: NDArray[Any], threads: int) -> None:
        kernels.run_function(function, x, out, *arguments, threads=threads)

    return call


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [(3, (1, 1), 2), (2, (2, 2), 0), (3, (2, 1), 1), (5, (1, 3), 4), (1, (1, 1), 0), (7, (7, 7), 0)],
)
def test_local_avgpool(dtype: Any, size: int, strides: tuple[int, int], padding: int) -> None:
    n = 2
    for h, w, c in ((7, 9, 1), (8, 8, 40), (9, 7, 33), (40, 41, 35)):
        x = narrowed(values(h + c, n * h * w * c, np.float32) / 100, dtype).reshape(n, h, w, c)
        sizes = ((h + padding - size) // strides[1] + 1, (w + padding - size) // strides[0] + 1)
        agree(
            bound("local_avgpool", x, dtype, n, h, w, c, *sizes, size, *strides, padding),
            np.empty((n, *sizes, c), dtype),
            f"{h}x{w}x{c}",
        )


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_layer_norm(dtype: Any) -> None:
    kind = NORMALISATIONS.index("layer")
    for rows, *ends in ((1, 1), (3, 7, 8), (4, 33), (13, 64, 70), (197, 192, 400), (2, 40000)):
        length, starts = ends[-1], np.array([0, *ends], np.int32)
        x = narrowed(values(rows + length, rows * length, np.float32) / 100, dtype).reshape(rows, length)
        arguments = (dtype, kind, rows, length, starts, len(ends), 1e-5, 0.0, 0.0, 0.0)
        agree(bound("normalize", x, *arguments), np.empty_like(x), f"{rows} rows of {ends}")


@pytest.mark.parametrize(
    ("positions", "areas", "heads", "key", "value"),
    [
        (1, 1, 1, 5, 3),
        (1, 3, 2, 8, 33),
        (7, 2, 3, 5, 3),
        (7, 1, 2, 12, 33),
        (49, 4, 2, 8, 16),
        (197, 1, 2, 64, 33),
        (197, 1, 1, 12, 3),
        (50, 2, 3, 32, 64),
        (40, 1, 1, 513, 5),
        (2100, 1, 1, 4, 9),
    ],
)
def test_attention(positions: int, areas: int, heads: int, key: int, value: int) -> None:
    n, pixels = 2 if positions < 2000 else 1, positions * areas
    rng = np.random.default_rng(positions + key)
    x = (rng.standard_normal((n, pixels, heads * (2 * key + value))) * 10.0 ** rng.integers(-2, 2)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = -0.0
    arguments = (n, pixels, heads, key, value, areas, float(np.float32(key**-0.5)))
    agree(bound("attention", x, *arguments), np.empty((n, pixels, heads * value), np.float32), f"{positions} positions")


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_upsample_and_concat(dtype: Any) -> None:
    for h, w, c, factor in ((3, 4, 5, 2), (13, 13, 128, 2), (2, 3, 1, 3), (4, 4, 16, 1)):
        x = to_stored_type(np.clip(values(h * w, 2 * h * w * c, np.float32), -128, 127), dtype).reshape(2, h, w, c)
        agree(
            lambda k, out, t, x=x, f=factor: k.upsample(x, out, factor=f, threads=t),
            np.empty((2, h * factor, w * factor, c), dtype),
            f"upsample {h}x{w}x{c}",
        )
        inputs = [x, x[..., :1].copy(), np.repeat(x, 2, axis=3)]
        agree(
            lambda k, out, t, inputs=inputs: k.concat(inputs, out, threads=t), np.empty((2, h, w, 3 * c + 1), dtype), "concat"
        )


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_take_channels(dtype: Any) -> None:
    for h, w, c, start, count in ((3, 4, 5, 2, 3), (20, 20, 32, 16, 16), (7, 9, 300, 0, 260), (2, 3, 1, 0, 1)):
        x = to_stored_type(np.clip(values(h * w, 2 * h * w * c, np.float32), -128, 127), dtype).reshape(2, h, w, c)
        agree(
            lambda k, out, t, x=x, start=start: k.take_channels(x, out, start, threads=t),
            np.empty((2, h, w, count), dtype),
            f"channels {start} to {start + count} of {c}",
        )


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_shuffle(dtype: Any) -> None:
    for pixels, c, groups in ((1, 1, 1), (3, 116, 2), (200, 34, 2), (70, 48, 3), (65, 20, 4), (5, 7, 7), (4, 6, 1)):
        x = to_stored_type(np.clip(values(pixels, pixels * c, np.float32), -128, 127), dtype).reshape(pixels, c)
        agree(bound("shuffle", x, dtype, pixels, c, groups), np.empty_like(x), f"{c} channels in {groups} groups")


@pytest.mark.parametrize("level", LEVELS)
def test_bad_arguments_are_named(level: str) -> None:
    k = isa.kernels(level)
    x, out = np.zeros((1, 4, 4, 2), np.float32), np.zeros((1, 2, 2, 2), np.float32)
    with pytest.raises(KernelError, match="threads is 0; it must be between 1"):
        k.maxpool(x, out, size=2, stride=2, padding=0, threads=0)
    with pytest.raises(KernelError, match="out has shape"):
        k.maxpool(x, out, size=2, stride=1, padding=0)
    with pytest.raises(KernelError, match="a window of 9 does not fit"):
        k.maxpool(x, out, size=9, stride=1, padding=0)
    with pytest.raises(KernelError, match="out is float16; it must be float32"):
        k.maxpool(x, out.astype(np.float16), size=2, stride=2, padding=0)
    with pytest.raises(KernelError, match="not C-contiguous"):
        k.cast(x[:, ::2], np.zeros((1, 2, 4, 2), np.float16))
    with pytest.raises(KernelError, match="overlaps an input"):
        k.add(x, x, x)
    fixed = np.zeros_like(x)
    fixed.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        k.add(x, x, fixed)
    with pytest.raises(KernelError, match="unknown activation 'relu7'"):
        k.add(x, x, np.zeros_like(x), activation="relu7")
    q = TensorQuant(np.zeros(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32))
    with pytest.raises(KernelError, match="scales must be finite and above 0"):
        k.quantize(x, np.zeros(x.shape, np.int8), q)
    with pytest.raises(KernelError, match="zero point"):
        k.quantize(x, np.zeros(x.shape, np.int8), TensorQuant(np.ones(1, np.float32), np.array([128], np.int32), q.offset))
    with pytest.raises(KernelError, match="the inputs have 4 channels, out has 3"):
        k.concat([x, x], np.zeros((1, 4, 4, 3), np.float32))
    with pytest.raises(KernelError, match="x has 2 channels, not 1 to 3"):
        k.take_channels(x, np.zeros((1, 4, 4, 2), np.float32), 1)
