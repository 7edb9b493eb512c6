# SPDX-License-Identifier: MIT
"""Blocks of transformers, ConvNeXt, split and channel attention become layers that give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from mpnet.errors import FormatError
from mpnet.importing import Imported
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder

CHANNELS, HEADS = 24, 2


def _turned(b: Builder, x: str, *order: int) -> str:
    return str(b.node("Transpose", [x], perm=order))


def _gelu(b: Builder, x: str, half_first: bool = False) -> str:
    curve = b.node("Erf", [b.node("Div", [x, b.constant(2**0.5)])])
    curve_plus_one = b.node("Add", [curve, b.constant(1.0)])
    if half_first:
        return str(b.node("Mul", [b.node("Mul", [x, b.constant(0.5)]), curve_plus_one]))
    return str(b.node("Mul", [b.node("Mul", [x, curve_plus_one]), b.constant(0.5)]))


def _norm(b: Builder, x: str, channels: int = CHANNELS) -> str:
    values = [b.constant(b.random.uniform(0.5, 1.5, channels)), b.constant(b.random.normal(0, 0.3, channels))]
    return str(b.node("LayerNormalization", [x, *values], axis=-1, epsilon=1e-6))


def _linear(b: Builder, x: str, inputs: int, outputs: int) -> str:
    product = b.node("MatMul", [x, b.constant(b.random.normal(0, inputs**-0.5, (inputs, outputs)))])
    return str(b.node("Add", [b.constant(b.random.normal(0, 0.3, outputs)), product]))


def convnext(b: Builder, x: str) -> str:
    """Build rows of channels behind a Transpose, and back."""
    y = _norm(b, _turned(b, b.conv(x, CHANNELS, 3, groups=CHANNELS), 0, 2, 3, 1))
    y = _linear(b, _gelu(b, _linear(b, y, CHANNELS, 2 * CHANNELS)), 2 * CHANNELS, CHANNELS)
    scaled = b.node("Mul", [_turned(b, y, 0, 3, 1, 2), b.constant(b.random.uniform(0.5, 1, (CHANNELS, 1, 1)))])
    return str(b.node("Add", [x, scaled]))


def few_channels(b: Builder, x: str) -> str:
    """Build the same of 8 channels: a product of as few weights as the mean of a box's bins has, but of rows."""
    channels = 8
    x = b.conv(x, channels)
    y = _norm(b, _turned(b, x, 0, 2, 3, 1), channels)
    y = _linear(b, _gelu(b, _linear(b, y, channels, 2 * channels)), 2 * channels, channels)
    return str(b.node("Add", [x, _turned(b, y, 0, 3, 1, 2)]))


def transformer(b: Builder, x: str) -> str:
    """Build a class's row before those of pixels, a place's constant, attention, a row's network; the first row is what
    leaves."""
    rows = _turned(b, b.reshape(x, [1, CHANNELS, 16]), 0, 2, 1)
    rows = b.node("Concat", [b.constant(b.random.normal(0, 1, (1, 1, CHANNELS))), rows], axis=1)
    rows = b.node("Add", [rows, b.constant(b.random.normal(0, 1, (1, 17, CHANNELS)))])
    joined = b.reshape(_linear(b, _norm(b, rows), CHANNELS, 3 * CHANNELS), [1, 17, 3, HEADS, CHANNELS // HEADS])
    q, k, v = b.node("Split", [_turned(b, joined, 2, 0, 3, 1, 4), b.constant([1, 1, 1], np.int64)], 1, 3, axis=0)
    q, k, v = (b.node("Squeeze", [matrix, b.constant([0], np.int64)]) for matrix in (q, k, v))
    scores = b.node("MatMul", [b.node("Mul", [q, b.constant((CHANNELS // HEADS) ** -0.5)]), _turned(b, k, 0, 1, 3, 2)])
    mean = b.reshape(_turned(b, b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]), 0, 2, 1, 3), [1, 17, CHANNELS])
    rows = b.node("Add", [rows, _linear(b, mean, CHANNELS, CHANNELS)])
    y = _linear(b, _gelu(b, _linear(b, _norm(b, rows), CHANNELS, 40), True), 40, CHANNELS)
    rows = _norm(b, b.node("Add", [rows, y]))
    class_row = b.node("Gather", [rows, b.constant(np.array(0), np.int64)], axis=1)
    return str(b.node("Gemm", [class_row, b.constant(b.random.normal(0, 0.2, (CHANNELS, 12)))]))


def split_attention(b: Builder, x: str) -> str:
    """Build ResNeSt's, with the shares of two halves."""
    splits = b.reshape(x, [1, 2, CHANNELS // 2, 4, 4])
    total = b.node("ReduceSum", [splits, b.constant([1], np.int64)], CHANNELS // 2, keepdims=0)
    pooled = b.node("GlobalAveragePool", [total], CHANNELS // 2)
    raw = b.reshape(b.conv(pooled, CHANNELS), [1, 1, 2, CHANNELS // 2])
    shares = b.reshape(b.node("Softmax", [_turned(b, raw, 0, 2, 1, 3)], axis=1), [1, CHANNELS, 1, 1])
    weighed = b.node("Mul", [splits, b.reshape(shares, [1, 2, CHANNELS // 2, 1, 1])])
    return str(b.node("ReduceSum", [weighed, b.constant([1], np.int64)], keepdims=0))


def selective_kernels(b: Builder, x: str) -> str:
    """Build SKNet's: two tensors side by side on an axis of their own."""
    branches = [b.node("Unsqueeze", [y, b.constant([1], np.int64)]) for y in (x, b.conv(x, CHANNELS, 3, act="Relu"))]
    pair = b.node("Concat", branches, 1, axis=1)
    total = b.node("ReduceSum", [pair, b.constant([1], np.int64)], CHANNELS, keepdims=0)
    raw = b.conv(b.node("ReduceMean", [total], CHANNELS, axes=[2, 3], keepdims=1), 2 * CHANNELS)
    shares = b.node("Softmax", [b.reshape(raw, [1, 2, CHANNELS, 1, 1])], axis=1)
    return str(b.node("ReduceSum", [b.node("Mul", [pair, shares]), b.constant([1], np.int64)], keepdims=0))


def band(b: Builder, x: str) -> str:
    """Build ECA's: one filter along the channels."""
    row = b.reshape(b.node("ReduceMean", [x], axes=[2, 3], keepdims=0), [1, 1, CHANNELS])
    row = b.node("Conv", [row, b.constant(b.random.normal(0, 1, (1, 1, 3)))], kernel_shape=[3], pads=[1, 1])
    gate = b.reshape(b.node("Sigmoid", [row]), [1, CHANNELS, 1, 1])
    wide = b.node("Expand", [gate, b.constant([1, CHANNELS, 4, 4], np.int64)])
    return str(b.node("Mul", [x, wide]))


def whole_norm(b: Builder, x: str) -> str:
    """Build PoolFormer's: the mean and variance of a whole image."""
    row = b.reshape(x, [1, 1, -1])
    row = b.node("InstanceNormalization", [row, b.constant([1.0]), b.constant([0.0])], epsilon=1e-3)
    scaled = b.node("Mul", [b.reshape(row, [1, CHANNELS, 4, 4]), b.constant(b.random.normal(1, 0.2, (CHANNELS, 1, 1)))])
    return str(b.node("Add", [scaled, b.constant(b.random.normal(0, 0.2, (CHANNELS, 1, 1)))]))


def finer_pixels(b: Builder, x: str) -> str:
    """Build nearest pixels by a factor that is not whole."""
    y = b.node(
        "Resize",
        [x, "", "", b.constant([1, CHANNELS, 7, 7], np.int64)],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    b.channels[y] = CHANNELS
    return b.conv(y, 8)


def normalised_weights(b: Builder, x: str) -> str:
    """Build weights that are normalised when the model runs: a batch norm in training, of constants."""
    flat = b.constant(b.random.normal(0.1, 2, (1, CHANNELS, 30)))
    statistics = [b.constant(b.random.uniform(0.2, 0.3, CHANNELS)), *[b.constant(np.zeros(CHANNELS)) for _ in range(3)]]
    results = b.node("BatchNormalization", [flat, *statistics], 1, 3, epsilon=1e-6, training_mode=1)
    y = b.node("Conv", [b.conv(x, 30), b.reshape(results[0], [CHANNELS, 30, 1, 1])], CHANNELS, kernel_shape=[1, 1])
    return b.conv(y, 8)


FORMS = [
    convnext,
    few_channels,
    transformer,
    split_attention,
    selective_kernels,
    band,
    whole_norm,
    finer_pixels,
    normalised_weights,
]


def build_model(form: Callable[[Builder, str], str]) -> Any:
    b = Builder(8)
    return b.model([form(b, b.conv("images", CHANNELS, 3, 2, act="Relu"))])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_values_are_onnx_runtimes(form: Callable[[Builder, str], str], importing: Callable[..., tuple[Path, Imported]]) -> None:
    path, imported = importing(build_model(form))
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        # Some ten layers of sums of at most 216 products in other orders; erf is good to 1.5e-7.
        assert np.abs(head - reference).max() <= 4e-6 * np.abs(reference).max()
    assert np.isfinite(heads_of(imported, x, "int8")[0]).all()


def test_a_norms_factors_are_in_the_weights_behind_it(importing: Callable[..., tuple[Path, Imported]]) -> None:
    _, imported = importing(build_model(transformer))
    kinds = [layer.kind for layer in imported.network.layers]
    # Stem, queries with keys and values, projection, two of a row's network. The last norm's factors have nothing behind them
    # but the [connected] layer.
    assert kinds.count("convolutional") == 6
    assert kinds.count("attention") == 1
    assert kinds.count("layernorm") == 3


def test_other_attention_names_the_node_and_what_to_do(importing: Callable[..., tuple[Path, Imported]]) -> None:
    b = Builder(8)
    x = b.conv("images", CHANNELS, 3, 2)
    rows = _norm(b, _turned(b, b.reshape(x, [1, CHANNELS, 16]), 0, 2, 1))
    product = _linear(b, b.node("MatMul", [rows, _turned(b, rows, 0, 2, 1)]), 16, CHANNELS)
    with pytest.raises(
        FormatError, match=r"node '/LayerNormalization_\d+' \(LayerNormalization\): .* part of attention of a kind"
    ):
        importing(b.model([product]))
