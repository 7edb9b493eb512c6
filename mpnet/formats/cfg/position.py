# SPDX-License-Identifier: MIT
"""The position of a section in a cfg, and what several kinds of sections ask in the same way."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any, Callable, Mapping, Sequence
from urllib.parse import unquote

from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layer import CHANNEL_NORMALISATIONS
from mpnet.model.layers import MAX_KERNEL, NETWORK_INPUT, LayerSpec, PrecisionKeys, Shape

Pair = tuple[int, int]
ALEXEYAB_ACTIVATIONS = frozenset(("swish", "mish", "hard_mish", "relu6", "gelu", "revleaky", *CHANNEL_NORMALISATIONS))
"""Words that the original program does not know."""


@dataclass(frozen=True)
class Position:
    """The position of a section: the layers before it and the image's shape; its precision keys; the network's dialect.

    warnings: what the section's builder wants the user to know.
    """

    layers: Sequence[LayerSpec]
    image: Shape
    declared: PrecisionKeys | None
    dialect: str
    warnings: list[str]

    @property
    def index(self) -> int:
        """Return the index that the section's layer gets."""
        return len(self.layers)

    def shape(self, index: int) -> Shape:
        """Return the shape of a layer before it."""
        return self.image if index == NETWORK_INPUT else self.layers[index].out_shape

    @property
    def in_shape(self) -> Shape:
        """Return the shape of the layer just before it."""
        return self.shape(self.index - 1)

    def common(self, section: CfgSection, out_shape: Shape, *others: int) -> dict[str, Any]:
        """Return the fields that every layer has; its inputs are the layer before it and `others`."""
        inputs = (self.index - 1, *others)
        return {
            "index": self.index,
            "line": section.line,
            "inputs": inputs,
            "in_shape": self.shape(inputs[0]),
            "out_shape": out_shape,
            "declared": self.declared,
            "source": tuple(unquote(name) for name in (section.text("source") or "").split(",") if name),
        }

    def activation(self, section: CfgSection, word: str) -> str:
        """Return the activation that a word stands for. The original program takes what it does not know for relu."""
        if self.dialect == "darknet" and word in ALEXEYAB_ACTIVATIONS:
            line = section.entries["activation"].line
            self.warnings.append(
                f"{section.source}:{line}: the original Darknet does not know activation={word} and takes relu, and so "
                "does dialect darknet; use dialect alexeyab for what the word says"
            )
            return "relu"
        return "leaky" if word == "revleaky" else word


@dataclass(frozen=True)
class SectionReader:
    """The reader of one kind of section.

    build:         the layer of a section: its keys checked, its shape inferred.
    training:      keys, as one text, that say nothing about a forward pass; accepted silently.
    only:          key -> the value at which it changes nothing, the only one that is supported.
    alexeyab_keys: key -> the value at which it changes nothing, of keys that only AlexeyAB's program knows.
    alexeyab:      whether only that program knows the section.
    """

    build: Callable[[CfgSection, Position], LayerSpec]
    training: str = ""
    only: Mapping[str, str] = field(default_factory=dict)
    alexeyab_keys: Mapping[str, str] = field(default_factory=dict)
    alexeyab: bool = False


def keeps_shape(kind: type[LayerSpec]) -> Callable[[CfgSection, Position], LayerSpec]:
    """Return a builder of layers that read the one before, whose results have its shape, and whose fields all are keys."""

    def build(section: CfgSection, position: Position) -> LayerSpec:
        values = section.fields_of(kind)
        if "activation" in values:
            values["activation"] = position.activation(section, values["activation"])
        return kind(**position.common(section, position.in_shape), **values)

    return build


def strides(section: CfgSection) -> Pair:
    """Return the strides of a section per axis: (x, y)."""
    common = section.integer("stride", 1, 1, MAX_KERNEL)
    x, y = (section.integer(key, common, -1, MAX_KERNEL) for key in ("stride_x", "stride_y"))
    return (x if x > 0 else common, y if y > 0 else common)


def common_stride(pair: Pair) -> tuple[int, Pair]:
    """Return the stride of both axes that a kernel goes by, and which share of its result is kept per axis: (x, y)."""
    common = gcd(*pair)
    return common, (pair[0] // common, pair[1] // common)


def window(section: CfgSection, shape: Shape, size: int, pair: Pair, padding: int, channels: int) -> Shape:
    """Return the result's shape for a window of `size` over each axis padded by `padding` in total."""
    height, width, _ = shape
    if min(height, width) + padding < size:
        section.fail(
            f"a window of {size} does not fit into the input of {width}x{height} with {padding} of padding; "
            "lower size or raise pad"
        )
    return ((height + padding - size) // pair[1] + 1, (width + padding - size) // pair[0] + 1, channels)


def blurred(section: CfgSection, shape: Shape, kind: int, pair: Pair) -> Shape:
    """Return the shape that antialiasing leaves. kind: 1 for 3x3, padded by 1 on each side; 2 for 2x2."""
    return window(section, shape, 3 if kind == 1 else 2, pair, 2 if kind == 1 else 0, shape[2])


def layer_reference(section: CfgSection, position: Position, key: str, number: int) -> int:
    """Return a layer index from Darknet's notation: negative counts back from this layer."""
    index = position.index + number if number < 0 else number
    if not 0 <= index < position.index:
        section.fail(
            f"{key} names layer {number}, which is not before this layer {position.index}; "
            + (
                f"use -{position.index} to -1 or 0 to {position.index - 1}"
                if position.index
                else "the first layer can name none"
            ),
            key,
        )
    if getattr(position.layers[index], "blur", 0):
        section.fail(
            f"{key} names layer {index}, which has antialiasing: Darknet mixes up its shapes there; only the layer "
            "behind it can read it",
            key,
        )
    return index


def layer_references(section: CfgSection, position: Position, key: str) -> tuple[int, ...]:
    """Return the layer indices that a key lists. Raises: FormatError for layers that are not before this one."""
    numbers = section.integers(key, -position.index - 1, 1 << 20)
    return tuple(layer_reference(section, position, key, number) for number in numbers)


def one_reference(section: CfgSection, position: Position, key: str) -> int:
    """Return the one layer index that a key names. Raises: FormatError for several."""
    layers = layer_references(section, position, key)
    if len(layers) != 1:
        section.fail(f"{key} must name exactly one layer, for example {key}=-3", key)
    return layers[0]


def shape_text(shape: Shape) -> str:
    """Write a shape as messages have it: (width x height x channels)."""
    return f"({shape[1]}x{shape[0]}x{shape[2]})"
