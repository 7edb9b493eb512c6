# SPDX-License-Identifier: MIT
"""A stretch of layers as a configuration of its own, which targets export as any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from mpnet.backends.partition import Segment
from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.calibration_statistics import CalibrationStatistics, RenumberedStatistics
from mpnet.engine.lowering import range_owner
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.export import Configuration
from mpnet.model.layers import LayerSpec, YoloSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32
from mpnet.model.weights import Weights


def cut(configuration: Configuration, segment: Segment) -> Configuration:
    """Cut out the layers of a segment: they read its input as their image and end in one head per result that they give.

    Layers are numbered from 0; number n is the part's n-th. The heads only mark outputs, in the order of `gives`.
    """
    parent = configuration.network
    index_of = {
        NETWORK_INPUT: -1,
        segment.input_tensor: NETWORK_INPUT,
        **{index: number for number, index in enumerate(segment.layers)},
    }
    layers: list[LayerSpec] = [
        replace(parent.layers[index], index=number, inputs=tuple(index_of[tensor] for tensor in parent.layers[index].inputs))
        for number, index in enumerate(segment.layers)
    ]
    for index in segment.output_layers:
        shape = parent.layers[index].out_shape
        layers.append(YoloSpec(len(layers), 0, (index_of[index],), shape, shape, None, f"out-{index}", (0,), ((1.0, 1.0),), 1))
    height, width, channels = parent.shape_of(segment.input_tensor)
    network = NetworkSpec(
        width,
        height,
        channels,
        tuple(layers),
        source=parent.source,
        digest=parent.digest,
        dialect=parent.dialect,
        own_dialect=parent.own_dialect,
    )
    options, prepared = configuration.options, configuration.prepared
    folded = {index_of[index]: prepared.folded[index] for index in segment.layers if index in prepared.folded}
    means = {index_of[index]: prepared.channel_means[index] for index in segment.layers if index in prepared.channel_means}
    prepared_part = Prepared(
        network,
        Weights({}),
        prepared.kernels,
        batch_norm=prepared.batch_norm,
        folded=folded,
        channel_means=means,
        statistics=_statistics(prepared, segment),
    )
    return Configuration.from_prepared(
        prepared_part,
        _precisions(configuration.precisions, segment, network),
        _options(parent, options, segment, index_of),
        names=configuration.names,
        document=configuration.document,
    )


def _statistics(prepared: Prepared, segment: Segment) -> CalibrationStatistics | None:
    return None if prepared.statistics is None else RenumberedStatistics(prepared.statistics, dict(enumerate(segment.layers)))


def _precisions(plan: PrecisionPlan, segment: Segment, network: NetworkSpec) -> PrecisionPlan:
    heads = len(segment.output_layers)
    return PrecisionPlan(
        (*(plan[index] for index in segment.layers), *[FP32] * heads),
        (*(plan.origins[index] for index in segment.layers), *["always"] * heads),
        tuple(layer.index for layer in network.convolutions),
        tuple(number for number, index in enumerate(segment.layers) if index in plan.keyed),
    )


def _options(network: NetworkSpec, options: EngineOptions, segment: Segment, new_index: dict[int, int]) -> EngineOptions:
    ranges = {new_index[tensor]: options.ranges[tensor] for tensor in segment.layers if tensor in options.ranges}
    owner = segment.input_tensor if segment.input_tensor == NETWORK_INPUT else range_owner(network, segment.input_tensor)
    if owner in options.ranges:
        ranges[NETWORK_INPUT] = options.ranges[owner]
    # What a run passes on of its own input has the input's range.
    for tensor in _passed_on(network, segment.layers, owner):
        if NETWORK_INPUT in ranges:
            ranges[new_index[tensor]] = ranges[NETWORK_INPUT]
    return EngineOptions(
        options.batch_norm,
        options.default,
        {new_index[i]: options.layers[i] for i in segment.layers if i in options.layers},
        ranges,
        {new_index[i]: options.complete[i] for i in segment.layers if i in options.complete},
    )


def _passed_on(network: NetworkSpec, layers: Sequence[int], owner: int) -> list[int]:
    return [index for index in layers if owner != NETWORK_INPUT and range_owner(network, index) == owner]
