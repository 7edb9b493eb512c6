# SPDX-License-Identifier: MIT
"""The contents of a weights file, per convolution, before anything is folded or quantised."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.model.network import NetworkSpec, ShortcutSpec

Floats = NDArray[np.float32]
MANY_SHORTCUTS = 16


@dataclass(frozen=True)
class ConvolutionWeights:
    """The weights of a convolution, float32 arrays.

    biases (out,); scales, means, variances (out,) with batch normalisation, else None;
    weights (out, in / groups, size, size).
    """

    biases: Floats
    weights: Floats
    scales: Floats | None = None
    means: Floats | None = None
    variances: Floats | None = None


@dataclass(frozen=True)
class Weights:
    """All convolutions' values by layer index.

    values: of layers that are no convolutions: weights of a [shortcut], (layers, channels or 1); [implicit], (filters, atoms).
    version: (major, minor, revision) of the file. seen: images seen in training. digest: SHA-256 of the file, hex.
    """

    layers: Mapping[int, ConvolutionWeights]
    version: tuple[int, int, int] = (0, 2, 5)
    seen: int = 0
    source: str = "<memory>"
    digest: str = ""
    values: Mapping[int, Floats] = field(default_factory=dict)


def random_weights(network: NetworkSpec, seed: int = 0) -> Weights:
    """Return weights that keep activations near 1 (He's scaling), for speed measurements and tests; equal for equal seeds."""
    random = np.random.Generator(np.random.PCG64(seed))
    # Each of very many sums would grow the values, beyond what halves hold.
    shortcuts = [layer for layer in network.layers if isinstance(layer, ShortcutSpec)]
    added = {layer.index - 1 for layer in shortcuts} if len(shortcuts) > MANY_SHORTCUTS else set[int]()
    calm = len(shortcuts) ** -0.5 if shortcuts else 1.0
    ends = {i for index in network.outputs for i in (index, *network.layers[index].inputs)}
    layers: dict[int, ConvolutionWeights] = {}
    for layer in network.convolutions:
        if layer.shares is not None:
            layers[layer.index] = layers[layer.shares]
            continue
        # An activation halves the mean square; without one, many layers would overflow halves.
        gain = 1.0 if layer.activation == "linear" and layer.index not in ends else 2.0
        spread = np.float32(np.sqrt(gain / layer.depth) * (calm if layer.index in added else 1.0))
        weights = random.standard_normal(layer.weight_shape, np.float32) * spread
        biases = random.standard_normal(layer.filters, np.float32) * np.float32(0.1)
        if layer.batch_normalize:
            scales, means, variances = (
                random.uniform(low, high, layer.filters).astype(np.float32)
                for low, high in ((0.75, 1.25), (-0.1, 0.1), (0.75, 1.25))
            )
            layers[layer.index] = ConvolutionWeights(biases, weights, scales, means, variances)
        else:
            layers[layer.index] = ConvolutionWeights(biases, weights)
    values = {layer.index: 1 + random.uniform(-0.5, 0.5, layer.value_shape).astype(np.float32) for layer in network.valued}
    digest = hashlib.sha256()
    for convolution in layers.values():
        for array in (convolution.biases, convolution.scales, convolution.means, convolution.variances, convolution.weights):
            if array is not None:
                digest.update(array.tobytes())
    for array in values.values():
        digest.update(array.tobytes())
    return Weights(layers, source=f"random weights, seed {seed}", digest=digest.hexdigest(), values=values)
