# SPDX-License-Identifier: MIT
"""The trained network as a Darknet configuration and weights file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from mpnet.demo.scenes import SIZE


def cfg_text(widths: list[int], anchors: list[tuple[float, float]], classes: int) -> str:
    """Return the configuration: yolov3-tiny with other filter counts, anchors and classes.

    widths: filters of the 13 convolutions in file order; anchors: pixels, smallest first.
    """
    pairs = ",  ".join(f"{w:g},{h:g}" for w, h in anchors)

    def convolution(index: int, size: int = 3) -> str:
        linear = index in (9, 12)
        lines = ["[convolutional]"] + ([] if linear else ["batch_normalize=1"])
        lines += [f"filters={widths[index]}", f"size={size}", "stride=1", "pad=1"]
        return "\n".join([*lines, f"activation={'linear' if linear else 'leaky'}"])

    def maxpool(stride: int) -> str:
        return f"[maxpool]\nsize=2\nstride={stride}"

    def yolo(mask: str) -> str:
        return f"[yolo]\nmask = {mask}\nanchors = {pairs}\nclasses={classes}\nnum=6"

    sections = [f"[net]\nbatch=1\nsubdivisions=1\nwidth={SIZE}\nheight={SIZE}\nchannels=3"]
    for index in range(5):
        sections += [convolution(index), maxpool(2)]
    sections += [convolution(5), maxpool(1), convolution(6), convolution(7, 1), convolution(8)]
    sections += [convolution(9, 1), yolo("3,4,5"), "[route]\nlayers = -4", convolution(10, 1)]
    sections += ["[upsample]\nstride=2", "[route]\nlayers = -1, 8", convolution(11), convolution(12, 1)]
    return "\n\n".join([*sections, yolo("0,1,2")]) + "\n"


def write_weights(net: nn.Module, path: Path, seen: int) -> None:
    """Write the weights file: version 0.2.5, `seen` in 64 bits, then the values of each of `net.blocks` in fp32."""
    with path.open("wb") as file:
        np.array([0, 2, 5], dtype="<i4").tofile(file)
        np.array([seen], dtype="<i8").tofile(file)
        for block in net.blocks:
            if block.norm is None:
                values = [block.conv.bias]
            else:
                norm = block.norm
                # Darknet divides by sqrt(v) + 1e-6, PyTorch by sqrt(v + eps): store the v that gives the same.
                variance = (torch.sqrt(norm.running_var.double() + norm.eps) - 1e-6) ** 2
                values = [norm.bias, norm.weight, norm.running_mean, variance]
            for value in [*values, block.conv.weight]:
                value.detach().contiguous().float().numpy().astype("<f4").tofile(file)
