# SPDX-License-Identifier: MIT
"""Writes Darknet's weights files: what mpnet.formats.weights reads back to the same arrays."""

from __future__ import annotations

import struct

import numpy as np

from mpnet.model.layers import BatchnormSpec, ConnectedSpec, ConvolutionSpec, DeconvolutionalSpec
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Floats, Weights


def weights_content(weights: Weights, network: NetworkSpec) -> bytes:
    """The file of these weights, always with the 64-bit header."""
    version = weights.version if weights.version[0] * 10 + weights.version[1] >= 2 else (0, 2, 0)
    parts = [struct.pack("<3i", *version), struct.pack("<Q", weights.seen)]
    for layer in network.layers:
        arrays: list[Floats | None] = []
        if isinstance(layer, ConvolutionSpec):
            if layer.shares is None and layer.load:
                arrays = _blocks(layer, weights.layers[layer.index])
        elif layer.parameters:
            arrays = [weights.values[layer.index]]
        parts += [np.ascontiguousarray(array, "<f4").tobytes() for array in arrays if array is not None]
    return b"".join(parts)


def _blocks(layer: ConvolutionSpec, convolution: ConvolutionWeights) -> list[Floats | None]:
    """In the order of the file."""
    norm = [convolution.scales, convolution.means, convolution.variances] if layer.batch_normalize and layer.load_scales else []
    if isinstance(layer, BatchnormSpec):
        return [convolution.biases, *norm]
    if isinstance(layer, ConnectedSpec):
        height, width, channels = layer.in_shape
        ordered = convolution.weights.reshape(layer.filters, height, width, channels).transpose(0, 3, 1, 2)
        return [convolution.biases, ordered, *norm]
    weights = convolution.weights
    if isinstance(layer, DeconvolutionalSpec):
        weights = weights.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    elif layer.flipped:
        weights = weights.reshape(layer.filters, -1).T
    return [convolution.biases, *norm, weights]
