# SPDX-License-Identifier: MIT
"""Rules of layers that are more than one operation; the rule of a single operation stands beside it."""

from __future__ import annotations

from mpnet.engine import operations as op
from mpnet.engine.operations.base import RULES, declare_rule
from mpnet.engine.options import LayerQuantization
from mpnet.kernels.interface import ACTIVATIONS, NORMALISATIONS
from mpnet.model import layers as spec
from mpnet.model.layer import MAPPED_ACTIVATIONS
from mpnet.model.precision import Precision

__all__ = ["NORMALISATIONS_BY_WORD", "RULES", "kernel_activation"]

Operations = tuple[op.Operation, ...]


def kernel_activation(word: str) -> str:
    """Return the activation that a kernel applies itself: `word`, or linear where a step of its own follows."""
    return word if word in ACTIVATIONS else "linear"


def _activate(word: str) -> Operations:
    """Return the step that follows a kernel for an activation that it does not have."""
    if word in NORMALISATIONS_BY_WORD:
        return (op.Normalize(NORMALISATIONS_BY_WORD[word]),)
    return (op.Map(word),) if word in MAPPED_ACTIVATIONS else ()


NORMALISATIONS_BY_WORD: dict[str, str] = {f"normalize_{kind}": kind for kind in NORMALISATIONS if kind.startswith("channels")}
"""Activations over the channels of a pixel -> how they are normalised."""


def _blur(kind: int, strides: tuple[int, int]) -> Operations:
    if not kind:
        return ()
    if strides[0] == strides[1]:
        return (op.Blur(kind, strides[0]),)
    return (op.Blur(kind, 1), op.Sample(*strides))


def _sample(sample: tuple[int, int]) -> Operations:
    return (op.Sample(*sample),) if sample != (1, 1) else ()


def _convolve(layer: spec.ConvolutionSpec, precision: Precision, quantization: LayerQuantization) -> Operations:
    if precision.carries_scale:
        main = op.Convolve(layer.index, precision, *quantization.rounded_to(precision))
    else:
        main = op.Convolve(layer.index, precision)
    follows = _activate(layer.activation)
    if follows or layer.blur or layer.sample != (1, 1):
        return (main, *_sample(layer.sample), *follows, *_blur(layer.blur, layer.blur_strides))
    return (main,)


def _maxpool(layer: spec.MaxpoolSpec, *_: object) -> Operations:
    if layer.depth:
        return (op.ChannelMax(layer.depth),)
    main = op.MaxPool(layer.size, layer.stride, layer.padding)
    return (main, *_sample(layer.sample), *_blur(layer.blur, layer.blur_strides))


def _upsample(layer: spec.UpsampleSpec, *_: object) -> Operations:
    factor = layer.factor
    if layer.shrinks:
        return (op.LocalAvgPool(factor, (factor, factor)), op.Map("linear", layer.scale * factor * factor))
    return (op.Upsample(factor), *(() if layer.scale == 1 else (op.Map("linear", layer.scale),)))


def _group_slice(layer: spec.RouteSpec, shape: spec.Shape) -> op.Slice | None:
    width = shape[2] // layer.groups
    return op.Slice(layer.group_id * width, (layer.group_id + 1) * width) if layer.groups > 1 else None


def _shortcut(layer: spec.ShortcutSpec, *_: object) -> Operations:
    word, follows = kernel_activation(layer.activation), _activate(layer.activation)
    plain = len(layer.inputs) == 2 and layer.plain
    if plain:
        return (op.Add(word), *follows)
    index = -1 if layer.weights_type == "none" else layer.index
    return (op.Combine(word, index, layer.alpha, layer.beta), *follows)


def _scale(layer: spec.ScaleChannelsSpec, *_: object) -> Operations:
    operand = "per_pixel" if layer.per_pixel else "per_channel"
    return (op.Multiply(kernel_activation(layer.activation), operand, True), *_activate(layer.activation))


def _sam(layer: spec.SamSpec, *_: object) -> Operations:
    return (op.Multiply(kernel_activation(layer.activation)), *_activate(layer.activation))


def _activation(layer: spec.ActivationSpec, *_: object) -> Operations:
    word = layer.activation
    return _activate(word) or ((op.Map(word),) if word != "linear" else ())


def _crop(layer: spec.CropSpec, *_: object) -> Operations:
    height, width, _channels = layer.out_shape
    main = op.Crop(layer.left, layer.top, width, height)
    return (main,) if layer.plain else (main, op.Map("linear", 2.0, -1.0))


def _pad(layer: spec.PadSpec, *_: object) -> Operations:
    return (op.Pad(layer.top, layer.bottom, layer.left, layer.right, layer.front, layer.back, layer.edge),)


def _reorg(layer: spec.ReorgSpec, *_: object) -> Operations:
    if layer.flatten:
        return (op.ChannelsLast(layer.stride, layer.reverse),)
    return (op.Flatten(layer.extra),) if layer.extra else (op.Reorg(layer.stride, layer.reverse),)


def _softmax(layer: spec.SoftmaxSpec, *_: object) -> Operations:
    height, width, _channels = layer.in_shape
    main = op.Normalize("softmax", (layer.temperature,), layer.groups, layer.tree)
    if height * width == 1:
        return (main,)
    return (op.Flatten(), main, op.Unflatten(height, width))


def _zeros(*_: object) -> Operations:
    return (op.Map("linear", 0.0),)


declare_rule(spec.ConvolutionSpec, _convolve)
declare_rule(spec.ConnectedSpec, _convolve)
declare_rule(spec.BatchnormSpec, _convolve)
declare_rule(spec.DeconvolutionalSpec, _convolve, lambda layer, _: op.Spread(layer.spread) if layer.spread > 1 else None)
declare_rule(spec.MaxpoolSpec, _maxpool)
declare_rule(spec.UpsampleSpec, _upsample)
declare_rule(spec.RouteSpec, lambda layer, *_: (op.Concat(),) if len(layer.inputs) > 1 else (), _group_slice)
declare_rule(spec.ShortcutSpec, _shortcut)
declare_rule(spec.ScaleChannelsSpec, _scale)
declare_rule(spec.SamSpec, _sam)
declare_rule(spec.ActivationSpec, _activation)
declare_rule(spec.CropSpec, _crop)
declare_rule(spec.PadSpec, _pad)
declare_rule(spec.SliceSpec, lambda *_: (), lambda layer, _: op.Slice(layer.first, layer.first + layer.channels))
declare_rule(spec.ReorgSpec, _reorg)
declare_rule(spec.SoftmaxSpec, _softmax)
declare_rule(spec.CostSpec, _zeros)
declare_rule(spec.ContrastiveSpec, _zeros)
declare_rule(spec.DropoutSpec, lambda *_: ())
declare_rule(spec.EmptySpec, lambda *_: ())
