# SPDX-License-Identifier: MIT
"""What each kind of layer does that is not one operation, whose rule stands beside that operation."""

from __future__ import annotations

from typing import Any

from mpnet.engine.operations import (
    Add,
    Blur,
    ChannelMax,
    ChannelsLast,
    Combine,
    Concat,
    Convolve,
    Crop,
    Flatten,
    LocalAvgPool,
    Map,
    MaxPool,
    Multiply,
    Normalize,
    Operation,
    Pad,
    Reorg,
    Sample,
    Slice,
    Spread,
    Unflatten,
    Upsample,
)
from mpnet.engine.operations.base import RULES, Rule
from mpnet.engine.options import LayerQuantization
from mpnet.kernels.interface import ACTIVATIONS, NORMALISATIONS
from mpnet.model.layer import MAPPED_ACTIVATIONS
from mpnet.model.layers import (
    ActivationSpec,
    BatchnormSpec,
    ConnectedSpec,
    ContrastiveSpec,
    ConvolutionSpec,
    CostSpec,
    CropSpec,
    DeconvolutionalSpec,
    DropoutSpec,
    EmptySpec,
    MaxpoolSpec,
    PadSpec,
    ReorgSpec,
    RouteSpec,
    SamSpec,
    ScaleChannelsSpec,
    Shape,
    ShortcutSpec,
    SliceSpec,
    SoftmaxSpec,
    UpsampleSpec,
)
from mpnet.model.precision import Precision

__all__ = ["NORMALISATIONS_BY_WORD", "RULES", "kernel_activation"]

Operations = tuple[Operation, ...]


def kernel_activation(word: str) -> str:
    """The activation that a kernel applies itself where a layer's is `word`: it, or linear, and a step of its own follows."""
    return word if word in ACTIVATIONS else "linear"


def _activate(word: str) -> Operations:
    """The step that follows a kernel for an activation that it does not have."""
    if word in NORMALISATIONS_BY_WORD:
        return (Normalize(NORMALISATIONS_BY_WORD[word]),)
    return (Map(word),) if word in MAPPED_ACTIVATIONS else ()


NORMALISATIONS_BY_WORD: dict[str, str] = {f"normalize_{kind}": kind for kind in NORMALISATIONS if kind.startswith("channels")}
"""Activations over the channels of a pixel -> how they are normalised."""


def _blurred(kind: int, strides: tuple[int, int]) -> Operations:
    if not kind:
        return ()
    if strides[0] == strides[1]:
        return (Blur(kind, strides[0]),)
    return (Blur(kind, 1), Sample(*strides))


def _sampled(sample: tuple[int, int]) -> Operations:
    return (Sample(*sample),) if sample != (1, 1) else ()


def _convolve(layer: ConvolutionSpec, precision: Precision, how: LayerQuantization) -> Operations:
    if precision.carries_scale:
        main = Convolve(layer.index, precision, *how.rounded_to(precision))
    else:
        main = Convolve(layer.index, precision)
    follows = _activate(layer.activation)
    if follows or layer.blur or layer.sample != (1, 1):
        return (main, *_sampled(layer.sample), *follows, *_blurred(layer.blur, layer.blur_strides))
    return (main,)


def _maxpool(layer: MaxpoolSpec, *_: Any) -> Operations:
    if layer.depth:
        return (ChannelMax(layer.depth),)
    main = MaxPool(layer.size, layer.stride, layer.padding)
    return (main, *_sampled(layer.sample), *_blurred(layer.blur, layer.blur_strides))


def _upsample(layer: UpsampleSpec, *_: Any) -> Operations:
    factor = layer.factor
    if layer.shrinks:
        return (LocalAvgPool(factor, (factor, factor)), Map("linear", layer.scale * factor * factor))
    return (Upsample(factor), *(() if layer.scale == 1 else (Map("linear", layer.scale),)))


def _part(layer: RouteSpec, shape: Shape) -> Slice | None:
    width = shape[2] // layer.groups
    return Slice(layer.group_id * width, (layer.group_id + 1) * width) if layer.groups > 1 else None


def _shortcut(layer: ShortcutSpec, *_: Any) -> Operations:
    inside, follows = kernel_activation(layer.activation), _activate(layer.activation)
    plain = len(layer.inputs) == 2 and layer.plain
    if plain:
        return (Add(inside), *follows)
    index = -1 if layer.weights_type == "none" else layer.index
    return (Combine(inside, index, layer.alpha, layer.beta), *follows)


def _scale(layer: ScaleChannelsSpec, *_: Any) -> Operations:
    operand = "per_pixel" if layer.per_pixel else "per_channel"
    return (Multiply(kernel_activation(layer.activation), operand, True), *_activate(layer.activation))


def _sam(layer: SamSpec, *_: Any) -> Operations:
    return (Multiply(kernel_activation(layer.activation)), *_activate(layer.activation))


def _activation(layer: ActivationSpec, *_: Any) -> Operations:
    word = layer.activation
    return _activate(word) or ((Map(word),) if word != "linear" else ())


def _crop(layer: CropSpec, *_: Any) -> Operations:
    height, width, _channels = layer.out_shape
    main = Crop(layer.left, layer.top, width, height)
    return (main,) if layer.plain else (main, Map("linear", 2.0, -1.0))


def _pad(layer: PadSpec, *_: Any) -> Operations:
    return (Pad(layer.top, layer.bottom, layer.left, layer.right, layer.front, layer.back, layer.edge),)


def _reorg(layer: ReorgSpec, *_: Any) -> Operations:
    if layer.flatten:
        return (ChannelsLast(layer.stride, layer.reverse),)
    return (Flatten(layer.extra),) if layer.extra else (Reorg(layer.stride, layer.reverse),)


def _softmax(layer: SoftmaxSpec, *_: Any) -> Operations:
    height, width, _channels = layer.in_shape
    main = Normalize("softmax", (layer.temperature,), layer.groups, layer.tree)
    if height * width == 1:
        return (main,)
    return (Flatten(), main, Unflatten(height, width))


def _zeros(*_: Any) -> Operations:
    return (Map("linear", 0.0),)


RULES |= {
    ConvolutionSpec: Rule(_convolve),
    ConnectedSpec: Rule(_convolve),
    BatchnormSpec: Rule(_convolve),
    DeconvolutionalSpec: Rule(_convolve, lambda layer, _: Spread(layer.spread) if layer.spread > 1 else None),
    MaxpoolSpec: Rule(_maxpool),
    UpsampleSpec: Rule(_upsample),
    RouteSpec: Rule(lambda layer, *_: (Concat(),) if len(layer.inputs) > 1 else (), _part),
    ShortcutSpec: Rule(_shortcut),
    ScaleChannelsSpec: Rule(_scale),
    SamSpec: Rule(_sam),
    ActivationSpec: Rule(_activation),
    CropSpec: Rule(_crop),
    PadSpec: Rule(_pad),
    SliceSpec: Rule(lambda *_: (), lambda layer, _: Slice(layer.first, layer.first + layer.channels)),
    ReorgSpec: Rule(_reorg),
    SoftmaxSpec: Rule(_softmax),
    CostSpec: Rule(_zeros),
    ContrastiveSpec: Rule(_zeros),
    DropoutSpec: Rule(lambda *_: ()),
    EmptySpec: Rule(lambda *_: ()),
}
