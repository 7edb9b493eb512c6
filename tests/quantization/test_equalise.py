# SPDX-License-Identifier: MIT
"""Cross-layer equalisation and bias correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpnet.errors import DataError, PrecisionError
from mpnet.model.network import (
    ConvolutionSpec,
    LayerSpec,
    MaxpoolSpec,
    NetworkSpec,
    RouteSpec,
    ShortcutSpec,
    UpsampleSpec,
    YoloSpec,
)
from mpnet.quantization.bias_correction import ChannelMeans, bias_shift
from mpnet.quantization.equalise import (
    EqualisationPair,
    FoldedConvolution,
    activation_factors,
    depthwise_pairs,
    equalisable_pairs,
    equalise,
    pair_factors,
    scale_inputs,
    scale_outputs,
)
from mpnet.quantization.weights import WeightScheme, dequantize_weights, quantize_weights


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, x * np.float32(0.1))


def conv(x: np.ndarray, layer: FoldedConvolution, groups: int = 1) -> np.ndarray:
    """Run a 1x1 convolution of (pixels, channels) in float32, depth in one fixed order."""
    filters, per_group = layer.weights.shape[:2]
    result = np.zeros((len(x), filters), np.float32)
    for o in range(filters):
        start = o // (filters // groups) * per_group
        total = np.full(len(x), layer.bias[o], np.float32)
        for k in range(per_group):
            total = total + x[:, start + k] * layer.weights[o, k, 0, 0]
        result[:, o] = total
    return result


def folded(seed: int, filters: int, per_group: int) -> FoldedConvolution:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-2, 1, (filters, 1, 1, 1))
    return FoldedConvolution(
        (rng.normal(0, 1, (filters, per_group, 1, 1)) * sizes).astype(np.float32), rng.normal(0, 1, filters).astype(np.float32)
    )


def spec(kind: type[LayerSpec], index: int, inputs: tuple[int, ...], channels: int, **options: Any) -> LayerSpec:
    return kind(index, index + 1, inputs, (4, 4, channels), (4, 4, options.get("filters", channels)), **options)


@pytest.mark.parametrize("groups", [1, 6])
def test_power_of_two_scaling_changes_no_bit(groups: int) -> None:
    x = np.random.default_rng(1).normal(0, 1, (50, 4)).astype(np.float32)
    first, second = folded(2, 6, 4), folded(3, 6, 6 // groups)
    factors = pair_factors(first, [(second, groups)])
    assert (np.frexp(factors)[0] == 0.5).all()
    assert (factors != 1).any()
    expected = conv(leaky(conv(x, first)), second, groups)
    actual = conv(leaky(conv(x, scale_outputs(first, factors))), scale_inputs(second, groups, factors), groups)
    np.testing.assert_array_equal(expected, actual)


def test_free_factors_balance_every_channel() -> None:
    first, second = folded(4, 6, 4), folded(5, 3, 6)
    factors = pair_factors(first, [(second, 1)], exact=False)
    output_maxima = np.abs(scale_outputs(first, factors).weights).max(axis=(1, 2, 3))
    input_maxima = np.abs(scale_inputs(second, 1, factors).weights).max(axis=(0, 2, 3))
    np.testing.assert_allclose(output_maxima, input_maxima, rtol=4 * 2.0**-24)  # two roundings on each side


def test_dead_channels_are_left_alone() -> None:
    first, second = folded(6, 3, 2), folded(7, 2, 3)
    first.weights[1] = 0
    second.weights[:, 2] = 0
    factors = pair_factors(first, [(second, 1)])
    assert factors[1] == factors[2] == 1


def test_weights_that_are_not_finite_are_named() -> None:
    layer = folded(8, 2, 2)
    layer.weights[0, 0] = np.nan
    with pytest.raises(PrecisionError, match="weights of layer 5 or of its reader hold NaN"):
        pair_factors(layer, [(folded(9, 2, 2), 1)], name="5")


def network() -> NetworkSpec:
    """Return conv0 leaky - maxpool - conv2 depthwise - conv3 logistic - conv4 - shortcut(4, 3);
    conv6 - upsample - route of it - conv9, with conv6 also read by conv10 - yolo."""
    layers = (
        spec(ConvolutionSpec, 0, (-1,), 3, filters=4, activation="leaky"),
        spec(MaxpoolSpec, 1, (0,), 4),
        spec(ConvolutionSpec, 2, (1,), 4, filters=4, groups=4, activation="relu"),
        spec(ConvolutionSpec, 3, (2,), 4, filters=4, activation="logistic"),
        spec(ConvolutionSpec, 4, (3,), 4, filters=4, activation="linear"),
        spec(ShortcutSpec, 5, (4, 3), 4),
        spec(ConvolutionSpec, 6, (5,), 4, filters=5, activation="leaky"),
        spec(UpsampleSpec, 7, (6,), 5),
        spec(RouteSpec, 8, (7,), 5),
        spec(ConvolutionSpec, 9, (8,), 5, filters=2, activation="leaky"),
        spec(ConvolutionSpec, 10, (6,), 5, filters=6, activation="linear"),
        spec(YoloSpec, 11, (10,), 6),
    )
    return NetworkSpec(4, 4, 3, layers)


def test_pairs_end_at_whatever_is_not_homogeneous() -> None:
    assert equalisable_pairs(network()) == (EqualisationPair(0, (2,)), EqualisationPair(2, (3,)), EqualisationPair(6, (9, 10)))


def test_a_network_is_equalised_pair_by_pair() -> None:
    net = network()
    layers = {c.index: folded(20 + c.index, c.filters, c.in_shape[2] // c.groups) for c in net.convolutions}
    result = equalise(net, layers)
    np.testing.assert_array_equal(result[4].weights, layers[4].weights)
    x = np.random.default_rng(30).normal(0, 1, (20, 3)).astype(np.float32)

    def run(weights: dict[int, FoldedConvolution]) -> np.ndarray:
        return conv(np.maximum(conv(leaky(conv(x, weights[0])), weights[2], 4), 0), weights[3])

    np.testing.assert_array_equal(run(layers), run(result))

    def unevenness(weights: dict[int, FoldedConvolution]) -> float:
        largest = np.abs(weights[0].weights).max(axis=(1, 2, 3))
        return float(largest.max() / largest.min())

    assert unevenness(result) < unevenness(layers)
    per_tensor = WeightScheme("per_tensor")

    def sqnr(weights: np.ndarray) -> float:
        error = dequantize_weights(*quantize_weights(weights, per_tensor)) - weights
        return float((weights**2).sum(axis=(1, 2, 3)).min() / (error**2).sum())

    assert sqnr(result[0].weights) > sqnr(layers[0].weights)


def test_only_results_that_depthwise_filters_alone_read_are_depthwise_pairs() -> None:
    assert depthwise_pairs(network()) == (EqualisationPair(0, (2,)),)


def test_activation_factors_lift_every_live_channel_above_half_of_the_largest() -> None:
    maxima = np.array([6.0, 3.0, 3.1, 0.0, 5.9e-3, 6.0 / 32])
    factors = activation_factors(maxima)
    assert factors.dtype == np.float32
    np.testing.assert_array_equal(factors, [1, 0.5, 1, 1, 1 / 64, 1 / 32])
    live = maxima[[0, 1, 2, 5]] / factors[[0, 1, 2, 5]]
    assert ((live >= 3) & (live <= 6)).all()
    np.testing.assert_array_equal(activation_factors(np.zeros(3)), np.ones(3))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_bias_correction_restores_the_mean_exactly_but_for_roundings(groups: int) -> None:
    rng = np.random.default_rng(40)
    print("seed 40")
    weights = rng.normal(0, 1, (6, 6 // groups, 1, 1)).astype(np.float32)
    bias = rng.normal(0, 1, 6).astype(np.float32)
    rounded = dequantize_weights(*quantize_weights(weights, WeightScheme("per_tensor", rounding="truncate")))
    x = rng.uniform(0, 2, (500, 6)).astype(np.float32)
    means = ChannelMeans()
    means.observe(x[:200].reshape(2, 10, 10, 6))
    means.observe(x[200:].reshape(3, 10, 10, 6))
    np.testing.assert_allclose(means.result(), x.mean(axis=0, dtype=np.float64), rtol=1e-14)
    fixed = bias + bias_shift(weights, rounded, means.result(), groups)
    exact_mean = conv(x, FoldedConvolution(weights, bias), groups).mean(axis=0, dtype=np.float64)
    rounded_mean = conv(x, FoldedConvolution(rounded, bias), groups).mean(axis=0, dtype=np.float64)
    corrected_mean = conv(x, FoldedConvolution(rounded, fixed), groups).mean(axis=0, dtype=np.float64)
    # float32 sums of up to seven terms below 16 in magnitude.
    assert np.abs(corrected_mean - exact_mean).max() < 7 * 16 * 2.0**-24
    assert np.abs(rounded_mean - exact_mean).max() > 1e-3


def test_bias_correction_checks_its_arguments() -> None:
    w = np.zeros((4, 2, 3, 3), np.float32)
    with pytest.raises(PrecisionError, match=r"means \(3,\)"):
        bias_shift(w, w, np.zeros(3))
    with pytest.raises(DataError, match="calibration set is empty"):
        ChannelMeans().result()
    means = ChannelMeans()
    with pytest.raises(DataError, match="NaN or infinity"):
        means.observe(np.full((1, 1, 1, 2), np.nan, np.float32))
    means.observe(np.ones((1, 1, 1, 2), np.float32))
    with pytest.raises(DataError, match="3 channels after 2"):
        means.observe(np.ones((1, 1, 1, 3), np.float32))
