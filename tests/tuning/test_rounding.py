# SPDX-License-Identifier: MIT
"""Codes and biases that are learnt layer by layer, and weights that stand for them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, DataError
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import LEARNT, NarrowOptions, QuantizationOptions
from mpnet.model.weights import Weights
from mpnet.quantization.learnt_rounding import InputProducts
from mpnet.quantization.measure import sqnr_db
from mpnet.quantization.weights import WeightScheme, dequantize_weights, quantize_weights
from mpnet.tuning.rounding import learn_written_weights, likely_cells, rounded_layers
from mpnet.tuning.write import tuned_weights

NEAREST = QuantizationOptions(narrow=NarrowOptions(rounding="nearest", bias_correction=False))


def test_learnt_layers_are_nearer_to_fp32(network: NetworkSpec, weights: Weights, images: list[NDArray[np.float32]]) -> None:
    options = resolve_options(network, NEAREST)
    prepared = Prepared.under(options, network, weights, kernels())
    int4, fp32 = assign(network, "int4"), assign(network, "fp32")

    def heads(prepared: Prepared, plan: PrecisionPlan) -> NDArray[np.float32]:
        session = Session(prepared, build_plan(network, plan, options))
        return np.concatenate([head.reshape(-1) for batch in images for head in session.forward(batch)])

    session = Session(prepared, build_plan(network, fp32, options))
    cells = likely_cells(network, (session.forward(batch) for batch in images))
    layers: list[int] = []
    folded = rounded_layers(prepared, weights, int4, options, images, cells, 1, layers.append)
    assert layers == [1] * len(network.layers)
    tuned = Prepared.under(options, network, tuned_weights(network, weights, folded, options.batch_norm), kernels())
    wanted = heads(prepared, fp32)
    before, after = (
        sqnr_db(float((wanted**2).sum()), float(((wanted - given) ** 2).sum()))
        for given in (heads(prepared, int4), heads(tuned, int4))
    )
    assert after > before + 3


@pytest.mark.parametrize("bits", [3, 8])
@pytest.mark.parametrize("method", ["min_max", "mse", "power_of_two"])
def test_weights_that_are_written_are_rounded_to_the_same_codes_again(method: str, bits: int) -> None:
    random = np.random.default_rng(6)
    x = random.standard_normal((4, 6, 6, 5)).astype(np.float32)
    products = InputProducts(5, float(np.abs(x).max()), size=3, stride=1, padding=1, dilation=1, groups=1)
    products.observe(x)
    filters = random.standard_normal((7, 5, 3, 3)).astype(np.float32)
    scheme = WeightScheme("per_channel", method, LEARNT, bits)
    written = learn_written_weights(filters, products.covariance(), scheme, products.positions)
    codes, scales = quantize_weights(written, WeightScheme("per_channel", method, "half_to_even", bits))
    np.testing.assert_allclose(dequantize_weights(codes, scales), written, rtol=1e-6)  # a step may move by one in 2^24
    assert np.abs(written - filters).max() < np.abs(filters).max() / (2 if bits == 3 else 20)


def test_codes_that_no_reals_stand_for_are_refused(
    network: NetworkSpec, weights: Weights, images: list[NDArray[np.float32]]
) -> None:
    grouped = resolve_options(network, NEAREST.overlaid(QuantizationOptions(narrow=NarrowOptions("per_group"))))
    prepared = Prepared.under(grouped, network, weights, kernels())
    with pytest.raises(ConfigError, match=r"groups of 32 channels are not learnt; set narrow\.granularity to per_channel"):
        rounded_layers(prepared, weights, assign(network, "int4"), grouped, images)
    with pytest.raises(DataError, match="there is no image to tune on"):
        rounded_layers(prepared, weights, assign(network, "int4"), grouped, [])
