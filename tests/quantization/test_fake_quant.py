# SPDX-License-Identifier: MIT
"""fake_quant and quantize_and_dequantize against what TensorFlow answered, tools/make_tf_fake_quant_golden.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.errors import PrecisionError
from mpnet.model.quantization import MODES
from mpnet.quantization import (
    ActivationScheme,
    WeightScheme,
    dequantize_step,
    dequantize_weights,
    fake_quant_with_min_max_vars,
    fake_quant_with_min_max_vars_per_channel,
    quantize_activation,
    quantize_and_dequantize,
    quantize_weights,
    range_to_params,
)

FAKE_MODES = ("fake_quant_with_min_max_vars", "quantize_and_dequantize")
Inputs = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def golden(repository: Path) -> dict[str, np.ndarray]:
    with np.load(repository / "tests" / "golden" / "tf_fake_quant.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def inputs(golden: dict[str, np.ndarray]) -> Inputs:
    """Return x (3, size) of every input, and the least and greatest real of its three ranges."""
    ends = np.cumsum(3 * golden["size"].astype(int))
    input_values = np.split(golden["x"], ends[:-1])
    return [(values.reshape(3, -1), *rows.T) for values, rows in zip(input_values, golden["ranges"], strict=True)]


def answers(flat: np.ndarray, inputs: Inputs, cases: int) -> Iterator[np.ndarray]:
    offset = 0
    for x, _, _ in inputs:
        for _ in range(cases):
            yield flat[offset : offset + x.size].reshape(x.shape)
            offset += x.size
    assert offset == flat.size


def assert_bits(actual: np.ndarray, expected: np.ndarray, description: str) -> None:
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32), err_msg=description)


def test_fake_quant_equals_tensorflow(golden: dict[str, np.ndarray], inputs: Inputs) -> None:
    cases = golden["fake_cases"].tolist()
    tensor_answers, channel_answers = (answers(golden[name], inputs, len(cases)) for name in ("fake_whole", "fake_channel"))
    for x, low, high in inputs:
        for bits, narrow in cases:
            description = f"[{low}, {high}], {bits} bits, narrow {narrow}"
            actual = fake_quant_with_min_max_vars(x, low[0], high[0], bits, bool(narrow))
            assert_bits(actual, next(tensor_answers), description)
            actual = fake_quant_with_min_max_vars_per_channel(x.T, low, high, bits, bool(narrow)).T
            assert_bits(np.ascontiguousarray(actual), next(channel_answers), description)


def test_quantize_and_dequantize_equals_tensorflow(golden: dict[str, np.ndarray], inputs: Inputs) -> None:
    cases = golden["both_cases"].tolist()
    even = [case for case in cases if case[-1] == 0]
    tensor_answers = answers(golden["both_whole"], inputs, len(cases))
    slice_answers = answers(golden["both_slices"], inputs, len(even))
    refused = checked = 0
    for x, low, high in inputs:
        for case in cases:
            bits, narrow, signed, is_range_given, mode = case
            options = (bool(signed), bits, bool(is_range_given), str(golden["round_modes"][mode]), bool(narrow))
            calls = [(next(tensor_answers), low[0], high[0], None)] + (
                [(next(slice_answers), low, high, 0)] if case in even else []
            )
            for expected, range_low, range_high, axis in calls:
                try:
                    actual = quantize_and_dequantize(x, range_low, range_high, *options, axis=axis)
                except PrecisionError as error:
                    # Codes without sign for a range with nothing above 0.
                    assert "no finite scale" in str(error)
                    assert not signed
                    refused += 1
                    continue
                checked += 1
                assert_bits(np.ascontiguousarray(actual), expected, f"[{range_low}, {range_high}] {options} axis {axis}")
    assert checked > 10 * refused > 0


def test_equals_tensorflow_installed_here(tensorflow_here: Any) -> None:
    tf = tensorflow_here
    rng = np.random.default_rng(8)
    print("seed 8")
    for _ in range(60):
        low, high = np.sort(10.0 ** rng.uniform(-5, 5, (3, 1)) * rng.uniform(-1, 1, (3, 2)), axis=1).T.astype(np.float32)
        x = rng.uniform(1.3 * low - 0.1, 1.3 * high + 0.1, (int(rng.integers(1, 2000)), 3)).astype(np.float32)
        x[::3] = (np.rint(x[::3] / (high - low) * 255) + np.float32(0.5)) * ((high - low) / np.float32(255))
        bits, narrow, is_range_given = int(rng.integers(2, 17)), bool(rng.integers(2)), bool(rng.integers(2))
        theirs = tf.quantization.fake_quant_with_min_max_vars(x, low[0], high[0], bits, narrow).numpy()
        assert_bits(fake_quant_with_min_max_vars(x, low[0], high[0], bits, narrow), theirs, "whole")
        theirs = tf.quantization.fake_quant_with_min_max_vars_per_channel(x, low, high, bits, narrow).numpy()
        assert_bits(fake_quant_with_min_max_vars_per_channel(x, low, high, bits, narrow), theirs, "per channel")
        for word in ("HALF_TO_EVEN", "HALF_UP"):
            theirs = tf.quantization.quantize_and_dequantize_v2(
                x, low[0], high[0], True, bits, is_range_given, word, narrow_range=narrow
            ).numpy()
            actual = quantize_and_dequantize(x, low[0], high[0], True, bits, is_range_given, word, narrow)
            assert_bits(actual, theirs, f"quantize_and_dequantize {word}")


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fake_quant_with_min_max_vars(X, 1, 0), "min 1.0 > max 0.0; swap them"),
        (lambda: fake_quant_with_min_max_vars(X, 0, 1, 17), "num_bits is 17; it must be 2 to 16"),
        (lambda: fake_quant_with_min_max_vars(X, [0, 0, 0], [1, 1, 1]), "there is fake_quant_with_min_max_vars_per_channel"),
        (lambda: fake_quant_with_min_max_vars(X * np.nan, 0, 1), "the input holds NaN or infinity"),
        (lambda: fake_quant_with_min_max_vars(X, 0, np.inf), "min or max holds NaN or infinity"),
        (lambda: fake_quant_with_min_max_vars(X, 0, 1e-37), "no finite scale"),
        (lambda: fake_quant_with_min_max_vars_per_channel(X, [0, 0], [1, 1]), "one number for each of the last dimension"),
        (lambda: quantize_and_dequantize(X, range_given=True), "range_given asks for input_min and input_max"),
        (lambda: quantize_and_dequantize(X, round_mode="UP"), "unknown round_mode 'UP'"),
        (lambda: quantize_and_dequantize(X, round_mode="HALF_UP", axis=0), "HALF_UP does not work with an axis"),
        (lambda: quantize_and_dequantize(X, axis=2), "axis 2 does not exist in an input of 2 dimensions"),
        (lambda: quantize_and_dequantize(X, [0], [1], range_given=True, axis=1), "one number for each of 3 slices"),
    ],
)
def test_refuses_with_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(PrecisionError, match=message) as excinfo:
        call()
    assert "\n" not in str(excinfo.value)


@pytest.mark.parametrize("mode", FAKE_MODES)
@pytest.mark.parametrize("narrow", [False, True])
def test_the_scheme_of_its_name_gives_the_operation_s_bits(mode: str, narrow: bool, inputs: Inputs) -> None:
    """But for the sign of zeros, which codes do not keep."""
    for x, low, high in inputs:
        range_low, range_high = min(low[0], np.float32(0)), max(high[0], np.float32(0))
        for rounding in MODES[mode].roundings:
            params = range_to_params(range_low, range_high, ActivationScheme(mode, rounding, narrow))
            if mode == "quantize_and_dequantize":
                word = {"half_to_even": "HALF_TO_EVEN", "half_up": "HALF_UP"}[rounding]
                expected = quantize_and_dequantize(
                    x, range_low, range_high, range_given=True, round_mode=word, narrow_range=narrow
                )
            else:
                expected = fake_quant_with_min_max_vars(x, range_low, range_high, narrow_range=narrow)
            np.testing.assert_array_equal(dequantize_step(quantize_activation(x, params), params), expected)


@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_weights_get_the_operation_s_bits(granularity: str, inputs: Inputs) -> None:
    for x, _, _ in inputs:
        w = np.clip(x, -1e6, 1e6)
        magnitude = np.abs(w).max(axis=1) if granularity == "per_channel" else np.abs(w).max()
        for method in FAKE_MODES:
            real = dequantize_weights(*quantize_weights(w, WeightScheme(granularity, method)))
            if method == "quantize_and_dequantize":
                axis = 0 if granularity == "per_channel" else None
                expected = quantize_and_dequantize(w, -magnitude, magnitude, range_given=True, narrow_range=True, axis=axis)
            elif granularity == "per_channel":
                expected = fake_quant_with_min_max_vars_per_channel(w.T, -magnitude, magnitude, narrow_range=True).T
            else:
                expected = fake_quant_with_min_max_vars(w, -magnitude, magnitude, narrow_range=True)
            np.testing.assert_array_equal(real, expected)
