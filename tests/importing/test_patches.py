# SPDX-License-Identifier: MIT
"""Attention between the pixels at one place of all patches (MobileViT) gives what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from mpnet.errors import FormatError
from mpnet.importing import Imported
from mpnet.importing.passes.patches import Patches
from mpnet.model.layers import AttentionSpec
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder

CHANNELS, HEADS = 24, 2


def _turned(b: Builder, x: str, *order: int) -> str:
    return str(b.node("Transpose", [x], perm=order))


def _norm(b: Builder, x: str) -> str:
    values = [b.constant(b.random.uniform(0.5, 1.5, CHANNELS)), b.constant(b.random.normal(0, 0.3, CHANNELS))]
    return str(b.node("LayerNormalization", [x, *values], axis=-1, epsilon=1e-5))


def _linear(b: Builder, x: str, inputs: int, outputs: int) -> str:
    product = b.node("MatMul", [x, b.constant(b.random.normal(0, inputs**-0.5, (inputs, outputs)))])
    return str(b.node("Add", [b.constant(b.random.normal(0, 0.3, outputs)), product]))


def _transform(b: Builder, rows: str, places: int, patches: int) -> str:
    joined = b.reshape(_linear(b, _norm(b, rows), CHANNELS, 3 * CHANNELS), [places, patches, 3, HEADS, CHANNELS // HEADS])
    q, k, v = b.node("Split", [_turned(b, joined, 2, 0, 3, 1, 4), b.constant([1, 1, 1], np.int64)], 1, 3, axis=0)
    q, k, v = (b.node("Squeeze", [matrix, b.constant([0], np.int64)]) for matrix in (q, k, v))
    scores = b.node("MatMul", [b.node("Mul", [q, b.constant((CHANNELS // HEADS) ** -0.5)]), _turned(b, k, 0, 1, 3, 2)])
    mean = _turned(b, b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]), 0, 2, 1, 3)
    rows = b.node("Add", [rows, _linear(b, b.reshape(mean, [places, patches, CHANNELS]), CHANNELS, CHANNELS)])
    wide = _linear(b, _norm(b, rows), CHANNELS, 40)
    wide = b.node("Mul", [wide, b.node("Sigmoid", [wide])])
    return str(b.node("Add", [rows, _linear(b, wide, 40, CHANNELS)]))


def build_model(side: int = 16, patch: tuple[int, int] = (2, 2), order: tuple[int, ...] = (0, 3, 2, 1)) -> Any:
    """Build a block of MobileViT. order: in which (1, channels, patches, places) become rows of channels."""
    b = Builder(side)
    x = b.conv("images", CHANNELS, 3, 2, act="Relu")
    size, (height, width) = side // 2, patch
    rows, columns, places = size // height, size // width, height * width
    patches = rows * columns
    # Pixels of a patch side by side, then rows of channels, patch by patch.
    moved = _turned(b, b.reshape(b.conv(x, CHANNELS), [CHANNELS * rows, height, columns, width]), 0, 2, 1, 3)
    moved = _turned(b, b.reshape(moved, [1, CHANNELS, patches, places]), *order)
    moved = b.reshape(moved, [places, patches, CHANNELS])
    for _ in range(2):
        moved = _transform(b, moved, places, patches)
    moved = _turned(b, b.reshape(_norm(b, moved), [1, places, patches, CHANNELS]), *np.argsort(order))
    moved = _turned(b, b.reshape(moved, [CHANNELS * rows, columns, height, width]), 0, 2, 1, 3)
    moved = b.reshape(moved, [1, CHANNELS, size, size])
    b.channels[moved] = CHANNELS
    return b.model([b.conv(b.concat([x, b.conv(moved, CHANNELS)]), 8, 3)])


def test_places_of_patches_are_heads_of_an_attention(importing: Callable[..., tuple[Path, Imported]]) -> None:
    path, imported = importing(build_model())
    layers = [layer for layer in imported.network.layers if isinstance(layer, AttentionSpec)]
    assert [(layer.heads, layer.key, layer.areas) for layer in layers] == [(4 * HEADS, CHANNELS // HEADS, 1)] * 2
    # Nothing but the file's own convolutions: the order of channels is in the weights, that of pixels in reorg3d.
    assert [layer.kind for layer in imported.network.layers].count("convolutional") == 12
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        # Some twenty layers of sums of at most 216 products in other orders.
        assert np.abs(head - reference).max() <= 6e-6 * np.abs(reference).max()
    assert np.isfinite(heads_of(imported, x, "int8")[0]).all()


@pytest.mark.parametrize("patch", [(2, 4), (4, 1)])
def test_patches_that_are_no_squares_are_refused(
    patch: tuple[int, int], importing: Callable[..., tuple[Path, Imported]]
) -> None:
    with pytest.raises(FormatError, match="attention of a kind that has no form in a cfg"):
        importing(build_model(patch=patch))


def test_values_are_grouped_where_they_are_found() -> None:
    patches = Patches(6, 8, 3, 2)
    image = np.arange(2 * 6 * 8).reshape(2, 6, 8)
    grouped = patches.group(image)
    assert grouped.shape == (6, 2, 8)
    assert np.array_equal(np.argsort(grouped.ravel()), patches.find_grouped(image, 2).ravel())
    # The second row of a patch, its first column; the patch below, to the right.
    assert grouped[2, 1, 5] == image[1, 3 + 1, 2]
