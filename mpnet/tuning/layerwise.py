# SPDX-License-Identifier: MIT
"""A scale and a bias of each channel, fitted layer by layer: the fp32 network and the lowered one run in lockstep.

Each convolution of the lowered network reads what the corrected layers before it give; its result before the activation is
fitted to that of fp32, and the corrected layer gives what the next one reads. The same images give the same bits on every CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.bind import named_error
from mpnet.engine.execute import convert, execute, run_lowering
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.observe import fp32_plan
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import EngineError, KernelError, PrecisionError
from mpnet.model.layers import ConvolutionSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.quantization import LEARNT
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.channel_fit import ChannelFit
from mpnet.tuning.write import tunable

MOST_BYTES = 1 << 30
"""Of the tensors that both networks hold at one time."""


def images_that_fit(network: NetworkSpec, available: int) -> int:
    """Return how many of the images may run in lockstep, at least one: all tensors of all of them are held at once."""
    return max(1, min(available, MOST_BYTES // (3 * network.peak_bytes)))


def corrected_layers(
    prepared: Prepared,
    weights: Weights,
    precisions: PrecisionPlan,
    options: EngineOptions,
    batches: Sequence[NDArray[np.float32]],
    threads: int = 1,
    advance: Advance = unseen,
) -> dict[int, FoldedConvolution]:
    """Return every convolution folded, with the gains and offsets that bring its result nearest to that of fp32.

    prepared: the network as it is, on the CPU; weights: those that it was made of. precisions, options: of the configuration.
    batches:  (n, height, width, channels), all of them held with their tensors. advance: counts layers.
    Raises: EngineError that names the layer, DataError without images.
    """
    lockstep = _Lockstep(prepared, weights, precisions, options, batches, threads)
    for layer in prepared.network.layers:
        try:
            lockstep.run(layer.index)
        except (KernelError, PrecisionError) as error:
            raise named_error(prepared.network, layer.index, error) from None
        advance(1)
    return lockstep.folded


class _Lockstep:
    """Both networks' tensors, layer by layer. folded: the convolutions, corrected as far as the passes have come."""

    def __init__(
        self,
        prepared: Prepared,
        weights: Weights,
        precisions: PrecisionPlan,
        options: EngineOptions,
        batches: Sequence[NDArray[np.float32]],
        threads: int,
    ) -> None:
        network = prepared.network
        self._original, self._weights, self._options, self._threads = prepared, weights, options, threads
        self.folded: dict[int, FoldedConvolution] = dict(prepared.folded)
        # The same convolutions without activations, whose results gain and offset act on.
        straight = tuple(replace(x, activation="linear") if isinstance(x, ConvolutionSpec) else x for x in network.layers)
        self._before_activation = self._prepared(replace(network, layers=straight), prepared.folded)
        self._plans = [lower(network, plan, options) for plan in (fp32_plan(network), precisions)]
        self._tunable = tunable(network)
        image_tensors = [host_tensor(batch) for batch in batches]
        self._tensors = [{NETWORK_INPUT: list(image_tensors)} for _ in self._plans]
        self._last_reader = {tensor: layer.index for layer in network.layers for tensor in layer.inputs}

    def _prepared(self, network: NetworkSpec, folded: Mapping[int, FoldedConvolution]) -> Prepared:
        original = self._original
        return Prepared(
            network,
            self._weights,
            original.kernels,
            batch_norm=original.batch_norm,
            folded=folded,
            channel_means=original.channel_means,
            statistics=original.statistics,
        )

    def run(self, index: int) -> None:
        """Run a layer in both networks; where it is a convolution, fit it first."""
        network = self._original.network
        layer = network.layers[index]
        lowerings = [plan[index] for plan in self._plans]
        inputs = [
            [tuple(tensors[tensor][batch] for tensor in layer.inputs) for batch in range(len(tensors[NETWORK_INPUT]))]
            for tensors in self._tensors
        ]
        prepared = self._original
        if index in self._tunable and lowerings[1].precision is not lowerings[0].precision:
            fit = ChannelFit(self._has_gain(index, lowerings[1]))
            for wanted, given in zip(*inputs, strict=True):
                fit.observe(self._straight(lowerings[0], wanted), self._straight(lowerings[1], given))
            self.folded[index] = fit.result().applied_to(self.folded[index])
            prepared = self._prepared(network, self.folded)
        for tensors, lowering, batches, weights in zip(
            self._tensors, lowerings, inputs, (self._original, prepared), strict=True
        ):
            tensors[index] = [run_lowering(lowering, batch, weights, self._threads) for batch in batches]
            for tensor in layer.inputs:
                if tensor != NETWORK_INPUT and self._last_reader[tensor] == index:
                    tensors.pop(tensor, None)

    def _has_gain(self, index: int, lowering: Lowering) -> bool:
        """Return whether a gain leaves the codes of a layer's weights as they are, and moves their scale alone."""
        quantization = self._options.of(index)
        if not lowering.precision.carries_scale:
            return False
        scheme, _ = quantization.rounded_to(lowering.precision)
        return scheme.granularity != "per_tensor" and scheme.rounding != LEARNT and scheme.method != "power_of_two"

    def _straight(self, lowering: Lowering, inputs: Sequence[Tensor]) -> NDArray[np.float32]:
        """Return what a convolution gives before its activation, as float32 (n, h, w, c)."""
        ready = [
            convert(tensor, conversion, self._original, self._threads)
            for tensor, conversion in zip(inputs, lowering.convert, strict=True)
        ]
        ready = [
            tensor if slice_input is None else execute(slice_input, (tensor,), self._original, self._threads)
            for tensor, slice_input in zip(ready, lowering.slices, strict=True)
        ]
        assert lowering.main is not None
        return np.asarray(execute(lowering.main, ready, self._before_activation, self._threads).host(), np.float32)


def lower(network: NetworkSpec, plan: PrecisionPlan, options: EngineOptions) -> list[Lowering]:
    """Return what every layer of a plan does, in order. Raises: EngineError for what computes in whole numbers alone."""
    if options.integer_only:
        raise EngineError("quantization.integer_only computes in whole numbers alone, which cannot be tuned; leave it out")
    keyed = {index: plan[index] for index in plan.keyed}
    requested = [plan[layer.index] if layer.has_weights else None for layer in network.layers]
    return Lowerings(network, options, keyed).lower_all(requested)
