# SPDX-License-Identifier: MIT
"""Measures of the difference of two tensors."""

from __future__ import annotations

import math
from decimal import Context
from fractions import Fraction

import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.quantization.measure import ErrorMeter, decibels, sparkline
from mpnet.quantization.scheme import ActivationScheme, dequantize_activation, quantize_activation, range_to_params


def test_rounding_alone_gives_rmse_of_289_thousandths_of_a_step() -> None:
    print("seed 1")
    x = np.random.default_rng(1).uniform(-1, 3, 400000).astype(np.float32)
    params = range_to_params(-1, 3, ActivationScheme())
    codes = quantize_activation(x, params)
    meter = ErrorMeter()
    meter.observe(dequantize_activation(codes, params), x, scale=params.scale, codes=codes)
    errors = meter.result()
    assert errors.rmse_per_scale is not None
    # The mean of 400,000 squares of uniform errors deviates by a share of sqrt(0.8 / 400000) per standard deviation.
    assert abs(errors.rmse_per_scale * math.sqrt(12) - 1) < 5 * math.sqrt(0.8 / 400000) / 2
    # Half of a step of 255 rounds to each end.
    assert errors.saturated == pytest.approx(1 / 255, rel=0.1)
    # Uniform signal on [-1, 3]: mean square 7/3, noise (4/255)^2 / 12.
    assert errors.sqnr_db == pytest.approx(10 * math.log10(7 / 3 * 12 * (255 / 4) ** 2), abs=0.1)
    assert errors.elements == 400000


def test_known_numbers() -> None:
    meter = ErrorMeter()
    meter.observe(np.array([3.0, 5.0]), np.array([3.0, 4.0]))
    errors = meter.result()
    assert errors.sqnr_db == pytest.approx(10 * math.log10(25))
    assert errors.cosine == pytest.approx(29 / (5 * math.sqrt(34)))
    assert (errors.rmse, errors.mean_error, errors.max_abs_error) == (math.sqrt(0.5), 0.5, 1.0)
    assert (errors.minimum, errors.maximum) == (3.0, 4.0)
    assert errors.rmse_per_scale is None
    assert errors.saturated is None


def test_batches_add_up() -> None:
    rng = np.random.default_rng(2)
    print("seed 2")
    x, r = rng.normal(size=(2, 3, 50))
    at_once, by_row = ErrorMeter(), ErrorMeter()
    at_once.observe(x, r, scale=0.5)
    for i in range(3):
        by_row.observe(x[i], r[i], scale=0.5)
    for name, value in vars(at_once.result()).items():
        assert vars(by_row.result())[name] == (value if value is None else pytest.approx(value, rel=1e-12)), name


@pytest.mark.parametrize(
    ("x", "r", "sqnr", "cosine"),
    [([1, 2], [1, 2], math.inf, 1), ([0, 0], [0, 0], math.inf, 1), ([1, 0], [0, 0], -math.inf, 0), ([0], [1], 0.0, 0)],
)
def test_zeros(x: list[float], r: list[float], sqnr: float, cosine: float) -> None:
    meter = ErrorMeter()
    meter.observe(np.array(x, np.float32), np.array(r, np.float32))
    assert meter.result().sqnr_db == sqnr
    assert meter.result().cosine == pytest.approx(cosine)


def test_bad_tensors_are_refused() -> None:
    meter = ErrorMeter()
    with pytest.raises(DataError, match="no tensors were compared"):
        meter.result()
    with pytest.raises(DataError, match="shapes"):
        meter.observe(np.zeros(2), np.zeros(3))
    with pytest.raises(DataError, match="NaN or infinity"):
        meter.observe(np.array([np.nan]), np.zeros(1))


def test_a_histogram_in_one_line() -> None:
    assert sparkline([4, 1, 0, 2]) == "█▄ ▆"
    assert sparkline([0, 0]) == "  "


def test_decibels_are_rounded_once() -> None:
    assert [decibels(ratio) for ratio in (1.0, 10.0, 1000.0, 1e-300, 2.0)] == [0, 10, 30, -3000, 3.010299956639812]
    for ratio in np.random.default_rng(3).uniform(0.001, 1000, 200).tolist():
        # Of the powers of ten of a decibel and its neighbours, its own is nearest to the ratio.
        rounded = decibels(ratio)
        neighbours = [
            Fraction(value) for value in (math.nextafter(rounded, -math.inf), rounded, math.nextafter(rounded, math.inf))
        ]
        assert min(neighbours, key=lambda value: abs(_power_of_ten(value / 10) - Fraction(ratio))) == Fraction(rounded)


def _power_of_ten(exponent: Fraction) -> Fraction:
    context = Context(prec=60)
    return Fraction(context.power(10, context.divide(exponent.numerator, exponent.denominator)))
