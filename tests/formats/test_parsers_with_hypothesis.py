# SPDX-License-Identifier: MIT
"""Arbitrary bytes and mutations of valid files: a parser answers or raises MpnetError, nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Callable, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.errors import MpnetError
from mpnet.formats.cfg.edit import edit_precisions
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights, weights_content
from mpnet.model.precision import FP16
from mpnet.model.weights import random_weights

VALID = (Path(__file__).resolve().parents[2] / "cfg" / "yolov3-tiny-mixed.cfg").read_bytes()
LINES = VALID.splitlines(keepends=True)
SMALL_NETWORK = parse_cfg(
    "[net]\nwidth=8\nheight=8\n[convolutional]\nbatch_normalize=1\nfilters=4\nsize=3\n[convolutional]\ngroups=2\nfilters=2\n"
)
SMALL_WEIGHTS = weights_content(random_weights(SMALL_NETWORK), SMALL_NETWORK)


T = TypeVar("T")


def outcome(parse: Callable[[], T]) -> T | MpnetError:
    """Return what parsing gives: a value or an error of ours. Any other exception passes through and fails the test."""
    try:
        return parse()
    except MpnetError as error:
        return error


def check_cfg(content: bytes) -> None:
    """Check that a cfg gives either a network whose totals make sense, or an error of ours that is one line."""
    network = outcome(lambda: parse_cfg(content, "t.cfg"))
    if isinstance(network, MpnetError):
        assert str(network).startswith("t.cfg")
        assert "\n" not in str(network)
        return
    assert all(min(layer.out_shape) > 0 for layer in network.layers)
    assert sum(4 * layer.activations for layer in network.layers) <= 4 << 30
    # What can be read can be edited, or is refused in one line.
    with contextlib.suppress(MpnetError):
        edit_precisions(content, [FP16] * len(network.layers))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_cfg_of_arbitrary_bytes(content: bytes) -> None:
    check_cfg(content)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=60))
def test_cfg_of_shuffled_lines(lines: list[bytes]) -> None:
    check_cfg(b"".join(LINES[:7] + lines))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(LINES) - 1), st.sampled_from([b"0", b"-1", b"999999999", b"1e9", b"nan", b"", b",", b"\xff"]))
def test_cfg_with_one_hostile_value(line: int, value: bytes) -> None:
    key = LINES[line].split(b"=")[0].strip()
    check_cfg(b"".join([*LINES[:line], key + b"=" + value + b"\n", *LINES[line + 1 :]]))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(VALID) - 1), st.integers(0, 255))
def test_cfg_with_one_byte_changed(position: int, byte: int) -> None:
    check_cfg(VALID[:position] + bytes([byte]) + VALID[position + 1 :])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_weights_of_arbitrary_bytes(content: bytes) -> None:
    check_weights(content)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SMALL_WEIGHTS) - 1), st.integers(0, 255), st.integers(0, 3))
def test_weights_with_a_changed_byte_or_length(position: int, byte: int, removed_bytes: int) -> None:
    content = SMALL_WEIGHTS[:position] + bytes([byte]) + SMALL_WEIGHTS[position + 1 :]
    check_weights(content[: len(content) - removed_bytes])


def check_weights(content: bytes) -> None:
    weights = outcome(lambda: parse_weights(content, SMALL_NETWORK, "t.weights"))
    if isinstance(weights, MpnetError):
        assert str(weights).startswith("t.weights: ")
        assert "\n" not in str(weights)
        return
    for layer in weights.layers.values():
        assert np.isfinite(layer.weights).all()
        assert np.isfinite(layer.biases).all()
