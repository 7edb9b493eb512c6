# SPDX-License-Identifier: MIT
"""Precisions in words, as experiment files select them."""

from __future__ import annotations

import pytest

from mpnet.export.yaml import key_in_words
from tests.sweep.sweep_networks import yolov3_tiny


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("q" * 13, "int8 everywhere"),
        ("qqqqqqqqqhqqh", "int8, but fp16 in heads"),
        ("hqqqqqqqqfqqf", "int8, but fp16 in first and fp32 in heads"),
    ],
)
def test_a_mixture_is_named_by_groups(key: str, words: str) -> None:
    assert key_in_words(yolov3_tiny(), key) == words


def test_a_mixture_without_pattern_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpnet.export.yaml.WORDS", 20)
    assert key_in_words(yolov3_tiny(), "qqhqfqqhqqhqq") == "int8 in 9 layers, fp16 in 3, fp32 in 1"
