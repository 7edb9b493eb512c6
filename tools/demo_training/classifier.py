# SPDX-License-Identifier: MIT
"""A small classifier of depthwise blocks in PyTorch: the same layers in the same order as its Darknet configuration."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

SIDE = 48  # of the network's input in pixels
FIRST_FILTERS = 12
# (filters, stride) of each depthwise block: 3x3 per channel, then 1x1.
BLOCKS = ((16, 1), (32, 2), (32, 1), (48, 2), (48, 1), (64, 1))


class Block(nn.Module):
    """One [convolutional] section: with batch norm and leaky activation, or linear with a bias."""

    def __init__(self, depth: int, filters: int, size: int, stride: int = 1, groups: int = 1, linear: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(depth, filters, size, stride, size // 2, groups=groups, bias=linear)
        self.norm = None if linear else nn.BatchNorm2d(filters, eps=1e-5, momentum=0.05)
        nn.init.kaiming_normal_(self.conv.weight, a=0.1, mode="fan_out" if groups == 1 else "fan_in", nonlinearity="leaky_relu")

    def forward(self, x: torch.Tensor, int8: bool = False) -> torch.Tensor:
        """Run the network on x (n, c, h, w). int8: round weights and inputs to int8 first."""
        if int8:
            return self._lowered(x)
        x = self.conv(x)
        return x if self.norm is None else F.leaky_relu(self.norm(x), 0.1)

    def _lowered(self, x: torch.Tensor) -> torch.Tensor:
        """Weights and input rounded to int8, symmetric, one scale per tensor (per image for the input)."""
        weight, bias = self.conv.weight, self.conv.bias
        if self.norm is not None:
            factor = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
            weight, bias = weight * factor[:, None, None, None], self.norm.bias - self.norm.running_mean * factor
        step = weight.abs().max() / 127
        scale = x.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12) / 127
        x = F.conv2d(
            torch.round(x / scale) * scale,
            torch.round(weight / step) * step,
            bias,
            self.conv.stride,
            self.conv.padding,
            groups=self.conv.groups,
        )
        return x if self.norm is None else F.leaky_relu(x, 0.1)


class Classifier(nn.Module):
    """Return the class scores before the softmax, (n, classes)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        blocks, depth = [Block(3, FIRST_FILTERS, 3, 2)], FIRST_FILTERS
        for filters, stride in BLOCKS:
            blocks += [Block(depth, depth, 3, stride, groups=depth), Block(depth, filters, 1)]
            depth = filters
        self.blocks = nn.ModuleList([*blocks, Block(depth, classes, 1, linear=True)])

    def forward(self, x: torch.Tensor, int8: bool = False) -> torch.Tensor:
        """Run the network on x (n, c, h, w). int8: round weights and inputs to int8 first."""
        for block in self.blocks:
            x = block(x, int8)
        return x.mean(dim=(2, 3))


def classifier_cfg(net: Classifier) -> str:
    """Return the cfg, ending as Darknet's classifiers do: avgpool, softmax."""
    sections = [f"[net]\nbatch=1\nsubdivisions=1\nwidth={SIDE}\nheight={SIDE}\nchannels=3"]
    for block in net.blocks:
        conv = block.conv
        lines = ["[convolutional]"] + (["batch_normalize=1"] if block.norm is not None else [])
        lines += [f"filters={conv.out_channels}", f"size={conv.kernel_size[0]}", f"stride={conv.stride[0]}", "pad=1"]
        lines += [f"groups={conv.groups}"] if conv.groups > 1 else []
        sections.append("\n".join([*lines, f"activation={'linear' if block.norm is None else 'leaky'}"]))
    return "\n\n".join([*sections, "[avgpool]", "[softmax]\ngroups=1"]) + "\n"
