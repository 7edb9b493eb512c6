"""The layers that a network is made of: one frozen class per kind, shapes already inferred.

A shape is (height, width, channels) of one image. Activations are NHWC everywhere (docs/architecture.md).
Fields that a section's key decides alone say what it may hold; formats.cfg_layers reads the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.spec.keys import flag, integer, number, word
from mpnet.spec.precision import Precision
from mpnet.spec.quantization import NOTHING_SAID, QuantizationOptions

Shape = tuple[int, int, int]
PICTURE = -1
"""The input index that stands for the picture itself."""
ACTIVATIONS = ("linear", "leaky", "relu", "relu6", "logistic", "mish", "swish")
NMS_KINDS = ("default", "greedynms", "diounms", "cornersnms")
MAX_CHANNELS = 65536
MAX_KERNEL = 256


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

    kind: ClassVar[str]
    """The section's name in the cfg."""
    short: ClassVar[str]
    """The word in names and tables."""
    has_weights: ClassVar[bool] = False
    always_fp32: ClassVar[bool] = False
    """Whether it cannot have a precision of its own."""

    def __init_subclass__(cls, kind: str, short: str = "") -> None:
        cls.kind, cls.short = kind, short or kind

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
class ConvolutionSpec(LayerSpec, kind="convolutional", short="conv"):
    """Convolution, optional batch normalisation, activation. Zero padding on all four sides."""

    filters: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="filters"))
    size: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="size"))
    stride: int = 1
    padding: int = 0
    dilation: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="dilation"))
    groups: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="groups"))
    batch_normalize: bool = field(default=False, metadata=flag(cfg="batch_normalize"))
    activation: str = field(default="logistic", metadata=word(ACTIVATIONS, cfg="activation"))

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
class MaxpoolSpec(LayerSpec, kind="maxpool"):
    """Maximum over windows. padding: total of both sides, padding // 2 of it before; outside is minus infinity."""

    size: int = 1
    stride: int = 1
    padding: int = 0


@dataclass(frozen=True)
class AvgpoolSpec(LayerSpec, kind="avgpool"):
    """Global mean per channel: (h, w, c) -> (1, 1, c)."""


@dataclass(frozen=True)
class UpsampleSpec(LayerSpec, kind="upsample"):
    """Nearest neighbour, by a whole factor."""

    factor: int = field(default=2, metadata=integer(1, 64, cfg="stride"))


@dataclass(frozen=True)
class RouteSpec(LayerSpec, kind="route"):
    """Concatenation along channels; with groups, of the group_id-th of `groups` equal parts of each input."""

    groups: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="groups"))
    group_id: int = 0


@dataclass(frozen=True)
class ShortcutSpec(LayerSpec, kind="shortcut"):
    """activation(previous layer + another layer) of equal shapes."""

    activation: str = field(default="linear", metadata=word(ACTIVATIONS, cfg="activation"))


@dataclass(frozen=True)
class DropoutSpec(LayerSpec, kind="dropout"):
    """The identity, when a network is not being trained."""


@dataclass(frozen=True)
class YoloSpec(LayerSpec, kind="yolo"):
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
    classes: int = field(default=20, metadata=integer(1, MAX_CHANNELS, cfg="classes"))
    scale_x_y: float = field(default=1.0, metadata=number(0.1, 10.0, cfg="scale_x_y"))
    nms_kind: str = field(default="default", metadata=word(NMS_KINDS, cfg="nms_kind"))
    beta_nms: float = field(default=0.6, metadata=number(0.0, 10.0, cfg="beta_nms"))
    new_coords: bool = field(default=False, metadata=flag(cfg="new_coords"))

    always_fp32: ClassVar[bool] = True

    @property
    def head_anchors(self) -> tuple[tuple[float, float], ...]:
        """The anchors of this head, in mask order."""
        return tuple(self.anchors[i] for i in self.mask)


LAYER_KINDS: tuple[type[LayerSpec], ...] = (
    ConvolutionSpec, MaxpoolSpec, AvgpoolSpec, UpsampleSpec, RouteSpec, ShortcutSpec, DropoutSpec, YoloSpec,
)
SHORT_NAMES: tuple[str, ...] = tuple(kind.short for kind in LAYER_KINDS)
