# SPDX-License-Identifier: MIT
"""Attention of the forms in which today's detectors write it becomes one layer, and gives what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from mpnet.importing import Imported
from mpnet.model.layers import AttentionSpec
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder

HEADS, KEY, VALUE, PIXELS = 2, 12, 8, 64


def _transpose(b: Builder, x: str, *order: int) -> str:
    return str(b.node("Transpose", [x], perm=order))


def by_heads(b: Builder, x: str) -> str:
    """Build YOLOv10's, 11's and 26's: queries, keys and values of one head side by side; the values go through a convolution
    too."""
    joined = b.reshape(b.conv(x, HEADS * (2 * KEY + VALUE)), [1, HEADS, 2 * KEY + VALUE, PIXELS])
    q, k, v = b.node("Split", [joined, b.constant([KEY, KEY, VALUE], np.int64)], 1, 3, axis=2)
    q = _transpose(b, b.node("Mul", [q, b.constant(KEY**-0.5)]), 0, 1, 3, 2)
    shares = _transpose(b, b.node("Softmax", [b.node("MatMul", [q, k])], axis=-1), 0, 1, 3, 2)
    mean, values = (b.reshape(y, [1, HEADS * VALUE, 8, 8]) for y in (b.node("MatMul", [v, shares]), v))
    b.channels |= {mean: HEADS * VALUE, values: HEADS * VALUE}
    return b.conv(b.node("Add", [mean, b.conv(values, HEADS * VALUE, 3, groups=HEADS * VALUE)], HEADS * VALUE), 8)


def by_areas(b: Builder, x: str) -> str:
    """Build YOLOv12's: quarters of the image, each by itself."""
    areas, pixels, channels = 4, PIXELS // 4, 3 * VALUE
    rows = _transpose(b, b.reshape(b.conv(x, HEADS * channels), [1, HEADS * channels, PIXELS]), 0, 2, 1)
    heads = _transpose(
        b, b.reshape(b.reshape(rows, [areas, pixels, HEADS * channels]), [areas, pixels, HEADS, channels]), 0, 2, 3, 1
    )
    q, k, v = b.node("Split", [heads, b.constant([VALUE] * 3, np.int64)], 1, 3, axis=2)
    scores = b.node("MatMul", [_transpose(b, b.node("Mul", [q, b.constant(VALUE**-0.5)]), 0, 1, 3, 2), k])
    shares = _transpose(b, b.node("Softmax", [scores], axis=-1), 0, 1, 3, 2)
    ends = []
    for y in (b.node("MatMul", [v, shares]), v):
        y = b.reshape(_transpose(b, y, 0, 3, 1, 2), [1, PIXELS, HEADS * VALUE])
        ends.append(_transpose(b, b.reshape(y, [1, 8, 8, HEADS * VALUE]), 0, 3, 1, 2))
        b.channels[ends[-1]] = HEADS * VALUE
    return b.conv(b.node("Add", [ends[0], b.conv(ends[1], HEADS * VALUE, 3, groups=HEADS * VALUE)]), 8)


def by_two_convolutions(b: Builder, x: str) -> str:
    """Build attention as YOLOv12's authors wrote it: queries and keys of one convolution, values of another, which also go on
    by themselves."""
    width = HEADS * VALUE
    values = b.conv(x, width)
    rows, of_values = (
        _transpose(b, b.reshape(y, [1, channels, PIXELS]), 0, 2, 1)
        for y, channels in ((b.conv(x, 2 * width), 2 * width), (values, width))
    )
    queries, keys = b.node("Split", [rows, b.constant([width] * 2, np.int64)], 1, 2, axis=2)
    q, k, v = (b.reshape(_transpose(b, y, 0, 2, 1), [1, HEADS, VALUE, PIXELS]) for y in (queries, keys, of_values))
    scores = b.node("Mul", [b.node("MatMul", [_transpose(b, q, 0, 1, 3, 2), k]), b.constant(VALUE**-0.5)])
    shares = _transpose(b, b.node("Softmax", [scores], axis=-1), 0, 1, 3, 2)
    mean = _transpose(b, b.node("MatMul", [v, shares]), 0, 3, 1, 2)
    mean = _transpose(b, b.reshape(mean, [1, 8, 8, width]), 0, 3, 1, 2)
    b.channels[mean] = width
    return b.conv(b.node("Add", [mean, b.conv(values, width, 3, groups=width)]), 8)


def by_positions(b: Builder, x: str) -> str:
    """Build attention as transformers write it: three tensors of positions by channels, the products divided, the shares
    first."""
    rows = b.reshape(b.conv(x, 3 * HEADS * VALUE), [1, 3, HEADS, VALUE, PIXELS])
    q, k, v = (
        _transpose(b, b.node("Gather", [rows, b.constant(np.array(kind), np.int64)], axis=1), 0, 1, 3, 2) for kind in range(3)
    )
    scores = b.node("Div", [b.node("MatMul", [q, _transpose(b, k, 0, 1, 3, 2)]), b.constant(2.0)])
    mean = b.node("MatMul", [b.node("Softmax", [scores], axis=3), v])
    y = b.reshape(_transpose(b, mean, 0, 1, 3, 2), [1, HEADS * VALUE, 8, 8])
    b.channels[y] = HEADS * VALUE
    return b.conv(y, 8)


FORMS = {
    by_heads: (KEY, 1, 0.0),
    by_areas: (VALUE, 4, 0.0),
    by_positions: (VALUE, 1, 0.5),
    by_two_convolutions: (VALUE, 1, 0.0),
}


@pytest.mark.parametrize("form", list(FORMS), ids=lambda form: form.__name__)
def test_it_is_one_layer_and_gives_onnx_runtimes_values(
    form: Callable[[Builder, str], str], importing: Callable[..., tuple[Path, Imported]]
) -> None:
    b = Builder(16)
    path, imported = importing(b.model([form(b, b.conv("images", 8, 3, 2, act="Relu"))]))
    [layer] = [layer for layer in imported.network.layers if isinstance(layer, AttentionSpec)]
    assert (layer.heads, layer.key, layer.areas, layer.scale) == (HEADS, *FORMS[form])
    # The order of channels is the weights' before it: no layer of its own.
    assert len([layer for layer in imported.network.layers if layer.kind == "convolutional"]) == len(b.nodes) - sum(
        node.op_type != "Conv" for node in b.nodes
    )
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        # Sums of 64 shares and of 12 products, in other orders.
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()
    assert heads_of(imported, x, "int8")[0].shape == heads_of(imported, x)[0].shape
