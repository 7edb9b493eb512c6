# SPDX-License-Identifier: MIT
"""Range estimators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.errors import DataError, PrecisionError
from mpnet.model.quantization import CALIBRATION_METHODS
from mpnet.quantization.calibrate import CalibrationMethod, Calibrator, RangeEstimator
from mpnet.quantization.histogram import HALF_BINS, GrowingHistogram
from mpnet.quantization.scheme import ActivationScheme, fake_quantize_activation, range_to_params

AFFINE, SYMMETRIC = ActivationScheme(), ActivationScheme("symmetric")


def estimate(method: CalibrationMethod, x: np.ndarray, scheme: ActivationScheme = AFFINE) -> tuple[float, float]:
    estimator = RangeEstimator(method, scheme)
    estimator.observe(x)
    return estimator.range()


def heavy_tailed(seed: int, images: int = 4) -> np.ndarray:
    """Return leaky activations with rare large values."""
    print("seed", seed)
    x = np.random.default_rng(seed).standard_t(2.5, (images, 40, 50)).astype(np.float32)
    return np.where(x < 0, x * np.float32(0.1), x)


def test_min_max() -> None:
    assert estimate(CalibrationMethod("min_max"), np.array([[1, -2], [5, 0]], np.float32)) == (-2.0, 5.0)


def test_moving_average_weighs_images_in_their_order() -> None:
    method = CalibrationMethod("moving_average", momentum=0.75)
    images = np.array([[0, 4], [0, 8], [-4, 0]], np.float32)
    assert estimate(method, images) == (-1.0, 0.75 * (0.75 * 4 + 0.25 * 8))


@pytest.mark.parametrize("percentile", [50.0, 99.0, 99.9, 99.99, 100.0])
@pytest.mark.parametrize("scheme", [AFFINE, SYMMETRIC], ids=["affine", "symmetric"])
def test_percentile_keeps_at_least_its_share_and_not_a_bin_more(percentile: float, scheme: ActivationScheme) -> None:
    x = heavy_tailed(1)
    low, high = estimate(CalibrationMethod("percentile", percentile), x, scheme)
    kept_share = np.mean((x >= np.float32(low)) & (x <= np.float32(high)))
    assert kept_share >= percentile / 100
    bin_width = 2 * np.abs(x).max() / HALF_BINS
    if percentile < 100:
        fewer = np.mean((x > low + bin_width) & (x < high - bin_width))
        assert fewer < percentile / 100
    else:
        assert (low, high) == (float(x.min()), float(x.max()))


@pytest.mark.parametrize("scheme", [AFFINE, SYMMETRIC, ActivationScheme("MIN_COMBINED")], ids=lambda s: s.mode)
def test_mse_beats_min_max_and_percentiles(scheme: ActivationScheme) -> None:
    x = heavy_tailed(2)

    def error(method: CalibrationMethod) -> float:
        low, high = estimate(method, x, scheme)
        real = fake_quantize_activation(x, range_to_params(low, high, scheme))
        return float(((real.astype(np.float64) - x) ** 2).sum())

    best = error(CalibrationMethod("mse"))
    assert best < error(CalibrationMethod("min_max"))
    assert best <= 1.01 * min(error(CalibrationMethod("percentile", p)) for p in (99.0, 99.9, 99.99, 99.999))


def test_mse_leaves_a_uniform_tensor_alone() -> None:
    x = np.linspace(-1, 3, 40000, dtype=np.float32)[None]
    assert estimate(CalibrationMethod("mse"), x) == (-1.0, 3.0)


@pytest.mark.parametrize("scheme", [AFFINE, SYMMETRIC], ids=["affine", "symmetric"])
def test_entropy_clips_outliers_and_keeps_the_bulk(scheme: ActivationScheme) -> None:
    x = np.random.default_rng(3).normal(0, 1, (1, 200000)).astype(np.float32)
    x[0, 0] = 60.0
    low, high = estimate(CalibrationMethod("entropy"), x, scheme)
    assert 3.0 < high < 12.0
    assert -6.0 < low < -3.0


def test_entropy_leaves_a_uniform_tensor_alone() -> None:
    x = np.linspace(0, 3, 40000, dtype=np.float32)[None]
    low, high = estimate(CalibrationMethod("entropy"), x)
    assert (low, high) == (0.0, 3.0)


@pytest.mark.parametrize("method", [m for m in CALIBRATION_METHODS if m != "moving_average"])
def test_batches_and_order_do_not_matter(method: str) -> None:
    x = heavy_tailed(4, 6) * np.float32([1, 1e-3, 20, 3, 1e4, 1e-30]).reshape(6, 1, 1)
    expected = estimate(CalibrationMethod(method), x)
    estimator = RangeEstimator(CalibrationMethod(method), AFFINE)
    for i in (4, 0, 5, 2, 1, 3):
        estimator.observe(x[i : i + 1])
    assert estimator.range() == expected


@pytest.mark.slow
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=60), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_histogram_depends_on_values_alone(values: list[float], seed: int) -> None:
    x = np.array(values, np.float32)
    at_once, by_value = GrowingHistogram(), GrowingHistogram()
    at_once.observe(x)
    for value in np.random.default_rng(seed).permutation(x):
        by_value.observe(np.array([value]))
    assert at_once.exponent == by_value.exponent
    np.testing.assert_array_equal(at_once.counts, by_value.counts)
    assert at_once.total == len(values)
    centres, counts = at_once.filled()
    assert counts.sum() == len(values)
    assert (centres >= x.min()).all()
    assert (centres <= x.max()).all()


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_constant_tensors_have_a_range(method: str) -> None:
    for value in (0.0, 2.5, -2.5):
        low, high = estimate(CalibrationMethod(method), np.full((2, 9), value, np.float32))
        real = fake_quantize_activation(np.array([value], np.float32), range_to_params(low, high, AFFINE))
        assert abs(float(real[0]) - value) <= abs(value) / 100


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_an_empty_set_is_an_error(method: str) -> None:
    calibrator = Calibrator({3: (CalibrationMethod(method), AFFINE)}, {3: "conv4"})
    calibrator.observe(3, np.zeros((0, 4, 4, 2), np.float32))
    with pytest.raises(DataError, match=r"tensor 3 \(conv4\): the calibration set is empty"):
        calibrator.result({})


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_names_its_tensor(method: str, value: float) -> None:
    calibrator = Calibrator({-1: (CalibrationMethod(method), AFFINE)}, {-1: "picture"})
    with pytest.raises(DataError, match=r"tensor -1 \(picture\): activations hold NaN or infinity"):
        calibrator.observe(-1, np.array([[1.0, value]], np.float32))


def test_no_int8_layer_is_an_error() -> None:
    with pytest.raises(DataError, match="no int8 layer to calibrate"):
        Calibrator({}, {}).result({})


def test_result_lists_every_tensor_with_its_method() -> None:
    methods = {0: (CalibrationMethod("percentile", 99.9), AFFINE), 2: (CalibrationMethod(), SYMMETRIC)}
    calibrator = Calibrator(methods, {0: "a", 2: "b"})
    for tensor in (0, 1, 2):
        calibrator.observe(tensor, np.arange(-3, 5, dtype=np.float32).reshape(2, 4))
    calibration = calibrator.result({"network": "ab"})
    assert calibration.images == 2
    assert [(t.tensor, t.name, t.method) for t in calibration.tensors] == [(0, "a", "percentile 99.9"), (2, "b", "min_max")]
    assert calibration.by_tensor()[2] == (-3.0, 4.0)
    assert (calibration.tensors[0].seen_minimum, calibration.tensors[0].seen_maximum) == (-3.0, 4.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kl"}, "unknown method 'kl'; known are min_max"),
        ({"percentile": 100.5}, "percentile is 100.5; it must be 50 to 100"),
        ({"percentile": float("nan")}, "percentile is nan"),
        ({"momentum": 1.0}, "momentum is 1.0"),
    ],
)
def test_impossible_methods_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        CalibrationMethod(**options)  # type: ignore[arg-type]
