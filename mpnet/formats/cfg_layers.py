"""One function per section type: checked keys in, a layer with inferred shapes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from mpnet.formats.cfg_tokens import CfgSection
from mpnet.spec.layers import (
    MAX_CHANNELS,
    MAX_KERNEL,
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

MAX_UPSAMPLED_SIDE = 32768


@dataclass(frozen=True)
class Position:
    """Where a section stands: the layers before it and the picture's shape; and its precision keys."""

    layers: tuple[LayerSpec, ...]
    picture: Shape
    declared: PrecisionKeys | None

    @property
    def index(self) -> int:
        """Its own layer index."""
        return len(self.layers)

    def shape(self, index: int) -> Shape:
        """The shape of a layer before it."""
        return self.picture if index == PICTURE else self.layers[index].out_shape

    @property
    def in_shape(self) -> Shape:
        """The shape of the layer just before it."""
        return self.shape(self.index - 1)

    def common(self, section: CfgSection, out_shape: Shape, *others: int) -> dict[str, Any]:
        """The fields that every layer has; its inputs are the layer before it and `others`."""
        inputs = (self.index - 1, *others)
        return {
            "index": self.index, "line": section.line, "inputs": inputs, "in_shape": self.shape(inputs[0]),
            "out_shape": out_shape, "declared": self.declared,
        }


def _one_stride(section: CfgSection) -> int:
    stride = section.integer("stride", 1, 1, MAX_KERNEL)
    for key in ("stride_x", "stride_y"):
        if section.integer(key, stride, 1, MAX_KERNEL) != stride:
            section.fail(f"{key} differs from stride={stride}; different strides per axis are not supported", key)
    return stride


def _window(section: CfgSection, shape: Shape, size: int, stride: int, padding: int, channels: int) -> Shape:
    """The result's shape for a window of `size` over each axis padded by `padding` in total."""
    height, width, _ = shape
    if min(height, width) + padding < size:
        section.fail(
            f"a window of {size} does not fit into the input of {width}x{height} with {padding} of padding; "
            "lower size or raise pad"
        )
    return ((height + padding - size) // stride + 1, (width + padding - size) // stride + 1, channels)


def convolutional(section: CfgSection, at: Position) -> LayerSpec:
    """[convolutional]. pad=1 means padding = size / 2, as in Darknet; a dilated kernel's padding is dilated with it."""
    said = section.said(ConvolutionSpec)
    filters, size, dilation, groups = (said[name] for name in ("filters", "size", "dilation", "groups"))
    stride = _one_stride(section)
    padding = section.integer("padding", 0, 0, MAX_KERNEL)
    if section.flag("pad", False):
        padding = size // 2
    padding *= dilation
    channels = at.in_shape[2]
    if channels % groups or filters % groups:
        section.fail(f"groups={groups} must divide the {channels} input channels and the {filters} filters", "groups")
    out_shape = _window(section, at.in_shape, dilation * (size - 1) + 1, stride, 2 * padding, filters)
    return ConvolutionSpec(**at.common(section, out_shape), **said, stride=stride, padding=padding)


def maxpool(section: CfgSection, at: Position) -> LayerSpec:
    """[maxpool]; without `padding` the total is size - 1."""
    shape, stride = at.in_shape, _one_stride(section)
    size = section.integer("size", stride, 1, MAX_KERNEL)
    padding = section.integer("padding", size - 1, 0, MAX_KERNEL)
    out_shape = _window(section, shape, size, stride, padding, shape[2])
    # A window that lies outside altogether would have no maximum.
    before = padding // 2
    if before >= size or any((out_shape[axis] - 1) * stride - before >= shape[axis] for axis in (0, 1)):
        section.fail(f"padding={padding} puts whole windows of {size} outside the input; use {size - 1}", "padding")
    return MaxpoolSpec(**at.common(section, out_shape), size=size, stride=stride, padding=padding)


def avgpool(section: CfgSection, at: Position) -> LayerSpec:
    """[avgpool], global."""
    return AvgpoolSpec(**at.common(section, (1, 1, at.in_shape[2])))


def upsample(section: CfgSection, at: Position) -> LayerSpec:
    """[upsample] by a whole factor."""
    height, width, channels = at.in_shape
    factor = section.said(UpsampleSpec)["factor"]
    if factor * max(height, width) > MAX_UPSAMPLED_SIDE:
        section.fail(f"the result would be {width * factor}x{height * factor}; the limit is {MAX_UPSAMPLED_SIDE}")
    return UpsampleSpec(**at.common(section, (height * factor, width * factor, channels)), factor=factor)


def _layer_reference(section: CfgSection, at: Position, key: str, number: int) -> int:
    """A layer index from Darknet's notation: negative counts back from this layer."""
    index = at.index + number if number < 0 else number
    if not 0 <= index < at.index:
        section.fail(
            f"{key} names layer {number}, which is not before this layer {at.index}; "
            + (f"use -{at.index} to -1 or 0 to {at.index - 1}" if at.index else "the first layer can name none"),
            key,
        )
    return index


def route(section: CfgSection, at: Position) -> LayerSpec:
    """[route] of one or several layers, optionally one of `groups` equal parts of each."""
    numbers = section.integers("layers", -at.index - 1, 1 << 20)
    if not numbers:
        section.fail("layers is missing; say which layers to join, for example layers=-1,8")
    inputs = tuple(_layer_reference(section, at, "layers", number) for number in numbers)
    groups = section.said(RouteSpec)["groups"]
    group_id = section.integer("group_id", 0, 0, groups - 1)
    shapes = [at.shape(index) for index in inputs]
    for index, shape in zip(inputs, shapes, strict=True):
        if shape[:2] != shapes[0][:2]:
            section.fail(
                f"layers {inputs[0]} {_text(shapes[0])} and {index} {_text(shape)} differ in width or height", "layers"
            )
        if shape[2] % groups:
            section.fail(f"groups={groups} does not divide the {shape[2]} channels of layer {index}", "groups")
    channels = sum(shape[2] // groups for shape in shapes)
    if channels > MAX_CHANNELS:
        section.fail(f"{channels} channels; the limit is {MAX_CHANNELS}", "layers")
    common = at.common(section, (shapes[0][0], shapes[0][1], channels))
    return RouteSpec(**{**common, "inputs": inputs, "in_shape": shapes[0]}, groups=groups, group_id=group_id)


def shortcut(section: CfgSection, at: Position) -> LayerSpec:
    """[shortcut]: the layer before plus one other of the same shape."""
    numbers = section.integers("from", -at.index - 1, 1 << 20)
    if len(numbers) != 1:
        section.fail("from must name exactly one layer, for example from=-3", "from")
    other = _layer_reference(section, at, "from", numbers[0])
    if at.shape(other) != at.in_shape:
        shapes = f"{at.index - 1} {_text(at.in_shape)} and {other} {_text(at.shape(other))}"
        section.fail(f"layers {shapes} differ in shape", "from")
    return ShortcutSpec(**at.common(section, at.in_shape, other), **section.said(ShortcutSpec))


def dropout(section: CfgSection, at: Position) -> LayerSpec:
    """[dropout], the identity."""
    return DropoutSpec(**at.common(section, at.in_shape))


def yolo(section: CfgSection, at: Position) -> LayerSpec:
    """[yolo]; its input has len(mask) * (5 + classes) channels."""
    said = section.said(YoloSpec)
    channels, classes = at.in_shape[2], said["classes"]
    num = section.integer("num", 1, 1, 1000)
    numbers = section.reals("anchors", 1e-6, 1e6)
    if len(numbers) % 2 or len(numbers) < 2 * num:
        section.fail(f"anchors holds {len(numbers)} numbers; num={num} needs {2 * num}: width, height each", "anchors")
    mask = section.integers("mask", 0, num - 1) or tuple(range(num))
    wanted = len(mask) * (5 + classes)
    if channels != wanted:
        section.fail(
            f"[yolo] with {len(mask)} anchors and {classes} classes needs {wanted} channels, but the layer before has "
            f"{channels}; set filters={wanted} there"
        )
    anchors = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return YoloSpec(**at.common(section, at.in_shape), **said, mask=mask, anchors=anchors)


def _text(shape: Shape) -> str:
    return f"({shape[1]}x{shape[0]}x{shape[2]})"


BUILDERS: dict[str, Callable[[CfgSection, Position], LayerSpec]] = {
    "convolutional": convolutional, "maxpool": maxpool, "avgpool": avgpool, "upsample": upsample, "route": route,
    "shortcut": shortcut, "dropout": dropout, "yolo": yolo,
}
