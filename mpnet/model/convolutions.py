# SPDX-License-Identifier: MIT
"""Layers that are convolutions, also by another name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.model.keys import flag, integer, word
from mpnet.model.layer import ACTIVATIONS, MAX_CHANNELS, MAX_KERNEL, LayerSpec, Shape


@dataclass(frozen=True)
class ConvolutionSpec(LayerSpec, kind="convolutional", short="conv"):
    """Convolution, optional batch normalisation, activation. Zero padding on all four sides.

    sample:     every so manieth column and row of the result is kept (x, y): strides per axis beyond the common one.
    blur:       1: a 3x3 binomial filter follows, 2: a 2x2 mean; with blur_strides (x, y). The convolution's own stride is 1.
    shares:     the layer whose weights, biases and batch normalisation it takes, None: it has its own.
    load_scales, load: whether the weights file holds its scales, means and variances; anything of it at all.
    flipped:    the weights file holds its weights transposed.
    """

    filters: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="filters"))
    size: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="size"))
    stride: int = 1
    padding: int = 0
    dilation: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="dilation"))
    groups: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="groups"))
    batch_normalize: bool = False
    activation: str = field(default="logistic", metadata=word(ACTIVATIONS, cfg="activation"))
    sample: tuple[int, int] = (1, 1)
    blur: int = field(default=0, metadata=integer(0, 2, cfg="antialiasing"))
    blur_strides: tuple[int, int] = (1, 1)
    shares: int | None = None
    load_scales: bool = True
    load: bool = True
    flipped: bool = field(default=False, metadata=flag(cfg="flipped"))

    has_weights: ClassVar[bool] = True

    @property
    def kernel_input(self) -> Shape:
        """Return (height, width, channels) that the kernel reads."""
        return self.in_shape

    @property
    def kernel_output(self) -> Shape:
        """Return (height, width, filters) of the convolution itself, before what follows it."""
        height, width, _ = self.kernel_input
        border = 2 * self.padding - self.dilation * (self.size - 1) - 1
        return ((height + border) // self.stride + 1, (width + border) // self.stride + 1, self.filters)

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Return (filters, input channels / groups, size, size), Darknet's order."""
        return (self.filters, self.kernel_input[2] // self.groups, self.size, self.size)

    @property
    def weight_count(self) -> int:
        """Return the values of the weights alone."""
        return self.filters * self.depth

    @property
    def depth(self) -> int:
        """Return the products summed for one output value."""
        return self.size * self.size * (self.kernel_input[2] // self.groups)

    @property
    def parameters(self) -> int:
        """Count the parameters that the weights file holds for this layer."""
        if self.shares is not None or not self.load:
            return 0
        return self.weight_count + self.filters * (4 if self.batch_normalize and self.load_scales else 1)

    @property
    def macs(self) -> int:
        """Count the multiplications and additions of one image."""
        height, width, _ = self.kernel_output
        return height * width * self.filters * self.depth

    @property
    def depthwise(self) -> bool:
        """Return whether each channel has filters of its own."""
        return self.groups > 1 and self.groups == self.kernel_input[2]


@dataclass(frozen=True)
class ConnectedSpec(ConvolutionSpec, kind="connected"):
    """Every output from every input: a 1x1 convolution of all values as the channels of one pixel."""

    filters: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="output"))
    size: int = 1
    dilation: int = 1
    groups: int = 1
    blur: int = 0
    flipped: bool = False

    @property
    def kernel_input(self) -> Shape:
        """Return the input as one pixel with all values as channels."""
        height, width, channels = self.in_shape
        return (1, 1, height * width * channels)


@dataclass(frozen=True)
class BatchnormSpec(ConvolutionSpec, kind="batchnorm"):
    """Batch normalisation and bias of each channel: a depthwise 1x1 convolution by ones."""

    activation: str = "linear"
    filters: int = 1
    size: int = 1
    dilation: int = 1
    groups: int = 1
    blur: int = 0
    flipped: bool = False

    @property
    def parameters(self) -> int:
        """Count the parameters that the weights file holds for this layer."""
        return 4 * self.filters if self.load else 0


@dataclass(frozen=True)
class DeconvolutionalSpec(ConvolutionSpec, kind="deconvolutional", short="deconv"):
    """Transposed convolution: `spread` - 1 zeros between the pixels, then a convolution by the mirrored weights."""

    spread: int = 1
    dilation: int = 1
    groups: int = 1
    blur: int = 0
    flipped: bool = False

    @property
    def kernel_input(self) -> Shape:
        """Return the input with zeros spread between its pixels."""
        height, width, channels = self.in_shape
        return ((height - 1) * self.spread + 1, (width - 1) * self.spread + 1, channels)
