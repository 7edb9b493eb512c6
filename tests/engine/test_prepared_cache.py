# SPDX-License-Identifier: MIT
"""Prepared weights from the cache are those that would have been made, and a stale entry is never found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Mapping

import numpy as np
import pytest

from mpnet.engine.operations import Convolve
from mpnet.engine.prepare import Prepared
from mpnet.formats.files.cache import FileCache
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP16, FP32, INT8
from mpnet.model.weights import ConvolutionWeights, Weights, random_weights
from mpnet.quantization.weights import WeightScheme

OPERATIONS = [
    Convolve(0, FP32),
    Convolve(0, FP16),
    Convolve(0, INT8, WeightScheme()),
    Convolve(2, INT8, WeightScheme()),
    Convolve(0, INT8, WeightScheme("per_tensor")),
    Convolve(0, INT8, WeightScheme(), corrected=True),
]


class Untouchable(Mapping[int, ConvolutionWeights]):
    """Layers that nobody may ask for."""

    def __getitem__(self, index: int) -> ConvolutionWeights:
        raise AssertionError("the weights were read")

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("the weights were read")

    def __len__(self) -> int:
        raise AssertionError("the weights were read")


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "prepared", 10**8)


def means(network: NetworkSpec, value: float = 0.1) -> dict[int, Any]:
    return {layer.index: np.full(layer.in_shape[2], value) for layer in network.convolutions}


def contents(prepared: Prepared) -> list[tuple[Any, ...]]:
    entries = []
    for ready in map(prepared.convolution, OPERATIONS):
        scale = None if ready.weight_scale is None else ready.weight_scale.tobytes()
        entries.append((ready.packed.data.tobytes(), ready.bias.tobytes(), scale))
    return entries


@pytest.mark.parametrize("level", usable_levels())
def test_the_same_bytes_without_reading_the_weights(
    network: NetworkSpec, weights: Weights, cache: FileCache, level: str
) -> None:
    options: dict[str, Any] = {"channel_means": means(network), "equalise": True}
    plain = contents(Prepared(network, weights, kernels(level), **options))
    assert contents(Prepared(network, weights, kernels(level), cache=cache, **options)) == plain
    unread = replace(weights, layers=Untouchable())
    assert contents(Prepared(network, unread, kernels(level), cache=cache, **options)) == plain


def test_whatever_changes_the_bytes_changes_the_entry(network: NetworkSpec, weights: Weights, cache: FileCache) -> None:
    other_weights = random_weights(network, 99)
    ways: list[tuple[Weights, str | None, dict[str, Any]]] = [
        (weights, None, {}),
        (other_weights, None, {}),
        (weights, None, {"batch_norm": "alexeyab"}),
        (weights, None, {"equalise": True}),
        (weights, None, {"channel_means": means(network, 0.7)}),
        *((weights, level, {}) for level in usable_levels()),
    ]
    for _ in range(2):
        for values, level, changes in ways:
            options = {"channel_means": means(network), **changes}
            expected = contents(Prepared(network, values, kernels(level), **options))
            assert contents(Prepared(network, values, kernels(level), cache=cache, **options)) == expected


def test_damaged_entries_are_made_anew(network: NetworkSpec, weights: Weights, cache: FileCache) -> None:
    plain = contents(Prepared(network, weights, kernels(), cache=cache, channel_means=means(network)))
    intact = {path: path.read_bytes() for path in cache.folder.iterdir()}
    for number, (path, content) in enumerate(intact.items()):
        path.write_bytes(content[:-64] if number % 2 else content[:200] + b"damage" + content[206:])
    assert contents(Prepared(network, weights, kernels(), cache=cache, channel_means=means(network))) == plain
    assert {path: path.read_bytes() for path in cache.folder.iterdir()} == intact


def test_entries_with_other_blocks_are_made_anew(network: NetworkSpec, weights: Weights, cache: FileCache) -> None:
    plain = contents(Prepared(network, weights, kernels(), cache=cache, channel_means=means(network)))
    keys = [path.stem for path in cache.folder.iterdir()]
    for change in (lambda b: b[:-1], lambda b: [*b, b[0]], lambda b: [*b[:-1], b[-1][:-1]], lambda b: [*b[:-1], b[-1][:-4]]):
        for key in keys:
            blocks = cache.load(key)
            assert blocks is not None
            cache.store(key, change(list(blocks)))
        assert contents(Prepared(network, weights, kernels(), cache=cache, channel_means=means(network))) == plain


def test_packed_weights_of_another_layer_are_not_adopted(network: NetworkSpec, weights: Weights) -> None:
    prepared = Prepared(network, weights, kernels())
    first, second = (prepared.convolution(Convolve(index, FP32)).packed for index in (0, 2))
    table = kernels()
    assert table.adopt_packed(first.shape, FP32, first.data) is not None
    assert table.adopt_packed(second.shape, FP32, first.data) is None
    assert table.adopt_packed(first.shape, FP16, first.data) is None
    assert table.adopt_packed(first.shape, FP32, first.data[:-64]) is None
    assert table.adopt_packed(first.shape, FP32, first.data[:64]) is None
    for level in usable_levels():
        assert (kernels(level).adopt_packed(first.shape, FP32, first.data) is not None) == (level == table.name)
