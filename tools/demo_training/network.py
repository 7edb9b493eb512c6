# SPDX-License-Identifier: MIT
"""YOLOv3-tiny, narrower, in PyTorch: the same 24 layers in the same order as its Darknet configuration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

# Filters of the 13 convolutions in file order; the two detection convolutions follow from the class count.
WIDTHS = (8, 16, 24, 48, 96, 128, 192, 64, 128, 0, 32, 64, 0)
MASKS = ((3, 4, 5), (0, 1, 2))


class Block(nn.Module):
    """One [convolutional] section: with batch norm and leaky activation, or linear with a bias."""

    def __init__(self, depth: int, filters: int, size: int, linear: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(depth, filters, size, padding=size // 2, bias=linear)
        self.norm = None if linear else nn.BatchNorm2d(filters, eps=1e-5, momentum=0.03)
        if not linear:
            nn.init.kaiming_normal_(self.conv.weight, a=0.1, nonlinearity="leaky_relu")
        else:
            nn.init.normal_(self.conv.weight, std=0.01)

    def forward(self, x: torch.Tensor, pool: int = 0) -> torch.Tensor:
        """Return the block's output, followed by the maxpool of stride `pool` if not 0.

        The maxpool runs before the batch norm. Normalisation with a positive factor and the leaky activation
        are increasing, so this is the same function as the other order, and trains on a quarter of the values.
        """
        x = self.conv(x)
        if pool == 1:
            # Size 2, stride 1 pads right and bottom; repeating the border gives the maxima of minus infinity.
            x = F.max_pool2d(F.pad(x, (0, 1, 0, 1), mode="replicate"), 2, stride=1)
        elif pool == 2:
            x = F.max_pool2d(x, 2)
        return x if self.norm is None else F.leaky_relu(self.norm(x), 0.1, inplace=True)

    def folded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and biases with the batch norm folded in."""
        if self.norm is None:
            assert self.conv.bias is not None
            return self.conv.weight, self.conv.bias
        factor = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        bias = self.norm.bias - self.norm.running_mean * factor
        return self.conv.weight * factor[:, None, None, None], bias


Convolution = Callable[[Block, torch.Tensor, int], torch.Tensor]


class TinyYolo(nn.Module):
    """Return the raw detection maps: (n, 3 * (5 + classes), s/32, s/32) and the same at s/16."""

    def __init__(self, classes: int, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        w, head_depth = widths, 3 * (5 + classes)
        shapes = [
            (3, w[0], 3), (w[0], w[1], 3), (w[1], w[2], 3), (w[2], w[3], 3), (w[3], w[4], 3), (w[4], w[5], 3),
            (w[5], w[6], 3), (w[6], w[7], 1), (w[7], w[8], 3), (w[8], head_depth, 1),
            (w[7], w[10], 1), (w[10] + w[4], w[11], 3), (w[11], head_depth, 1),
        ]  # fmt: skip
        self.blocks = nn.ModuleList(Block(d, f, k, linear=i in (9, 12)) for i, (d, f, k) in enumerate(shapes))
        for i in (9, 12):
            bias = self.blocks[i].conv.bias.data.view(3, -1)
            bias.zero_()
            bias[:, 4] = -4.5  # few cells hold an object
            bias[:, 5:] = -2.2  # one class in ten

    def forward(self, x: torch.Tensor, call: Convolution | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the network on x (n, c, h, w). Result: the tensors of both heads."""
        call = call or Block.__call__
        b = self.blocks
        for i in range(4):
            x = call(b[i], x, 2)
        skip = call(b[4], x, 0)
        x = call(b[5], F.max_pool2d(skip, 2), 1)
        middle = call(b[7], call(b[6], x, 0), 0)
        coarse = call(b[9], call(b[8], middle, 0), 0)
        fine = F.interpolate(call(b[10], middle, 0), scale_factor=2, mode="nearest")
        fine = call(b[12], call(b[11], torch.cat((fine, skip), 1), 0), 0)
        return coarse, fine


def convolve_int8(block: Block, x: torch.Tensor, pool: int) -> torch.Tensor:
    """Return the block's output with weights and input rounded to int8, per tensor, minimum-maximum.

    Symmetric scales: largest magnitude / 127, of the weights once and of the input for every image.
    """
    weight, bias = block.folded()
    step = weight.abs().max() / 127
    weight = torch.round(weight / step) * step
    scale = x.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12) / 127
    x = torch.round(x / scale) * scale
    x = F.conv2d(x, weight, bias, padding=block.conv.padding)
    if block.norm is not None:
        x = F.leaky_relu(x, 0.1)
    if pool == 1:
        return F.max_pool2d(F.pad(x, (0, 1, 0, 1), mode="replicate"), 2, stride=1)
    return F.max_pool2d(x, 2) if pool == 2 else x
