# SPDX-License-Identifier: MIT
"""quantize and dequantize against TensorFlow: golden vectors always, TensorFlow itself when installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.errors import PrecisionError
from mpnet.model.quantization import QUANTIZE_MODES
from mpnet.quantization import dequantize, quantize
from mpnet.quantization.tensorflow import ROUND_MODES, TYPES

TYPE_NAMES = list(TYPES)


@pytest.fixture(scope="module")
def golden(repository: Path) -> dict[str, np.ndarray]:
    with np.load(repository / "tests" / "golden" / "tf_quantization.npz") as archive:
        return {name: archive[name] for name in archive.files}


def bits(x: np.ndarray) -> np.ndarray:
    """Return floats as integers, so that -0 differs from 0."""
    return np.atleast_1d(x).view(np.uint32)


def golden_input(golden: dict[str, np.ndarray], i: int) -> tuple[np.ndarray, Any, Any, int | None]:
    """Return (x, min_range, max_range, axis) of input i."""
    shape = [s for s in golden["x_shape"][i].tolist() if s]
    x = golden["x"][golden["x_start"][i] : golden["x_start"][i + 1]].reshape(shape)
    rows = golden["ranges"][golden["range_start"][i] : golden["range_start"][i + 1]]
    if golden["x_axis"][i] < 0:
        return x, rows[0, 0], rows[0, 1], None
    return x, rows[:, 0], rows[:, 1], int(golden["x_axis"][i])


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_quantize_equals_tensorflow_golden(golden: dict[str, np.ndarray], kind: str) -> None:
    differences, checked, code_at, range_at = [], 0, 0, 0
    expected_codes = golden[f"codes_{kind}"]
    for i, t, m, r, n, e in golden["quantize_cases"].tolist():
        x, low, high, axis = golden_input(golden, i)
        count = 1 if axis is None or x.shape[axis] == 1 else x.shape[axis]
        expected_range = golden["output_ranges"][range_at : range_at + count]
        range_at += count
        if golden["types"][t] != kind:
            continue
        mode, round_mode = str(golden["modes"][m]), str(golden["round_modes"][r])
        options = (mode, round_mode, bool(n), axis, float(golden["minimum_ranges"][e]))
        codes, minimum, maximum = quantize(x, low, high, kind, *options)
        expected = expected_codes[code_at : code_at + x.size].reshape(x.shape)
        code_at += x.size
        checked += 1
        returned = np.stack([np.atleast_1d(minimum), np.atleast_1d(maximum)], axis=1)
        if not (np.array_equal(codes, expected) and np.array_equal(bits(returned), bits(expected_range))):
            differences.append((low, high, options, x.tolist(), codes.tolist(), expected.tolist(), returned, expected_range))
    assert code_at == expected_codes.size
    assert checked > 4000
    assert differences[:3] == []


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_dequantize_equals_tensorflow_golden(golden: dict[str, np.ndarray], kind: str) -> None:
    mine = golden["types"][golden["dequantize_cases"][:, 0]] == kind
    codes = golden[f"dequantize_{kind}"]
    assert mine.sum() == len(golden[f"reals_{kind}"]) == 160
    cases, ranges = golden["dequantize_cases"][mine].tolist(), golden["dequantize_ranges"][mine]
    for (_, m, n), (low, high), expected in zip(cases, ranges, golden[f"reals_{kind}"], strict=True):
        mode = str(golden["modes"][m])
        real = dequantize(codes, low, high, mode, narrow_range=bool(n))
        np.testing.assert_array_equal(bits(real), bits(expected), err_msg=f"{kind} {mode} {n} [{low}, {high}]")


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_dequantize_of_slices_equals_tensorflow_golden(golden: dict[str, np.ndarray], kind: str) -> None:
    codes = np.stack([golden[f"dequantize_{kind}"]] * 6)
    low, high = golden["slice_ranges"].T
    for mode, expected in zip(["MIN_COMBINED", "SCALED"], golden[f"slice_reals_{kind}"], strict=True):
        np.testing.assert_array_equal(bits(dequantize(codes, low, high, mode, axis=0)), bits(expected))


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_equals_tensorflow_installed_here(kind: str, tensorflow_here: Any) -> None:
    tf = tensorflow_here
    rng = np.random.default_rng(7)
    print("seed 7")
    for _ in range(40):
        low, high = np.sort(10.0 ** rng.uniform(-5, 5) * rng.uniform(-1, 1, 2)).astype(np.float32)
        x = rng.uniform(low - 0.1, high + 0.1, int(rng.integers(1, 3000))).astype(np.float32)
        x[::3] = np.rint(x[::3] * 255 / (high - low)) * ((high - low) / np.float32(255))
        for mode in QUANTIZE_MODES:
            for round_mode in ROUND_MODES if mode == "SCALED" else ["HALF_AWAY_FROM_ZERO"]:
                narrow = bool(rng.integers(2))
                minimum_range = float(rng.choice([0.0, 0.01, 0.5]))
                theirs = tf.raw_ops.QuantizeV2(
                    input=x,
                    min_range=low,
                    max_range=high,
                    T=getattr(tf, kind),
                    mode=mode,
                    round_mode=round_mode,
                    narrow_range=narrow,
                    axis=-1,
                    ensure_minimum_range=minimum_range,
                )
                ours = quantize(x, low, high, kind, mode, round_mode, narrow, None, minimum_range)
                np.testing.assert_array_equal(ours[0], theirs[0].numpy())
                np.testing.assert_array_equal(bits(ours[1]), bits(theirs[1].numpy()))
                np.testing.assert_array_equal(bits(ours[2]), bits(theirs[2].numpy()))
                real = tf.raw_ops.Dequantize(
                    input=theirs[0], min_range=theirs[1], max_range=theirs[2], mode=mode, narrow_range=narrow, axis=-1
                ).numpy()
                mine = dequantize(ours[0], ours[1], ours[2], mode, narrow_range=narrow)
                np.testing.assert_array_equal(bits(mine), bits(real))


CHECK = np.array([-0.61, -0.3, 0, 0.01, 1, 2.5, 5.9, 7], np.float32)


@pytest.mark.parametrize(
    ("kind", "mode", "codes"),
    [
        ("qint8", "MIN_COMBINED", [-128, -116, -104, -104, -65, -6, 127, 127]),
        ("qint8", "MIN_FIRST", [-128, -116, -104, -104, -65, -6, 127, 127]),
        ("quint8", "MIN_COMBINED", [0, 12, 24, 24, 63, 122, 255, 255]),
        ("qint8", "SCALED", [-13, -6, 0, 0, 22, 54, 127, 127]),
    ],
)
def test_check_vector(kind: str, mode: str, codes: list[int]) -> None:
    assert quantize(CHECK, -0.61, 5.9, kind, mode)[0].tolist() == codes


def test_a_whole_image_equals_its_slices() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(0, 2, (5, 6, 7)).astype(np.float32)
    low, high = x.min(axis=(0, 2)), x.max(axis=(0, 2))
    codes, minima, maxima = quantize(x, low, high, "qint8", "SCALED", axis=-2)
    for k in range(6):
        slice_codes, minimum, maximum = quantize(x[:, k], low[k], high[k], "qint8", "SCALED")
        np.testing.assert_array_equal(codes[:, k], slice_codes)
        assert (minimum, maximum) == (minima[k], maxima[k])
    real = dequantize(codes, minima, maxima, "SCALED", axis=1)
    np.testing.assert_array_equal(real[:, 2], dequantize(codes[:, 2], minima[2], maxima[2], "SCALED"))


def test_shapes_without_elements_and_without_dimensions() -> None:
    assert quantize(np.float32(1), 0, 1, "qint8")[0].shape == ()
    assert quantize(np.zeros((0, 3)), 0, 1, "quint16")[0].shape == (0, 3)
    assert quantize(np.zeros((2, 0)), [], [], "quint16", axis=1)[1].shape == (0,)


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, 2, 1, "qint8"), {}, r"min_range 2.0 > max_range 1.0; swap them"),
        ((X, [0, 3, 0], [1, 2, 1], "qint8"), {"axis": 1}, "in slice 1"),
        ((X, 0, 1, "int8"), {}, "unknown type 'int8'; known are qint8"),
        ((X, 0, 1, "qint8"), {"mode": "MIN"}, "unknown mode 'MIN'"),
        ((X, 0, 1, "qint8"), {"round_mode": "UP"}, "unknown round_mode 'UP'"),
        ((X, 0, 1, "qint8"), {"round_mode": "HALF_TO_EVEN"}, "HALF_TO_EVEN works with mode SCALED only"),
        ((X, 0, 1, "qint8"), {"round_mode": "HALF_TO_EVEN", "mode": "MIN_FIRST"}, "not with MIN_FIRST"),
        ((X, [0, 0, 0], [1, 1, 1], "qint8"), {"axis": 1, "mode": "MIN_FIRST"}, "MIN_FIRST does not work per slice"),
        ((X, [0, 0], [1, 1], "qint8"), {"axis": 1}, r"1-D of size 3, not of shape \(2,\)"),
        ((X, 0, 1, "qint8"), {"axis": 2}, "axis 2 does not exist in an input of 2 dimensions"),
        ((X, [0, 0], [1, 1], "qint8"), {}, "without axis, min_range and max_range hold one number each, not 2 and 2"),
        ((X, 0, np.inf, "qint8"), {}, "min_range or max_range holds NaN or infinity"),
        ((X, np.nan, 1, "qint8"), {}, "min_range or max_range holds NaN or infinity"),
        ((X * np.nan, 0, 1, "qint8"), {}, "the input holds NaN or infinity"),
        ((X, 0, 0, "qint8"), {"ensure_minimum_range": 0}, "too narrow; set ensure_minimum_range above 0"),
        ((X, -3e38, 3e38, "qint8"), {}, "too wide; scale it down"),
        ((X, 0, 1, "qint8"), {"ensure_minimum_range": np.nan}, "ensure_minimum_range is nan"),
    ],
)
def test_quantize_refuses_with_one_line(arguments: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PrecisionError, match=message) as excinfo:
        quantize(*arguments, **options)
    assert "\n" not in str(excinfo.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, 0, 1), {}, "input is float32; it must be one of int8"),
        ((X.astype(np.int8), 0, 1), {"dtype": "float16"}, "dtype float16 is not offered"),
        ((X.astype(np.int8), 1, 0), {}, "min_range 1.0 > max_range 0.0"),
        ((X.astype(np.int8), [0, 0], [1, 1]), {"axis": 0, "mode": "MIN_FIRST"}, "MIN_FIRST does not work per slice"),
    ],
)
def test_dequantize_refuses_with_one_line(arguments: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        dequantize(*arguments, **options)
