# SPDX-License-Identifier: MIT
"""Weights as convolutions use them: batch normalisation folded into weights and bias, before anything is quantised."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import EngineError
from mpnet.kernels.core import exponentials
from mpnet.kernels.interface import ConvShape
from mpnet.model.network import ConvolutionSpec, NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Weights
from mpnet.quantization.equalise import FoldedConvolution

Floats = NDArray[np.float32]


def conv_shape(layer: ConvolutionSpec) -> ConvShape:
    """Return the shape of a layer's convolution as the kernels take it."""
    height, width, channels = layer.kernel_input
    return ConvShape(
        height, width, channels, layer.filters, layer.size, layer.stride, layer.padding, layer.dilation, layer.groups
    )


def fold_batch_norm(layer: ConvolutionSpec, weights: ConvolutionWeights, batch_norm: str) -> FoldedConvolution:
    """Return the weights and bias that do the same without batch normalisation: computed in float64, rounded once to float32.

    batch_norm: `darknet` divides by sqrt(v) + 1e-6, `alexeyab` by sqrt(v + 1e-5).
    Raises: EngineError when a result is not finite.
    """
    if weights.scales is None or weights.means is None or weights.variances is None:
        return FoldedConvolution(weights.weights, weights.biases)
    variances = weights.variances.astype(np.float64)
    deviation = np.sqrt(variances) + 1e-6 if batch_norm == "darknet" else np.sqrt(variances + 1e-5)
    factor = weights.scales.astype(np.float64) / deviation
    with np.errstate(over="ignore"):
        folded = np.empty_like(weights.weights)
        # NumPy converts a few thousand values at a time: a third of the time of whole arrays in float64, the same bits.
        np.multiply(weights.weights, factor[:, None, None, None], out=folded, dtype=np.float64, casting="same_kind")
        bias = (weights.biases.astype(np.float64) - weights.means.astype(np.float64) * factor).astype(np.float32)
    if not (np.isfinite(folded).all() and np.isfinite(bias).all()):
        raise EngineError(
            f"layer {layer.index} ({layer.name}): folding batch normalisation gives values beyond float32; "
            "the weights are damaged or belong to another cfg"
        )
    return FoldedConvolution(folded, bias)


def normalized_weights(weights: Floats, normalisation: str) -> Floats:
    """Return weights (layers, channels) of a shortcut over their sum for each channel: relu, softmax, or none as they are."""
    if normalisation == "none":
        return weights
    relu = normalisation == "relu"
    shares = np.maximum(weights, 0) if relu else exponentials(weights - weights.max(axis=0))
    # One after the other: the order of the sum is part of the result.
    total = np.add.accumulate(shares.astype(np.float64), axis=0)[-1]
    return np.asarray(shares / (0.0001 + total), np.float32)


def fold_network(
    network: NetworkSpec, weights: Weights, batch_norm: str = "auto", threads: int = 1
) -> dict[int, FoldedConvolution]:
    """Return every convolution folded, by layer index; batch_norm auto: the dialect's. Raises: EngineError."""
    formula = network.dialect if batch_norm == "auto" else batch_norm
    with ThreadPoolExecutor(threads) as pool:
        folded = pool.map(lambda layer: fold_batch_norm(layer, weights.layers[layer.index], formula), network.convolutions)
        return {layer.index: convolution for layer, convolution in zip(network.convolutions, folded, strict=True)}
