# SPDX-License-Identifier: MIT
"""A configuration beside fp32, step by step: what each step adds to the error, and what has piled up by then.

local:      the step's error when everything before it was fp32. Conversions and steps that only move values count as
            part of the layer that they serve: a convolution's local error holds the rounding of its weights and input.
cumulative: the error of the step's result in the configuration as it runs.
alone:      the error at the heads when only this layer is lowered and all others run in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.bind import named_error
from mpnet.engine.execute import execute, run_layer
from mpnet.engine.operations import (
    Add,
    Concat,
    Convolve,
    IntegerAdd,
    IntegerConcat,
    IntegerConvolve,
    IntegerLeaky,
    Map,
    Operation,
    conversion_between,
)
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import ConfigError, DataError, KernelError, PrecisionError
from mpnet.model.network import NETWORK_INPUT
from mpnet.model.precision import FP32, Precision
from mpnet.quantization import native as activations
from mpnet.quantization.codes import LEAKY_SLOPE
from mpnet.quantization.histogram import GrowingHistogram
from mpnet.quantization.measure import ErrorMeter, TensorError, spread_of_channels

Floats = NDArray[np.float32]
HISTOGRAM_BINS = 24


@dataclass(frozen=True)
class StepAnalysis:
    """One step. local: None where the step is exact. histogram: counts of the fp32 values between their extremes."""

    number: int
    layer: int
    name: str
    operation: str
    detail: str
    output_precision: Precision
    local: TensorError | None
    cumulative: TensorError
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class LayerAnalysis:
    """One layer that is not fp32.

    local, cumulative: of its result. alone_db: SQNR of each head when only this layer is lowered.
    noise: its share, 0 to 1, in the sum of the noise that all layers alone bring to the heads, each head counted alike.
    input_spread: largest over median range of the channels of its first input in fp32; those that are always zero do not count.
    """

    layer: int
    name: str
    precision: Precision
    macs: int
    local: TensorError
    cumulative: TensorError
    alone_db: tuple[float, ...]
    noise: float
    input_spread: float


@dataclass(frozen=True)
class Analysis:
    """steps in the order of running; layers worst first; head_db: SQNR of the heads as the configuration runs."""

    images: int
    steps: tuple[StepAnalysis, ...]
    layers: tuple[LayerAnalysis, ...]
    head_db: tuple[float, ...]


class _Meters:
    """The measurements at one step: its local and its cumulative error, and a histogram of its fp32 values."""

    def __init__(self) -> None:
        self.local = ErrorMeter()
        self.cumulative = ErrorMeter()
        self.values = GrowingHistogram()
        self.rounds = False


def analyze(
    prepared: Prepared,
    plan: Plan,
    batches: Iterable[Floats],
    threads: int = 1,
    advance: Callable[[int], None] = lambda count: None,
) -> Analysis:
    """Run the images through the configuration and through fp32, and compare.

    batches: (n, height, width, channels) float32.
    Raises: ConfigError when every layer is fp32; DataError without images; EngineError naming the layer.
    """
    lowered = [layer for layer in plan.network.layers if _is_lowered(plan, layer.index)]
    if not lowered:
        raise ConfigError("every layer is fp32, so there is no error to analyse; lower some, as precision.default=int8")
    meters = [_Meters() for _ in plan.steps]
    alone = {layer.index: [ErrorMeter() for _ in plan.network.outputs] for layer in lowered}
    results = {layer.index: _Meters() for layer in lowered}
    heads = [ErrorMeter() for _ in plan.outputs]
    magnitudes: dict[int, NDArray[np.float64]] = {}
    images = 0
    for batch in batches:
        references = _walk(prepared, plan, batch, meters, results, heads, threads)
        for index, head_meters in alone.items():
            _measure_alone(prepared, plan, index, references, head_meters, threads)
            largest = np.abs(references[plan.network.layers[index].inputs[0]]).max(axis=(0, 1, 2)).astype(np.float64)
            magnitudes[index] = np.maximum(magnitudes.get(index, 0.0), largest)
        images += len(batch)
        advance(len(batch))
    if images == 0:
        raise DataError("there is no image to analyse on; give at least one")
    steps = tuple(
        _step_analysis(plan, number, step, meters[number])
        for number, step in enumerate(plan.steps)
        if not step.operation.is_head
    )
    spreads = {index: spread_of_channels(largest) for index, largest in magnitudes.items()}
    return Analysis(images, steps, _layers(plan, results, alone, spreads), tuple(m.result().sqnr_db for m in heads))


def _is_lowered(plan: Plan, index: int) -> bool:
    layer = plan.network.layers[index]
    has_precision = layer.has_weights or index in plan.precision.keyed
    return has_precision and plan.precision[index] is not FP32


def _walk(
    prepared: Prepared,
    plan: Plan,
    batch: Floats,
    meters: list[_Meters],
    results: dict[int, _Meters],
    heads: list[ErrorMeter],
    threads: int,
) -> dict[int, Floats]:
    """Run one batch through configuration, fp32 and local steps; return the fp32 result of every layer, by index."""
    actual: dict[int, Tensor] = {0: host_tensor(batch)}
    reference: dict[int, Floats] = {0: batch}
    local: dict[int, Tensor] = {}
    by_layer: dict[int, Floats] = {NETWORK_INPUT: batch}
    # Layers that only pass a tensor on have the slot of the layer that made it; that one comes first.
    result_of = {slot: layer for layer, slot in reversed(list(enumerate(plan.layer_slots)))}
    for number, step in enumerate(plan.steps):
        operation = step.operation
        try:
            now = execute(operation, [actual[slot] for slot in step.inputs], prepared, threads)
            exact = _exact(operation, [reference[slot] for slot in step.inputs], prepared, threads)
            rounds = step.input_precision is not FP32 or step.output_precision is not FP32
            if rounds:
                inputs = [
                    # Codes are always results of local steps.
                    local.get(slot) or _as_reals(host_tensor(reference[slot]), plan.slots[slot].precision, prepared)
                    for slot in step.inputs
                ]
                alone = execute(operation, inputs, prepared, threads)
        except (KernelError, PrecisionError) as error:
            raise named_error(plan.network, step.layer, error) from None
        actual[step.output], reference[step.output] = now, exact
        meter = meters[number]
        meter.values.observe(exact)
        _observe(meter.cumulative, now, exact, prepared)
        if rounds:
            meter.rounds = True
            _observe(meter.local, alone, exact, prepared)
            if (operation.is_conversion or operation.moves_values) and step.output_precision is not FP32:
                local[step.output] = alone
        layer = result_of.get(step.output)
        if layer is not None:
            by_layer[layer] = exact
            if layer in results:
                _observe(results[layer].local, alone if rounds else now, exact, prepared)
                _observe(results[layer].cumulative, now, exact, prepared)
        for slot in step.inputs:
            if plan.slots[slot].last == number and slot not in plan.outputs:
                actual.pop(slot, None)
                local.pop(slot, None)
    for layer, slot in enumerate(plan.layer_slots):
        by_layer.setdefault(layer, reference[slot])
    for head, slot in zip(heads, plan.outputs, strict=True):
        _observe(head, actual[slot], reference[slot], prepared)
    return by_layer


def _exact(operation: Operation, inputs: list[Floats], prepared: Prepared, threads: int) -> Floats:
    """Compute the fp32 result of what the operation does."""
    if operation.is_conversion or operation.is_head:
        return inputs[0]
    leaky = isinstance(operation, IntegerConvolve) and operation.layer_of(prepared.network).activation == "leaky"
    if isinstance(operation, Convolve):
        operation = Convolve(operation.layer, FP32)
    elif isinstance(operation, IntegerLeaky):
        operation = Map("leaky")
    elif isinstance(operation, IntegerAdd):
        operation = Add(operation.activation)
    elif isinstance(operation, IntegerConcat):
        operation = Concat()
    data = execute(operation, [host_tensor(x) for x in inputs], prepared, threads).floats()
    # In whole numbers LeakyReLU is a step of its own, behind the sums.
    return np.where(data < 0, data / np.float32(LEAKY_SLOPE), data) if leaky else data


def _as_reals(tensor: Tensor, precision: Precision, prepared: Prepared) -> Tensor:
    """Convert a tensor of reals to another precision of reals."""
    conversion = conversion_between(tensor.precision, precision)
    return tensor if conversion is None else execute(conversion, (tensor,), prepared)


def _values(tensor: Tensor, prepared: Prepared) -> Floats:
    """Return the real values that a tensor stands for, float32; codes as the integer kernels read them."""
    if tensor.params is not None:
        return activations.dequantize_activations(tensor.codes(), tensor.params, tensorflow=False)
    return _as_reals(tensor, FP32, prepared).floats()


def _observe(meter: ErrorMeter, tensor: Tensor, exact: Floats, prepared: Prepared) -> None:
    values = _values(tensor, prepared)
    if tensor.params is None:
        meter.observe(values, exact)
        return
    for image, params in enumerate(tensor.params):
        meter.observe(
            values[image],
            exact[image],
            scale=float(params["scale"]),
            codes=tensor.host()[image],
            low=int(params["low"]),
            high=int(params["high"]),
        )


def _measure_alone(
    prepared: Prepared, plan: Plan, index: int, references: dict[int, Floats], meters: list[ErrorMeter], threads: int
) -> None:
    """Lower one layer, run all that follows from it in fp32, compare the heads."""
    network = plan.network
    changed: dict[int, Tensor] = {}

    def value(tensor: int) -> Tensor:
        return changed.get(tensor) or host_tensor(references[tensor])

    for layer in network.layers[index:]:
        if layer.index == index or any(tensor in changed for tensor in layer.inputs):
            precision = plan.precision[index] if layer.index == index else FP32
            inputs = [value(tensor) for tensor in layer.inputs]
            changed[layer.index] = run_layer(layer.index, precision, inputs, prepared, plan.options, threads)
    for meter, head in zip(meters, network.outputs, strict=True):
        meter.observe(_values(changed[head], prepared) if head in changed else references[head], references[head])


def _step_analysis(plan: Plan, number: int, step: Step, meter: _Meters) -> StepAnalysis:
    return StepAnalysis(
        number,
        step.layer,
        plan.network.layers[step.layer].name,
        step.operation.name,
        step.operation.detail,
        step.output_precision,
        meter.local.result() if meter.rounds else None,
        meter.cumulative.result(),
        _bins(meter.values),
    )


def _bins(values: GrowingHistogram) -> tuple[int, ...]:
    """Return the histogram as HISTOGRAM_BINS equal bins between the extremes."""
    centres, counts = values.filled()
    span = values.maximum - values.minimum
    bin_indices = np.zeros(len(centres), np.int64)
    if span > 0:
        bin_indices = np.minimum((centres - values.minimum) / span * HISTOGRAM_BINS, HISTOGRAM_BINS - 1).astype(np.int64)
    bins: list[int] = np.bincount(bin_indices, weights=counts, minlength=HISTOGRAM_BINS).astype(np.int64).tolist()
    return tuple(bins)


def _layers(
    plan: Plan, results: dict[int, _Meters], alone: dict[int, list[ErrorMeter]], spreads: Mapping[int, float]
) -> tuple[LayerAnalysis, ...]:
    decibels = {index: tuple(meter.result().sqnr_db for meter in meters) for index, meters in alone.items()}
    noises = {index: sum(10 ** (-db / 10) for db in alone_db) for index, alone_db in decibels.items()}
    total = sum(noises.values())
    analyses = []
    for index in sorted(noises, key=lambda index: -noises[index]):
        layer, result = plan.network.layers[index], results[index]
        analyses.append(
            LayerAnalysis(
                index,
                layer.name,
                plan.precision[index],
                layer.macs,
                result.local.result(),
                result.cumulative.result(),
                decibels[index],
                noises[index] / total if total > 0 else 0.0,
                spreads[index],
            )
        )
    return tuple(analyses)
