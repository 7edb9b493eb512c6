# SPDX-License-Identifier: MIT
"""Cross-layer equalisation: channels that one layer scales down and the next scales up again, exactly.

Leaky, relu and linear are positively homogeneous, f(s x) = s f(x), and so are maxpool, upsample and copies. Dividing a
channel's filter and bias by s > 0 and multiplying the weights that read it by s then changes no result; with s a power
of two it changes no bit of it (away from the ends of the float range), in fp32 and fp16 alike. What changes is how
evenly the channels of a layer fill one int8 range.

By weights (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019) the largest
weights that write and read a channel become equal: for weights with one scale per tensor. By activations the largest values
of channels become equal, as seen on calibration images, where only depthwise convolutions read them: their filters read one
channel each and have a scale of their own, so that nothing is lost there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import PrecisionError
from mpnet.model.layers import EmptySpec
from mpnet.model.network import ConvolutionSpec, DropoutSpec, MaxpoolSpec, NetworkSpec, RouteSpec, UpsampleSpec

_LARGEST_SHIFT = 6
HOMOGENEOUS: tuple[str, ...] = ("linear", "relu", "leaky")
Floats = NDArray[np.float32]
ChannelFactors = Mapping[int, Floats]
"""What to divide the output channels (out,) of convolutions by, by layer index."""


@dataclass(frozen=True)
class FoldedConvolution:
    """weights (out, in / groups, kh, kw) and bias (out,), batch norm folded in; float32."""

    weights: Floats
    bias: Floats


@dataclass(frozen=True)
class EqualisationPair:
    """A convolution and the convolutions that alone read its result."""

    first: int
    seconds: tuple[int, ...]


def equalisable_pairs(network: NetworkSpec) -> tuple[EqualisationPair, ...]:
    """Find the convolutions whose result, past layers that only move values, reaches nothing but convolutions."""
    pairs = []
    for layer in network.convolutions:
        if layer.activation not in HOMOGENEOUS:
            continue
        readers: set[int] = set()
        open_tensors, sound = [layer.index], True
        while open_tensors and sound:
            tensor = open_tensors.pop()
            consumers = network.consumers[tensor]
            sound = bool(consumers) and tensor not in network.outputs
            for index in consumers:
                consumer = network.layers[index]
                copies = isinstance(consumer, RouteSpec) and len(consumer.inputs) == 1 and consumer.groups == 1
                if isinstance(consumer, ConvolutionSpec):
                    # A connected layer has weights per value; scales are per channel.
                    sound = sound and consumer.kernel_input[2] == consumer.in_shape[2]
                    readers.add(index)
                elif copies or (
                    isinstance(consumer, MaxpoolSpec | UpsampleSpec | DropoutSpec | EmptySpec)
                    and (not isinstance(consumer, MaxpoolSpec) or not consumer.depth)
                ):
                    open_tensors.append(index)
                else:
                    sound = False
        if sound and readers:
            pairs.append(EqualisationPair(layer.index, tuple(sorted(readers))))
    return tuple(pairs)


def equalise(
    network: NetworkSpec, layers: Mapping[int, FoldedConvolution], *, rounds: int = 4, exact: bool = True
) -> dict[int, FoldedConvolution]:
    """Equalise the equalisable pairs among all layers, in network order, `rounds` times over.

    layers: folded weights of every convolution, by index.
    exact:  scale by the nearest powers of two, so that no bit of the fp32 network changes.
    Raises: PrecisionError if weights hold NaN or infinity.
    """
    result = dict(layers)
    pairs = equalisable_pairs(network)
    groups = {layer.index: layer.groups for layer in network.convolutions}
    for _ in range(rounds):
        moved = False
        for pair in pairs:
            factors = pair_factors(
                result[pair.first], [(result[j], groups[j]) for j in pair.seconds], exact=exact, name=str(pair.first)
            )
            if (factors == 1).all():
                continue
            moved = True
            result[pair.first] = scale_outputs(result[pair.first], factors)
            for j in pair.seconds:
                result[j] = scale_inputs(result[j], groups[j], factors)
        if not moved:
            break
    return result


def depthwise_pairs(network: NetworkSpec) -> tuple[EqualisationPair, ...]:
    """Find those of the equalisable pairs in which every filter that reads the result reads one channel of it."""
    return tuple(
        pair
        for pair in equalisable_pairs(network)
        if all(layer.groups == layer.in_shape[2] for layer in network.convolutions if layer.index in pair.seconds)
    )


def activation_factors(maxima: NDArray[np.float64]) -> Floats:
    """Return powers of two (c,), at most 1, by which channels' largest magnitudes rise above half of the largest of all.

    They are 1 for channels that are always zero. maxima: (c,), not negative and finite.
    """
    mantissa, exponent = np.frexp(maxima)
    # frexp instead of log2: its result is exact, so every CPU takes the same power.
    largest_mantissa, largest_exponent = np.frexp(maxima.max())
    power = exponent - largest_exponent + (mantissa > largest_mantissa)
    # Beyond this, scaled weights could leave the normal range of fp16.
    return np.ldexp(np.float32(1), np.where(maxima > 0, np.maximum(power, -_LARGEST_SHIFT), 0)).astype(np.float32)


def equalise_by(
    network: NetworkSpec, layers: Mapping[int, FoldedConvolution], factors: ChannelFactors
) -> dict[int, FoldedConvolution]:
    """Divide channels of all layers by given factors where they are written and multiply them where they are read."""
    result = dict(layers)
    groups = {layer.index: layer.groups for layer in network.convolutions}
    for pair in equalisable_pairs(network):
        if pair.first in factors:
            result[pair.first] = scale_outputs(result[pair.first], factors[pair.first])
            for j in pair.seconds:
                result[j] = scale_inputs(result[j], groups[j], factors[pair.first])
    return result


def pair_factors(
    first: FoldedConvolution, seconds: list[tuple[FoldedConvolution, int]], *, exact: bool = True, name: str = "?"
) -> Floats:
    """Return what to divide each output channel of `first` by.

    It is sqrt(r1 / r2), r1 and r2 the largest magnitudes that write and read the channel; 1 for channels that are dead on
    either side. seconds: (layer, its groups).
    """
    writes = np.abs(first.weights).reshape(len(first.weights), -1).max(axis=1).astype(np.float64)
    reads = np.zeros_like(writes)
    for second, groups in seconds:
        reads = np.maximum(reads, _input_magnitudes(second.weights, groups))
    if not (np.isfinite(writes).all() and np.isfinite(reads).all()):
        raise PrecisionError(f"equalisation: the weights of layer {name} or of its reader hold NaN or infinity")
    alive = (writes > 0) & (reads > 0)
    factors = np.sqrt(np.divide(writes, reads, out=np.ones_like(writes), where=alive))
    if exact:
        # frexp instead of log2: its result is exact, so every CPU rounds to the same power.
        mantissa, exponent = np.frexp(factors)
        factors = np.ldexp(1.0, exponent - (mantissa < np.sqrt(0.5)))
    # Beyond this, scaled weights could leave the range of fp16.
    return np.asarray(np.clip(factors, 2.0**-10, 2.0**10), np.float32)


def scale_outputs(layer: FoldedConvolution, factors: Floats) -> FoldedConvolution:
    """Divide filters and biases by factors (out,)."""
    weights = layer.weights / factors[:, None, None, None]
    return FoldedConvolution(weights.astype(np.float32), (layer.bias / factors).astype(np.float32))


def scale_inputs(layer: FoldedConvolution, groups: int, factors: Floats) -> FoldedConvolution:
    """Multiply weights by the factors (in,) of the channels that they read."""
    out, per_group = layer.weights.shape[:2]
    of_filter = np.repeat(factors.reshape(groups, per_group), out // groups, axis=0)
    return FoldedConvolution((layer.weights * of_filter[:, :, None, None]).astype(np.float32), layer.bias)


def _input_magnitudes(weights: Floats, groups: int) -> NDArray[np.float64]:
    """Return (in,): the largest magnitude that reads each input channel."""
    out, per_group = weights.shape[:2]
    magnitudes = np.abs(weights).reshape(groups, out // groups, per_group, -1).max(axis=(1, 3))
    return np.asarray(magnitudes.reshape(-1), np.float64)
