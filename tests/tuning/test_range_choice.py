# SPDX-License-Identifier: MIT
"""Methods of calibration, chosen by what layers make of the codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights
from mpnet.quantization.measure import sqnr_db
from mpnet.tuning.range_choice import METHODS, choose_methods, method_errors

CUT = QuantizationOptions(ActivationOptions(ranges="calibrated", method="percentile", percentile=60))
"""Ranges that leave out most of what matters."""


def test_ranges_that_cut_too_much_off_are_found_otherwise(
    network: NetworkSpec, weights: Weights, images: list[NDArray[np.float32]]
) -> None:
    int8 = assign(network, "int8")

    def options_of(activations: ActivationOptions, layers: object = ()) -> EngineOptions:
        cut = CUT.overlaid(QuantizationOptions(activations))
        return resolve_options(network, cut, layers)  # type: ignore[arg-type]

    own = options_of(ActivationOptions())
    prepared = Prepared.under(own, network, weights, kernels())
    steps: list[int] = []
    first, *tried = (
        method_errors(prepared, weights, int8, options_of(method), images, 1, steps.append)
        for method in (ActivationOptions(), *METHODS)
    )
    assert len(steps) == (1 + len(METHODS)) * len(network.layers)
    assert first.keys() == {layer.index for layer in network.convolutions}
    chosen = choose_methods(network, own, first, tried)
    assert chosen.keys() >= first.keys()
    better = options_of(ActivationOptions(), [(str(index), QuantizationOptions(method)) for index, method in chosen.items()])

    def sqnr(options: EngineOptions) -> float:
        ranges = calibrate(prepared, images, range_requests(network, options), {}).by_tensor()
        ranged = replace(options, ranges=ranges)
        heads = [
            np.concatenate([head.reshape(-1) for batch in images for head in Session(prepared, plan).forward(batch)])
            for plan in (build_plan(network, assign(network, "fp32"), ranged), build_plan(network, int8, ranged))
        ]
        return sqnr_db(float((heads[0] ** 2).sum()), float(((heads[0] - heads[1]) ** 2).sum()))

    assert sqnr(better) > sqnr(own) + 10
    assert choose_methods(network, own, first, [first] * len(METHODS)) == {}
