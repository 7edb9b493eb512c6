# SPDX-License-Identifier: MIT
"""Channels whose sign is changed so that a layer's values need a narrower range, and that then fill it.

A leaky channel that is negative on every image lies on the slope of 0.1, where its function is linear: with its sign changed it
is as large and positive, and the weights that read it change theirs. An affine range, which reaches from the least value of all
channels to the largest, has the negative side for fewer channels then, and every channel that depthwise convolutions read is
scaled to fill it. The fp32 network stays the same but for roundings, and for values that no image here showed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import FloatArray
from mpnet.model.layers import ConvolutionSpec, MaxpoolSpec
from mpnet.model.network import NetworkSpec
from mpnet.quantization.equalise import (
    EqualisationPair,
    Floats,
    FoldedConvolution,
    depthwise_pairs,
    equalisable_pairs,
    scale_inputs,
)
from mpnet.tuning.write import tunable

_LARGEST_SCALE = 64.0
"""Beyond this, scaled weights could leave the normal range of fp16."""
_LEAST_SHARE = 0.01
"""Of the positive side: the least negative side that a channel may have, so that a trace of one does not hold it small."""
_SLOPE = 0.1


class ChannelRanges:
    """The least and the largest values of the channels of tensors, over all images and as the mean of single images."""

    def __init__(self, tensors: frozenset[int]) -> None:
        self._tensors = tensors
        self._images: dict[int, int] = {}
        self._lows: dict[int, NDArray[np.float64]] = {}
        self._highs: dict[int, NDArray[np.float64]] = {}
        self.largest: dict[int, NDArray[np.float64]] = {}

    def observe(self, tensor: int, data: FloatArray) -> None:
        """Take the values (n, h, w, c) of a tensor in."""
        if tensor not in self._tensors:
            return
        for image in data:
            low, high = (reduced.astype(np.float64) for reduced in (image.min(axis=(0, 1)), image.max(axis=(0, 1))))
            # One by one, so that every CPU adds in the same order.
            self._images[tensor] = self._images.get(tensor, 0) + 1
            self._lows[tensor] = self._lows.get(tensor, 0.0) + np.minimum(low, 0)
            self._highs[tensor] = self._highs.get(tensor, 0.0) + np.maximum(high, 0)
            self.largest[tensor] = np.maximum(self.largest.get(tensor, high), high)

    def sides(self, tensor: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the magnitudes (c,) of the negative and the positive side of an image's values, as means."""
        return -self._lows[tensor] / self._images[tensor], self._highs[tensor] / self._images[tensor]


@dataclass(frozen=True, eq=False)
class TurnedChannels:
    """folded: every convolution. turned, scaled: how many channels changed their sign, and their scale."""

    folded: dict[int, FoldedConvolution]
    turned: int
    scaled: int


def turnable_pairs(network: NetworkSpec) -> tuple[EqualisationPair, ...]:
    """Find the convolutions whose channels may change their signs: no maximum is taken before convolutions read them."""
    changeable = tunable(network)
    return tuple(
        pair
        for pair in equalisable_pairs(network)
        if {pair.first, *pair.seconds} <= changeable
        and not any(_passes_maximum(network, reader, pair.first) for reader in pair.seconds)
    )


def _passes_maximum(network: NetworkSpec, reader: int, writer: int) -> bool:
    """Return whether a maxpool lies between a convolution and the one whose result it reads, past layers of one input."""
    tensor = network.layers[reader].inputs[0]
    while tensor != writer:
        if isinstance(network.layers[tensor], MaxpoolSpec):
            return True
        tensor = network.layers[tensor].inputs[0]
    return False


def turn_channels(network: NetworkSpec, layers: Mapping[int, FoldedConvolution], ranges: ChannelRanges) -> TurnedChannels:
    """Return the convolutions with channels turned and scaled, as their ranges on images say.

    layers: folded weights of every convolution, by index. ranges: of the results of all `turnable_pairs`, in fp32.
    """
    result, turned, scaled = dict(layers), 0, 0
    scalable = {pair.first for pair in depthwise_pairs(network)}
    groups = {layer.index: layer.groups for layer in network.convolutions}
    for pair in turnable_pairs(network):
        layer = network.layers[pair.first]
        assert isinstance(layer, ConvolutionSpec)
        negative, positive = ranges.sides(pair.first)
        is_turned = _turned(layer, negative, positive, ranges.largest[pair.first])
        negative, positive = np.where(is_turned, positive, negative), np.where(is_turned, negative, positive)
        scales = _filling_scales(negative, positive) if pair.first in scalable else np.ones_like(positive)
        signs = np.where(is_turned, -1.0, 1.0)
        slopes = np.where(is_turned, _SLOPE, 1.0) if layer.activation == "leaky" else 1.0
        result[pair.first] = _scale_rows(result[pair.first], signs * scales * slopes)
        for reader in pair.seconds:
            result[reader] = scale_inputs(result[reader], groups[reader], (signs / scales).astype(np.float32))
        turned, scaled = turned + int(is_turned.sum()), scaled + int((scales != 1).sum())
    return TurnedChannels(result, turned, scaled)


def _turned(
    layer: ConvolutionSpec, negative: NDArray[np.float64], positive: NDArray[np.float64], largest: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return the channels (c,) that change their sign: leaky ones that are always negative, linear ones that mostly are."""
    if layer.activation == "leaky":
        return largest < 0
    if layer.activation == "linear":
        return negative > positive
    return np.zeros(len(negative), bool)


def _filling_scales(negative: NDArray[np.float64], positive: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much channels (c,) can grow within the range that they have together, at least 1."""
    high = positive.max()
    low = max(negative.max(), _LEAST_SHARE * high)
    scales = np.full(len(positive), _LARGEST_SCALE)
    for side, most in ((positive, high), (negative, low)):
        scales = np.minimum(scales, np.divide(most, side, out=np.full_like(side, _LARGEST_SCALE), where=side > 0))
    return np.where((positive > 0) | (negative > 0), np.maximum(scales, 1.0), 1.0)


def _scale_rows(layer: FoldedConvolution, factors: NDArray[np.float64]) -> FoldedConvolution:
    """Multiply filters and biases by factors (out,)."""
    weights: Floats = (layer.weights * factors[:, None, None, None]).astype(np.float32)
    return FoldedConvolution(weights, (layer.bias * factors).astype(np.float32))
