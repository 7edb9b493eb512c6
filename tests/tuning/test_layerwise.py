# SPDX-License-Identifier: MIT
"""Layers fitted one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights
from mpnet.quantization.measure import sqnr_db
from mpnet.tuning.layerwise import corrected_layers
from mpnet.tuning.lockstep import MOST_BYTES, images_that_fit
from mpnet.tuning.write import tuned_weights

TRUNCATED = QuantizationOptions(ActivationOptions(mode="power_of_two"))
"""Codes that are cut off pull every mean towards zero: what a gain and an offset can take back."""


def heads(
    prepared: Prepared, plan: PrecisionPlan, options: EngineOptions, images: list[NDArray[np.float32]]
) -> NDArray[np.float32]:
    session = Session(prepared, build_plan(prepared.network, plan, options))
    return np.concatenate([head.reshape(-1) for batch in images for head in session.forward(batch)])


def test_corrected_layers_are_nearer_to_fp32(network: NetworkSpec, weights: Weights, images: list[NDArray[np.float32]]) -> None:
    options = resolve_options(network, TRUNCATED)
    int8, fp32 = assign(network, "int8"), assign(network, "fp32")
    prepared = Prepared.under(options, network, weights, kernels())
    layers: list[int] = []
    folded = corrected_layers(prepared, weights, int8, options, images, 1, layers.append)
    assert layers == [1] * len(network.layers)
    tuned = Prepared.under(options, network, tuned_weights(network, weights, folded, options.batch_norm), kernels())
    wanted = heads(prepared, fp32, options, images)
    before, after = (
        sqnr_db(float((wanted**2).sum()), float(((wanted - given) ** 2).sum()))
        for given in (heads(prepared, int8, options, images), heads(tuned, int8, options, images))
    )
    assert after > before + 2  # 24.4 and 29.0 dB


def test_layers_of_the_baselines_precision_stay_as_they_are(
    network: NetworkSpec, weights: Weights, images: list[NDArray[np.float32]]
) -> None:
    options = resolve_options(network, TRUNCATED)
    prepared = Prepared.under(options, network, weights, kernels())
    first = network.convolutions[0].index
    folded = corrected_layers(prepared, weights, assign(network, "int8", {first: "fp32"}), options, images)
    assert folded[first] is prepared.folded[first]
    assert all((folded[layer.index].bias != prepared.folded[layer.index].bias).any() for layer in network.convolutions[1:])


def test_images_are_as_many_as_fit(network: NetworkSpec) -> None:
    assert images_that_fit(network, 48) == 48
    assert images_that_fit(network, 10**9) == MOST_BYTES // (3 * network.peak_bytes)
