# SPDX-License-Identifier: MIT
"""Weights made ready to run: batch norm folded once, quantised and packed once per (layer, precision, scheme)."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Callable, Iterable, Mapping, cast

import numpy as np
from numpy.typing import NDArray

from mpnet.config.protocol import BATCH_NORMS
from mpnet.engine.calibration_statistics import CalibrationStatistics
from mpnet.engine.folding import conv_shape, fold_network, normalized_weights
from mpnet.engine.memory import ArenaPool
from mpnet.engine.operations import Convolve, IntegerConvolve, PreparedConvolution
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepared_cache import PreparedCache
from mpnet.engine.rules import kernel_activation
from mpnet.errors import ConfigError, EngineError, KernelError, PrecisionError
from mpnet.formats.files.cache import FileCache
from mpnet.kernels.device import HOST
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.model.network import NetworkSpec, ShortcutSpec
from mpnet.model.precision import Precision
from mpnet.model.quantization import LEARNT
from mpnet.model.weights import Weights
from mpnet.quantization.bias_correction import bias_shift
from mpnet.quantization.equalise import ChannelFactors, FoldedConvolution, equalise_by
from mpnet.quantization.equalise import equalise as equalise_network
from mpnet.quantization.fixed_point import IntegerConstants, integer_constants, within_reach
from mpnet.quantization.weights import dequantize_weights, quantize_weights

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Constants:
    """The constants that a convolution computes with, before kernels pack them.

    weights:      (out, in / groups, size, size); of their stored type: float32, or int8 codes.
    bias:         float32 (out,), bias correction included. weight_scale: float32 (out,) of quantised weights, else None.
    integer:      of IntegerConvolve.
    """

    weights: NDArray[np.float32 | np.float16 | np.int8]
    bias: Floats
    weight_scale: Floats | None
    integer: IntegerConstants | None = None

    @property
    def codes(self) -> NDArray[np.int8]:
        """Return the weights where they are codes."""
        return cast(NDArray[np.int8], self.weights)

    @property
    def reals(self) -> Floats:
        """Return the weights where they are float32."""
        return cast(Floats, self.weights)


class Prepared:
    """The weights of one network for one table of kernels, shared by all configurations; safe to use from threads.

    folded:        by layer index, in place of what `weights` fold to.
    equalise:      move scale between layers before quantising (mpnet.quantization.equalise), by weights or by given factors;
                   no fp32 result changes.
    channel_means: mean of each input channel of a convolution over calibration images, by layer index; needed by
                   layers with bias correction that run in int8.
    statistics:    calibration statistics; needed where rounding is learnt, or the bias of layers with weights of fewer than
                   eight bits corrected.
    cache:         where prepared weights are kept for the next process; weights without a digest, and `folded`, are not.
    """

    def __init__(
        self,
        network: NetworkSpec,
        weights: Weights,
        kernels: Kernels,
        *,
        batch_norm: str = "auto",
        folded: Mapping[int, FoldedConvolution] | None = None,
        equalise: bool | ChannelFactors = False,
        channel_means: Mapping[int, NDArray[np.float64]] | None = None,
        statistics: CalibrationStatistics | None = None,
        cache: FileCache | None = None,
    ) -> None:
        if batch_norm not in BATCH_NORMS:
            raise ConfigError(f"batch_norm {batch_norm!r} is unknown; known are {', '.join(BATCH_NORMS)}")
        self.network = network
        self.kernels = kernels
        self.batch_norm = batch_norm = network.dialect if batch_norm == "auto" else batch_norm
        self._shortcuts: dict[int, Floats] = {}
        self._fixed: dict[tuple[ConvShape, Precision], PackedConv] = {}
        self._weights, self._replacements, self._equalise = weights, folded, equalise
        self._file_cache = cache
        self._cache = (
            PreparedCache(cache, network, weights, kernels, batch_norm, equalise)
            if cache is not None and weights.digest and folded is None and kernels.device is HOST
            else None
        )
        self.channel_means = dict(channel_means or {})
        self.statistics = statistics
        self._packed: dict[Convolve, PreparedConvolution] = {}
        self._slices: dict[tuple[Convolve, int, int], PreparedConvolution] = {}
        self._lock = threading.Lock()
        self._folding = threading.Lock()
        self._folded: dict[int, FoldedConvolution] | None = None
        self.arenas = ArenaPool(kernels.device)
        self._on_host: Prepared | None = None

    @classmethod
    def under(
        cls,
        options: EngineOptions,
        network: NetworkSpec,
        weights: Weights,
        kernels: Kernels,
        *,
        channel_means: Mapping[int, NDArray[np.float64]] | None = None,
        statistics: CalibrationStatistics | None = None,
        cache: FileCache | None = None,
    ) -> Prepared:
        """Return the weights folded and equalised as options say; arguments as of the class."""
        return cls(
            network,
            weights,
            kernels,
            batch_norm=options.batch_norm,
            equalise=options.equalise,
            channel_means=channel_means,
            statistics=statistics,
            cache=cache,
        )

    def with_weights(
        self,
        weights: Weights,
        *,
        channel_means: Mapping[int, NDArray[np.float64]] | None = None,
        statistics: CalibrationStatistics | None = None,
    ) -> Prepared:
        """Return other weights of the same network, for the same kernels, folded and equalised alike.

        What calibration images said of these weights does not hold of others and has to be given anew. Nothing is shared with
        this but the cache on disk, whose keys hold the weights' digest.
        """
        return Prepared(
            self.network,
            weights,
            self.kernels,
            batch_norm=self.batch_norm,
            equalise=self._equalise,
            channel_means=channel_means,
            statistics=statistics,
            cache=self._file_cache,
        )

    def on(self, kernels: Kernels) -> Prepared:
        """Return the same weights for another table of kernels."""
        return Prepared(
            self.network,
            self._weights,
            kernels,
            batch_norm=self.batch_norm,
            folded=self.folded,
            channel_means=self.channel_means,
            statistics=self.statistics,
        )

    @property
    def on_host(self) -> Prepared:
        """Return the same weights for kernels of the CPU, which run what these do not support."""
        if self.kernels.device is HOST:
            return self
        with self._lock:
            if self._on_host is None:
                self._on_host = self.on(self.kernels.host_kernels)
        return self._on_host

    @property
    def folded(self) -> dict[int, FoldedConvolution]:
        """Return every convolution's weights and bias before they are quantised, by layer index. Raises: EngineError."""
        return self._fold(threads=1)

    def _fold(self, threads: int) -> dict[int, FoldedConvolution]:
        """Return `folded`, which is made at the first time, by so many threads."""
        with self._folding:
            if self._folded is None:
                if self._replacements is not None:
                    plain = dict(self._replacements)
                else:
                    plain = fold_network(self.network, self._weights, self.batch_norm, threads)
                if isinstance(self._equalise, bool):
                    self._folded = equalise_network(self.network, plain) if self._equalise else plain
                else:
                    self._folded = equalise_by(self.network, plain, self._equalise)
            return self._folded

    def pack(self, operations: Iterable[Convolve], threads: int) -> None:
        """Pack what is not packed yet, by several threads; what cannot be packed says so when it is asked for."""
        missing = [operation for operation in dict.fromkeys(operations) if operation not in self._packed]
        if threads < 2 or len(missing) < 2:
            return
        with ThreadPoolExecutor(threads) as pool:
            tasks = {operation: pool.submit(self._cached_or_packed, operation, threads) for operation in missing}
        for operation, task in tasks.items():
            if task.exception() is None:
                self._packed.setdefault(operation, task.result())

    def convolution(self, operation: Convolve) -> PreparedConvolution:
        """Return the packed weights of one layer at one precision; packed on first use, then kept.

        Raises: EngineError that names the layer when the kernels cannot run it.
        """
        ready = self._packed.get(operation)
        if ready is None:
            with self._lock:
                ready = self._packed.get(operation)
                if ready is None:
                    ready = self._packed[operation] = self._cached_or_packed(operation)
        return ready

    def input_slice(self, operation: Convolve, channels: slice) -> PreparedConvolution:
        """Return the packed convolution of some input channels alone, whose sums are added to those of the others.

        Its weights are as they are among all channels. Raises: as `convolution`.
        """
        key = (operation, channels.start, channels.stop)
        if key not in self._slices:
            self._slices[key] = self._pack(operation, channels)
        return self._slices[key]

    def _cached_or_packed(self, operation: Convolve, threads: int = 1) -> PreparedConvolution:
        if self._cache is None:
            return self._pack(operation, threads=threads)
        layer = operation.layer_of(self.network)
        key = self._cache.key(operation, layer, self._statistics_digest(operation))
        cached = self._cache.load(key, conv_shape(layer), operation)
        if cached is not None:
            packed, bias, scale = cached
            return PreparedConvolution(
                packed, bias, scale, kernel_activation(layer.activation), self._integer_constants(operation, bias, scale)
            )
        ready = self._pack(operation, threads=threads)
        self._cache.store(key, ready.packed, ready.bias, ready.weight_scale)
        return ready

    @property
    def values(self) -> Mapping[int, Floats]:
        """Return the values of layers that are no convolutions, by layer index; see `Weights.values`."""
        return self._weights.values

    def shortcut_weights(self, index: int) -> Floats:
        """Return the normalised weights of a [shortcut]: float32 (layers, channels)."""
        ready = self._shortcuts.get(index)
        if ready is None:
            layer = self.network.layers[index]
            assert isinstance(layer, ShortcutSpec)
            normalised = normalized_weights(self.values[index], layer.normalisation)
            ready = self._shortcuts[index] = np.ascontiguousarray(
                np.broadcast_to(normalised, (len(normalised), layer.out_shape[2])), np.float32
            )
        return ready

    def fixed(self, shape: ConvShape, precision: Precision, weights: Callable[[], Floats]) -> PackedConv:
        """Return the weights that no file brings, packed once; they follow from the shape."""
        key = (shape, precision)
        if key not in self._fixed:
            self._fixed[key] = self.kernels.pack_conv(shape, precision, weights())
        return self._fixed[key]

    def _statistics_digest(self, operation: Convolve) -> str | None:
        """Return a digest of what calibration images say of an operation's constants; None: nothing."""
        learnt = operation.weights is not None and operation.weights.rounding == LEARNT
        if operation.precision.is_narrow:
            is_needed = operation.corrected or learnt
            return f"{self._statistics(operation).digest} {operation.corrected}" if is_needed else None
        means = self.channel_means.get(operation.layer) if operation.corrected else None
        digests = [self._statistics(operation).digest] if learnt else []
        return " ".join([*digests, *([] if means is None else [hashlib.sha256(means.tobytes()).hexdigest()])]) or None

    def _statistics(self, operation: Convolve) -> CalibrationStatistics:
        if self.statistics is None:
            layer = operation.layer_of(self.network)
            raise EngineError(
                f"layer {layer.index} ({layer.name}) at {operation.precision} learns its rounding and its bias from "
                "calibration images; calibrate first, or set narrow.rounding to nearest and narrow.bias_correction to false"
                if operation.precision.is_narrow
                else f"layer {layer.index} ({layer.name}) at {operation.precision} learns its rounding from calibration "
                "images; calibrate first, or set weights.rounding to another"
            )
        return self.statistics

    def _bias_shift(self, operation: Convolve, rounded: Floats) -> Floats:
        layer = operation.layer_of(self.network)
        if operation.precision.is_narrow:
            means = self._statistics(operation).means(layer.index)
        elif layer.index in self.channel_means:
            means = self.channel_means[layer.index]
        else:
            raise EngineError(
                f"layer {layer.index} ({layer.name}) asks for bias correction, which needs the means of its input over "
                "calibration images; calibrate first or set bias_correction to false"
            )
        return bias_shift(self.folded[layer.index].weights, rounded, means, layer.groups)

    def constants(self, operation: Convolve, threads: int = 1) -> Constants:
        """Return the weights and bias of one layer at one precision, for kernels to pack and for other programs to read.

        threads: that fold the network, where nobody has asked for its weights yet.
        Raises: EngineError when calibration images are needed and none were shown, or sums could leave their bits.
        """
        layer = operation.layer_of(self.network)
        folded = self._fold(threads)[layer.index]
        if operation.weights is None:
            return Constants(folded.weights, folded.bias, None)
        scheme = operation.weights
        if scheme.rounding == LEARNT:
            codes, scale = self._statistics(operation).rounded(layer.index, scheme)
        else:
            codes, scale = quantize_weights(folded.weights, scheme)
        bias = folded.bias
        if operation.corrected:
            bias = bias + self._bias_shift(operation, dequantize_weights(codes, scale))
        if isinstance(operation, IntegerConvolve):
            codes, scale = within_reach(codes, scale, bias, operation.codes, operation.result)
        bias = np.ascontiguousarray(bias)
        return Constants(codes, bias, scale, self._integer_constants(operation, bias, scale, codes))

    def _integer_constants(
        self, operation: Convolve, bias: Floats, scale: Floats | None, codes: NDArray[np.int8] | None = None
    ) -> IntegerConstants | None:
        """Return the constants that turn sums into codes.

        codes: the weights' codes, to be checked; None where they were. Raises: EngineError.
        """
        if not isinstance(operation, IntegerConvolve):
            return None
        assert scale is not None
        filters = np.zeros(len(bias), np.int64) if codes is None else np.abs(codes.astype(np.int64)).sum(axis=(1, 2, 3))
        try:
            return integer_constants(bias, scale, operation.codes, operation.result, filters)
        except PrecisionError as error:
            layer = operation.layer_of(self.network)
            raise EngineError(f"layer {layer.index} ({layer.name}) cannot run in whole numbers: {error}") from None

    def _pack(self, operation: Convolve, channels: slice | None = None, *, threads: int = 1) -> PreparedConvolution:
        layer = operation.layer_of(self.network)
        constants, shape = self.constants(operation, threads), conv_shape(layer)
        weights = constants.weights
        if channels is not None:
            weights = np.ascontiguousarray(weights[:, channels])
            shape = replace(shape, in_channels=weights.shape[1])
        try:
            packed = self.kernels.pack_conv(shape, operation.precision, weights)
        except KernelError as error:
            layer_text = f"layer {layer.index} ({layer.name})"
            raise EngineError(f"{layer_text} cannot run as {operation.precision}: {error}") from None
        activation = kernel_activation(layer.activation)
        return PreparedConvolution(packed, constants.bias, constants.weight_scale, activation, constants.integer)
