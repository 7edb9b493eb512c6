# SPDX-License-Identifier: MIT
"""The JSON document of `mpnet explain`: its fields are the keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from mpnet.model.keys import json_key


@dataclass(frozen=True)
class ShareRow:
    """A layer's share of what an object lost, percent; half_width: of its 95 % interval."""

    layer: int
    name: str
    percent: float
    half_width: float


@dataclass(frozen=True)
class Remedy:
    """The least to raise so that an object is back.

    layers, names, precisions: of the layers to raise, and to what.
    bit_operations_percent:    what this adds, of the baseline's. score: of the object then.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    precisions: tuple[str, ...]
    bit_operations_percent: float
    score: float


@dataclass(frozen=True)
class ObjectRow:
    """An object and the layers that lose it.

    object:       IMAGE:N, as `--object` takes it. image: the path of the image. kind: what became of the object.
    size:         as COCO divides objects by area. box: x, y, width, height in pixels.
    beside_score: the best score of a detection near it. loss: how much of the score all layers raised together bring back.
    shares:       of the loss, the largest first. remedy: None where no layers bring it back, or nothing is lost.
    file:         an image that was drawn of it.
    """

    object: str
    image: str
    kind: str
    class_name: str = field(metadata=json_key("class"))
    size: str
    at_edge: bool
    box: tuple[float, float, float, float]
    baseline_score: float
    score: float
    beside_score: float
    loss: float
    shares: tuple[ShareRow, ...]
    remedy: Remedy | None = field(metadata=json_key("raise"))
    file: str | None = field(default=None, metadata=json_key(omit_default=True))


@dataclass(frozen=True)
class LayerLosses:
    """The losses of a layer among all explained objects. Shares are percent, None of no objects.

    precision, raised:      the layer's in the configuration and in the baseline.
    bit_operations_percent: what raising it adds, of the baseline's. brings_back: in the remedies of so many objects.
    """

    layer: int
    name: str
    precision: str
    raised: str
    bit_operations_percent: float
    percent: float | None
    brings_back: int
    by_size: Mapping[str, float | None]
    by_place: Mapping[str, float | None]
    by_class: Mapping[str, float | None]


@dataclass(frozen=True)
class ExplanationDocument:
    """The layers of a configuration that lose objects, the worst object first.

    name:    of the experiment. words, baseline_words: the configuration and its baseline, as people read them.
    digests: of what decides the result, SHA-256 (hex). images: how many were compared.
    lost:    how many objects became worse, by kind. orders: of raising layers, drawn for an object.
    """

    name: str
    precision_key: str
    baseline_key: str
    words: str
    baseline_words: str
    digests: Mapping[str, str | None]
    images: int
    lost: Mapping[str, int]
    orders: int
    objects: tuple[ObjectRow, ...]
    layers: tuple[LayerLosses, ...]
