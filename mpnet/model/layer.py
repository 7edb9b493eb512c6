# SPDX-License-Identifier: MIT
"""The fields that every layer has.

A shape is (height, width, channels) of one image. Activations are NHWC everywhere (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.model.precision import Precision
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions

Shape = tuple[int, int, int]
NETWORK_INPUT = -1
"""The input index that stands for the image itself."""
KERNEL_ACTIVATIONS = ("linear", "leaky", "relu", "relu6", "logistic", "mish", "swish")
"""Those that every kernel with an activation has: MP_<WORD> of csrc/mpnet.h."""
MAPPED_ACTIVATIONS = (
    *("loggy", "tanh", "relie", "ramp", "plse", "elu", "selu", "gelu", "stair", "hardtan", "lhtan"),
    *("hard_mish", "hard_sigmoid", "hard_swish", "gelu_erf", "sqrt"),
)
"""Those that a pass of its own computes, or a convolution: MP_<WORD> as well."""
CHANNEL_NORMALISATIONS = ("normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval")
ACTIVATIONS = (*KERNEL_ACTIVATIONS, *MAPPED_ACTIVATIONS, *CHANNEL_NORMALISATIONS, "revleaky")
MAX_CHANNELS = 65536
MAX_KERNEL = 256


@dataclass(frozen=True)
class PrecisionKeys:
    """The precision keys of a section.

    precision:    the one of the precision keys that is 1, or None when none is given.
    line:         where it is said (the section's line when only `quantize` is given).
    quantize:     the `quantize` key: True converts inputs as needed (also when absent), False promises that no
                  conversion is needed, None when absent.
    quantize_line: its line, 0 when absent.
    quantization: what the section says about how to quantise.
    range:        (minimum, maximum) of its result, in [net] of the image: what a calibration would find; None: not said.
    """

    precision: Precision | None
    line: int
    quantize: bool | None = None
    quantize_line: int = 0
    quantization: QuantizationOptions = NO_OPTIONS
    range: tuple[float, float] | None = None


KINDS: dict[str, type[LayerSpec]] = {}
"""All kinds of layers by their sections' names, in the order in which they are declared; of two of one name the first."""


@dataclass(frozen=True)
class LayerSpec:
    """The fields that every layer has.

    index:    position in the network, from 0, [net] not counted: Darknet's layer number.
    line:     line of the section header in the cfg.
    name:     stable name, see mpnet.model.selectors.
    inputs:   indices of the layers that it reads; NETWORK_INPUT (-1) for the image.
    in_shape: shape of the first input. out_shape: shape of the result.
    declared: the section's precision keys, or None when it has none.
    source:   of imported networks: the nodes of the file that it came from, the one with its weights first.
    """

    index: int
    line: int
    inputs: tuple[int, ...]
    in_shape: Shape
    out_shape: Shape
    declared: PrecisionKeys | None = None
    name: str = ""
    source: tuple[str, ...] = field(default=(), compare=False, kw_only=True)

    kind: ClassVar[str]
    """The section's name in the cfg."""
    short: ClassVar[str]
    """The word in names and tables."""
    has_weights: ClassVar[bool] = False
    always_fp32: ClassVar[bool] = False
    """Whether it cannot have a precision of its own."""

    def __init_subclass__(cls, kind: str, short: str = "") -> None:
        cls.kind, cls.short = kind, short or kind
        KINDS.setdefault(kind, cls)

    @property
    def parameters(self) -> int:
        """Return the values that the weights file holds for this layer."""
        return 0

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates for one image, padding counted."""
        return 0

    @property
    def activations(self) -> int:
        """Return the values of the result for one image."""
        height, width, channels = self.out_shape
        return height * width * channels
