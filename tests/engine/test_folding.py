# SPDX-License-Identifier: MIT
"""Folded batch normalisation against the formula, and beyond float32."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.folding import fold_batch_norm
from mpnet.errors import EngineError
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights


@pytest.mark.parametrize(("batch_norm", "deviation"), [("darknet", 0.5 + 1e-6), ("alexeyab", np.sqrt(0.25 + 1e-5))])
def test_folding_is_done_in_double_and_rounded_once(network: NetworkSpec, batch_norm: str, deviation: float) -> None:
    layer = network.convolutions[0]
    shape = layer.weight_shape
    ones = np.ones(16, np.float32)
    weights = ConvolutionWeights(ones * 3, np.full(shape, 0.1, np.float32), ones * 2, ones * 0.7, ones * 0.25)
    folded = fold_batch_norm(layer, weights, batch_norm)
    factor = 2.0 / deviation
    assert folded.weights[0, 0, 0, 0] == np.float32(float(np.float32(0.1)) * factor)
    assert folded.bias[0] == np.float32(3.0 - float(np.float32(0.7)) * factor)


def test_folding_that_overflows_names_the_layer(network: NetworkSpec) -> None:
    layer = network.convolutions[0]
    ones = np.ones(16, np.float32)
    weights = ConvolutionWeights(ones, np.full(layer.weight_shape, 1e38, np.float32), ones * 1e38, ones, ones * 0)
    with pytest.raises(EngineError, match=r"^layer 0 \(conv-1\): folding batch normalisation gives values"):
        fold_batch_norm(layer, weights, "darknet")
