# SPDX-License-Identifier: MIT
"""How calibrated ranges are found, chosen by what layers make of the codes: which values to cut off.

Every layer reads the tensors of fp32, quantised under ranges of each method, and its output before the activation is compared
with that of fp32. Layers that read one tensor share its range, so they choose together: the method with the least error of
all of them. The same images give the same choice on every CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.lowering import is_quantized_afterwards, range_owner
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.lockstep import LayerPass, Lockstep

METHODS = (
    ActivationOptions(method="min_max"),
    ActivationOptions(method="mse"),
    ActivationOptions(method="percentile", percentile=99.99),
    ActivationOptions(method="percentile", percentile=99.9),
    ActivationOptions(method="percentile", percentile=99.0),
)
"""Those that are tried beside each layer's own. Of equals the first counts."""
_WORTH = 0.95
"""Of the error under a layer's own method: what is not below stays as it is."""


def method_errors(
    prepared: Prepared,
    weights: Weights,
    precisions: PrecisionPlan,
    options: EngineOptions,
    batches: Sequence[NDArray[np.float32]],
    threads: int = 1,
    advance: Advance = unseen,
) -> dict[int, float]:
    """Return the error of each calibrated convolution's output under the ranges that options ask for, by layer index.

    The error is the squared one over the squared output. Ranges are found on `batches`; arguments otherwise as of `Lockstep`.
    Raises: EngineError that names the layer, DataError without images, ConfigError for ranges that do not fit each other.
    """
    requests = range_requests(prepared.network, options)
    ranges = calibrate(prepared, batches, requests, {}, threads)
    ranged = replace(options, ranges={**options.ranges, **ranges.by_tensor()})
    errors: dict[int, float] = {}

    def measure(layer_pass: LayerPass) -> FoldedConvolution:
        if options.of(layer_pass.index).calibrated and layer_pass.lowered.precision.carries_scale:
            errors[layer_pass.index] = _relative_error(layer_pass)
        return layer_pass.convolution

    Lockstep(prepared, weights, precisions, ranged, batches, threads).run_all(measure, advance)
    return errors


def _relative_error(layer_pass: LayerPass) -> float:
    error = energy = 0.0
    for batch in range(len(layer_pass.targets)):
        target = layer_pass.target(batch).astype(np.float64)
        lacking = target - layer_pass.plain_of(layer_pass.quantized_target(batch))
        # Rows are added one after the other, so the sums are the same on every CPU.
        channels = target.shape[-1]
        error += float(np.add.accumulate((lacking * lacking).reshape(-1, channels).sum(axis=0))[-1])
        energy += float(np.add.accumulate((target * target).reshape(-1, channels).sum(axis=0))[-1])
    return error / energy if energy > 0 else 0.0


def choose_methods(
    network: NetworkSpec, options: EngineOptions, own: Mapping[int, float], tried: Sequence[Mapping[int, float]]
) -> dict[int, ActivationOptions]:
    """Return the methods that take the place of layers' own, by index of every layer whose tensors they are for.

    own, tried: `method_errors` under each layer's own method, and under METHODS.
    """
    chosen = {}
    for group in _groups(network, options):
        measured = [index for index in group if index in own]
        totals = [sum(errors[index] for index in measured) for errors in tried]
        if measured and min(totals) < _WORTH * sum(own[index] for index in measured):
            method = METHODS[totals.index(min(totals))]
            chosen.update(dict.fromkeys(group, method))
    return chosen


def _groups(network: NetworkSpec, options: EngineOptions) -> Iterator[list[int]]:
    """Yield calibrated layers that have to ask for the same method, because one tensor's range serves them."""
    group_of: dict[int, int] = {}
    of_tensor: dict[int, int] = {}
    for layer in network.layers:
        if layer.always_fp32 or not options.of(layer.index).calibrated:
            continue
        tensors = [*layer.inputs, *([layer.index] if is_quantized_afterwards(layer) else [])]
        owners = {range_owner(network, tensor) for tensor in tensors} - network.stated_ranges.keys()
        group_of[layer.index] = layer.index
        for owner in sorted(owners):
            earlier, later = of_tensor.setdefault(owner, layer.index), group_of[layer.index]
            first = group_of[earlier]
            group_of = {index: first if group == later else group for index, group in group_of.items()}
    for number in sorted(set(group_of.values())):
        yield [index for index, group in group_of.items() if group == number]
