# SPDX-License-Identifier: MIT
"""A network as PyTorch trains it: the lowered layers of a plan, with fake quantisation by mpnet's formulas.

A convolution's weights are trained in steps of their codes, its biases in parts of what its result varies by, and every filter
has a factor. So one rate suits all layers, and a rate is how far a step of the optimiser goes at most.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mpnet.engine import operations as op
from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.lowering import Lowering
from mpnet.engine.operations import Operation
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.model.layers import ConnectedSpec, ConvolutionSpec
from mpnet.model.network import NETWORK_INPUT
from mpnet.model.quantization import PER_GROUP
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.quantization.weights import dequantize_weights
from mpnet.tuning.lockstep import lower
from mpnet.tuning.torch_operations import (
    ACTIVATIONS,
    COMPUTE,
    Tensor,
    check,
    check_activation,
    convolve,
    fake_quantize,
    quantized_weights,
)
from mpnet.tuning.write import tunable

_FACTOR_STEP = 0.002
"""Of a filter's factor: a fifth of a percent."""
_BIAS_STEP = 0.02
"""Of the standard deviation of a channel's result."""


class TrainedConvolution:
    """The weights of a convolution, with what is added to them.

    is_fixed: whether codes have the steps that they had, as those do that were searched for; else a filter's largest weight
    is its largest code.
    """

    def __init__(self, prepared: Prepared, operation: op.Convolve, is_trained: bool) -> None:
        self.layer: ConvolutionSpec = operation.layer_of(prepared.network)
        self.is_trained = is_trained
        constants, folded = prepared.constants(operation), prepared.folded[self.layer.index]
        self.scheme = operation.weights
        self.is_fixed = False
        weights, steps = (
            folded.weights,
            np.maximum(np.abs(folded.weights).reshape(len(folded.bias), -1).max(axis=1) / 127, 1e-12),
        )
        if self.scheme is not None:
            if self.scheme.granularity == PER_GROUP:
                raise ConfigError("weights in groups of 32 channels are not trained; set narrow.granularity to per_channel")
            assert constants.weight_scale is not None
            self.is_fixed = self.scheme.method != "min_max" or self.scheme.rounding != "half_to_even"
            steps = constants.weight_scale
            if self.is_fixed:
                # Only where the largest code is in use does the least-and-largest rule find the same steps again.
                rows = np.abs(constants.codes.astype(np.int32)).reshape(len(steps), -1).max(axis=1)
                reals = dequantize_weights(constants.codes, steps)
                weights = np.where((rows == self.scheme.largest)[:, None, None, None], reals, folded.weights)
        self.weights, self.bias = torch.from_numpy(weights.copy()), torch.from_numpy(constants.bias.copy())
        self.steps = torch.from_numpy(np.asarray(steps, np.float32).copy())
        self.bias_step = torch.full_like(self.bias, 1e-3)
        self.weight_moves = torch.zeros_like(self.weights, requires_grad=is_trained)
        self.bias_moves = torch.zeros_like(self.bias, requires_grad=is_trained)
        self.factor_moves = torch.zeros_like(self.bias, requires_grad=is_trained)
        self._is_free = self._pin() if self.is_fixed else None

    def _pin(self) -> Tensor:
        """Hold each filter's largest weight at its largest code; return 1 for weights that may move, 0 for those."""
        assert self.scheme is not None
        rows = self.weights.reshape(len(self.weights), -1)
        largest, positions = rows.abs().max(1)
        self.steps = torch.where(largest > 0, largest / self.scheme.largest, self.steps)
        is_free = torch.ones_like(rows)
        is_free.scatter_(1, positions[:, None], 0.0)
        return is_free.reshape(self.weights.shape)

    def reals(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias, before the weights are quantised."""
        moves = self.weight_moves if self._is_free is None else self.weight_moves * self._is_free
        weights = self.weights + moves * self.steps[:, None, None, None]
        factors = 1 + _FACTOR_STEP * self.factor_moves
        if not self.is_fixed:
            weights = weights * factors[:, None, None, None]
        return weights, self.bias + self.bias_step * self.bias_moves

    def quantized(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias as the layer computes with them."""
        weights, bias = self.reals()
        if self.scheme is None:
            return weights, bias
        if self.is_fixed:
            factors = 1 + _FACTOR_STEP * self.factor_moves
            return quantized_weights(weights, self.steps, self.scheme.largest) * factors[:, None, None, None], bias
        with torch.no_grad():
            largest = weights.abs().flatten(1).amax(1)
            if self.scheme.granularity == "per_tensor":
                largest = largest.amax().expand(len(largest))
            steps = torch.where(largest > 0, (largest / self.scheme.largest).clamp_min(2.0**-100), torch.ones_like(largest))
        return quantized_weights(weights, steps, self.scheme.largest), bias

    def folded(self) -> FoldedConvolution:
        """Return what is to be written: of codes with fixed steps the reals that they stand for."""
        with torch.no_grad():
            weights, bias = self.quantized() if self.is_fixed else self.reals()
        return FoldedConvolution(weights.numpy().astype(np.float32), bias.numpy().astype(np.float32))


class TorchNetwork:
    """The layers of a plan. convolutions: by layer index."""

    def __init__(self, prepared: Prepared, precisions: PrecisionPlan, options: EngineOptions) -> None:
        """Take weights and constants over. Raises: ConfigError that names a layer which cannot be trained."""
        self._prepared = prepared
        self._lowered = lower(prepared.network, precisions, options)
        self.convolutions: dict[int, TrainedConvolution] = {}
        changeable = tunable(prepared.network)
        for lowering in self._lowered:
            try:
                for operation in (*lowering.convert, *lowering.slices, *lowering.operations, lowering.after):
                    if operation is not None:
                        check(operation)
                if isinstance(lowering.main, op.Convolve):
                    check_activation(lowering.main.layer_of(prepared.network).activation)
                    index = lowering.layer.index
                    self.convolutions[index] = TrainedConvolution(prepared, lowering.main, index in changeable)
            except ConfigError as error:
                raise ConfigError(f"layer {lowering.layer.index} ({lowering.layer.name}) cannot be trained: {error}") from None
        readers = [tensor for layer in prepared.network.layers for tensor in layer.inputs]
        self._kept = set(readers) | set(prepared.network.outputs)

    def __call__(self, images: Tensor, observe: Any = None) -> list[Tensor]:
        """Return the tensors that enter the heads, (n, c, h, w). observe: called with index and result of convolutions."""
        values: dict[int, Tensor] = {NETWORK_INPUT: images}
        converted: dict[tuple[int, Any], Tensor] = {}
        for lowering in self._lowered:
            inputs = []
            for tensor, conversion, slice_input in zip(lowering.layer.inputs, lowering.convert, lowering.slices, strict=True):
                x = values[tensor]
                if isinstance(conversion, op.Quantize):
                    key = (tensor, conversion)
                    if key not in converted:
                        converted[key] = fake_quantize(x, conversion)
                    x = converted[key]
                inputs.append(x if slice_input is None else self._run(lowering, slice_input, [x]))
            result = inputs[0]
            for number, operation in enumerate(lowering.operations):
                result = self._run(lowering, operation, [result] if number else inputs)
            if isinstance(lowering.after, op.Quantize):
                result = fake_quantize(result, lowering.after)
            if observe is not None and lowering.layer.index in self.convolutions:
                observe(lowering.layer.index, result)
            values[lowering.layer.index] = result
        return [values[index] for index in self._prepared.network.outputs]

    def _run(self, lowering: Lowering, operation: Operation, inputs: Sequence[Tensor]) -> Tensor:
        if operation.is_head:
            return inputs[0]
        if not isinstance(operation, op.Convolve):
            return COMPUTE[type(operation)](operation, inputs, self._prepared)
        convolution = self.convolutions[lowering.layer.index]
        layer, x = convolution.layer, inputs[0]
        if isinstance(layer, ConnectedSpec):
            x = x.permute(0, 2, 3, 1).reshape(len(x), -1, 1, 1)
        weights, bias = convolution.quantized()
        x = convolve(x, weights, bias, layer)
        follows = {type(after) for after in lowering.rest}
        return x if follows & {op.Map, op.Normalize} else ACTIVATIONS[layer.activation](x)

    def measure_biases(self, images: Tensor) -> None:
        """Take the step of each bias from what its channel's result varies by on some images."""

        def observe(index: int, result: Tensor) -> None:
            deviation = result.permute(1, 0, 2, 3).flatten(1).std(1).clamp_min(1e-3)
            convolution = self.convolutions[index]
            if len(deviation) == len(convolution.bias):
                convolution.bias_step = _BIAS_STEP * deviation

        with torch.no_grad():
            self(images, observe)

    def folded(self) -> dict[int, FoldedConvolution]:
        """Return every convolution as it is to be written."""
        return {index: convolution.folded() for index, convolution in self.convolutions.items()}

    def moves(self) -> list[tuple[str, Tensor]]:
        """Return everything that is trained, with what it is: weights, biases or factors."""
        trained = [convolution for convolution in self.convolutions.values() if convolution.is_trained]
        return [
            (kind, moves)
            for convolution in trained
            for kind, moves in (
                ("weights", convolution.weight_moves),
                ("biases", convolution.bias_moves),
                ("factors", convolution.factor_moves),
            )
        ]

    def forward(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return what `Session.forward` gives of images (n, h, w, c): the tensors that enter the heads, likewise."""
        with torch.no_grad():
            heads = self(torch.from_numpy(images).permute(0, 3, 1, 2))
        return [np.ascontiguousarray(head.permute(0, 2, 3, 1).numpy()) for head in heads]
