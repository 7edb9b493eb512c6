# SPDX-License-Identifier: MIT
"""The support table: every operation at every precision, and in every mode of quantisation, asked of every target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping, Sequence

from mpnet.engine.options import LayerQuantization, layer_quantization
from mpnet.export import Target, columns
from mpnet.model.layers import (
    ACTIVATIONS,
    LAYER_KINDS,
    NETWORK_INPUT,
    ConvolutionSpec,
    LayerSpec,
    MaxpoolSpec,
    RouteSpec,
    ShortcutSpec,
)
from mpnet.model.precision import FP32, INT8, PRECISIONS, Precision
from mpnet.model.quantization import (
    ACTIVATION_MODES,
    ACTIVATION_RANGES,
    NO_OPTIONS,
    WEIGHT_GRANULARITIES,
    WEIGHT_METHODS,
    ActivationOptions,
    QuantizationOptions,
    WeightOptions,
)

_SHAPE = (16, 16, 8)
_CONVOLUTION = ConvolutionSpec(
    0, 0, (NETWORK_INPUT,), _SHAPE, _SHAPE, filters=8, size=3, padding=1, groups=1, activation="leaky"
)
_MODES = tuple(
    ActivationOptions(mode=mode, ranges=ranges)
    for ranges, mode in (("dynamic", "affine"), ("calibrated", "affine"), ("calibrated", "symmetric"))
)
"""Where a row is not about modes, one in which a target can express int8 is enough."""


@dataclass(frozen=True)
class Row:
    """One line of the table. reasons: by target, '' where it can be expressed, else why not."""

    operation: str
    precision: str
    reasons: Mapping[str, str]


def support_table(known_targets: Mapping[str, Target]) -> list[Row]:
    """Return what each target says of every operation, then of convolutions in every mode of quantisation."""
    targets_by_column = columns(known_targets)
    rows = []
    for operation, layer, precision, options in _questions():
        modes = _MODES if options.activations == ActivationOptions() else (options.activations,)
        quantizations = [layer_quantization(replace(options, activations=mode)) for mode in modes]
        rows.append(
            Row(
                operation,
                precision.name,
                {
                    name: _reason(target, layer, precision, quantizations, flavour)
                    for name, (target, flavour) in targets_by_column.items()
                },
            )
        )
    return rows


def _reason(
    target: Target, layer: LayerSpec, precision: Precision, quantizations: Sequence[LayerQuantization], flavour: str
) -> str:
    reasons = [target.refuses(layer, precision, quantization, flavour) for quantization in quantizations]
    return "" if "" in reasons else reasons[-1]


def _questions() -> Iterator[tuple[str, LayerSpec, Precision, QuantizationOptions]]:
    for operation, layer in _layers():
        for precision in PRECISIONS.values():
            possible = precision is FP32 if layer.always_fp32 else layer.has_weights or precision is precision.tensor
            if possible:
                yield operation, layer, precision, NO_OPTIONS
    for mode in ACTIVATION_MODES:
        for ranges in ACTIVATION_RANGES:
            options = QuantizationOptions(activations=ActivationOptions(mode=mode, ranges=ranges))
            yield f"activations {mode}, {ranges}", _CONVOLUTION, INT8, options
    for granularity in WEIGHT_GRANULARITIES:
        for method in WEIGHT_METHODS:
            weights = WeightOptions(granularity=granularity, method=method)
            yield f"weights {granularity}, {method}", _CONVOLUTION, INT8, QuantizationOptions(weights=weights)


def _layers() -> Iterator[tuple[str, LayerSpec]]:
    """Return one layer of every operation; a kind that nothing is known of here as it is by default."""
    for kind in LAYER_KINDS:
        if kind is ConvolutionSpec:
            yield "conv 3x3", _CONVOLUTION
            yield "conv 3x3/2", replace(_CONVOLUTION, stride=2, out_shape=(8, 8, 8))
            yield "conv 1x1", replace(_CONVOLUTION, size=1, padding=0)
            yield "conv 3x3, dilation 2", replace(_CONVOLUTION, dilation=2, padding=2)
            yield "conv 3x3, 2 groups", replace(_CONVOLUTION, groups=2)
            yield "conv 3x3, depthwise", replace(_CONVOLUTION, groups=8)
            for activation in ACTIVATIONS:
                yield f"conv, {activation}", replace(_CONVOLUTION, activation=activation)
        elif kind is MaxpoolSpec:
            yield "maxpool 2x2/2", MaxpoolSpec(0, 0, (NETWORK_INPUT,), _SHAPE, (8, 8, 8), size=2, stride=2, padding=1)
            yield "maxpool 2x2/1", MaxpoolSpec(0, 0, (NETWORK_INPUT,), _SHAPE, _SHAPE, size=2, stride=1, padding=1)
            yield "maxpool 5x5/1", MaxpoolSpec(0, 0, (NETWORK_INPUT,), _SHAPE, _SHAPE, size=5, stride=1, padding=4)
        elif kind is RouteSpec:
            yield "route of one", RouteSpec(2, 0, (1,), _SHAPE, _SHAPE)
            yield "route of two", RouteSpec(2, 0, (0, 1), _SHAPE, (16, 16, 16))
            yield "route of a part", RouteSpec(2, 0, (1,), _SHAPE, (16, 16, 4), groups=2, group_id=1)
        elif kind is ShortcutSpec:
            yield "shortcut", ShortcutSpec(2, 0, (1, 0), _SHAPE, _SHAPE)
            yield "shortcut, leaky", ShortcutSpec(2, 0, (1, 0), _SHAPE, _SHAPE, activation="leaky")
        else:
            yield kind.short, kind(0, 0, (NETWORK_INPUT,), _SHAPE, _SHAPE)
