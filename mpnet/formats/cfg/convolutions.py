# SPDX-License-Identifier: MIT
"""Sections whose layers are convolutions, also by another name."""

from __future__ import annotations

from typing import Any

from mpnet.formats.cfg.position import Position, SectionReader, blurred, common_stride, layer_reference, strides, window
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layers import (
    MAX_CHANNELS,
    MAX_KERNEL,
    BatchnormSpec,
    ConnectedSpec,
    ConvolutionSpec,
    DeconvolutionalSpec,
    LayerSpec,
)


def _fields(section: CfgSection, position: Position, kind: type[ConvolutionSpec]) -> dict[str, Any]:
    fields = section.fields_of(kind)
    if "activation" in fields:
        fields["activation"] = position.activation(section, fields["activation"])
    normalised = section.integer("batch_normalize", 0, 0, 2) or section.integer("cbn", 0, 0, 1)
    return fields | {
        "batch_normalize": bool(normalised),
        "load": not section.flag("dontload", False),
        "load_scales": not section.flag("dontloadscales", False),
    }


def _padding(section: CfgSection, size: int) -> int:
    padding = section.integer("padding", 0, 0, MAX_KERNEL)
    return size // 2 if section.flag("pad", False) else padding


def convolutional(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [convolutional] section.

    pad=1 means padding = size / 2, as in Darknet; a dilated kernel's padding is dilated with it.

    """
    fields = _fields(section, position, ConvolutionSpec)
    filters, size, groups, blur = (fields[name] for name in ("filters", "size", "groups", "blur"))
    if size == 1:
        fields["dilation"] = 1
    dilation = fields["dilation"]
    padding = _padding(section, size) * dilation
    channels = position.in_shape[2]
    if channels % groups or filters % groups:
        section.fail(f"groups={groups} must divide the {channels} input channels and the {filters} filters", "groups")
    pair = strides(section)
    kernel_strides = (1, 1) if blur else pair
    out_shape = window(section, position.in_shape, dilation * (size - 1) + 1, kernel_strides, 2 * padding, filters)
    if blur:
        out_shape = blurred(section, out_shape, blur, pair)
    stride, sample = common_stride(kernel_strides)
    fields |= {"stride": stride, "sample": sample, "padding": padding, "blur_strides": pair if blur else (1, 1)}
    layer = ConvolutionSpec(**position.common(section, out_shape), **fields, shares=_shared(section, position))
    if layer.shares is not None:
        _check_shared(section, layer, position.layers[layer.shares])
    return layer


def _shared(section: CfgSection, position: Position) -> int | None:
    if "share_index" not in section.entries:
        return None
    number = section.integer("share_index", 0, -1_000_000_000, 1 << 20)
    return None if number == -1_000_000_000 else layer_reference(section, position, "share_index", number)


def _check_shared(section: CfgSection, layer: ConvolutionSpec, other: LayerSpec) -> None:
    if (
        type(other) is not ConvolutionSpec
        or other.weight_shape != layer.weight_shape
        or (other.groups != layer.groups or other.batch_normalize != layer.batch_normalize)
    ):
        section.fail(
            f"share_index names layer {other.index} [{other.kind}]; it must be a convolution of the same filters, size, "
            "channels, groups and batch_normalize",
            "share_index",
        )


def connected(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [connected] section."""
    fields = _fields(section, position, ConnectedSpec)
    return ConnectedSpec(**position.common(section, (1, 1, fields["filters"])), **fields)


def batchnorm(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [batchnorm] section, with a bias per channel."""
    channels = position.in_shape[2]
    load = not section.flag("dontload", False)
    return BatchnormSpec(
        **position.common(section, position.in_shape), filters=channels, groups=channels, batch_normalize=True, load=load
    )


def deconvolutional(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [deconvolutional] section; its result has (in - 1) * stride + size - 2 * padding."""
    fields = _fields(section, position, DeconvolutionalSpec)
    size, filters = fields["size"], fields["filters"]
    stride, padding = section.integer("stride", 1, 1, MAX_KERNEL), _padding(section, fields["size"])
    if padding > size - 1:
        section.fail(f"padding={padding} of a deconvolution of size {size} is not supported; use at most {size - 1}")
    height, width, channels = position.in_shape
    if channels > MAX_CHANNELS:
        section.fail(f"{channels} channels; the limit is {MAX_CHANNELS}")
    sides = [(side - 1) * stride + size - 2 * padding for side in (height, width)]
    if min(sides) < 1:
        section.fail(f"padding={padding} leaves nothing of {width}x{height}; lower it", "padding")
    return DeconvolutionalSpec(
        **position.common(section, (sides[0], sides[1], filters)), **fields, stride=1, padding=size - 1 - padding, spread=stride
    )


READERS = {
    "convolutional": SectionReader(
        convolutional,
        "dot grad_centr sparse assisted_excitation deform angle stretch sway rotate stretch_sway coordconv reverse "
        "wait_stream output_batch_normalize",
        only={"xnor": "0", "binary": "0", "bin_output": "0", "use_bin_output": "0"},
        alexeyab_keys={"dilation": "1", "antialiasing": "0", "share_index": "-1000000000", "flipped": "0", "cbn": "0"},
    ),
    "connected": SectionReader(connected),
    "batchnorm": SectionReader(batchnorm),
    "deconvolutional": SectionReader(deconvolutional),
}
