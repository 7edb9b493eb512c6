# SPDX-License-Identifier: MIT
"""Learnt rounding: better than the nearest codes where inputs hang together, the same where they do not, never chance."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.errors import DataError, PrecisionError
from mpnet.quantization.learnt_rounding import InputProducts, descend, learn_codes
from mpnet.quantization.weights import LEARNT, WeightScheme, dequantize_weights, quantize_weights

SCHEME = WeightScheme("per_channel", "mse", LEARNT, 4)
NEAREST = WeightScheme("per_channel", "mse", "half_to_even", 4)


def activations(seed: int, images: int = 6, channels: int = 8) -> NDArray[np.float32]:
    """Return channels that are mixtures of a few, as features are."""
    random = np.random.default_rng(seed)
    causes = random.standard_normal((images, 9, 10, 3))
    mixed = causes @ random.standard_normal((3, channels)) + 0.1 * random.standard_normal((images, 9, 10, channels)) + 1
    return np.maximum(mixed, 0.1 * mixed).astype(np.float32)


def products(x: NDArray[np.float32], size: int = 3, padding: int = 1, groups: int = 1, **keywords: int) -> InputProducts:
    geometry = {"stride": 1, "dilation": 1, **keywords}
    return InputProducts(x.shape[-1], float(np.abs(x).max()), size=size, padding=padding, groups=groups, **geometry)


def observed(x: NDArray[np.float32], groups: int = 1) -> NDArray[np.float64]:
    input_products = products(x, groups=groups)
    input_products.observe(x)
    return input_products.covariance()


def weights(seed: int, filters: int = 12, inputs: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((filters, inputs, 3, 3)).astype(np.float32)


def test_the_output_has_a_smaller_error_than_that_of_the_nearest_codes() -> None:
    x, w = activations(1), weights(2)
    covariance = observed(x)

    def error(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float64]:
        differences = (dequantize_weights(codes, scales).astype(np.float64) - w).reshape(len(w), -1)
        return np.einsum("fi,ij,fj->f", differences, covariance[0], differences)

    learnt, nearest = learn_codes(w, covariance, SCHEME), quantize_weights(w, NEAREST)
    assert np.abs(learnt[0]).max() <= 7
    assert (error(*learnt) < error(*nearest)).all()
    assert error(*learnt).sum() < 0.5 * error(*nearest).sum()
    fixed = descend((w.reshape(12, -1) / nearest[1][:, None]).astype(np.float64), covariance[0], 7).codes
    # Scales were chosen by the error as well: on the whole better than codes learnt for those of the weights' own error.
    assert error(*learnt).sum() < error(fixed.astype(np.int8).reshape(w.shape), nearest[1]).sum()


@pytest.mark.parametrize("bits", [3, 4, 6])
def test_no_filter_errs_more_than_by_descent_alone_and_all_together_far_less(bits: int) -> None:
    """At scales that do not move, so that only codes differ."""
    x, w = activations(11, channels=16), weights(12, filters=24, inputs=16)
    covariance = observed(x)
    codes, scales = learn_codes(w, covariance, WeightScheme("per_channel", "min_max", LEARNT, bits))
    steps = (w.reshape(24, -1) / scales[:, None]).astype(np.float64)
    alone = descend(steps, covariance[0], 2 ** (bits - 1) - 1).harm
    error = np.rint(steps * 1024) - codes.reshape(24, -1) * 1024.0
    squared_errors = np.einsum("fi,ij,fj->f", error, covariance[0], error)
    assert (squared_errors <= alone * (1 + 1e-9)).all()  # the two are added in different orders
    assert squared_errors.sum() < 0.9 * alone.sum()


def test_descent_goes_on_from_given_codes_and_never_makes_them_worse() -> None:
    covariance = observed(activations(13))[0]
    steps = np.random.default_rng(14).uniform(-7, 7, (5, 72))
    nearest = np.rint(steps * 1024) - np.rint(steps) * 1024
    start = descend(steps, covariance, 7, sweeps=0, error=nearest)
    descended = descend(steps, covariance, 7, error=nearest)
    assert np.array_equal(start.codes, np.rint(steps))
    assert np.array_equal(start.pull, nearest @ covariance)
    assert np.array_equal(descended.pull, descended.error @ covariance)
    assert (descended.harm <= start.harm).all()
    second_descent = descend(steps, covariance, 7, error=descended.error)
    assert np.array_equal(second_descent.codes, descended.codes)


def test_only_a_scale_that_may_clip_is_chosen() -> None:
    x, w = activations(1), weights(2)
    bounded = WeightScheme("per_channel", "min_max", LEARNT, 4)
    assert np.array_equal(learn_codes(w, observed(x), bounded)[1], np.abs(w.reshape(12, -1)).max(axis=1) / np.float32(7))


def test_a_position_that_counts_twice_is_as_good_as_two() -> None:
    x = activations(10, images=2)
    once, twice = products(np.concatenate([x, x[:1]])), products(x)
    once.observe(np.concatenate([x, x[:1]]))
    twice.observe(x, np.array([2.0, 1.0])[:, None, None] * np.ones((2, 9, 10)))
    assert np.array_equal(once.covariance(), twice.covariance())


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_to_nearest() -> None:
    steps = np.random.default_rng(3).uniform(-9, 9, (5, 130))
    codes = descend(steps, np.diag(np.arange(1.0, 131.0)), 7).codes
    assert np.array_equal(codes, np.clip(np.rint(np.rint(steps * 1024) / 1024), -7, 7))


def test_how_images_are_shown_changes_nothing() -> None:
    """Sums are exact, so neither batches nor their order count."""
    x = activations(4)
    one_by_one = products(x)
    for image in reversed(range(len(x))):
        one_by_one.observe(x[image : image + 1])
    assert np.array_equal(one_by_one.covariance(), observed(x))


def test_products_are_those_of_the_convolutions_windows() -> None:
    """Against a filter bank run tap by tap: stride, padding and dilation."""
    x = activations(5, images=2, channels=2)
    input_products = products(x, size=2, padding=1, stride=2, dilation=3)
    input_products.observe(x)
    codes = np.rint(x / np.float32(np.abs(x).max() / 2047)).astype(np.float64)
    padded = np.pad(codes, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = np.array(
        [
            [padded[n, y + ky * 3, z + kx * 3, c] for c in range(2) for ky in range(2) for kx in range(2)]
            for n in range(2)
            for y in range(0, 8, 2)
            for z in range(0, 9, 2)
        ]
    )
    assert np.array_equal(input_products._products[0], rows.T @ rows)


def test_groups_learn_on_their_own() -> None:
    x, w = activations(6), weights(7, inputs=4)
    codes, _ = learn_codes(w, observed(x, groups=2), SCHEME)
    for group in range(2):
        group_channels = np.ascontiguousarray(x[..., 4 * group : 4 * group + 4])
        input_products = products(x, groups=2)  # the same steps for both halves
        input_products.observe(x)
        alone = products(group_channels)
        alone._step = input_products._step
        alone.observe(group_channels)
        filters = slice(6 * group, 6 * group + 6)
        assert np.array_equal(codes[filters], learn_codes(w[filters], alone.covariance(), SCHEME)[0])


def test_without_a_covariance_codes_are_the_nearest() -> None:
    w = weights(8)
    for learnt, nearest in zip(learn_codes(w, None, SCHEME), quantize_weights(w, NEAREST), strict=True):
        assert np.array_equal(learnt, nearest)


def test_inputs_that_never_change_are_no_reason_to_fail() -> None:
    x = np.zeros((1, 5, 5, 8), np.float32)
    codes, scales = learn_codes(weights(9), observed(x), SCHEME)
    steps = weights(9) / scales[:, None, None, None]
    assert np.array_equal(codes, np.clip(np.rint(np.rint(steps * 1024) / 1024), -7, 7))


def test_no_images_are_an_error() -> None:
    with pytest.raises(DataError, match="calibration set is empty"):
        products(activations(1)).covariance()


def test_few_positions_are_not_searched_by_heart() -> None:
    x, w = activations(21), weights(22)
    scheme = WeightScheme("per_channel", "min_max", LEARNT, 4)
    depth, covariance = w[0].size, observed(x)
    few_codes, scales = learn_codes(w, covariance, scheme, positions=2 * depth)
    alone = descend((w.reshape(len(w), -1) / scales[:, None]).astype(np.float64), covariance[0], 7).codes
    assert np.array_equal(few_codes.reshape(alone.shape), alone)
    many_codes = learn_codes(w, covariance, scheme, positions=3 * depth)[0]
    assert np.array_equal(many_codes, learn_codes(w, covariance, scheme)[0])
    assert not np.array_equal(many_codes, few_codes)


def test_what_few_positions_taught_errs_less_on_other_images() -> None:
    """The same few, shown often enough, are believed, and learnt by heart. Causes of many strengths, as in a deep layer."""
    random = np.random.default_rng(24)
    mixed = random.standard_normal((27, 9, 10, 16)) @ (random.standard_normal((16, 16)) / np.arange(1, 17)[:, None])
    learnt_images, other_images = np.split(mixed.astype(np.float32), [1])
    few_positions, many_positions = products(learnt_images), products(learnt_images)
    few_positions.observe(learnt_images)
    for _ in range(5):
        many_positions.observe(learnt_images)
    w, other_covariance = weights(25, inputs=16), observed(other_images)
    assert few_positions.positions < 2 * w[0].size < many_positions.positions

    def error(covariance: NDArray[np.float64]) -> float:
        codes, scales = learn_codes(w, covariance, SCHEME, few_positions.positions)
        differences = (dequantize_weights(codes, scales).astype(np.float64) - w).reshape(len(w), -1)
        return float(np.einsum("fi,ij,fj->", differences, other_covariance[0], differences))

    assert error(few_positions.covariance()) < 0.95 * error(many_positions.covariance())


def test_a_position_counts_once_however_often_it_is_weighed() -> None:
    x = activations(23)
    input_products = products(x)
    input_products.observe(x, np.full(x.shape[:3], 7.0))
    assert input_products.positions == x[..., 0].size


@pytest.mark.parametrize("method", ["min_max", "mse", "power_of_two"])
def test_codes_of_eight_bits_err_less_than_the_nearest(method: str) -> None:
    rng = np.random.default_rng(57)
    x = (rng.normal(0, 1, (1, 30, 30, 12)) @ rng.normal(0, 1, (12, 12))).astype(np.float32)
    products = InputProducts(12, float(np.abs(x).max()), size=1, stride=1, padding=0, dilation=1, groups=1)
    products.observe(x)
    covariance = products.covariance()
    w = rng.normal(0, 1, (20, 12, 1, 1)).astype(np.float32)

    def error(codes: np.ndarray, scales: np.ndarray) -> float:
        differences = (dequantize_weights(codes, scales) - w).reshape(20, 12).astype(np.float64)
        return float(np.einsum("fi,ij,fj->", differences, covariance[0], differences))

    learnt = learn_codes(w, covariance, WeightScheme("per_channel", method, LEARNT))
    nearest = quantize_weights(w, WeightScheme("per_channel", method, "half_to_even"))
    assert np.abs(learnt[0].astype(int)).max() <= 127
    assert error(*learnt) < 0.5 * error(*nearest)


@pytest.mark.parametrize(
    ("granularity", "method", "message"),
    [("per_tensor", "min_max", "has no per_tensor"), ("per_channel", "quantize_and_dequantize", "has no method")],
)
def test_what_cannot_be_learnt_is_refused(granularity: str, method: str, message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        WeightScheme(granularity, method, LEARNT)
