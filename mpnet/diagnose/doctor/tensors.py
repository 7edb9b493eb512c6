# SPDX-License-Identifier: MIT
"""Checks of tensors over the images: ranges of channels, parts that share a scale, channels that say nothing."""

from __future__ import annotations

import numpy as np

from mpnet.diagnose.doctor.finding import Check, Finding
from mpnet.diagnose.doctor.patient import Patient, TensorRange
from mpnet.diagnose.raising import find_raising
from mpnet.engine.assign import assign
from mpnet.messages import counted
from mpnet.model.layers import RouteSpec
from mpnet.model.network import ConvolutionSpec
from mpnet.model.precision import FP32
from mpnet.quantization.measure import spread_of_channels
from mpnet.trial.defaults import named_target
from mpnet.trial.inference import run_plans

UNEVEN_CHANNELS = 16.0
"""Largest over median range of channels, from which the median channel has no more than 8 of 127 levels of one scale."""
LEVELS = 127
LOW_DB = 20.0
"""SQNR of a head below which one layer alone counts as damage: noise of 1 % of the head's power."""
FEW_LEVELS = 2.0
"""Levels of a shared scale below which a part of a concatenation is nearly gone."""
DEAD_SHARE, DEAD_COUNT = 0.25, 2
"""Share and number of a layer's channels from which those that never change are worth saying."""


def find_uneven_channels(patient: Patient) -> tuple[list[Finding], str]:
    """Find layers in codes whose input or filters have one scale for channels of very different ranges, and that suffer."""
    worst, findings = 1.0, []
    for layer in patient.network.convolutions:
        if not patient.plan.precision[layer.index].carries_scale:
            continue
        spreads = {"input": spread_of_channels(_range_of(patient, layer.inputs[0]).magnitude)}
        weights, _ = patient.bench.options.of(layer.index).rounded_to(patient.plan.precision[layer.index])
        if weights.granularity == "per_tensor":
            filters = np.abs(patient.bench.prepared.folded[layer.index].weights)
            spreads["filters"] = spread_of_channels(filters.reshape(len(filters), -1).max(axis=1).astype(np.float64))
        worst = max(worst, *spreads.values())
        of, spread = max(spreads.items(), key=lambda item: item[1])
        if spread < UNEVEN_CHANNELS:
            continue
        lowest_db = _measure_alone(patient, layer)
        if lowest_db < LOW_DB:
            findings.append(_describe_uneven(patient, layer, of, spread, lowest_db))
    return findings, f"largest over median range of channels is at most {worst:.1f}"


def _describe_uneven(patient: Patient, layer: ConvolutionSpec, of: str, spread: float, lowest_db: float) -> Finding:
    raised = find_raising(patient.bench, named_target(patient.engines[0] if patient.engines else "")).raise_precision(
        layer.index, patient.plan.precision[layer.index]
    )
    remedy = f"precision: {{layers: {{{layer.index}: {raised.name}}}}}"
    if of == "filters":
        remedy = "quantization: {weights: per_channel}"
    return Finding(
        CHANNEL_RANGES.name,
        patient.name_layer(layer.index),
        f"one scale for channels of its {of} whose largest range is {spread:.0f} times the median: the median channel has "
        f"{LEVELS / spread:.1f} of {LEVELS} levels, and this layer alone leaves a head {lowest_db:.1f} dB",
        {"largest_over_median": spread, "levels_of_median": LEVELS / spread, "head_sqnr_db": lowest_db},
        remedy,
    )


def _measure_alone(patient: Patient, layer: ConvolutionSpec) -> float:
    """Return the least SQNR of a head, dB, when only this layer is lowered."""
    plan, bench = patient.plan.precision, patient.bench
    overrides = {index: plan[index] if index == layer.index else FP32 for index in bench.weighted_layers}
    alone = bench.plan(assign(patient.network, overrides=overrides))
    _, outcome = run_plans(bench, [patient.fp32, alone])
    return min(outcome.head_sqnr_db)


def find_shared_scales(patient: Patient) -> tuple[list[Finding], str]:
    """Find parts of a concatenation that its one scale rounds away, and scores that a file's output scale does."""
    findings, checked = [], 0
    behind = None if patient.imported is None else patient.imported.rounding_behind
    if behind is not None and behind.hides_scores:
        findings.append(
            Finding(
                SHARED_SCALE.name,
                f"{patient.source}: {behind.score_tensor}",
                f"scores of the file have steps of {behind.score_step:.3g}, so that all below {behind.score_step / 2:.2g} are "
                "0: they share one scale with boxes, or its range is too wide",
                {"step": behind.score_step, "levels_from_0_to_1": 1 / behind.score_step},
                "quantise the file again without the nodes behind its heads, which `mpnet export --to recipe` lists "
                "(nodes_to_exclude)",
            )
        )
    for layer in patient.network.layers:
        if not isinstance(layer, RouteSpec) or len(layer.inputs) < 2:
            continue
        readers = [reader for reader in patient.network.readers_of(layer.index) if _is_in_codes(patient, reader)]
        if not readers:
            continue
        checked += 1
        parts = {index: float(_range_of(patient, index).magnitude.max(initial=0.0)) for index in layer.inputs}
        largest = max(parts.values())
        for index, part in parts.items():
            levels = LEVELS * part / largest if largest else LEVELS
            if part > 0 and levels < FEW_LEVELS:
                findings.append(
                    Finding(
                        SHARED_SCALE.name,
                        patient.name_layer(layer.index),
                        f"the part from {patient.name_layer(index)} reaches {part:.3g} where the whole reaches {largest:.3g}: "
                        f"in int8 it has {levels:.2f} of {LEVELS} levels",
                        {"part": part, "whole": largest, "levels": levels},
                        "precision: {layers: {" + ", ".join(f"{reader}: fp16" for reader in sorted(readers)) + "}}",
                    )
                )
    return findings, f"{counted(checked, 'concatenation')} read in codes"


def _is_in_codes(patient: Patient, index: int) -> bool:
    layer = patient.network.layers[index]
    return isinstance(layer, ConvolutionSpec) and patient.plan.precision[index].carries_scale


def find_dead_channels(patient: Patient) -> tuple[list[Finding], str]:
    """Find layers of which many channels have one and the same value in all images."""
    findings, dead_total = [], 0
    for layer in patient.network.convolutions:
        values = patient.ranges.get(layer.index)
        if values is None:
            continue
        dead, count = int((values.least == values.largest).sum()), len(values.least)
        dead_total += dead
        if dead < max(DEAD_COUNT, DEAD_SHARE * count) or np.prod(layer.out_shape[:2]) == 1:
            continue
        findings.append(
            Finding(
                DEAD_CHANNELS.name,
                patient.name_layer(layer.index),
                f"{dead} of {count} channels have one value in all {counted(len(patient.bench.inputs), 'image')}",
                {"dead": float(dead), "channels": float(count)},
                "see that the weights belong to this network and were trained; if so, prune these channels where it is "
                "trained: they cost time and say nothing",
            )
        )
    return findings, f"{counted(dead_total, 'channel')} of convolutions without a change"


def _range_of(patient: Patient, tensor: int) -> TensorRange:
    """Return the range of a tensor; what only passes another one on is shown as that one."""
    while tensor not in patient.ranges:
        tensor = patient.network.layers[tensor].inputs[0]
    return patient.ranges[tensor]


CHANNEL_RANGES = Check("channel_ranges", "channels of very different ranges under one scale", find_uneven_channels)
SHARED_SCALE = Check("shared_scale", "scores or parts of a concatenation that one scale rounds to 0", find_shared_scales)
DEAD_CHANNELS = Check("dead_channels", "channels that have one value in all images", find_dead_channels)
