"""The quantisation options of an experiment file: long form, short form, per layer, and one at a time for sweeps."""

from __future__ import annotations

from mpnet.errors import ConfigError
from mpnet.formats.yaml_section import Section, mapping, nearest, text
from mpnet.formats.yaml_tree import Mapping, Node, Scalar, shown
from mpnet.spec.experiment import QuantizationSection
from mpnet.spec.quantization import (
    ACTIVATION_MODES,
    ACTIVATION_RANGES,
    CALIBRATION_METHODS,
    ROUNDINGS,
    WEIGHT_GRANULARITIES,
    WEIGHT_METHODS,
    ActivationOptions,
    QuantizationOptions,
    WeightOptions,
)

_ACTIVATION_KEYS = (
    "mode", "ranges", "method", "percentile", "momentum", "rounding", "narrow_range", "ensure_minimum_range",
)
_WEIGHT_KEYS = ("granularity", "method", "rounding")
_OPTION_KEYS = ("activations", "weights", "bias_correction", "equalisation")
OPTION_PATHS = tuple(
    [f"activations.{key}" for key in _ACTIVATION_KEYS] + [f"weights.{key}" for key in _WEIGHT_KEYS]
    + ["bias_correction", "equalisation"]
)


def quantization_section(top: Section) -> QuantizationSection:
    """The section `quantization` of an experiment."""
    node = top.node_of("quantization")
    if node is None:
        return QuantizationSection()
    section = Section(node, "quantization", (*_OPTION_KEYS, "layers"))
    layers: list[tuple[str, QuantizationOptions]] = []
    if (below := section.node_of("layers")) is not None:
        for selector, value in mapping(below, "quantization.layers").items.items():
            layers.append((selector, quantization_options(value, f"quantization.layers.{selector}")))
    return QuantizationSection(_options(section), tuple(layers))


def quantization_options(node: Node, path: str) -> QuantizationOptions:
    """Options from a mapping of `activations`, `weights`, `bias_correction`, `equalisation`."""
    return _options(Section(node, path, _OPTION_KEYS))


def single_option(path: str, value: str, place: str) -> QuantizationOptions:
    """Options that say one thing: `activations.percentile` is `99.9`. Raises ConfigError naming `place`."""
    if path not in OPTION_PATHS:
        raise ConfigError(f"{place}: sweep.space.quantization varies {shown(path)}{nearest(path, OPTION_PATHS)}")
    node: Node = Scalar(value, True, place)
    for key in reversed(path.split(".")):
        node = Mapping(place, {key: node}, {key: place})
    return quantization_options(node, "sweep.space.quantization")


def _options(section: Section) -> QuantizationOptions:
    return QuantizationOptions(
        _activations(section), _weights(section), section.flag("bias_correction"), section.flag("equalisation")
    )


def _activations(parent: Section) -> ActivationOptions:
    node = parent.node_of("activations")
    if node is None:
        return ActivationOptions()
    name = parent.name("activations")
    if isinstance(node, Scalar):  # the short form: activations: dynamic
        return ActivationOptions(ranges=text(node, name, ACTIVATION_RANGES))
    section = Section(node, name, _ACTIVATION_KEYS)
    return ActivationOptions(
        section.text("mode", ACTIVATION_MODES),
        section.text("ranges", ACTIVATION_RANGES),
        section.text("method", CALIBRATION_METHODS),
        section.number("percentile", 50, 100),
        section.number("momentum", 0, 1),
        section.text("rounding", ROUNDINGS),
        section.flag("narrow_range"),
        section.number("ensure_minimum_range", 0, 1e30),
    )


def _weights(parent: Section) -> WeightOptions:
    node = parent.node_of("weights")
    if node is None:
        return WeightOptions()
    name = parent.name("weights")
    if isinstance(node, Scalar):  # the short form: weights: per_channel
        return WeightOptions(granularity=text(node, name, WEIGHT_GRANULARITIES))
    section = Section(node, name, _WEIGHT_KEYS)
    return WeightOptions(
        section.text("granularity", WEIGHT_GRANULARITIES),
        section.text("method", WEIGHT_METHODS),
        section.text("rounding", ROUNDINGS),
    )
