# SPDX-License-Identifier: MIT
"""A stretch of layers as a configuration of its own, which targets export as any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from mpnet.backends.partition import Part
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


def cut(configuration: Configuration, part: Part) -> Configuration:
    """The layers of a part, which read its `given` tensor as their image and end in one head per result that they give.

    Layers are numbered from 0; number n is the part's n-th. The heads only mark outputs, in the order of `gives`.
    """
    whole = configuration.network
    new = {NETWORK_INPUT: -1, part.given: NETWORK_INPUT, **{index: number for number, index in enumerate(part.layers)}}
    layers: list[LayerSpec] = [
        replace(whole.layers[index], index=number, inputs=tuple(new[tensor] for tensor in whole.layers[index].inputs))
        for number, index in enumerate(part.layers)
    ]
    for index in part.gives:
        shape = whole.layers[index].out_shape
        layers.append(YoloSpec(len(layers), 0, (new[index],), shape, shape, None, f"out-{index}", (0,), ((1.0, 1.0),), 1))
    height, width, channels = whole.shape_of(part.given)
    network = NetworkSpec(
        width,
        height,
        channels,
        tuple(layers),
        source=whole.source,
        digest=whole.digest,
        dialect=whole.dialect,
        own_dialect=whole.own_dialect,
    )
    options, prepared = configuration.options, configuration.prepared
    folded = {new[index]: prepared.folded[index] for index in part.layers if index in prepared.folded}
    means = {new[index]: prepared.channel_means[index] for index in part.layers if index in prepared.channel_means}
    prepared_part = Prepared(
        network,
        Weights({}),
        prepared.kernels,
        batch_norm=prepared.batch_norm,
        folded=folded,
        channel_means=means,
        statistics=_statistics(prepared, part),
    )
    return Configuration.from_prepared(
        prepared_part,
        _precisions(configuration.precisions, part, network),
        _options(whole, options, part, new),
        names=configuration.names,
        document=configuration.document,
    )


def _statistics(prepared: Prepared, part: Part) -> CalibrationStatistics | None:
    return None if prepared.statistics is None else RenumberedStatistics(prepared.statistics, dict(enumerate(part.layers)))


def _precisions(plan: PrecisionPlan, part: Part, network: NetworkSpec) -> PrecisionPlan:
    heads = len(part.gives)
    return PrecisionPlan(
        (*(plan[index] for index in part.layers), *[FP32] * heads),
        (*(plan.origins[index] for index in part.layers), *["always"] * heads),
        tuple(layer.index for layer in network.convolutions),
        tuple(number for number, index in enumerate(part.layers) if index in plan.keyed),
    )


def _options(whole: NetworkSpec, options: EngineOptions, part: Part, new: dict[int, int]) -> EngineOptions:
    ranges = {new[tensor]: options.ranges[tensor] for tensor in part.layers if tensor in options.ranges}
    owner = part.given if part.given == NETWORK_INPUT else range_owner(whole, part.given)
    if owner in options.ranges:
        ranges[NETWORK_INPUT] = options.ranges[owner]
    # What a run passes on of its own input has the input's range.
    for tensor in _passed_on(whole, part.layers, owner):
        if NETWORK_INPUT in ranges:
            ranges[new[tensor]] = ranges[NETWORK_INPUT]
    return EngineOptions(
        options.batch_norm,
        options.default,
        {new[i]: options.layers[i] for i in part.layers if i in options.layers},
        ranges,
        {new[i]: options.complete[i] for i in part.layers if i in options.complete},
    )


def _passed_on(whole: NetworkSpec, layers: Sequence[int], owner: int) -> list[int]:
    return [index for index in layers if owner != NETWORK_INPUT and range_owner(whole, index) == owner]
