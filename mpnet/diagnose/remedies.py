# SPDX-License-Identifier: MIT
"""The remedies for a layer that loses much: what its channels show, what is not on already, and what its program has."""

from __future__ import annotations

import numpy as np

from mpnet.diagnose.layer_errors import LayerAnalysis
from mpnet.diagnose.raising import Raising
from mpnet.engine.options import LayerQuantization
from mpnet.engine.plan import Plan
from mpnet.model.network import ConvolutionSpec
from mpnet.quantization.equalise import depthwise_pairs, equalisable_pairs
from mpnet.quantization.measure import spread_of_channels
from mpnet.trial.workbench import Workbench

UNEVEN = 4.0
"""Largest over median range from which half of the channels have two bits less than a range of their own would give them."""
LEANING = 0.25
"""Share of a layer's error that is the same for all values, from which taking the mean out is worth it."""


class Remedies:
    """The remedies of the layers of one configuration."""

    def __init__(self, bench: Workbench, plan: Plan, raising: Raising) -> None:
        self._bench, self._plan, self._raising = bench, plan, raising
        network = bench.network
        self._read_by_depthwise = {reader for pair in depthwise_pairs(network) for reader in pair.seconds}
        self._equalisable = {reader for pair in equalisable_pairs(network) for reader in pair.seconds}
        self._convolutions = {layer.index: layer for layer in network.convolutions}
        self._is_equalised = any(options.equalisation for options in bench.options.complete.values())

    def weight_spread(self, layer: int) -> float | None:
        """Return the spread of the ranges of a layer's filters, as they are quantised; None without weights."""
        if layer not in self._convolutions:
            return None
        weights = self._bench.prepared.folded[layer].weights
        return spread_of_channels(np.abs(weights).reshape(len(weights), -1).max(axis=1).astype(np.float64))

    def find(self, analysis: LayerAnalysis) -> tuple[str, ...]:
        """Return what mends a layer, the cheapest first: as keys of `quantization`, or a precision."""
        convolution = self._convolutions.get(analysis.layer)
        found = []
        if convolution is not None and analysis.precision.carries_scale and not self._bench.options.integer_only:
            found = self._find_options(convolution, analysis)
        raised = self._raising.raise_precision(analysis.layer, analysis.precision)
        return (*found, *([raised.name] if raised is not analysis.precision else []))

    def _find_options(self, layer: ConvolutionSpec, analysis: LayerAnalysis) -> list[str]:
        quantization: LayerQuantization = self._bench.options.of(layer.index)
        weights, is_corrected = quantization.rounded_to(analysis.precision)
        is_per_tensor = weights.granularity == "per_tensor"
        has_uneven_filters = (self.weight_spread(layer.index) or 1.0) >= UNEVEN
        is_depthwise = layer.groups == layer.in_shape[2] > 1
        found = []
        if is_per_tensor and has_uneven_filters:
            found.append("weights: per_channel")
        if not self._is_equalised and analysis.input_spread >= UNEVEN and layer.index in self._read_by_depthwise:
            found.append("equalisation: activations")
        elif not self._is_equalised and is_per_tensor and has_uneven_filters and layer.index in self._equalisable:
            found.append("equalisation: true")
        leans = abs(analysis.local.mean_error) >= LEANING * analysis.local.rmse > 0
        if not is_corrected and (is_depthwise or leans):
            found.append("bias_correction: true")
        return found
