# SPDX-License-Identifier: MIT
"""The choice as other programs can take it: layers that are quantised to 8 bits, and layers that stay in floating point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Mapping

from mpnet.export.configuration import Configuration
from mpnet.export.naming import layer_name
from mpnet.model.layer import LayerSpec
from mpnet.model.precision import INT8
from mpnet.model.quantization import NO_OPTIONS, scheme_of
from mpnet.quantization.calibrate import CalibrationMethod

# Kinds of layers without weights that combine tensors by additions or products.
COMBINING = ("shortcut", "scale_channels", "sam", "attention")


@dataclass(frozen=True)
class ChosenLayer:
    """A layer with weights. node: the convolution's name in the file that the recipe is for."""

    spec: LayerSpec
    precision: str
    is_quantized: bool
    node: str

    @property
    def index(self) -> int:
        """Return the layer's index in the network."""
        return self.spec.index

    @property
    def is_byte(self) -> bool:
        """Return whether its activations are codes of 8 bits."""
        return self.precision == INT8.name


@dataclass(frozen=True)
class FloatStep:
    """A layer without weights that computes in floating point with several tensors, which some quantisers would put into codes.

    nodes: what it is in the file that the recipe is for, () where all names of the exported file that tell its layer are.
    """

    index: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """The contents of a recipe. layers: all with weights, in order. origin: what the choice is of, for whoever reads the file.

    steps: additions, products and attention that stay in floating point.
    reads: the file that the recipe is for.
    decoding: nodes with weights that are no layers: they decode boxes in the file that a network was imported from.
    symmetric: whether codes of activations have no zero point; calibrated: whether their ranges are fixed beforehand, by
    `method`. corrected: whether biases take back the mean error of rounding.
    mode: of activations. power_of_two: whether scales of weights are powers of two. integer_only: whether results lie in codes
    as well.
    """

    layers: tuple[ChosenLayer, ...]
    steps: tuple[FloatStep, ...]
    decoding: tuple[str, ...]
    origin: Mapping[str, Any]
    reads: str
    width: int
    height: int
    resize: str
    symmetric: bool
    calibrated: bool
    per_channel: bool
    method: CalibrationMethod
    corrected: bool
    mode: str
    power_of_two: bool
    integer_only: bool

    @property
    def scheme(self) -> str:
        """Return the arithmetic that the choice was measured in, for people."""
        ranges = "calibrated" if self.calibrated else "dynamic"
        steps = (
            f"{'per_channel' if self.per_channel else 'per_tensor'} weights{' in powers of two' if self.power_of_two else ''}"
        )
        return f"{self.mode} activations of {ranges} ranges, {steps}, results in {'codes' if self.integer_only else 'reals'}"

    @property
    def raised_layers(self) -> list[ChosenLayer]:
        """Return the layers that are not in 8 bits."""
        return [layer for layer in self.layers if not layer.is_byte]

    @cached_property
    def quantized_layers(self) -> list[ChosenLayer]:
        """Return the layers that are quantised to 8 bits."""
        return [layer for layer in self.layers if layer.is_quantized]

    @cached_property
    def float_layers(self) -> list[ChosenLayer]:
        """Return the layers that stay in floating point."""
        return [layer for layer in self.layers if not layer.is_quantized]


def choice_of(
    configuration: Configuration, is_of_source: bool, reads: str, notes: Mapping[str, str] = MappingProxyType({})
) -> Choice:
    """Return the choice of a configuration. is_of_source: in the names of the file that the network was imported from.

    reads: the file that the recipe is for. notes: what its origin says besides, by key.

    Other programs make codes in one way for all layers: that of the first quantised layer here.

    Raises: whatever bringing the options raises, where they are needed.
    """
    network, plan, document = configuration.network, configuration.precisions, configuration.document
    layers = tuple(
        ChosenLayer(layer, plan[layer.index].name, plan[layer.index].carries_scale, node)
        for layer in (network.layers[index] for index in plan.weighted)
        for node in [layer.source[0] if is_of_source else layer_name(layer.index, "conv")]
    )
    first_quantized = next((layer.index for layer in layers if layer.is_quantized), None)
    quantization = None if first_quantized is None else configuration.options.of(first_quantized)
    requested = NO_OPTIONS if first_quantized is None else configuration.options.complete.get(first_quantized, NO_OPTIONS)
    protocol = document.get("protocol") or {}
    origin = {
        "written_by": "mpnet",
        "precision": plan.key,
        "digests": dict(document.get("digests") or {}),
        "metrics": dict(document.get("metrics") or {}),
        "agreement": dict(document.get("agreement") or {}),
        **configuration.operating_point,
    }
    return Choice(
        layers,
        tuple(
            FloatStep(layer.index, layer.source if is_of_source else ())
            for layer in network.layers
            if layer.kind in COMBINING and not plan[layer.index].carries_scale
        ),
        tuple(node for layer in network.yolos for node in layer.source) if is_of_source else (),
        {**origin, **notes},
        reads,
        network.width,
        network.height,
        str(protocol.get("resize", network.resize)),
        symmetric=quantization is not None and quantization.activations.mode == "symmetric",
        calibrated=quantization is None or quantization.calibrated,
        per_channel=quantization is None or quantization.weights.granularity == "per_channel",
        method=scheme_of(CalibrationMethod, requested.activations),
        corrected=bool(requested.bias_correction),
        mode="affine" if quantization is None else quantization.activations.mode,
        power_of_two=quantization is not None and quantization.weights.method == "power_of_two",
        integer_only=configuration.options.integer_only,
    )
