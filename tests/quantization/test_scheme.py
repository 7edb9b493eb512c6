# SPDX-License-Identifier: MIT
"""Scales, zero points and codes of activations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpnet.errors import PrecisionError
from mpnet.kernels.rounding import round_to_integers
from mpnet.model.quantization import MODES, QUANTIZE_MODES
from mpnet.quantization import tensorflow
from mpnet.quantization.scheme import (
    ActivationScheme,
    dequantize_activation,
    dequantize_step,
    fake_quantize_activation,
    params_to_quant,
    quantize_activation,
    range_to_params,
)

# Wider ones TensorFlow itself answers with an infinite range.
bounds = st.floats(-(2.0**126), 2.0**126, width=32)
SCHEMES = [ActivationScheme(mode.name, rounding) for mode in MODES.values() for rounding in mode.roundings]
RANGES = [(-0.61, 5.9), (0.0, 1.0), (-3.0, -1.0), (2.0, 9.0), (-1e-3, 1e-3), (-1e30, 1e30)]


def values(seed: int, low: float, high: float) -> np.ndarray:
    print("seed", seed)
    return np.random.default_rng(seed).uniform(low, high, 4099).astype(np.float32)


def test_affine_covers_the_range_with_255_steps_and_hits_zero() -> None:
    params = range_to_params(-1.0, 4.1, ActivationScheme())
    assert params.scale == np.float32(4.1) / np.float32(255) - np.float32(-1) / np.float32(255)
    assert params.zero_point == -78
    assert quantize_activation(np.array([-1, 0, 4.1], np.float32), params).tolist() == [-128, -78, 127]
    assert fake_quantize_activation(np.zeros(1, np.float32), params)[0] == 0.0


def test_symmetric_uses_127_steps_each_side() -> None:
    params = range_to_params(-0.5, 12.7, ActivationScheme("symmetric"))
    assert (params.zero_point, params.scale) == (0, float(np.float32(12.7) / np.float32(127)))
    assert quantize_activation(np.array([-20, -12.7, 12.7], np.float32), params).tolist() == [-127, -127, 127]


@pytest.mark.parametrize(("amax", "scale"), [(127 / 256, 1 / 256), (0.5, 1 / 128), (127, 1), (127.1, 2), (3, 1 / 32)])
def test_power_of_two_takes_the_next_larger_power(amax: float, scale: float) -> None:
    assert range_to_params(-amax, amax, ActivationScheme("power_of_two")).scale == scale


def test_codes_of_16_bits_lie_around_zero_and_reach_32767() -> None:
    scheme = ActivationScheme("symmetric", bits=16)
    params = range_to_params(-2.0, 1.0, scheme)
    assert (params.zero_point, params.low, params.high) == (0, -32768, 32767)
    assert params.scale == np.float32(2) / np.float32(32767)
    codes = quantize_activation(np.array([-9.0, -2.0, 0.0, 1.0, 2.0, 9.0], np.float32), params)
    assert codes.dtype == np.int16
    assert codes.tolist() == [-32768, -32767, 0, 16384, 32767, 32767]
    assert range_to_params(0.0, 0.0, scheme).scale == 1.0


def test_what_has_no_codes_of_16_bits_becomes_symmetric() -> None:
    assert ActivationScheme("affine").of_bits(16) == ActivationScheme("symmetric", bits=16)
    assert ActivationScheme("SCALED", "half_to_even").of_bits(16) == ActivationScheme("symmetric", bits=16)
    power_of_two = ActivationScheme("power_of_two", "half_away")
    assert power_of_two.of_bits(16) == ActivationScheme("power_of_two", "half_away", bits=16)
    assert power_of_two.of_bits(8) is power_of_two


def test_power_of_two_truncates_as_the_reference_program_does() -> None:
    params = range_to_params(-127 / 8, 127 / 8, ActivationScheme("power_of_two"))
    x = values(1, -20, 20)
    expected = np.clip(np.trunc(x * np.float32(8)), -127, 127).astype(np.int8)
    np.testing.assert_array_equal(quantize_activation(x, params), expected)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_error_is_at_most_one_rounding_inside_the_range(scheme: ActivationScheme, low: float, high: float) -> None:
    params = range_to_params(low, high, scheme)
    x = values(2, low, high)
    error = np.abs(fake_quantize_activation(x, params).astype(np.float64) - x)
    # half a step (a whole one for truncation), half a step more where the rounded zero point clips an end, and the
    # float32 roundings of at most 256 steps.
    steps = (1.0 if scheme.rounding == "truncate" else 0.5) + 0.5 + 256 * 4 * 2.0**-24
    assert error.max() <= steps * params.scale


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.mode != "MIN_COMBINED"], ids=str)
@given(a=bounds, b=bounds)
@settings(max_examples=60, deadline=None)
def test_zero_is_exact_and_params_are_sane(scheme: ActivationScheme, a: float, b: float) -> None:
    params = range_to_params(min(a, b), max(a, b), scheme)
    assert params.scale > 0
    assert np.isfinite([params.scale, params.inv_scale]).all()
    assert -128 <= params.zero_point <= 127
    assert fake_quantize_activation(np.zeros(3, np.float32), params).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
@given(a=st.floats(-1e6, 1e6, width=32), b=st.floats(-1e6, 1e6, width=32), seed=st.integers(0, 999))
@example(a=1e6, b=-1e6, seed=0)
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("mode", QUANTIZE_MODES)
@pytest.mark.parametrize("narrow", [False, True])
def test_tensorflow_modes_give_its_bits(mode: str, narrow: bool, a: float, b: float, seed: int) -> None:
    if narrow and mode != "SCALED":
        return
    low, high = min(a, b), max(a, b)
    params = range_to_params(low, high, ActivationScheme(mode, narrow_range=narrow))
    x = np.random.default_rng(seed).uniform(low - 1, high + 1, 257).astype(np.float32)
    codes, minimum, maximum = tensorflow.quantize(x, low, high, "qint8", mode, narrow_range=narrow)
    assert (params.range_min, params.range_max) == (minimum, maximum)
    np.testing.assert_array_equal(quantize_activation(x, params), codes)
    real = tensorflow.dequantize(codes, minimum, maximum, mode, narrow_range=narrow)
    np.testing.assert_array_equal(dequantize_step(codes, params), real)
    # The kernels' reading differs by roundings only: three of numbers no larger than the span of the codes. Where the minimum
    # lies half way between two codes, MIN_FIRST's quantising and dequantising may round it differently: then all by one step.
    position = float(minimum) * float(params.inv_scale)
    half_way = mode == "MIN_FIRST" and abs(abs(position - np.rint(position)) - 0.5) < 1e-3
    difference = dequantize_activation(codes, params) - real.astype(np.float64)
    [step] = set(np.rint(difference / params.scale).tolist())
    assert step in ((-1, 0, 1) if half_way else (0,))
    span = 256 * params.scale
    assert np.abs(difference - step * float(params.scale)).max() <= 4 * span * 2.0**-23


@pytest.mark.parametrize("mode", MODES)
def test_params_of_an_all_zero_tensor(mode: str) -> None:
    params = range_to_params(0.0, 0.0, ActivationScheme(mode))
    assert quantize_activation(np.zeros(2, np.float32), params).tolist() == [params.zero_point] * 2


def test_min_combined_without_a_minimum_range_refuses_the_empty_range() -> None:
    with pytest.raises(PrecisionError, match="ensure_minimum_range above 0"):
        range_to_params(0.0, 0.0, ActivationScheme("MIN_COMBINED", ensure_minimum_range=0.0))


def test_tiny_and_huge_ranges_stay_finite() -> None:
    for mode in ("affine", "symmetric", "power_of_two"):
        for bound in (1e-45, 1e-38, 1e38):
            params = range_to_params(-bound, bound, ActivationScheme(mode))
            assert np.isfinite([params.scale, params.inv_scale]).all()
            assert np.abs(fake_quantize_activation(np.array([bound], np.float32), params) - bound) <= params.scale


@pytest.mark.parametrize(
    ("low", "high", "message"), [(1.0, -1.0, "min 1.0 > max -1.0"), (np.nan, 1.0, "not finite"), (0.0, np.inf, "not finite")]
)
def test_bad_ranges_are_named(low: float, high: float, message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        range_to_params(low, high, ActivationScheme())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "affin"}, "unknown mode 'affin'"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"mode": "MIN_FIRST", "rounding": "half_to_even"}, "MIN_FIRST does not round half_to_even"),
        ({"mode": "SCALED", "rounding": "truncate"}, "use half_away or half_to_even"),
        ({"narrow_range": True}, "narrow_range has no effect in mode affine"),
        ({"ensure_minimum_range": -1.0}, "ensure_minimum_range is -1.0"),
        ({"bits": 16}, "mode affine has no codes of 16 bits; use symmetric"),
        ({"mode": "symmetric", "bits": 12}, "has no codes of 12 bits"),
    ],
)
def test_impossible_schemes_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        ActivationScheme(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_activations_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(PrecisionError, match="NaN or infinity"):
        quantize_activation(np.array([1.0, value], np.float32), range_to_params(0, 1, ActivationScheme()))


def test_params_to_quant_keeps_one_image_per_row() -> None:
    quant = params_to_quant([range_to_params(0, 1, ActivationScheme()), range_to_params(-1, 0, ActivationScheme())])
    assert quant.zero_point.tolist() == [-128, 127]
    assert quant.scale.dtype == np.float32


def test_half_away_equals_exact_rounding_on_every_half_and_its_neighbours() -> None:
    ties = np.arange(-300, 301, dtype=np.float32) + np.float32(0.5)
    x = np.concatenate(
        [
            ties,
            np.nextafter(ties, np.float32(-np.inf)),
            np.nextafter(ties, np.float32(np.inf)),
            np.float32([0.49999997, 8388607.5, 8388609.0, 16777217.0, 0.0]),
        ]
    )
    wide = x.astype(np.float64)
    expected = np.copysign(np.floor(np.abs(wide) + 0.5), wide)
    np.testing.assert_array_equal(round_to_integers(x, "half_away"), expected)
