# SPDX-License-Identifier: MIT
"""The fp32 network and the lowered one in lockstep, layer by layer: what each reads is there when a layer is fitted.

The lowered network reads what the fitted layers before it give, so that a layer can take back what they lose. The same images
give the same bits on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.bind import named_error
from mpnet.engine.execute import convert, execute, run_lowering
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.observe import fp32_plan
from mpnet.engine.operations import conversion_between
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import EngineError, KernelError, PrecisionError
from mpnet.model.layers import ConvolutionSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.write import tunable

Floats = NDArray[np.float32]
Fit = Callable[["LayerPass"], FoldedConvolution]
"""Returns the convolution that takes the place of a layer's own."""

MOST_BYTES = 1 << 30
"""Of the tensors that both networks hold at one time."""


def images_that_fit(network: NetworkSpec, available: int) -> int:
    """Return how many of the images may run in lockstep, at least one: all tensors of all of them are held at once."""
    return max(1, min(available, MOST_BYTES // (3 * network.peak_bytes)))


class Lockstep:
    """Both networks' tensors, layer by layer. folded: the convolutions, fitted as far as the passes have come.

    prepared: the network as it is, on the CPU; weights: those that it was made of. precisions, options: of the configuration.
    batches:  (n, height, width, channels), all of them held with their tensors.
    """

    def __init__(
        self,
        prepared: Prepared,
        weights: Weights,
        precisions: PrecisionPlan,
        options: EngineOptions,
        batches: Sequence[Floats],
        threads: int,
    ) -> None:
        network = prepared.network
        self.original, self.options, self.threads = prepared, options, threads
        self._weights = weights
        self.folded: dict[int, FoldedConvolution] = dict(prepared.folded)
        # The same convolutions without activations, whose results gain, offset and codes act on.
        self._straight = replace(
            network,
            layers=tuple(replace(x, activation="linear") if isinstance(x, ConvolutionSpec) else x for x in network.layers),
        )
        self.before_activation = self.prepared_with(prepared.folded)
        self._plans = [lower(network, plan, options) for plan in (fp32_plan(network), precisions)]
        self._tunable = tunable(network)
        image_tensors = [host_tensor(batch) for batch in batches]
        self._tensors = [{NETWORK_INPUT: list(image_tensors)} for _ in self._plans]
        self._last_reader = {tensor: layer.index for layer in network.layers for tensor in layer.inputs}

    def prepared_with(self, folded: Mapping[int, FoldedConvolution]) -> Prepared:
        """Return other convolutions of the network without activations, for the same kernels."""
        return self._prepared(self._straight, folded)

    def _prepared(self, network: NetworkSpec, folded: Mapping[int, FoldedConvolution]) -> Prepared:
        original = self.original
        return Prepared(
            network,
            self._weights,
            original.kernels,
            batch_norm=original.batch_norm,
            folded=folded,
            channel_means=original.channel_means,
            statistics=original.statistics,
        )

    def run_all(self, fit: Fit, advance: Advance = unseen) -> dict[int, FoldedConvolution]:
        """Run every layer and fit each convolution whose precision is lowered; return all of them. advance: counts layers.

        Raises: EngineError that names the layer, DataError without images.
        """
        for layer in self.original.network.layers:
            try:
                self._run(layer.index, fit)
            except (KernelError, PrecisionError) as error:
                raise named_error(self.original.network, layer.index, error) from None
            advance(1)
        return self.folded

    def _run(self, index: int, fit: Fit) -> None:
        network = self.original.network
        layer = network.layers[index]
        lowerings = [plan[index] for plan in self._plans]
        inputs = [
            [tuple(tensors[tensor][batch] for tensor in layer.inputs) for batch in range(len(tensors[NETWORK_INPUT]))]
            for tensors in self._tensors
        ]
        prepared = self.original
        if index in self._tunable and lowerings[1].precision is not lowerings[0].precision:
            self.folded[index] = fit(LayerPass(self, index, lowerings[0], lowerings[1], inputs[0], inputs[1]))
            prepared = self._prepared(network, self.folded)
        for tensors, lowering, batches, weights in zip(
            self._tensors, lowerings, inputs, (self.original, prepared), strict=True
        ):
            tensors[index] = [run_lowering(lowering, batch, weights, self.threads) for batch in batches]
            for tensor in layer.inputs:
                if tensor != NETWORK_INPUT and self._last_reader[tensor] == index:
                    tensors.pop(tensor, None)


@dataclass(frozen=True, eq=False)
class LayerPass:
    """A convolution that is to be fitted, with what it reads in both networks.

    plain, lowered: what it does in fp32 and in its own precision. targets, inputs: what it reads there, for each batch.
    """

    lockstep: Lockstep
    index: int
    plain: Lowering
    lowered: Lowering
    targets: Sequence[Sequence[Tensor]]
    inputs: Sequence[Sequence[Tensor]]

    @property
    def layer(self) -> ConvolutionSpec:
        """Return the convolution."""
        layer = self.lowered.layer
        assert isinstance(layer, ConvolutionSpec)
        return layer

    @property
    def convolution(self) -> FoldedConvolution:
        """Return the convolution as it is."""
        return self.lockstep.folded[self.index]

    def target(self, batch: int) -> Floats:
        """Return what the layer gives in the fp32 network before its activation, (n, h, w, c)."""
        return self._straight(self.plain, self.targets[batch], self.lockstep.before_activation)

    def result(self, batch: int, prepared: Prepared) -> Floats:
        """Return what the lowered layer gives before its activation, (n, h, w, c). prepared: of `Lockstep.prepared_with`."""
        return self._straight(self.lowered, self.inputs[batch], prepared)

    def read(self, batch: int) -> Floats:
        """Return what the lowered layer reads: the reals of its codes, (n, h, w, c)."""
        return self._reals(self.inputs[batch])

    def quantized_target(self, batch: int) -> Floats:
        """Return what the lowered layer would read if the layers before it ran in fp32, likewise."""
        return self._reals(self.targets[batch])

    def _reals(self, inputs: Sequence[Tensor]) -> Floats:
        tensor = self._ready(self.lowered, inputs)[0]
        lockstep = self.lockstep
        reals = convert(tensor, conversion_between(tensor.precision, FP32), lockstep.original, lockstep.threads)
        return np.asarray(reals.host(), np.float32)

    def plain_of(self, read: Floats) -> Floats:
        """Return what the layer gives of values (n, h, w, c) with fp32 weights, before its activation."""
        lockstep = self.lockstep
        assert self.plain.main is not None
        tensor = host_tensor(np.ascontiguousarray(read))
        return np.asarray(execute(self.plain.main, [tensor], lockstep.before_activation, lockstep.threads).host(), np.float32)

    def _ready(self, lowering: Lowering, inputs: Sequence[Tensor]) -> list[Tensor]:
        original, threads = self.lockstep.original, self.lockstep.threads
        ready = [
            convert(tensor, conversion, original, threads) for tensor, conversion in zip(inputs, lowering.convert, strict=True)
        ]
        return [
            tensor if slice_input is None else execute(slice_input, (tensor,), original, threads)
            for tensor, slice_input in zip(ready, lowering.slices, strict=True)
        ]

    def _straight(self, lowering: Lowering, inputs: Sequence[Tensor], prepared: Prepared) -> Floats:
        assert lowering.main is not None
        ready = self._ready(lowering, inputs)
        return np.asarray(execute(lowering.main, ready, prepared, self.lockstep.threads).host(), np.float32)


def lower(network: NetworkSpec, plan: PrecisionPlan, options: EngineOptions) -> list[Lowering]:
    """Return what every layer of a plan does, in order. Raises: EngineError for what computes in whole numbers alone."""
    if options.integer_only:
        raise EngineError("quantization.integer_only computes in whole numbers alone, which cannot be tuned; leave it out")
    keyed = {index: plan[index] for index in plan.keyed}
    requested = [plan[layer.index] if layer.has_weights else None for layer in network.layers]
    return Lowerings(network, options, keyed).lower_all(requested)
