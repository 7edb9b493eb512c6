# SPDX-License-Identifier: MIT
"""Keys in words."""

from __future__ import annotations

from typing import Any

import pytest

from mpnet.model.network import NetworkSpec
from mpnet.model.plan_words import NAMED, PlanWords
from mpnet.model.selectors import layer_selectors
from tests.sweep.sweep_networks import yolov3_tiny


def rows(network: NetworkSpec) -> list[dict[str, Any]]:
    """Return layers as results and stores keep them."""
    layers_and_selectors = zip(network.layers, layer_selectors(network), strict=True)
    return [
        {"name": layer.name, "selectors": list(selectors), "parameters": layer.parameters}
        for layer, selectors in layers_and_selectors
    ]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("q" * 13, "int8 everywhere"),
        ("qqqqqqqqqhqqh", "int8, but fp16 in heads"),
        ("qqqqqqqqqhqqh+3:f", "int8, but fp16 in heads"),
        ("hqqqqqqqqfqqf", "int8, but fp32 in heads and fp16 in first"),
        ("qqhqfqqqqhqqh", "int8, but fp16 in conv-3, heads and fp32 in conv-5"),
        ("", "no layer with weights"),
    ],
)
def test_a_mixture_is_named_by_groups_and_layers(key: str, words: str) -> None:
    network = yolov3_tiny()
    assert PlanWords.of_network(network)(key) == words
    assert PlanWords.of_rows(rows(network))(key) == words


def test_many_layers_are_counted() -> None:
    words = PlanWords(tuple(f"conv-{number}" for number in range(1, 18)), {})
    count = NAMED + 1
    assert words("q" * (17 - count) + "h" * count) == f"int8, but fp16 in {count} layers"


def test_a_mixture_without_pattern_is_counted() -> None:
    words = "int8 in 9 layers, fp16 in 3, fp32 in 1"
    assert PlanWords.of_network(yolov3_tiny())("qqhqfqqhqqhqq", 20) == words
    assert PlanWords((), {})("qqhqfqqhqqhqq") == words  # of a store that does not keep layers
