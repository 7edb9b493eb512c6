# SPDX-License-Identifier: MIT
"""Sections that read other layers than the one before, or none."""

from __future__ import annotations

from mpnet.formats.cfg.position import Position, SectionReader, layer_references, one_reference, shape_text
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layers import (
    MAX_CHANNELS,
    MOST_POSITIONS,
    AttentionSpec,
    ImplicitSpec,
    LayerSpec,
    RouteSpec,
    SamSpec,
    ScaleChannelsSpec,
    Shape,
    ShortcutSpec,
)

_TYPES = {"none": "none", "per_feature": "per_feature", "per_layer": "per_feature", "per_channel": "per_channel"}
_NORMALISATIONS = {"none": "none", "relu": "relu", "avg_relu": "relu", "softmax": "softmax"}


def route(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [route] section of one or several layers, optionally one of `groups` equal parts of each."""
    inputs = layer_references(section, position, "layers")
    if not inputs:
        section.fail("layers is missing; say which layers to join, for example layers=-1,8")
    groups = section.fields_of(RouteSpec)["groups"]
    group_id = section.integer("group_id", 0, 0, groups - 1)
    shapes = [position.shape(index) for index in inputs]
    for index, shape in zip(inputs, shapes, strict=True):
        if shape[:2] != shapes[0][:2]:
            section.misfit(
                f"layers {inputs[0]} {shape_text(shapes[0])} and {index} {shape_text(shape)} differ in width or height",
                "layers",
            )
        if shape[2] % groups:
            section.fail(f"groups={groups} does not divide the {shape[2]} channels of layer {index}", "groups")
    channels = sum(shape[2] // groups for shape in shapes)
    if channels > MAX_CHANNELS:
        section.fail(f"{channels} channels; the limit is {MAX_CHANNELS}", "layers")
    common = position.common(section, (shapes[0][0], shapes[0][1], channels))
    return RouteSpec(**{**common, "inputs": inputs, "in_shape": shapes[0]}, groups=groups, group_id=group_id)


def shortcut(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [shortcut] section: the layer before plus others."""
    others = layer_references(section, position, "from")
    if not others:
        section.fail("from is missing; say which layer to add, for example from=-3")
    fields = section.fields_of(ShortcutSpec)
    fields["activation"] = position.activation(section, fields["activation"])
    weights = _TYPES[section.word("weights_type", _TYPES, "none")]
    normalisation = _NORMALISATIONS[section.word("weights_normalization", _NORMALISATIONS, "none")]
    layer = ShortcutSpec(
        **position.common(section, position.in_shape, *others),
        **fields,
        weights_type=weights,
        normalisation=normalisation,
        load=not section.flag("dontload", False),
        other_shapes=tuple(position.shape(index) for index in others),
    )
    for index in others:
        _check_added(section, position, layer, index)
    return layer


def _check_added(section: CfgSection, position: Position, layer: ShortcutSpec, index: int) -> None:
    shape, other = position.in_shape, position.shape(index)
    if other[:2] == shape[:2]:
        return
    shapes = f"layers {position.index - 1} {shape_text(shape)} and {index} {shape_text(other)} differ in width or height"
    if position.dialect == "alexeyab":
        section.misfit(f"{shapes}, where AlexeyAB's program aborts; use dialect darknet if the original trained it", "from")
    if len(layer.inputs) > 2 or layer.weights_type != "none":
        section.misfit(f"{shapes}; only one layer without weights may", "from")
    large, small = (other, shape) if other[1] > shape[1] else (shape, other)
    if large[1] // small[1] != large[0] // small[0]:
        section.misfit(f"{shapes}, not by one factor", "from")


def scale_channels(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [scale_channels] section: another layer times the one before, which has a value per channel or per pixel."""
    other = one_reference(section, position, "from")
    fields = section.fields_of(ScaleChannelsSpec)
    fields["activation"] = position.activation(section, fields["activation"])
    shape = position.shape(other)
    required: Shape = (shape[0], shape[1], 1) if fields["per_pixel"] else (1, 1, shape[2])
    if position.in_shape != required:
        section.misfit(
            f"layer {position.index - 1} {shape_text(position.in_shape)} cannot scale layer {other} {shape_text(shape)}; "
            f"it must be {shape_text(required)}",
            "from",
        )
    return ScaleChannelsSpec(**position.common(section, shape, other), **fields)


def sam(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [sam] section: the layer before times another, value by value."""
    other = one_reference(section, position, "from")
    if position.shape(other) != position.in_shape:
        shapes = f"{position.index - 1} {shape_text(position.in_shape)} and {other} {shape_text(position.shape(other))}"
        section.misfit(f"layers {shapes} differ in shape", "from")
    fields = section.fields_of(SamSpec)
    fields["activation"] = position.activation(section, fields["activation"])
    return SamSpec(**position.common(section, position.in_shape, other), **fields)


def implicit(section: CfgSection, position: Position) -> LayerSpec:
    """Read an [implicit] section: constants from the weights file."""
    fields = section.fields_of(ImplicitSpec)
    for key in ("mean", "std"):  # of the values that training starts from
        section.text(key)
    load = not section.flag("dontload", False)
    return ImplicitSpec(**position.common(section, (fields["atoms"], 1, fields["filters"])), **fields, load=load)


def attention(section: CfgSection, position: Position) -> LayerSpec:
    """Read an [attention] section: queries, keys and values of the heads stand one after the other in its input's channels."""
    fields = section.fields_of(AttentionSpec)
    height, width, channels = position.in_shape
    heads, key, areas = fields["heads"], fields["key"], fields["areas"]
    left = channels - 2 * heads * key
    if left < 1 or left % heads:
        section.fail(
            f"{channels} channels are not queries and keys of {key} for {heads} heads, and as many values for each", "key"
        )
    if height * width % areas or height * width // areas > MOST_POSITIONS:
        section.fail(
            f"areas={areas} does not cut {width}x{height} pixels into equal parts of at most {MOST_POSITIONS} pixels", "areas"
        )
    return AttentionSpec(**position.common(section, (height, width, left)), **fields)


READERS = {
    "attention": SectionReader(attention, alexeyab=True),
    "route": SectionReader(route, alexeyab_keys={"groups": "1"}),
    "shortcut": SectionReader(shortcut, "layers", alexeyab_keys={"weights_type": "none"}),
    "scale_channels": SectionReader(scale_channels, alexeyab=True),
    "sam": SectionReader(sam, alexeyab=True),
    "implicit": SectionReader(implicit, alexeyab=True),
}
