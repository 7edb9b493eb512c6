# SPDX-License-Identifier: MIT
"""The complete options of quantisation and batch norm folding of each layer, from cfg and experiment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Iterable, Mapping

from mpnet.config.protocol import BATCH_NORMS
from mpnet.errors import ConfigError, EngineError, PrecisionError
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import Precision
from mpnet.model.quantization import (
    BY_ACTIVATIONS,
    KERNEL_MODES,
    LEARNT,
    NARROW_GRANULARITIES,
    NARROW_METHODS,
    NO_OPTIONS,
    ActivationOptions,
    QuantizationOptions,
    WeightOptions,
    scheme_of,
)
from mpnet.model.selectors import select_layers
from mpnet.quantization.equalise import ChannelFactors
from mpnet.quantization.scheme import ActivationScheme
from mpnet.quantization.weights import WeightScheme

Ranges = Mapping[int, tuple[float, float]]
"""Calibrated [min, max] of each layer's result, by layer index; -1 is the image."""


@dataclass(frozen=True)
class NarrowScheme:
    """The quantisation of weights of fewer than eight bits; corrected: as in LayerQuantization."""

    granularity: str = "per_channel"
    method: str = "mse"
    rounding: str = "half_to_even"
    corrected: bool = False


@dataclass(frozen=True)
class LayerQuantization:
    """The quantisation of one layer that runs on codes.

    calibrated: the range of its input is fixed beforehand. corrected: its bias takes back the mean rounding error.
    activations: of eight bits. weights, corrected: with eight bits; narrow: with fewer.
    """

    activations: ActivationScheme = field(default_factory=ActivationScheme)
    weights: WeightScheme = field(default_factory=WeightScheme)
    calibrated: bool = False
    corrected: bool = False
    narrow: NarrowScheme = NarrowScheme()

    def codes_of(self, precision: Precision) -> ActivationScheme:
        """Return how activations become codes of a precision."""
        return self.activations.of_bits(8 * precision.stored.item_bytes)

    def rounded_to(self, precision: Precision) -> tuple[WeightScheme, bool]:
        """Return how weights become codes of a precision, and whether the bias is corrected."""
        if not precision.is_narrow:
            return self.weights, self.corrected
        narrow = self.narrow
        scheme = WeightScheme(narrow.granularity, narrow.method, narrow.rounding, precision.weight_bits)
        return scheme, narrow.corrected

    def needs_statistics(self, precision: Precision) -> bool:
        """Return whether calibration images decide how weights are rounded to a precision, or the bias of narrow ones."""
        if not precision.carries_scale:
            return False
        scheme, corrected = self.rounded_to(precision)
        return scheme.rounding == LEARNT or (corrected and precision.is_narrow)


@dataclass(frozen=True)
class EngineOptions:
    """Everything beside the precisions that changes a forward pass's bits.

    batch_norm: darknet divides by sqrt(v) + 1e-6, alexeyab by sqrt(v + 1e-5); auto: as the network's dialect.
    default, layers: how layers are quantised; `layers` by index over `default`.
    ranges:     calibrated ranges, needed for the inputs of calibrated int8 layers.
    complete:       the complete options as plain values, per layer index; for protocols and identities.
    channel_factors: from calibration images, where equalisation is by activations; None: not calibrated yet.
    """

    batch_norm: str = "auto"
    default: LayerQuantization = LayerQuantization()
    layers: Mapping[int, LayerQuantization] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    complete: Mapping[int, QuantizationOptions] = field(default_factory=dict)
    channel_factors: ChannelFactors | None = None

    def __post_init__(self) -> None:
        if self.batch_norm not in BATCH_NORMS:
            raise ConfigError(f"batch_norm {self.batch_norm!r} is unknown; known are {', '.join(BATCH_NORMS)}")

    @cached_property
    def by_activations(self) -> bool:
        """Return whether any layer asks for equalisation by activations."""
        return any(options.equalisation == BY_ACTIVATIONS for options in self.complete.values())

    @property
    def equalise(self) -> bool | ChannelFactors:
        """Return whether, or by which factors, channels are equalised before quantising.

        This is a matter of the whole network, wanted by any layer. Raises: EngineError for factors that calibration images have
        not given yet.
        """
        if not self.by_activations:
            return any(options.equalisation for options in self.complete.values())
        if self.channel_factors is None:
            raise EngineError(
                f"equalisation by {BY_ACTIVATIONS} needs calibration images; name them in data.calibration of an experiment, "
                "or set equalisation to false"
            )
        return self.channel_factors

    @cached_property
    def integer_only(self) -> bool:
        """Return whether layers of codes compute in whole numbers alone, as TensorFlow Lite does."""
        return any(options.integer_only for options in self.complete.values())

    def of(self, layer: int) -> LayerQuantization:
        """Return how this layer is quantised."""
        return self.layers.get(layer, self.default)


DEFAULT_OPTIONS = EngineOptions()

_COMPLETE = QuantizationOptions(
    ActivationOptions(mode="affine", ranges="dynamic"),
    WeightOptions(granularity="per_channel", method="min_max"),
    bias_correction=False,
    equalisation=False,
)


def resolve_options(
    network: NetworkSpec,
    options: QuantizationOptions = NO_OPTIONS,
    layers: Iterable[tuple[str, QuantizationOptions]] = (),
    *,
    batch_norm: str = "auto",
    ranges: Ranges | None = None,
) -> EngineOptions:
    """Resolve options: defaults < [net] < the layer's cfg keys < `options` < `layers` (selector, options).

    batch_norm: auto: the dialect's. ranges: over those that the cfg states.
    Raises: PrecisionError for combinations that do not exist, ConfigError for selectors that choose nothing.
    """
    by_layer = {}
    for layer in network.layers:
        layer_options = _COMPLETE
        for keys in (network.declared, layer.declared):
            if keys is not None:
                layer_options = layer_options.overlaid(keys.quantization)
        by_layer[layer.index] = layer_options.overlaid(options)
    for selector, changes in layers:
        for index in select_layers(network, selector):
            by_layer[index] = by_layer[index].overlaid(changes)
    _check_integer_only(network, by_layer)
    quantization_of = {layer_options: layer_quantization(layer_options) for layer_options in dict.fromkeys(by_layer.values())}
    schemes = {index: quantization_of[layer_options] for index, layer_options in by_layer.items()}
    batch_norm = network.dialect if batch_norm == "auto" else batch_norm
    return EngineOptions(batch_norm, LayerQuantization(), schemes, {**network.stated_ranges, **(ranges or {})}, by_layer)


def _check_integer_only(network: NetworkSpec, by_layer: Mapping[int, QuantizationOptions]) -> None:
    """Check integer_only: it is of the whole network, and needs codes that are known beforehand and hold the real 0."""
    if not any(options.integer_only for options in by_layer.values()):
        return
    for index, options in by_layer.items():
        place, activations = f"layer {index} ({network.layers[index].name})", options.activations
        if not options.integer_only:
            raise ConfigError(f"{place} leaves out quantization.integer_only, which all layers have or none; set it for all")
        if activations.ranges != "calibrated":
            raise PrecisionError(
                f"{place}: quantization.integer_only takes no range that is measured on the image; set "
                "quantization.activations.ranges to calibrated"
            )
        if activations.mode not in KERNEL_MODES:
            raise PrecisionError(
                f"{place}: quantization.integer_only has no codes of {activations.mode}; set quantization.activations.mode to "
                f"{', '.join(KERNEL_MODES[:-1])} or {KERNEL_MODES[-1]}"
            )


def with_some_ranges(options: EngineOptions, network: NetworkSpec) -> EngineOptions:
    """Return options with stand-ins for what calibration gives.

    They tell that there is a conversion and what it takes, not what it gives.
    """
    return replace(options, ranges={index: (0.0, 1.0) for index in range(-1, len(network.layers))}, channel_factors={})


def without_statistics(options: EngineOptions) -> EngineOptions:
    """Return the options without calibration images: weights whose rounding is learnt are rounded to nearest."""

    def round_to_nearest(quantization: LayerQuantization) -> LayerQuantization:
        weights, narrow = quantization.weights, replace(quantization.narrow, corrected=False)
        if weights.rounding == LEARNT:
            weights = replace(weights, rounding="half_to_even")
        if narrow.rounding == LEARNT:
            narrow = replace(narrow, rounding="half_to_even")
        return replace(quantization, weights=weights, narrow=narrow)

    layers = {index: round_to_nearest(quantization) for index, quantization in options.layers.items()}
    return replace(options, default=round_to_nearest(options.default), layers=layers)


def layer_quantization(options: QuantizationOptions) -> LayerQuantization:
    """Turn options into the schemes of mpnet.quantization; what is not said is the default."""
    options = _COMPLETE.overlaid(options)
    narrow = options.narrow
    return LayerQuantization(
        scheme_of(ActivationScheme, options.activations),
        scheme_of(WeightScheme, options.weights),
        options.activations.ranges == "calibrated",
        bool(options.bias_correction),
        NarrowScheme(
            narrow.granularity or NARROW_GRANULARITIES[0],
            narrow.method or NARROW_METHODS[0],
            "half_to_even" if narrow.rounding == "nearest" else LEARNT,
            narrow.bias_correction is not False,
        ),
    )
