# SPDX-License-Identifier: MIT
"""Sections that pool, resize, cut or rearrange one tensor."""

from __future__ import annotations

from mpnet.formats.cfg.position import Pair, Position, SectionReader, blurred, common_stride, shape_text, strides, window
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layers import (
    MAX_CHANNELS,
    MAX_KERNEL,
    MAX_SIDE,
    AvgpoolSpec,
    CropSpec,
    DepthToSpaceSpec,
    LayerSpec,
    LocalAvgpoolSpec,
    MaxpoolSpec,
    PadSpec,
    Reorg3dSpec,
    ReorgSpec,
    ReshapeSpec,
    Shape,
    ShuffleSpec,
    SliceSpec,
    UpsampleSpec,
)


def maxpool(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [maxpool] section; without `padding` the total is size - 1."""
    shape, pair, blur = position.in_shape, strides(section), section.fields_of(MaxpoolSpec)["blur"]
    depth = section.integer("out_channels", 1, 1, MAX_CHANNELS)
    if section.flag("maxpool_depth", False):
        if depth > shape[2]:
            section.fail(f"out_channels={depth} is more than the {shape[2]} channels of its input", "out_channels")
        for key in ("size", "padding"):
            section.text(key)
        return MaxpoolSpec(**position.common(section, (shape[0], shape[1], depth)), depth=depth)
    kernel_strides = (1, 1) if blur else pair
    size, padding = _pooling(section, shape, kernel_strides)
    out_shape = window(section, shape, size, kernel_strides, padding, shape[2])
    if blur:
        out_shape = blurred(section, out_shape, blur, pair)
    stride, sample = common_stride(kernel_strides)
    return MaxpoolSpec(
        **position.common(section, out_shape),
        size=size,
        stride=stride,
        padding=padding,
        sample=sample,
        blur=blur,
        blur_strides=pair if blur else (1, 1),
    )


def _pooling(section: CfgSection, shape: Shape, pair: Pair) -> tuple[int, int]:
    size = section.integer("size", section.integer("stride", 1, 1, MAX_KERNEL), 1, MAX_KERNEL)
    padding = section.integer("padding", size - 1, 0, MAX_KERNEL)
    out_shape = window(section, shape, size, pair, padding, shape[2])
    # A window that lies outside altogether would have no values.
    before = padding // 2
    if before >= size or any((out_shape[axis] - 1) * pair[1 - axis] - before >= shape[axis] for axis in (0, 1)):
        section.fail(f"padding={padding} puts whole windows of {size} outside the input; use {size - 1}", "padding")
    return size, padding


def local_avgpool(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [local_avgpool] section: windows as of [maxpool]."""
    pair = strides(section)
    size, padding = _pooling(section, position.in_shape, pair)
    out_shape = window(section, position.in_shape, size, pair, padding, position.in_shape[2])
    return LocalAvgpoolSpec(**position.common(section, out_shape), size=size, strides=pair, padding=padding)


def avgpool(section: CfgSection, position: Position) -> LayerSpec:
    """Read an [avgpool] section: the mean over all pixels."""
    return AvgpoolSpec(**position.common(section, (1, 1, position.in_shape[2])))


def upsample(section: CfgSection, position: Position) -> LayerSpec:
    """Read an [upsample] section: by a whole factor; a negative stride sums blocks."""
    height, width, channels = position.in_shape
    fields = section.fields_of(UpsampleSpec)
    stride = section.integer("stride", 2, -64, 64)
    factor = abs(stride)
    if factor == 0 or (stride < 0 and factor > min(height, width)):
        section.fail(f"stride={stride} makes nothing of {width}x{height}", "stride")
    if stride < 0:
        shape = (height // factor, width // factor, channels)
    else:
        shape = (height * factor, width * factor, channels)
        if max(shape[:2]) > MAX_SIDE:
            section.fail(f"the result would be {shape[1]}x{shape[0]}; the limit is {MAX_SIDE}")
    return UpsampleSpec(**position.common(section, shape), **fields, factor=factor, shrinks=stride < 0)


def crop(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [crop] section: the centre, as Darknet does when it is not being trained."""
    height, width, channels = position.in_shape
    high = section.integer("crop_height", 1, 1, MAX_SIDE)
    wide = section.integer("crop_width", 1, 1, MAX_SIDE)
    if high > height or wide > width:
        section.fail(f"a crop of {wide}x{high} does not fit into the input of {width}x{height}")
    fields = section.fields_of(CropSpec)
    return CropSpec(
        **position.common(section, (high, wide, channels)), **fields, left=(width - wide) // 2, top=(height - high) // 2
    )


def pad(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [pad] section."""
    height, width, channels = position.in_shape
    fields = section.fields_of(PadSpec)
    shape = (
        height + fields["top"] + fields["bottom"],
        width + fields["left"] + fields["right"],
        channels + fields["front"] + fields["back"],
    )
    if shape[2] > MAX_CHANNELS or max(shape[:2]) > MAX_SIDE:
        section.fail(f"the result would be {shape_text(shape)}; the limits are {MAX_SIDE} and {MAX_CHANNELS}")
    return PadSpec(**position.common(section, shape), **fields)


def slice_(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [slice] section; its channels must exist."""
    height, width, channels = position.in_shape
    fields = section.fields_of(SliceSpec)
    if fields["first"] + fields["channels"] > channels:
        section.fail(
            f"channels {fields['first']} to {fields['first'] + fields['channels'] - 1} of {channels} do not exist", "first"
        )
    return SliceSpec(**position.common(section, (height, width, fields["channels"])), **fields)


def shuffle(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [shuffle] section; its groups must divide the channels."""
    fields, channels = section.fields_of(ShuffleSpec), position.in_shape[2]
    if channels % fields["groups"]:
        section.fail(f"groups={fields['groups']} does not divide {channels} channels", "groups")
    return ShuffleSpec(**position.common(section, position.in_shape), **fields)


def reshape(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [reshape] section; its width must divide the pixels."""
    height, width, channels = position.in_shape
    fields = section.fields_of(ReshapeSpec)
    rows, rest = divmod(height * width, fields["width"])
    if rest or rows > MAX_SIDE:
        section.fail(f"width={fields['width']} does not make rows of {width}x{height} pixels; the limit is {MAX_SIDE}", "width")
    return ReshapeSpec(**position.common(section, (rows, fields["width"], channels)), **fields)


def reorg(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [reorg] section; its stride must divide the input."""
    fields = section.fields_of(ReorgSpec)
    height, width, channels = position.in_shape
    if fields["flatten"]:
        return ReorgSpec(
            **position.common(section, _reorganised(section, position.in_shape, fields["stride"], fields["reverse"])), **fields
        )
    if fields["extra"]:
        return ReorgSpec(**position.common(section, (1, 1, height * width * channels + fields["extra"])), **fields)
    shape = _reorganised(section, position.in_shape, fields["stride"], fields["reverse"])
    if channels % fields["stride"] ** 2:
        section.fail(
            f"stride={fields['stride']} needs a multiple of {fields['stride'] ** 2} channels, not {channels}", "stride"
        )
    return ReorgSpec(**position.common(section, shape), **fields)


def reorg3d(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [reorg3d] section; its stride must divide the input."""
    fields = section.fields_of(Reorg3dSpec)
    shape = _reorganised(section, position.in_shape, fields["stride"], fields["reverse"])
    if fields["reverse"] and shape[2] // fields["stride"] ** 2 < 1:
        section.fail(f"stride={fields['stride']} needs more than {position.in_shape[2]} channels to be reversed", "stride")
    return Reorg3dSpec(**position.common(section, shape), **fields)


def depth_to_space(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [depth_to_space] section; its stride's square must divide the channels."""
    fields, channels = section.fields_of(DepthToSpaceSpec), position.in_shape[2]
    stride = fields["stride"]
    if channels % stride**2:
        section.fail(f"stride={stride} needs a multiple of {stride**2} channels, not {channels}", "stride")
    shape = _reorganised(section, position.in_shape, stride, True)
    return DepthToSpaceSpec(**position.common(section, shape), **fields)


def _reorganised(section: CfgSection, shape: Shape, stride: int, reverse: bool) -> Shape:
    height, width, channels = shape
    square = stride * stride
    result = (
        (height * stride, width * stride, channels // square)
        if reverse
        else (height // stride, width // stride, channels * square)
    )
    if height * width * channels != result[0] * result[1] * result[2]:
        section.fail(f"stride={stride} does not divide the input {shape_text(shape)}", "stride")
    if result[2] > MAX_CHANNELS or max(result[:2]) > MAX_SIDE:
        section.fail(f"the result would be {shape_text(result)}; the limits are {MAX_SIDE} and {MAX_CHANNELS}", "stride")
    return result


READERS = {
    "maxpool": SectionReader(maxpool, alexeyab_keys={"maxpool_depth": "0", "antialiasing": "0"}),
    "local_avgpool": SectionReader(local_avgpool, alexeyab=True),
    "avgpool": SectionReader(avgpool),
    "upsample": SectionReader(upsample),
    "crop": SectionReader(crop, "flip angle saturation exposure shift"),
    "pad": SectionReader(pad),
    "slice": SectionReader(slice_),
    "shuffle": SectionReader(shuffle),
    "reshape": SectionReader(reshape),
    "reorg": SectionReader(reorg),
    "reorg3d": SectionReader(reorg3d, alexeyab=True),
    "depth_to_space": SectionReader(depth_to_space),
}
