# SPDX-License-Identifier: MIT
"""The layers that a network is made of: one frozen class per kind, shapes already inferred.

Fields that a section's key decides alone say what it may hold; the readers in formats read the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.model.convolutions import BatchnormSpec, ConnectedSpec, ConvolutionSpec, DeconvolutionalSpec
from mpnet.model.heads import NMS_KINDS, DecodedSpec, DetectionSpec, GaussianYoloSpec, RegionSpec, YoloSpec
from mpnet.model.keys import flag, integer, number, word
from mpnet.model.layer import ACTIVATIONS, KINDS, MAX_CHANNELS, MAX_KERNEL, NETWORK_INPUT, LayerSpec, PrecisionKeys, Shape
from mpnet.model.tree import Tree

MAX_SIDE = 32768
MOST_POSITIONS = 4096
"""Pixels that may attend to each other: MP_MOST_POSITIONS of csrc/mpnet.h."""


@dataclass(frozen=True)
class MaxpoolSpec(LayerSpec, kind="maxpool"):
    """Maximum over windows. padding: total of both sides, padding // 2 of it before; outside is minus infinity.

    sample, blur, blur_strides: as of ConvolutionSpec.
    depth: not 0: instead the maximum over the channels g, g + depth, ... of each pixel, for every g below depth.
    """

    size: int = 1
    stride: int = 1
    padding: int = 0
    sample: tuple[int, int] = (1, 1)
    blur: int = field(default=0, metadata=integer(0, 2, cfg="antialiasing"))
    blur_strides: tuple[int, int] = (1, 1)
    depth: int = 0


@dataclass(frozen=True)
class LocalAvgpoolSpec(LayerSpec, kind="local_avgpool"):
    """Mean over windows, of the values inside. padding: as of MaxpoolSpec; strides: (x, y)."""

    size: int = 1
    strides: tuple[int, int] = (1, 1)
    padding: int = 0


@dataclass(frozen=True)
class AvgpoolSpec(LayerSpec, kind="avgpool"):
    """Global mean per channel: (h, w, c) -> (1, 1, c)."""


@dataclass(frozen=True)
class UpsampleSpec(LayerSpec, kind="upsample"):
    """Nearest neighbour, by a whole factor, times scale. shrinks: sums of blocks instead, by the factor (stride < 0)."""

    factor: int = 2
    shrinks: bool = False
    scale: float = field(default=1.0, metadata=number(-1e6, 1e6, cfg="scale"))


@dataclass(frozen=True)
class RouteSpec(LayerSpec, kind="route"):
    """Concatenation along channels; with groups, of the group_id-th of `groups` equal parts of each input."""

    groups: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="groups"))
    group_id: int = 0


@dataclass(frozen=True)
class ShortcutSpec(LayerSpec, kind="shortcut"):
    """activation(previous layer + others).

    Channels that another layer lacks it adds nothing to, channels that it has beside are not used. One of another size
    (Darknet's residual networks): sampled at every s-th pixel, or added at every t-th.
    weights_type:  none, per_feature (one weight per layer), per_channel; then they come from the weights file.
    normalisation: of the weights of one channel: none, relu or softmax.
    alpha, beta:   factors of the previous layer and of the other where both have values.
    """

    activation: str = field(default="linear", metadata=word(ACTIVATIONS, cfg="activation"))
    weights_type: str = "none"
    normalisation: str = "none"
    alpha: float = field(default=1.0, metadata=number(-1e6, 1e6, cfg="alpha"))
    beta: float = field(default=1.0, metadata=number(-1e6, 1e6, cfg="beta"))
    load: bool = True

    other_shapes: tuple[Shape, ...] = ()

    @property
    def plain(self) -> bool:
        """Return whether it is the sum of tensors of equal shapes."""
        equal = all(shape == self.in_shape for shape in self.other_shapes)
        return equal and self.weights_type == "none" and (self.alpha, self.beta) == (1.0, 1.0)

    @property
    def value_shape(self) -> tuple[int, int]:
        """Return (layers, channels or 1) of its weights; (0, 0): it has none."""
        if self.weights_type == "none":
            return (0, 0)
        return (len(self.inputs), self.out_shape[2] if self.weights_type == "per_channel" else 1)

    @property
    def parameters(self) -> int:
        """Count the parameters that the weights file holds for this layer."""
        return self.value_shape[0] * self.value_shape[1] if self.load else 0


@dataclass(frozen=True)
class ScaleChannelsSpec(LayerSpec, kind="scale_channels"):
    """Another layer (the second input) times the previous one, which has a value per channel, or per pixel."""

    per_pixel: bool = field(default=False, metadata=flag(cfg="scale_wh"))
    activation: str = field(default="linear", metadata=word(ACTIVATIONS, cfg="activation"))


@dataclass(frozen=True)
class SamSpec(LayerSpec, kind="sam"):
    """The previous layer times another of the same shape, value by value."""

    activation: str = field(default="linear", metadata=word(ACTIVATIONS, cfg="activation"))


@dataclass(frozen=True)
class ImplicitSpec(LayerSpec, kind="implicit"):
    """Constants from the weights file: (filters channels, atoms rows, 1 column). Its input is not used."""

    filters: int = field(default=128, metadata=integer(1, MAX_CHANNELS, cfg="filters"))
    atoms: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="atoms"))
    load: bool = True

    @property
    def value_shape(self) -> tuple[int, int]:
        """Return (filters, atoms) as the weights file has them."""
        return (self.filters, self.atoms)

    @property
    def parameters(self) -> int:
        """Count the parameters that the weights file holds for this layer."""
        return self.filters * self.atoms if self.load else 0


@dataclass(frozen=True)
class ActivationSpec(LayerSpec, kind="activation"):
    """An activation as a layer of its own."""

    activation: str = field(default="linear", metadata=word(ACTIVATIONS, cfg="activation"))


@dataclass(frozen=True)
class LogisticSpec(LayerSpec, kind="logistic"):
    """Logistic of every value: the output of classifiers whose classes do not exclude each other."""

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class CropSpec(LayerSpec, kind="crop"):
    """The middle of its input, from (left, top) on, as 2 x - 1 unless plain."""

    left: int = 0
    top: int = 0
    plain: bool = field(default=False, metadata=flag(cfg="noadjust"))


@dataclass(frozen=True)
class PadSpec(LayerSpec, kind="pad"):
    """Zeros around its input: rows above and below, columns left and right, channels before (front) and behind (back).

    edge: the nearest values inside instead of zeros.
    """

    top: int = field(default=0, metadata=integer(0, MAX_KERNEL, cfg="top"))
    bottom: int = field(default=0, metadata=integer(0, MAX_KERNEL, cfg="bottom"))
    left: int = field(default=0, metadata=integer(0, MAX_KERNEL, cfg="left"))
    right: int = field(default=0, metadata=integer(0, MAX_KERNEL, cfg="right"))
    front: int = field(default=0, metadata=integer(0, MAX_CHANNELS, cfg="front"))
    back: int = field(default=0, metadata=integer(0, MAX_CHANNELS, cfg="back"))
    edge: bool = field(default=False, metadata=flag(cfg="edge"))


@dataclass(frozen=True)
class SliceSpec(LayerSpec, kind="slice"):
    """The channels from `first` on, `channels` of them."""

    first: int = field(default=0, metadata=integer(0, MAX_CHANNELS - 1, cfg="first"))
    channels: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="channels"))


@dataclass(frozen=True)
class ShuffleSpec(LayerSpec, kind="shuffle"):
    """Channel shuffle: of `groups` equal parts of the channels the first of each, then the second of each, and so on."""

    groups: int = field(default=2, metadata=integer(1, MAX_CHANNELS, cfg="groups"))


@dataclass(frozen=True)
class ReorgSpec(LayerSpec, kind="reorg"):
    """Darknet's old permutation of pixels to channels (or back), which is not space-to-depth.

    flatten: channels last instead. extra: so many zeros after the values.
    """

    stride: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="stride"))
    reverse: bool = field(default=False, metadata=flag(cfg="reverse"))
    flatten: bool = field(default=False, metadata=flag(cfg="flatten"))
    extra: int = field(default=0, metadata=integer(0, 1 << 24, cfg="extra"))


@dataclass(frozen=True)
class Reorg3dSpec(LayerSpec, kind="reorg3d"):
    """Space-to-depth; reverse is what AlexeyAB's program does, not its inverse."""

    stride: int = field(default=1, metadata=integer(1, MAX_KERNEL, cfg="stride"))
    reverse: bool = field(default=False, metadata=flag(cfg="reverse"))


@dataclass(frozen=True)
class DepthToSpaceSpec(LayerSpec, kind="depth_to_space"):
    """Channels as blocks of stride x stride pixels: the inverse of [reorg3d]."""

    stride: int = field(default=2, metadata=integer(1, MAX_KERNEL, cfg="stride"))


@dataclass(frozen=True)
class ReshapeSpec(LayerSpec, kind="reshape"):
    """The pixels, in row order, as rows of `width`; their number stays."""

    width: int = field(default=1, metadata=integer(1, MAX_SIDE, cfg="width"))


@dataclass(frozen=True)
class NormalizationSpec(LayerSpec, kind="normalization"):
    """Local response normalisation across channels; always fp32."""

    size: int = field(default=5, metadata=integer(1, MAX_CHANNELS, cfg="size"))
    alpha: float = field(default=1e-4, metadata=number(0, 1e6, cfg="alpha"))
    beta: float = field(default=0.75, metadata=number(-100, 100, cfg="beta"))
    kappa: float = field(default=1.0, metadata=number(-1e6, 1e6, cfg="kappa"))

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class L2normSpec(LayerSpec, kind="l2norm"):
    """Each pixel over the root of the sum of its channels' squares; always fp32."""

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class LayernormSpec(LayerSpec, kind="layernorm"):
    """Each pixel's channels less their mean, over the root of their variance + epsilon; always fp32.

    whole: mean and variance are those of all values of the image.
    """

    epsilon: float = field(default=1e-5, metadata=number(1e-12, 1.0, cfg="epsilon"))
    whole: bool = field(default=False, metadata=flag(cfg="whole"))

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class SoftmaxSpec(LayerSpec, kind="softmax"):
    """Probabilities of classes; always fp32. Its values in Darknet's order (c, h, w) are cut into `groups` equal rows.

    tree: softmax of each set of siblings instead.
    """

    groups: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="groups"))
    temperature: float = field(default=1.0, metadata=number(1e-6, 1e6, cfg="temperature"))
    tree: Tree | None = None

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class AttentionSpec(LayerSpec, kind="attention"):
    """Each pixel's mean of all pixels' values, weighted by the softmax of its query times their keys; always fp32.

    Its input's channels are the queries of all heads, their keys, their values: heads x key, heads x key, the rest.
    key:   channels of one head's query. areas: so many equal parts of the pixels, in row order, each by itself.
    scale: factor of the products; 0: 1 / sqrt(key).
    """

    heads: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="heads"))
    key: int = field(default=1, metadata=integer(1, MAX_CHANNELS, cfg="key"))
    areas: int = field(default=1, metadata=integer(1, 1 << 20, cfg="areas"))
    scale: float = field(default=0.0, metadata=number(-1e6, 1e6, cfg="scale"))

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class CostSpec(LayerSpec, kind="cost"):
    """Training's loss: zeros in a forward pass, and never the network's output."""

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class ContrastiveSpec(LayerSpec, kind="contrastive"):
    """Training's contrastive loss: zeros in a forward pass."""

    always_fp32: ClassVar[bool] = True


@dataclass(frozen=True)
class DropoutSpec(LayerSpec, kind="dropout"):
    """The identity, when a network is not being trained."""


@dataclass(frozen=True)
class EmptySpec(LayerSpec, kind="empty"):
    """A layer that passes its input on unchanged."""


LAYER_KINDS: tuple[type[LayerSpec], ...] = tuple(sorted(KINDS.values(), key=lambda kind: issubclass(kind, YoloSpec)))
"""Heads last."""
SHORT_NAMES: tuple[str, ...] = tuple(sorted((kind.short for kind in LAYER_KINDS), key=len, reverse=True))
"""Longest first: one may begin with another."""
