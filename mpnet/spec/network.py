"""A whole network as its cfg describes it: frozen, shapes inferred, nothing computed yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Mapping

from mpnet.spec.layers import (
    PICTURE,
    AvgpoolSpec,
    ConvolutionSpec,
    DropoutSpec,
    LayerSpec,
    MaxpoolSpec,
    PrecisionKeys,
    RouteSpec,
    Shape,
    ShortcutSpec,
    UpsampleSpec,
    YoloSpec,
)

__all__ = [
    "PICTURE", "AvgpoolSpec", "ConvolutionSpec", "DropoutSpec", "LayerSpec", "MaxpoolSpec", "NetworkSpec",
    "PrecisionKeys", "RouteSpec", "Shape", "ShortcutSpec", "UpsampleSpec", "YoloSpec",
]


@dataclass(frozen=True)
class NetworkSpec:
    """Layers in order, with the options of [net].

    width, height, channels: of the picture that enters.
    declared:    the precision keys of [net], the default of all layers with weights.
    net_options: every key of [net] as text.
    source:      the file that it was read from, for messages.
    digest:      SHA-256 of that file's bytes, hex.
    warnings:    what the reader wants the user to know, one line each.
    """

    width: int
    height: int
    channels: int
    layers: tuple[LayerSpec, ...]
    declared: PrecisionKeys | None = None
    net_options: Mapping[str, str] = field(default_factory=dict)
    source: str = "<text>"
    digest: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def in_shape(self) -> Shape:
        """(height, width, channels) of the picture."""
        return (self.height, self.width, self.channels)

    def shape_of(self, index: int) -> Shape:
        """The shape of a layer's result; of the picture for PICTURE."""
        return self.in_shape if index == PICTURE else self.layers[index].out_shape

    @cached_property
    def convolutions(self) -> tuple[ConvolutionSpec, ...]:
        """The layers with weights, in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, ConvolutionSpec))

    @cached_property
    def yolos(self) -> tuple[YoloSpec, ...]:
        """The detection heads, in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, YoloSpec))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Indices of the layers whose results leave the network: the heads, else the last layer."""
        heads = tuple(yolo.index for yolo in self.yolos)
        return heads if heads else (len(self.layers) - 1,)

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image."""
        return sum(layer.macs for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Values that the weights file must hold, without its header."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer the layers that read it."""
        found: list[list[int]] = [[] for _ in self.layers]
        for layer in self.layers:
            for index in dict.fromkeys(layer.inputs):
                if index != PICTURE:
                    found[index].append(layer.index)
        return tuple(tuple(readers) for readers in found)

    def readers_of(self, index: int) -> set[int]:
        """The layers that get this layer's tensor, also through layers without weights, which follow its precision."""
        found: set[int] = set()
        waiting = [index]
        consumers = self.consumers
        while waiting:
            for reader in consumers[waiting.pop()]:
                if reader not in found:
                    found.add(reader)
                    if not self.layers[reader].has_weights:
                        waiting.append(reader)
        return found

    def source_convolution(self, index: int) -> int | None:
        """The convolution whose values layer `index` passes on unmixed (through dropout and routes of one), or None."""
        while index != PICTURE:
            layer = self.layers[index]
            if isinstance(layer, ConvolutionSpec):
                return index
            if not isinstance(layer, DropoutSpec) and not (isinstance(layer, RouteSpec) and len(layer.inputs) == 1):
                return None
            index = layer.inputs[0]
        return None

    def heads_of(self) -> tuple[frozenset[int], ...]:
        """For each layer the numbers (from 1) of the yolo layers that its result reaches."""
        reached: list[set[int]] = [set() for _ in self.layers]
        for number, yolo in enumerate(self.yolos, 1):
            reached[yolo.index].add(number)
        for layer in reversed(self.layers):
            for index in layer.inputs:
                if index != PICTURE:
                    reached[index] |= reached[layer.index]
        return tuple(frozenset(numbers) for numbers in reached)
