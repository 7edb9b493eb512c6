# SPDX-License-Identifier: MIT
"""Changed convolutions as weights of the same network, so that the file beside the same cfg stays a Darknet file.

Batch normalisation stays as a section's key: its means become 0, its scales 1, and its variances what makes the formula divide
by 1, so that folding gives the changed values back to the bit.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Mapping

import numpy as np

from mpnet.formats.weights import weights_content
from mpnet.model.layers import BatchnormSpec
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Weights
from mpnet.quantization.equalise import FoldedConvolution

_NEUTRAL_VARIANCE = {"darknet": np.float32((1 - 1e-6) ** 2), "alexeyab": np.float32(1 - 1e-5)}
"""sqrt(v) + 1e-6 and sqrt(v + 1e-5) are then 1 within 2^-25, and no float32 that is divided by that changes."""


def tunable(network: NetworkSpec) -> frozenset[int]:
    """Return the convolutions whose weights the file can hold in place of others, by index.

    Those of others, and those that the file does not hold, stay as they are.
    """
    shared = {layer.shares for layer in network.convolutions if layer.shares is not None}
    return frozenset(
        layer.index
        for layer in network.convolutions
        if layer.load
        and layer.shares is None
        and layer.index not in shared
        and (layer.load_scales or not layer.batch_normalize)
    )


def tuned_weights(network: NetworkSpec, weights: Weights, folded: Mapping[int, FoldedConvolution], batch_norm: str) -> Weights:
    """Return weights that fold to the given convolutions wherever the file can hold them (`tunable`).

    batch_norm: whose formula folds them, `darknet` or `alexeyab`. The digest is that of the file that holds them.
    """
    layers: dict[int, ConvolutionWeights] = dict(weights.layers)
    changeable = tunable(network)
    for layer in network.convolutions:
        if layer.index not in changeable:
            continue
        convolution, values = folded[layer.index], weights.layers[layer.index]
        if not layer.batch_normalize:
            layers[layer.index] = replace(values, biases=convolution.bias, weights=convolution.weights)
            continue
        filters = len(convolution.bias)
        scales, ready = np.ones(filters, np.float32), convolution.weights
        if isinstance(layer, BatchnormSpec):  # its weights are ones that no file holds
            scales, ready = convolution.weights.reshape(filters), values.weights
        variances = np.full(filters, _NEUTRAL_VARIANCE[batch_norm], np.float32)
        layers[layer.index] = ConvolutionWeights(convolution.bias, ready, scales, np.zeros(filters, np.float32), variances)
    changed = replace(weights, layers=layers, source="<tuned>", digest="")
    return replace(changed, digest=hashlib.sha256(weights_content(changed, network)).hexdigest())
