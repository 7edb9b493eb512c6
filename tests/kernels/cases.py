# SPDX-License-Identifier: MIT
"""One list of cases: the tests compare every ISA level on them, benchmarks time the ones marked as such."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.interface import ACTIVATIONS, CodeRules, ConvShape, TensorQuant
from mpnet.model.precision import CODE8, PRECISIONS, STORED_TYPES, StoredType, precision
from mpnet.model.quantization import ROUNDINGS
from mpnet.model.reals import narrowed

FILLS = ("random", "lowest", "highest", "ties", "denormal", "sparse")


@dataclass(frozen=True)
class ConvCase:
    """One convolution with the rest of its arguments; everything random follows from seed."""

    seed: int
    precision: str
    shape: ConvShape
    images: int = 1
    activation: str = "linear"
    result_type: str = "float32"
    rounding: str = "half_to_even"
    fill: str = "random"
    offset: bool = False
    misaligned: int = 0
    pool: int | None = None
    """2x2/2 pooling behind it with this padding, 0 or 1."""
    taps: tuple[int, int, int, int] | None = None
    """First and last row, first and last column of the taps whose weights are not 0."""

    @property
    def products(self) -> int:
        """Count the multiplications of the call."""
        s = self.shape
        return self.images * s.out_h * s.out_w * s.out_channels * s.depth

    def __str__(self) -> str:
        s = self.shape
        return (
            f"seed={self.seed} {self.precision} {s.in_h}x{s.in_w}x{s.in_channels}->{s.out_channels} k{s.size}"
            f"s{s.stride}p{s.padding}d{s.dilation}g{s.groups} n{self.images} {self.activation} {self.result_type} {self.fill}"
            f"{'' if self.pool is None else f' pool p{self.pool}'}{'' if self.taps is None else f' taps {self.taps}'}"
        )


def _values(rng: np.random.Generator, fill: str, stored_type: StoredType, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return activations of a stored type."""
    if stored_type.is_code:
        low, high = np.iinfo(stored_type.dtype).min, np.iinfo(stored_type.dtype).max
        if fill in ("lowest", "highest"):
            return np.full(shape, low if fill == "lowest" else high, stored_type.dtype)
        if fill == "ties":
            return rng.choice(np.array([low, low + 1, -1, 0, 1, high], stored_type.dtype), shape)
        return rng.integers(low, high + 1, shape).astype(stored_type.dtype)
    if fill == "lowest":
        values = np.full(shape, -1000.0)
    elif fill == "highest":
        values = np.full(shape, 1000.0)
    elif fill == "ties":
        values = rng.integers(-4, 5, shape) * 0.5
    elif fill == "denormal":
        values = rng.standard_normal(shape) * (1e-41 if stored_type.item_bytes == 4 else 1e-7)
    else:
        values = rng.standard_normal(shape)
    if fill == "sparse":
        values = np.where(rng.random(shape) < 0.8, rng.choice([0.0, -0.0], shape), values)
    return narrowed(values, stored_type.dtype)


def _move(array: NDArray[Any], elements: int) -> NDArray[Any]:
    """Return a copy that starts `elements` elements behind a fresh allocation."""
    room = np.empty(array.size + elements, array.dtype)
    copy = room[elements:].reshape(array.shape)
    copy[...] = array
    return copy


def conv_arguments(case: ConvCase) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
    """Return (weights, x, keyword arguments of conv without out, ranges and threads)."""
    rng = np.random.default_rng(case.seed)
    s = case.shape
    stored_type = precision(case.precision).stored
    x = _move(_values(rng, case.fill, stored_type, (case.images, s.in_h, s.in_w, s.in_channels)), case.misaligned)
    weight_shape = (s.out_channels, s.in_channels // s.groups, s.size, s.size)
    options: dict[str, Any] = {"bias": rng.standard_normal(s.out_channels).astype(np.float32), "activation": case.activation}
    if stored_type.is_code:
        largest = precision(case.precision).largest_code
        weights = rng.integers(-largest, largest + 1, weight_shape).astype(np.int8)
        if case.fill in ("lowest", "highest"):
            weights = rng.choice(np.array([-largest, largest], np.int8), (s.out_channels, 1, 1, 1)) * np.ones(
                weight_shape, np.int8
            )
        options["weight_scale"] = (rng.random(s.out_channels) * 0.01 + 0.001).astype(np.float32)
        options["in_quant"] = TensorQuant(
            ((rng.random(case.images) * 0.1 + 0.01) * (1 if stored_type is CODE8 else 1 / 256)).astype(np.float32),
            rng.choice(np.array([-128, -3, 0, 77, 127], np.int32), case.images).astype(np.int32) * (stored_type is CODE8),
            (rng.standard_normal(case.images) * 0.01 * case.offset).astype(np.float32),
        )
    else:
        weights = (rng.standard_normal(weight_shape) / np.sqrt(s.depth)).astype(np.float32)
        if case.fill == "ties":
            weights = (rng.integers(-4, 5, weight_shape) * 0.25).astype(np.float32)
    if case.taps is not None:
        top, bottom, left, right = case.taps
        is_tap = np.zeros((s.size, s.size), bool)
        is_tap[top : bottom + 1, left : right + 1] = True
        weights[..., ~is_tap] = 0
        options["bias"][::2] = -0.0  # which adding 0 * x would change
    if STORED_TYPES[case.result_type].is_code:
        options["out_quant"] = TensorQuant(
            (rng.random(case.images) * 0.05 + 0.01).astype(np.float32),
            rng.integers(-128, 128, case.images).astype(np.int32) * (STORED_TYPES[case.result_type] is CODE8),
            np.zeros(case.images, np.float32),
        )
        bounds = (-128, 127) if STORED_TYPES[case.result_type] is CODE8 else (-32768, 32767)
        options["out_rules"] = CodeRules(case.rounding, *bounds)
    return _move(weights, case.misaligned), x, options


def output_shape(case: ConvCase) -> tuple[int, int, int, int]:
    """Return the shape of the result."""
    height, width = case.shape.out_h, case.shape.out_w
    if case.pool is not None:
        height, width = (height + case.pool) // 2, (width + case.pool) // 2
    return (case.images, height, width, case.shape.out_channels)


def small_shapes() -> list[ConvShape]:
    """Return every kind of geometry, with channel counts around the vector lengths."""
    shapes = [
        ConvShape(1, 1, 1, 1, 1),
        ConvShape(5, 7, 3, 16, 3, 1, 1),
        ConvShape(6, 5, 3, 17, 3, 2, 1),
        ConvShape(4, 4, 16, 15, 1),
        ConvShape(7, 6, 17, 33, 1, 2),
        ConvShape(7, 6, 8, 31, 3, 1, 0),
        ConvShape(9, 8, 5, 9, 3, 1, 2, 2),
        ConvShape(6, 6, 4, 6, 2, 2),
        ConvShape(5, 5, 3, 5, 5, 1, 2),
        ConvShape(8, 8, 12, 18, 3, 1, 1, 1, 3),
        ConvShape(8, 9, 6, 12, 3, 2, 1, 1, 6),
        ConvShape(6, 7, 8, 8, 1, 1, 0, 1, 2),
        ConvShape(7, 7, 8, 8, 3, 1, 1, 1, 8),
        ConvShape(8, 7, 19, 19, 3, 2, 1, 1, 19),
        ConvShape(9, 9, 33, 33, 5, 1, 2, 1, 33),
        ConvShape(9, 9, 16, 16, 3, 1, 2, 2, 16),
        ConvShape(3, 3, 2, 3, 3, 1, 4),
        ConvShape(2, 9, 7, 47, 3, 3, 1),
        ConvShape(13, 3, 1, 2, 1, 1, 3),
        ConvShape(4, 40, 2, 64, 3, 1, 1),
        ConvShape(6, 6, 200, 20, 3, 1, 1),
        ConvShape(5, 6, 700, 18, 1),
    ]
    return shapes


def narrow_shapes() -> list[ConvShape]:
    """Return few channels at widths that two or four divide: some tables compute pixels beside each other."""
    return [
        ConvShape(6, 8, 8, 8, 1),
        ConvShape(5, 16, 8, 4, 1),
        ConvShape(3, 12, 4, 24, 1),
        ConvShape(4, 6, 24, 8, 1),
        ConvShape(7, 8, 3, 8, 3, 2, 1),
        ConvShape(6, 8, 5, 3, 3, 1, 1),
        ConvShape(5, 4, 2, 1, 5, 1, 2),
        ConvShape(3, 20, 3, 40, 2, 1, 0),
        ConvShape(6, 40, 7, 2, 3, 3, 1),
        ConvShape(6, 8, 8, 8, 3, 1, 1, 1, 8),
        ConvShape(5, 4, 24, 24, 5, 1, 2, 1, 24),
        ConvShape(7, 12, 4, 4, 3, 1, 2, 2, 4),
        ConvShape(3, 18, 40, 40, 3, 1, 1, 1, 40),
    ]


def winograd_shapes() -> list[ConvShape]:
    """Return 3x3 shapes with enough channels, sizes around the 4x4 tile."""
    return [
        ConvShape(h, w, c, k, 3, 1, p)
        for h, w, c, k, p in (
            (4, 4, 16, 16, 1),
            (5, 9, 17, 33, 1),
            (3, 3, 16, 31, 0),
            (13, 7, 24, 16, 1),
            (6, 17, 40, 20, 2),
            (1, 2, 16, 17, 1),
            (18, 23, 72, 131, 1),  # where some tables begin with it, panels enough for threads
            (20, 20, 64, 64, 1),
            (7, 6, 24, 200, 1),  # transformed by threads together
        )
    ]


def conv_cases() -> list[ConvCase]:
    """Return what the equality tests run through: of all each MPNET_CASES_EVERY-th, where levels.c compares the kernels
    besides."""
    cases = []
    seed = 0
    result_types = tuple(STORED_TYPES)
    for row in PRECISIONS.values():
        for i, shape in enumerate(small_shapes() + winograd_shapes() + narrow_shapes()):
            if row.accumulates == "float16" and shape.depth > 300:
                continue
            seed += 1
            cases.append(
                ConvCase(
                    seed,
                    row.name,
                    shape,
                    images=1 + i % 3,
                    activation=ACTIVATIONS[seed % len(ACTIVATIONS)],
                    result_type=result_types[seed % len(result_types)],
                    rounding=ROUNDINGS[seed // 3 % 3],
                    fill=FILLS[i % len(FILLS)] if i % 2 else "random",
                    offset=row.carries_scale and i % 4 == 1,
                    misaligned=i % 5,
                )
            )
        for activation in (*ACTIVATIONS, "tanh", "hard_swish", "gelu_erf", "sqrt"):
            for result_type in result_types:
                seed += 1
                cases.append(ConvCase(seed, row.name, ConvShape(6, 7, 9, 21, 3, 1, 1), 2, activation, result_type))
        for fill in FILLS:
            seed += 1
            cases.append(ConvCase(seed, row.name, ConvShape(5, 6, 11, 19, 3, 1, 1), 2, "linear", "float32", fill=fill))
    cases += pooled_cases() + first_layer_cases() + finished_cases() + edge_cases()
    return cases[:: int(os.environ.get("MPNET_CASES_EVERY", "1"))]


def edge_cases() -> list[ConvCase]:
    """Return filters of 1x7 and such, in squares whose other taps are 0."""
    shapes = [
        (ConvShape(9, 8, 6, 20, 7, 1, 3), (3, 3, 0, 6)),
        (ConvShape(8, 9, 16, 33, 7, 1, 3), (0, 6, 3, 3)),
        (ConvShape(7, 9, 24, 40, 3, 1, 1), (0, 0, 0, 2)),
        (ConvShape(12, 7, 3, 17, 3, 1, 1), (0, 2, 2, 2)),
        (ConvShape(9, 9, 8, 8, 4, 2, 1), (1, 2, 1, 2)),
        (ConvShape(9, 9, 8, 12, 5, 1, 4, 2, 2), (4, 4, 0, 3)),
        (ConvShape(7, 7, 16, 16, 3, 1, 1), (0, 1, 0, 2)),  # more than half of the taps
        (ConvShape(7, 7, 16, 16, 3, 1, 1), (1, 0, 1, 0)),  # none
        (ConvShape(9, 9, 16, 16, 5, 1, 2, 1, 16), (2, 2, 0, 4)),
    ]
    result_types = ("float32", "float32", "int8", "float16")
    return [
        ConvCase(9000 + seed, row.name, shape, 2, ("linear", "leaky")[seed % 2], result_types[seed % 4], fill=fill, taps=taps)
        for seed, (row, (shape, taps), fill) in enumerate(product(PRECISIONS.values(), shapes, ("random", "sparse")))
    ]


def finished_cases() -> list[ConvCase]:
    """Return whole vectors of channels and tiles with each activation that some tables apply to sums before they are stored."""
    shapes = [
        ConvShape(5, 7, 6, 16, 1),
        ConvShape(9, 6, 5, 40, 1),
        ConvShape(8, 7, 6, 4, 1),
        ConvShape(7, 6, 4, 24, 3, 1, 1),
        ConvShape(6, 9, 8, 8, 3, 1, 1, 1, 8),
        ConvShape(9, 9, 32, 32, 3, 2, 1, 1, 32),
        ConvShape(5, 13, 24, 24, 5, 1, 2, 1, 24),
    ]
    combinations = product(
        shapes, ("linear", "leaky", "relu", "relu6", "hard_swish"), (("fp32", "float32"), ("int8", "float32"), ("int8", "int8"))
    )
    return [
        ConvCase(1000 + seed, name, shape, 2, activation, result_type, fill=FILLS[seed % 2 * 3])
        for seed, (shape, activation, (name, result_type)) in enumerate(combinations)
    ]


def pooled_cases() -> list[ConvCase]:
    """Return cases with the pooling behind them: every shape, odd and even sides, more rows than are pooled at a time."""
    cases = []
    shapes = [*small_shapes(), *winograd_shapes(), *narrow_shapes()]
    shapes += [ConvShape(23, 300, 3, 17, 3, 1, 1), ConvShape(34, 33, 20, 40, 3, 1, 1)]
    result_types = tuple(STORED_TYPES)
    for row in PRECISIONS.values():
        for i, shape in enumerate(shapes):
            if row.accumulates == "float16" and shape.depth > 300:
                continue
            padding = 1 if min(shape.out_h, shape.out_w) < 2 else i % 2
            result_type = result_types[(i + len(row.name)) % len(result_types)]
            cases.append(
                ConvCase(
                    5000 + len(cases),
                    row.name,
                    shape,
                    1 + i % 2,
                    ("leaky", "linear", "mish", "hard_swish")[i % 4],
                    result_type,
                    fill=("random", "sparse", "ties")[i % 3],
                    misaligned=i % 3,
                    pool=padding,
                )
            )
    return cases


def first_layer_cases() -> list[ConvCase]:
    """Return cases of three channels, 3x3, pooled without an incomplete window: some tables have kernels of their own for
    these."""
    cases = []
    for row in PRECISIONS.values():
        for result_type in STORED_TYPES:
            for i, activation in enumerate(("leaky", "linear", "relu", "relu6", "mish", "hard_sigmoid")):
                shape = ConvShape(6 + 2 * (i % 2), 10 + 2 * i, 3, (16, 5, 33, 24, 17, 16)[i], 3, 1, 1)
                fill = ("random", "denormal", "ties", "sparse", "random")[(i + len(cases)) % 5]
                cases.append(
                    ConvCase(7000 + len(cases), row.name, shape, 1 + i % 2, activation, result_type, fill=fill, pool=0)
                )
    return cases


# The convolutions of YOLOv3-tiny at 416x416, in order.
YOLOV3_TINY: tuple[ConvShape, ...] = (
    ConvShape(416, 416, 3, 16, 3, 1, 1),
    ConvShape(208, 208, 16, 32, 3, 1, 1),
    ConvShape(104, 104, 32, 64, 3, 1, 1),
    ConvShape(52, 52, 64, 128, 3, 1, 1),
    ConvShape(26, 26, 128, 256, 3, 1, 1),
    ConvShape(13, 13, 256, 512, 3, 1, 1),
    ConvShape(13, 13, 512, 1024, 3, 1, 1),
    ConvShape(13, 13, 1024, 256, 1),
    ConvShape(13, 13, 256, 512, 3, 1, 1),
    ConvShape(13, 13, 512, 255, 1),
    ConvShape(13, 13, 256, 128, 1),
    ConvShape(26, 26, 384, 256, 3, 1, 1),
    ConvShape(26, 26, 256, 255, 1),
)
