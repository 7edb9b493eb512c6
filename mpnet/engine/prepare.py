"""Weights made ready to run: batch norm folded once, quantised and packed once per (layer, precision, scheme)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.memory import ArenaPool
from mpnet.engine.operations import Convolve
from mpnet.engine.prepared_cache import PreparedCache
from mpnet.errors import ConfigError, EngineError, KernelError
from mpnet.formats.cache import FileCache
from mpnet.kernels.calls import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.quantization.bias_correction import bias_shift
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.quantization.equalise import equalise as equalise_network
from mpnet.quantization.weights import dequantize_weights, quantize_weights
from mpnet.spec.network import ConvolutionSpec, NetworkSpec
from mpnet.spec.protocol import BATCH_NORMS
from mpnet.spec.weights import ConvolutionWeights, Weights

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Constants:
    """What a convolution computes with, before kernels pack it.

    weights:      (out, in / groups, size, size); of their stored type: float32, or int8 codes.
    bias:         float32 (out,), bias correction included. weight_scale: float32 (out,) of quantised weights, else None.
    """

    weights: NDArray[Any]
    bias: Floats
    weight_scale: Floats | None


@dataclass(frozen=True)
class PreparedConvolution:
    """What the kernel needs. weight_scale: (out,) of quantised weights, else None."""

    packed: PackedConv
    bias: Floats
    weight_scale: Floats | None
    activation: str


def conv_shape(layer: ConvolutionSpec) -> ConvShape:
    """The kernels' view of a layer."""
    height, width, channels = layer.in_shape
    return ConvShape(
        height, width, channels, layer.filters, layer.size, layer.stride, layer.padding, layer.dilation, layer.groups
    )


def fold_batch_norm(layer: ConvolutionSpec, weights: ConvolutionWeights, batch_norm: str) -> FoldedConvolution:
    """Weights and bias that do the same without batch normalisation: computed in float64, rounded once to float32.

    batch_norm: `darknet` divides by sqrt(v) + 1e-6, `alexeyab` by sqrt(v + 1e-5).
    Raises: EngineError when a result is not finite.
    """
    if weights.scales is None or weights.means is None or weights.variances is None:
        return FoldedConvolution(weights.weights, weights.biases)
    variances = weights.variances.astype(np.float64)
    deviation = np.sqrt(variances) + 1e-6 if batch_norm == "darknet" else np.sqrt(variances + 1e-5)
    factor = weights.scales.astype(np.float64) / deviation
    with np.errstate(over="ignore"):
        folded = (weights.weights.astype(np.float64) * factor[:, None, None, None]).astype(np.float32)
        bias = (weights.biases.astype(np.float64) - weights.means.astype(np.float64) * factor).astype(np.float32)
    if not (np.isfinite(folded).all() and np.isfinite(bias).all()):
        raise EngineError(
            f"layer {layer.index} ({layer.name}): folding batch normalisation gives values beyond float32; "
            "the weights are damaged or belong to another cfg"
        )
    return FoldedConvolution(folded, bias)


def fold_network(network: NetworkSpec, weights: Weights, batch_norm: str = "darknet") -> dict[int, FoldedConvolution]:
    """Every convolution folded, by layer index. Raises: EngineError."""
    return {
        layer.index: fold_batch_norm(layer, weights.layers[layer.index], batch_norm) for layer in network.convolutions
    }


class Prepared:
    """The weights of one network for one table of kernels, shared by all configurations; safe to use from threads.

    folded:        by layer index, in place of what `weights` fold to.
    equalise:      move scale between layers before quantising (mpnet.quantization.equalise); no fp32 result changes.
    channel_means: mean of each input channel of a convolution over calibration pictures, by layer index; needed by
                   layers with bias correction that run in int8.
    cache:         where prepared weights are kept for the next process; weights without a digest, and `folded`, are not.
    """

    def __init__(
        self, network: NetworkSpec, weights: Weights, kernels: Kernels, *, batch_norm: str = "darknet",
        folded: Mapping[int, FoldedConvolution] | None = None, equalise: bool = False,
        channel_means: Mapping[int, NDArray[np.float64]] | None = None, cache: FileCache | None = None,
    ) -> None:
        if batch_norm not in BATCH_NORMS:
            raise ConfigError(f"batch_norm {batch_norm!r} is unknown; known are {', '.join(BATCH_NORMS)}")
        self.network = network
        self.kernels = kernels
        self.batch_norm = batch_norm
        self._weights, self._given, self._equalise = weights, folded, equalise
        self._cache = (
            PreparedCache(cache, network, weights, kernels, batch_norm, equalise)
            if cache is not None and weights.digest and folded is None else None
        )
        self.channel_means = dict(channel_means or {})
        self._packed: dict[Convolve, PreparedConvolution] = {}
        self._lock = threading.Lock()
        self.arenas = ArenaPool()

    @cached_property
    def folded(self) -> dict[int, FoldedConvolution]:
        """Every convolution's weights and bias before they are quantised, by layer index. Raises: EngineError."""
        given = self._given
        plain = fold_network(self.network, self._weights, self.batch_norm) if given is None else dict(given)
        return equalise_network(self.network, plain) if self._equalise else plain

    def convolution(self, operation: Convolve) -> PreparedConvolution:
        """The packed weights of one layer at one precision; packed on first use, then kept.

        Raises: EngineError that names the layer when the kernels cannot run it.
        """
        ready = self._packed.get(operation)
        if ready is None:
            with self._lock:
                ready = self._packed.get(operation)
                if ready is None:
                    ready = self._packed[operation] = self._kept_or_packed(operation)
        return ready

    def _kept_or_packed(self, operation: Convolve) -> PreparedConvolution:
        if self._cache is None:
            return self._pack(operation)
        layer = operation.layer_of(self.network)
        key = self._cache.key(operation, layer, self.channel_means.get(layer.index))
        kept = self._cache.load(key, conv_shape(layer), operation)
        if kept is not None:
            return PreparedConvolution(*kept, layer.activation)
        ready = self._pack(operation)
        self._cache.store(key, ready.packed, ready.bias, ready.weight_scale)
        return ready

    def _bias_shift(self, layer: ConvolutionSpec, rounded: Floats) -> Floats:
        means = self.channel_means.get(layer.index)
        if means is None:
            raise EngineError(
                f"layer {layer.index} ({layer.name}) asks for bias correction, which needs the means of its input over "
                "calibration pictures; calibrate first or set bias_correction to false"
            )
        return bias_shift(self.folded[layer.index].weights, rounded, means, layer.groups)

    def constants(self, operation: Convolve) -> Constants:
        """Weights and bias of one layer at one precision, for kernels to pack and for other programs to read.

        Raises: EngineError when bias correction lacks its means.
        """
        layer = operation.layer_of(self.network)
        folded = self.folded[layer.index]
        if operation.weights is None:
            return Constants(folded.weights, folded.bias, None)
        codes, scale = quantize_weights(folded.weights, operation.weights)
        bias = folded.bias
        if operation.corrected:
            bias = bias + self._bias_shift(layer, dequantize_weights(codes, scale))
        return Constants(codes, np.ascontiguousarray(bias), scale)

    def _pack(self, operation: Convolve) -> PreparedConvolution:
        layer = operation.layer_of(self.network)
        constants = self.constants(operation)
        try:
            packed = self.kernels.pack_conv(conv_shape(layer), operation.precision, constants.weights)
        except KernelError as error:
            place = f"layer {layer.index} ({layer.name})"
            raise EngineError(f"{place} cannot run as {operation.precision}: {error}") from None
        return PreparedConvolution(packed, constants.bias, constants.weight_scale, layer.activation)
