# SPDX-License-Identifier: MIT
"""Changed convolutions as weights of the same cfg."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.folding import fold_network
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights, weights_content
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.write import tunable, tuned_weights

KINDS = """[net]
width=4
height=4
channels=3
[convolutional]
batch_normalize=1
filters=4
size=3
pad=1
activation=leaky
[batchnorm]
[convolutional]
batch_normalize=1
filters=4
size=1
activation=relu
share_index=0
[connected]
output=6
activation=linear
batch_normalize=1
[softmax]
"""


@pytest.mark.parametrize("batch_norm", ["darknet", "alexeyab"])
@pytest.mark.parametrize("text", [KINDS.replace("share_index=0\n", ""), None])
def test_what_was_written_folds_to_the_same_bits(text: str | None, batch_norm: str, network: NetworkSpec) -> None:
    network = network if text is None else parse_cfg(text, "net.cfg")
    weights = random_weights(network, 1)
    random = np.random.default_rng(2)
    changed = {
        index: FoldedConvolution(
            (layer.weights * random.uniform(0.5, 2, (len(layer.bias), 1, 1, 1))).astype(np.float32),
            random.standard_normal(len(layer.bias)).astype(np.float32),
        )
        for index, layer in fold_network(network, weights, batch_norm).items()
    }
    tuned = tuned_weights(network, weights, changed, batch_norm)
    read = parse_weights(weights_content(tuned, network), network)
    assert read.digest == tuned.digest != weights.digest
    folded = fold_network(network, read, batch_norm)
    assert sorted(folded) == sorted(tunable(network))
    for index, layer in folded.items():
        np.testing.assert_array_equal(layer.weights, changed[index].weights)
        np.testing.assert_array_equal(layer.bias, changed[index].bias)


def test_layers_that_share_weights_stay_as_they_are(weights: Weights, network: NetworkSpec) -> None:
    shared = parse_cfg(
        "[net]\nwidth=4\nheight=4\nchannels=3\n"
        "[convolutional]\nfilters=3\nsize=1\nactivation=linear\n"
        "[convolutional]\nfilters=3\nsize=1\nactivation=linear\nshare_index=0\n"
        "[convolutional]\nfilters=3\nsize=1\nactivation=linear\n[softmax]\n",
        "net.cfg",
    )
    assert sorted(tunable(shared)) == [2]
    original = random_weights(shared, 0)
    ones = {
        layer.index: FoldedConvolution(np.ones(layer.weight_shape, np.float32), np.ones(layer.filters, np.float32))
        for layer in shared.convolutions
    }
    tuned = tuned_weights(shared, original, ones, "darknet")
    np.testing.assert_array_equal(tuned.layers[0].weights, original.layers[0].weights)
    np.testing.assert_array_equal(tuned.layers[2].weights, ones[2].weights)
