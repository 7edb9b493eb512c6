# SPDX-License-Identifier: MIT
"""A whole network as its cfg describes it: frozen, shapes inferred, nothing computed yet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Mapping

from mpnet.model.layers import (
    NETWORK_INPUT,
    AvgpoolSpec,
    ConvolutionSpec,
    CostSpec,
    DropoutSpec,
    EmptySpec,
    ImplicitSpec,
    LayerSpec,
    MaxpoolSpec,
    PrecisionKeys,
    RouteSpec,
    Shape,
    ShortcutSpec,
    SoftmaxSpec,
    UpsampleSpec,
    YoloSpec,
)
from mpnet.model.task import CLASSIFICATION, DETECTION, Task


@dataclass(frozen=True)
class NetworkSpec:
    """Layers in order, with the options of [net].

    width, height, channels: of the image that enters.
    declared:    the precision keys of [net], the default of all layers with weights.
    source:      the file that it was read from, for messages.
    digest:      SHA-256 of that file's bytes (and of the trees and maps that it names), hex.
    dialect:     darknet or alexeyab: whose program's ways it follows.
    dialect_why: what in the cfg says so. own_dialect: the one that the cfg itself suggests.
    warnings:    what the reader wants the user to know, one line each.
    letterbox:   whether [net] says that images keep their shape within grey borders (`letter_box=1`).
    """

    width: int
    height: int
    channels: int
    layers: tuple[LayerSpec, ...]
    declared: PrecisionKeys | None = None
    source: str = "<text>"
    digest: str = ""
    warnings: tuple[str, ...] = ()
    dialect: str = "darknet"
    dialect_why: str = ""
    own_dialect: str = "darknet"
    letterbox: bool = False

    @property
    def in_shape(self) -> Shape:
        """Return (height, width, channels) of the image."""
        return (self.height, self.width, self.channels)

    def shape_of(self, index: int) -> Shape:
        """Return the shape of a layer's result; of the image for NETWORK_INPUT."""
        return self.in_shape if index == NETWORK_INPUT else self.layers[index].out_shape

    @cached_property
    def convolutions(self) -> tuple[ConvolutionSpec, ...]:
        """Return the layers with weights and a precision of their own, in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, ConvolutionSpec))

    @cached_property
    def valued(self) -> tuple[ShortcutSpec | ImplicitSpec, ...]:
        """Return the layers that have values in the weights file without being convolutions, in order."""
        return tuple(
            layer
            for layer in self.layers
            if isinstance(layer, ImplicitSpec) or (isinstance(layer, ShortcutSpec) and layer.weights_type != "none")
        )

    @cached_property
    def yolos(self) -> tuple[YoloSpec, ...]:
        """Return the detection heads, in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, YoloSpec))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Return the indices of the layers whose results leave the network: the heads, else the last that is no [cost]."""
        heads = tuple(yolo.index for yolo in self.yolos)
        if heads:
            return heads
        return (next((i for i in reversed(range(len(self.layers))) if not isinstance(self.layers[i], CostSpec)), 0),)

    @cached_property
    def classifier(self) -> LayerSpec | None:
        """Return the layer whose result scores classes, one value each: the output of a network that classifies; else None.

        That is a [softmax], or one pixel that a [cost] follows. Its tensor is (n, h, w, c), with h * w * c classes.
        """
        layer = self.layers[self.outputs[0]] if self.layers and not self.yolos else None
        if layer is None:
            return None
        scored = layer.out_shape[:2] == (1, 1) and isinstance(self.layers[-1], CostSpec)
        return layer if scored or isinstance(layer, SoftmaxSpec) else None

    @property
    def peak_bytes(self) -> int:
        """Return the most that results in fp32 take at one time, for one image: what no plan in fp32 can do without."""
        last = list(range(len(self.layers)))
        for layer in self.layers:
            for index in layer.inputs:
                if index != NETWORK_INPUT:
                    last[index] = layer.index
        for index in self.outputs:
            last[index] = len(self.layers)
        gone: list[int] = [0] * (len(self.layers) + 1)
        living = peak = 4 * self.width * self.height * self.channels
        for layer in self.layers:
            living += 4 * layer.activations
            peak = max(peak, living)
            gone[last[layer.index]] += 4 * layer.activations
            living -= gone[layer.index]
        return peak

    @cached_property
    def output_shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of a forward pass's results: of the tensors that enter the heads, else of the last layer's."""
        return tuple(self.layers[index].out_shape for index in self.outputs)

    @cached_property
    def task(self) -> Task | None:
        """Return what the network is for.

        A detector has heads, a classifier ends in one value per class, of a [softmax] or in one pixel; None for anything else.
        """
        if self.yolos:
            return DETECTION
        scored = self.classifier is not None or (len(self.layers) > 0 and self.output_shapes[0][:2] == (1, 1))
        return CLASSIFICATION if scored else None

    @property
    def resize(self) -> str:
        """Return how images are fitted where nobody says: as [net] has it, else as networks of the task take them."""
        return "letterbox" if self.letterbox else (self.task or DETECTION).resize

    @property
    def classes(self) -> int:
        """Count the classes that it tells apart; 0 where its task is unknown."""
        if self.task is CLASSIFICATION:
            return self.layers[self.outputs[0]].activations
        return self.yolos[-1].scored_classes if self.yolos else 0

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates for one image."""
        return sum(layer.macs for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Return the values that the weights file must hold, without its header."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Return for each layer the layers that read it."""
        readers: list[list[int]] = [[] for _ in self.layers]
        for layer in self.layers:
            for index in dict.fromkeys(layer.inputs):
                if index != NETWORK_INPUT:
                    readers[index].append(layer.index)
        return tuple(tuple(layer_readers) for layer_readers in readers)

    @cached_property
    def stated_ranges(self) -> Mapping[int, tuple[float, float]]:
        """Return the ranges that the cfg states: (minimum, maximum) by layer index, of the image by NETWORK_INPUT."""
        keys = {NETWORK_INPUT: self.declared, **{layer.index: layer.declared for layer in self.layers}}
        return {
            index: declared.range for index, declared in keys.items() if declared is not None and declared.range is not None
        }

    def readers_of(self, index: int) -> set[int]:
        """Return the layers that get this layer's tensor, also through layers without weights, which follow its precision."""
        readers: set[int] = set()
        waiting = [index]
        consumers = self.consumers
        while waiting:
            for reader in consumers[waiting.pop()]:
                if reader not in readers:
                    readers.add(reader)
                    if not self.layers[reader].has_weights:
                        waiting.append(reader)
        return readers

    def source_convolution(self, index: int) -> int | None:
        """Find the convolution whose values layer `index` passes on unmixed (through dropout and routes of one), or None."""
        while index != NETWORK_INPUT:
            layer = self.layers[index]
            if isinstance(layer, ConvolutionSpec):
                return index
            if not isinstance(layer, DropoutSpec | EmptySpec) and not (isinstance(layer, RouteSpec) and len(layer.inputs) == 1):
                return None
            index = layer.inputs[0]
        return None

    def sources(self, index: int) -> tuple[int, ...]:
        """Find the convolutions whose values layer `index` passes on, also side by side (by dropout and routes), in order."""
        convolutions: set[int] = set()
        waiting = [index]
        while waiting:
            layer = self.layers[waiting.pop()]
            if isinstance(layer, ConvolutionSpec):
                convolutions.add(layer.index)
            elif isinstance(layer, DropoutSpec | EmptySpec | RouteSpec):
                waiting += [number for number in layer.inputs if number != NETWORK_INPUT]
        return tuple(sorted(convolutions))

    def heads_of(self) -> tuple[frozenset[int], ...]:
        """Return for each layer the numbers (from 1) of the yolo layers that its result reaches."""
        reached: list[set[int]] = [set() for _ in self.layers]
        for number, yolo in enumerate(self.yolos, 1):
            reached[yolo.index].add(number)
        for layer in reversed(self.layers):
            for index in layer.inputs:
                if index != NETWORK_INPUT:
                    reached[index] |= reached[layer.index]
        return tuple(frozenset(numbers) for numbers in reached)
