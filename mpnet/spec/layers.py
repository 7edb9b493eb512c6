"""The layers that a network is made of: one frozen class per kind, shapes already inferred.

A shape is (height, width, channels) of one image. Activations are NHWC everywhere (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpnet.spec.precision import Precision
from mpnet.spec.quantization import NOTHING_SAID, QuantizationOptions

Shape = tuple[int, int, int]
PICTURE = -1
"""The input index that stands for the picture itself."""


@dataclass(frozen=True)
class PrecisionKeys:
    """What a section says about precision.

    precision:    the one of the precision keys that is 1, or None when none is given.
    line:         where it is said (the section's line when only `quantize` is given).
    quantize:     the `quantize` key: True converts inputs as needed (also when absent), False promises that no
                  conversion is needed, None when absent.
    quantize_line: its line, 0 when absent.
    quantization: what the section says about how to quantise.
    """

    precision: Precision | None
    line: int
    quantize: bool | None = None
    quantize_line: int = 0
    quantization: QuantizationOptions = NOTHING_SAID


@dataclass(frozen=True)
class LayerSpec:
    """What every layer has.

    index:    position in the network, from 0, [net] not counted: Darknet's layer number.
    line:     line of the section header in the cfg.
    name:     stable name, see mpnet.spec.selectors.
    inputs:   indices of the layers that it reads; PICTURE (-1) for the picture.
    in_shape: shape of the first input. out_shape: shape of the result.
    declared: the section's precision keys, or None when it has none.
    """

    index: int
    line: int
    inputs: tuple[int, ...]
    in_shape: Shape
    out_shape: Shape
    declared: PrecisionKeys | None = None
    name: str = ""

    kind: ClassVar[str] = ""
    """The section's name in the cfg."""
    short: ClassVar[str] = ""
    """The word in names and tables."""
    has_weights: ClassVar[bool] = False
    always_fp32: ClassVar[bool] = False
    """Whether it cannot have a precision of its own."""

    @property
    def parameters(self) -> int:
        """Values that the weights file holds for this layer."""
        return 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image, padding counted."""
        return 0

    @property
    def activations(self) -> int:
        """Values of the result for one image."""
        height, width, channels = self.out_shape
        return height * width * channels


@dataclass(frozen=True)
class ConvolutionSpec(LayerSpec):
    """Convolution, optional batch normalisation, activation. Zero padding on all four sides."""

    filters: int = 1
    size: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    batch_normalize: bool = False
    activation: str = "logistic"

    kind: ClassVar[str] = "convolutional"
    short: ClassVar[str] = "conv"
    has_weights: ClassVar[bool] = True

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(filters, input channels / groups, size, size), Darknet's order."""
        return (self.filters, self.in_shape[2] // self.groups, self.size, self.size)

    @property
    def weight_count(self) -> int:
        """Values of the weights alone."""
        return self.filters * self.depth

    @property
    def depth(self) -> int:
        """Products summed for one output value."""
        return self.size * self.size * (self.in_shape[2] // self.groups)

    @property
    def parameters(self) -> int:
        return self.weight_count + self.filters * (4 if self.batch_normalize else 1)

    @property
    def macs(self) -> int:
        return self.out_shape[0] * self.out_shape[1] * self.filters * self.depth

    @property
    def depthwise(self) -> bool:
        """Whether each channel has filters of its own."""
        return self.groups > 1 and self.groups == self.in_shape[2]


@dataclass(frozen=True)
class MaxpoolSpec(LayerSpec):
    """Maximum over windows. padding: total of both sides, padding // 2 of it before; outside is minus infinity."""

    size: int = 1
    stride: int = 1
    padding: int = 0

    kind: ClassVar[str] = "maxpool"
    short: ClassVar[str] = "maxpool"


@dataclass(frozen=True)
class AvgpoolSpec(LayerSpec):
    """Global mean per channel: (h, w, c) -> (1, 1, c)."""

    kind: ClassVar[str] = "avgpool"
    short: ClassVar[str] = "avgpool"


@dataclass(frozen=True)
class UpsampleSpec(LayerSpec):
    """Nearest neighbour, by a whole factor."""

    factor: int = 2

    kind: ClassVar[str] = "upsample"
    short: ClassVar[str] = "upsample"


@dataclass(frozen=True)
class RouteSpec(LayerSpec):
    """Concatenation along channels; with groups, of the group_id-th of `groups` equal parts of each input."""

    groups: int = 1
    group_id: int = 0

    kind: ClassVar[str] = "route"
    short: ClassVar[str] = "route"


@dataclass(frozen=True)
class ShortcutSpec(LayerSpec):
    """activation(previous layer + another layer) of equal shapes."""

    activation: str = "linear"

    kind: ClassVar[str] = "shortcut"
    short: ClassVar[str] = "shortcut"


@dataclass(frozen=True)
class DropoutSpec(LayerSpec):
    """The identity, when a network is not being trained."""

    kind: ClassVar[str] = "dropout"
    short: ClassVar[str] = "dropout"


@dataclass(frozen=True)
class YoloSpec(LayerSpec):
    """A detection head; always fp32.

    mask:       which of the anchors this head uses.
    anchors:    all of them: (width, height) in pixels of the network's input.
    classes:    number of classes; input channels = len(mask) * (5 + classes).
    scale_x_y:  stretch of the box centres around the middle of the cell.
    nms_kind:   'default' (plain IoU), 'greedynms', 'diounms' or 'cornersnms'.
    new_coords: whether the input already went through logistic (Scaled-YOLOv4's encoding).
    """

    mask: tuple[int, ...] = ()
    anchors: tuple[tuple[float, float], ...] = ()
    classes: int = 20
    scale_x_y: float = 1.0
    nms_kind: str = "default"
    beta_nms: float = 0.6
    new_coords: bool = False

    kind: ClassVar[str] = "yolo"
    short: ClassVar[str] = "yolo"
    always_fp32: ClassVar[bool] = True

    @property
    def head_anchors(self) -> tuple[tuple[float, float], ...]:
        """The anchors of this head, in mask order."""
        return tuple(self.anchors[i] for i in self.mask)


LAYER_KINDS: tuple[type[LayerSpec], ...] = (
    ConvolutionSpec, MaxpoolSpec, AvgpoolSpec, UpsampleSpec, RouteSpec, ShortcutSpec, DropoutSpec, YoloSpec,
)
SHORT_NAMES: tuple[str, ...] = tuple(kind.short for kind in LAYER_KINDS)
