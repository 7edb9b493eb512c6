# SPDX-License-Identifier: MIT
"""A convolution's sums over some input channels, continued by those over the others, are the convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels import isa
from mpnet.kernels.calls import Binder
from mpnet.kernels.interface import ConvShape
from mpnet.kernels.scales import ImageScales
from mpnet.model.precision import INT8, PRECISIONS, Precision, precision
from tests.kernels.oracle import oracle
from tests.kernels.test_conv import in_groups

ORACLE = oracle()
LEVELS = [*map(isa.kernels, isa.usable_levels()), ORACLE]
SCALES = ImageScales(
    np.array([0.02, 0.5], np.float32), np.array([50, 2], np.float32), np.array([-7, 100], np.int32), np.zeros(2, np.float32)
)
# Rows and whole images as tiles, panels that are full and not, depths of one pass and of several.
SHAPES = [
    ConvShape(20, 20, 128, 128, 3, 1, 1),
    ConvShape(9, 7, 80, 33, 3, 2, 1),
    ConvShape(13, 13, 640, 40, 1),
    ConvShape(5, 6, 1056, 18, 3, 1, 1),
    ConvShape(6, 5, 40, 70, 5, 1, 2),
    ConvShape(6, 8, 40, 8, 1),
    ConvShape(4, 12, 40, 4, 3, 1, 1),
]


def convolved(
    kernels: Any,
    shape: ConvShape,
    row: Precision,
    weights: NDArray[np.int8],
    x: NDArray[np.int8],
    out: NDArray[Any],
    threads: int = 1,
    **keywords: Any,
) -> NDArray[Any]:
    """Return out, filled."""
    packed = kernels.pack_conv(shape, row, np.ascontiguousarray(weights))
    rng, binder = np.random.default_rng(3), Binder(kernels, threads)
    scale, bias = rng.random(shape.out_channels).astype(np.float32), rng.standard_normal(shape.out_channels).astype(np.float32)
    call = binder.conv(
        packed,
        np.ascontiguousarray(x),
        out,
        bias=bias,
        activation="leaky",
        weight_scale=scale,
        in_quant=SCALES,
        **{"ranges": None, **keywords},
    )
    binder.finish()
    kernels.check_status(call.function(*call.arguments), "convolution")
    return out


@pytest.mark.parametrize("kernels", LEVELS, ids=lambda kernels: kernels.name)
@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.multiplies_bytes], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_are_the_whole(kernels: Any, row: Precision, shape: ConvShape) -> None:
    rng = np.random.default_rng(shape.depth)
    weights = (
        in_groups(rng, row, shape)
        if row.is_narrow
        else rng.integers(-127, 128, (shape.out_channels, shape.in_channels, shape.size, shape.size)).astype(np.int8)
    )
    x = rng.integers(-128, 128, (2, shape.in_h, shape.in_w, shape.in_channels)).astype(np.int8)
    results = (2, shape.out_h, shape.out_w, shape.out_channels)
    expected, ranges = np.empty(results, np.float32), np.empty((2, 2), np.float32)
    convolved(ORACLE, shape, row, weights, x, expected, ranges=ranges)
    for threads in (1, 3) if kernels is not ORACLE else (1,):
        sums: NDArray[np.int32] | None = None
        actual, actual_ranges = np.empty(results, np.float32), np.empty((2, 2), np.float32)
        # Sums of the first 32 channels, and of the first 64, then the result: begun, continued and ended.
        for first, last in ((0, 32), (32, 64), (64, shape.in_channels)) if shape.in_channels > 64 else ((0, 32), (32, 40)):
            ends = last == shape.in_channels
            slice_shape = ConvShape(
                shape.in_h, shape.in_w, last - first, shape.out_channels, shape.size, shape.stride, shape.padding
            )
            out = convolved(
                kernels,
                slice_shape,
                row,
                weights[:, first:last],
                x[..., first:last],
                actual if ends else np.empty(results, np.int32),
                threads,
                sums=sums,
                **({"ranges": actual_ranges} if ends else {}),
            )
            sums = out
        assert actual.tobytes() == expected.tobytes()
        assert actual_ranges.tobytes() == ranges.tobytes()


@pytest.mark.parametrize("kernels", LEVELS, ids=lambda kernels: kernels.name)
def test_what_has_no_sums_is_refused(kernels: Any) -> None:
    rng = np.random.default_rng(0)
    shape, depthwise = ConvShape(6, 6, 32, 16, 1), ConvShape(6, 6, 16, 16, 3, 1, 1, 1, 16)
    codes = rng.integers(-128, 128, (2, 6, 6, 32)).astype(np.int8)
    sums, out = np.zeros((2, 6, 6, 16), np.int32), np.empty((2, 6, 6, 16), np.float32)
    weights = rng.integers(-127, 128, (16, 32, 1, 1)).astype(np.int8)
    for change, message in (
        ({"sums": sums[:1]}, "sums has shape"),
        ({"sums": sums.astype(np.int64)}, "sums is int64"),
        ({"sums": sums, "pool": True, "out": np.empty((2, 3, 3, 16), np.float32)}, "sums has shape"),
    ):
        with pytest.raises(KernelError, match=message):
            convolved(kernels, shape, INT8, weights, codes, change.pop("out", out), **change)
    with pytest.raises(KernelError, match="see takes_sums"):
        convolved(kernels, shape, precision("fp32"), weights.astype(np.float32), codes.astype(np.float32), out, sums=sums)
    if kernels is not ORACLE:
        with pytest.raises(KernelError, match="see takes_sums"):
            convolved(kernels, depthwise, INT8, rng.integers(-9, 9, (16, 1, 3, 3)).astype(np.int8), codes[..., :16], sums)
