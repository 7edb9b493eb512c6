# SPDX-License-Identifier: MIT
"""Arguments of kernels beside arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.kernels.core import constant
from mpnet.model.layer import KERNEL_ACTIVATIONS, MAPPED_ACTIVATIONS
from mpnet.model.precision import Precision

ACTIVATIONS = KERNEL_ACTIVATIONS
ALL_ACTIVATIONS = (*KERNEL_ACTIVATIONS, *MAPPED_ACTIVATIONS)
"""Those of convolutions and of `map`."""
ACTIVATION_CODE: dict[str, int] = {word: constant(f"MP_{word.upper()}") for word in ALL_ACTIVATIONS}
"""The number of each in csrc/mpnet.h."""
ACTIVATION_WORD: dict[int, str] = {code: word for word, code in ACTIVATION_CODE.items()}
OPERANDS: tuple[str, ...] = ("same", "per_channel", "per_pixel")
"""What the second factor of a product has values for."""
NORMALISATIONS: tuple[str, ...] = (
    "softmax",
    "channels",
    "channels_softmax",
    "channels_softmax_maxval",
    "l2",
    "local_response",
    "layer",
)


@dataclass(frozen=True)
class ConvShape:
    """Geometry of a convolution; sizes in elements. Zero padding on all sides, Darknet's output size rule."""

    in_h: int
    in_w: int
    in_channels: int
    out_channels: int
    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def out_h(self) -> int:
        """Return the height of the result."""
        return (self.in_h + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def out_w(self) -> int:
        """Return the width of the result."""
        return (self.in_w + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def depth(self) -> int:
        """Return the products summed for one output."""
        return self.size * self.size * (self.in_channels // self.groups)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates for one image, padding counted."""
        return self.out_h * self.out_w * self.out_channels * self.depth


@dataclass(frozen=True)
class TensorQuant:
    """The map from a batch of codes to real values, per image: real = (q - zero_point) * scale + offset.

    scale, offset: float32 (n,); zero_point: int32 (n,). offset is zero but for TensorFlow modes that cannot
    represent zero; padding taps hold zero_point.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    offset: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PackedConv:
    """Weights in the order in which one implementation reads them; made by `Kernels.pack_conv`.

    made_by:       name of the kernels that packed and can read them.
    size_bytes:    memory that they take.
    data, c_shape: the maker's own.
    """

    shape: ConvShape
    precision: Precision
    made_by: str
    size_bytes: int
    data: Array = field(repr=False)
    c_shape: object = field(repr=False, default=None)


@dataclass(frozen=True)
class CodeRules:
    """The rules by which reals become codes, beside scale and zero point."""

    rounding: str = "half_to_even"
    low: int = -128
    high: int = 127


class LeakySteps(NamedTuple):
    """LeakyReLU of steps of a sum. multiplier, shift: int32 (2,), above and below 0; bounds: of the steps before it."""

    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    bounds: tuple[int, int]


class IntegerOutput(NamedTuple):
    """The constants by which integer sums become codes by integers alone.

    bias: (out_channels,), int32; int64 where the input or the result is int16. multiplier, shift: int32 (out_channels,).
    leaky: LeakyReLU after that, or None.
    """

    bias: NDArray[np.int32 | np.int64]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    leaky: LeakySteps | None = None
