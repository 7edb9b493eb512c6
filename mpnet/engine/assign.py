# SPDX-License-Identifier: MIT
"""The precision of each layer and its origin: default < cfg keys < experiment < sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Mapping

from mpnet.engine.lowering import layer_precision, makes_values, result_storage
from mpnet.errors import PrecisionError
from mpnet.model.network import NETWORK_INPUT, LayerSpec, NetworkSpec
from mpnet.model.plan_key import format_key, parse_key
from mpnet.model.precision import FP32, Precision, precision
from mpnet.model.selectors import select_layers


@dataclass(frozen=True)
class PrecisionPlan:
    """A precision for every layer of one network.

    precisions: by layer index, resolved; layers without weights and keys have that of the tensor that they get.
    origins:    who said so, by layer index: `cfg line 12`, `default`, `experiment: heads`, `sweep`, `input`.
    weighted:   indices of the layers with weights.
    keyed:        indices of layers without weights that have a precision of their own.
    """

    precisions: tuple[Precision, ...]
    origins: tuple[str, ...]
    weighted: tuple[int, ...]
    keyed: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        """Return the canonical text, see mpnet.model.plan_key. Equal keys mean equal plans of one network."""
        return format_key(
            [self.precisions[index] for index in self.weighted], {index: self.precisions[index] for index in self.keyed}
        )

    @property
    def of_weights(self) -> list[Precision]:
        """Return the precisions of the layers with weights, in layer order."""
        return [self.precisions[index] for index in self.weighted]

    def __getitem__(self, index: int) -> Precision:
        return self.precisions[index]


def assign(
    network: NetworkSpec,
    default: Precision | str | None = None,
    layers: Mapping[str | int, Precision | str] | None = None,
    overrides: Mapping[int, Precision] | None = None,
) -> PrecisionPlan:
    """Assign a precision to every layer.

    default:   for layers with weights whose section declares none; None: the keys of [net], else fp32.
    layers:    selector (mpnet.model.selectors) -> precision, over the cfg; later entries win over earlier ones.
    overrides: layer index -> precision, over everything: a sweep's choice.
    Raises: ConfigError for a selector that chooses nothing; PrecisionError for an unknown precision, a precision that
    a layer cannot have, and a conversion that a `quantize=0` of the cfg promises away. `layers` lifts the promise of
    the layers that it chooses, `overrides` besides that of the layers that read them.
    """
    assigned: dict[int, tuple[Precision, str]] = {}
    fallback = _default(network, default)
    for layer in network.layers:
        keys = layer.declared
        if keys is not None and keys.precision is not None:
            assigned[layer.index] = (keys.precision, f"cfg line {keys.line}")
        elif layer.has_weights:
            assigned[layer.index] = fallback
    lifted: set[int] = set()
    for selector, name in (layers or {}).items():
        requested = name if isinstance(name, Precision) else precision(name)
        for index in select_layers(network, selector):
            assigned[index] = (requested, f"experiment: {selector}")
            lifted.add(index)
    for index, requested in (overrides or {}).items():
        assigned[index] = (requested, "sweep")
        lifted.add(index)
        lifted.update(network.readers_of(index))

    precisions: list[Precision] = []
    origins: list[str] = []
    storages: list[Precision] = []
    for layer in network.layers:
        inputs = [FP32 if index == NETWORK_INPUT else storages[index] for index in layer.inputs]
        chosen_precision, origin = assigned.get(layer.index, (None, "input"))
        _check(network, layer, chosen_precision)
        result = layer_precision(layer, chosen_precision, inputs)
        precisions.append(result)
        origins.append("always" if layer.always_fp32 else origin)
        storages.append(result_storage(layer, result))
        if layer.index not in lifted:
            _check_promise(network, layer, result, inputs, precisions)
    keyed = tuple(
        layer.index for layer in network.layers if layer.index in assigned and not layer.has_weights and not layer.always_fp32
    )
    return PrecisionPlan(tuple(precisions), tuple(origins), tuple(layer.index for layer in network.convolutions), keyed)


def assign_key(network: NetworkSpec, key: str) -> PrecisionPlan:
    """Return the plan that a canonical text describes. Keys that the cfg gives to layers without weights hold unless named."""
    return assign(network, overrides=parse_key(network, key))


def _default(network: NetworkSpec, default: Precision | str | None) -> tuple[Precision, str]:
    if default is not None:
        return (default if isinstance(default, Precision) else precision(default)), "default"
    if network.declared is not None and network.declared.precision is not None:
        return network.declared.precision, f"cfg line {network.declared.line}"
    return FP32, "default"


def _check(network: NetworkSpec, layer: LayerSpec, requested: Precision | None) -> None:
    if requested is None:
        return
    layer_text = f"{network.source}:{layer.line}: layer {layer.index} ({layer.name})"
    if layer.always_fp32 and requested is not FP32:
        raise PrecisionError(
            f"{layer_text}: [{layer.kind}] is always fp32, {requested} is not possible; leave it out of precision.layers"
        )
    if requested is not requested.tensor and not layer.has_weights:
        raise PrecisionError(f"{layer_text}: {requested} is for convolutions; use {requested.tensor}")


def _check_promise(
    network: NetworkSpec, layer: LayerSpec, requested: Precision, inputs: list[Precision], precisions: list[Precision]
) -> None:
    """Check what quantize=0 promises: that the layer's inputs already have its precision."""
    keys = layer.declared
    if keys is None or keys.quantize is not False:
        return
    for index, stored_as in zip(layer.inputs, inputs, strict=True):
        if stored_as is requested.tensor:
            continue
        if index == NETWORK_INPUT:
            source = "the image, which is fp32"
        else:
            maker = _maker(network, index)
            source = f"layer {maker} ({network.layers[maker].name}, {precisions[maker]})"
            if network.layers[maker].has_weights and precisions[maker].carries_scale:
                source += f", whose sums are de-scaled to {precisions[maker].widened}"
        raise PrecisionError(
            f"{network.source}:{keys.quantize_line}: quantize=0 promises that layer {layer.index} ({layer.name}, "
            f"{requested}) needs no conversion, but it gets {stored_as} from {source}; set quantize=1 or one precision"
        )


def _maker(network: NetworkSpec, index: int) -> int:
    while not makes_values(network, index) and network.layers[index].inputs[0] != NETWORK_INPUT:
        index = network.layers[index].inputs[0]
    return index
