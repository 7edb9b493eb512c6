# SPDX-License-Identifier: MIT
"""A tiny network of YOLOv3-tiny's topology with seeded random weights, and a few labelled images, written to a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import weights_content
from mpnet.model.weights import random_weights

NAMES = ("circle", "square", "bar")
SIDE = 64
DEPTHWISE_CFG = b"""[net]
width=20
height=12
channels=3
[convolutional]
batch_normalize=1
filters=16
size=1
activation=leaky
[maxpool]
size=2
stride=2
[convolutional]
batch_normalize=1
filters=16
size=3
pad=1
groups=16
activation=relu6
[convolutional]
filters=14
size=1
activation=linear
[yolo]
mask=0,1
num=2
classes=2
anchors=2,3, 4,5
"""
"""A convolution whose result a pooling and a depthwise convolution alone read."""


def _conv(filters: int, size: int = 3, linear: bool = False) -> str:
    norm = "" if linear else "batch_normalize=1\n"
    return (
        f"[convolutional]\n{norm}filters={filters}\nsize={size}\nstride=1\npad=1\n"
        f"activation={'linear' if linear else 'leaky'}\n\n"
    )


def _pool(stride: int = 2) -> str:
    return f"[maxpool]\nsize=2\nstride={stride}\n\n"


def _yolo(mask: str) -> str:
    return f"[yolo]\nmask={mask}\nanchors=4,5, 8,8, 12,10, 20,18, 30,34, 50,44\nclasses={len(NAMES)}\nnum=6\n\n"


def tiny_cfg(side: int = SIDE) -> str:
    """Return YOLOv3-tiny's topology, 4 to 16 channels: 13 convolutions, 6 maxpools, 2 routes, an upsample, 2 yolo heads."""
    head = 3 * (5 + len(NAMES))
    trunk = "".join(_conv(filters) + _pool() for filters in (4, 4, 6, 8, 8)) + _conv(10) + _pool(1)
    first_head = _conv(16) + _conv(8, 1) + _conv(16) + _conv(head, 1, linear=True) + _yolo("3,4,5")
    second_head = (
        "[route]\nlayers=-4\n\n"
        + _conv(6, 1)
        + "[upsample]\nstride=2\n\n[route]\nlayers=-1,8\n\n"
        + _conv(8)
        + _conv(head, 1, linear=True)
        + _yolo("1,2,3")
    )
    return f"[net]\nwidth={side}\nheight={side}\nchannels=3\n\n{trunk}{first_head}{second_head}"


def small_cfg(side: int = SIDE) -> str:
    """Return two heads on four convolutions with every kind of layer between them: for what is done thousands of times."""
    head = 3 * (5 + len(NAMES))
    first_head = _conv(4) + _pool() + _conv(6) + _pool() + _conv(head, 1, linear=True) + _yolo("3,4,5")
    second_head = (
        "[route]\nlayers=-3\n\n[upsample]\nstride=2\n\n[route]\nlayers=-1,2\n\n" + _conv(head, 1, linear=True) + _yolo("1,2,3")
    )
    return f"[net]\nwidth={side}\nheight={side}\nchannels=3\n\n{first_head}{second_head}"


def write_network(folder: Path, seed: int = 0, text: str = tiny_cfg()) -> None:
    """Write net.cfg, which holds `text`, net.weights and net.names."""
    (folder / "net.cfg").write_text(text, encoding="utf-8")
    network = parse_cfg(text, "net.cfg")
    (folder / "net.weights").write_bytes(weights_content(random_weights(network, seed), network))
    (folder / "net.names").write_text("\n".join(NAMES) + "\n", encoding="utf-8")


def overflow_first(folder: Path, factor: float = 1e6, text: str = small_cfg()) -> None:
    """Write net.weights anew: the first layer's results are `factor` times what they were, beyond fp16, and the second takes
    that back. So neither the first nor the second, which reads its results, can run in fp16; other values stay as they were."""
    network = parse_cfg(text, "net.cfg")
    weights = random_weights(network, 0)
    first, second = (weights.layers[layer.index] for layer in network.convolutions[:2])
    assert first.scales is not None
    assert second.means is not None
    assert second.variances is not None
    scaling = np.float32(factor)
    scaled_layers = {
        network.convolutions[0].index: replace(first, scales=first.scales * scaling, biases=first.biases * scaling),
        network.convolutions[1].index: replace(
            second, means=second.means * scaling, variances=second.variances * scaling * scaling
        ),
    }
    scaled_weights = replace(weights, layers={**weights.layers, **scaled_layers})
    (folder / "net.weights").write_bytes(weights_content(scaled_weights, network))


def write_images(folder: Path, count: int = 5, seed: int = 0) -> None:
    """Write images/*.png of different sizes with one to three things each, and labels/*.txt in YOLO format."""
    random = np.random.default_rng(seed)
    (folder / "images").mkdir()
    (folder / "labels").mkdir()
    for number in range(count):
        width, height = 80 + 8 * number, 60 + 4 * number
        image = random.integers(0, 90, (height, width, 3)).astype(np.uint8)
        lines = []
        for _ in range(1 + number % 3):
            kind = int(random.integers(len(NAMES)))
            w, h = (int(random.integers(12, 30)) for _ in range(2))
            x, y = int(random.integers(0, width - w)), int(random.integers(0, height - h))
            colour = tuple(int(value) for value in random.integers(120, 255, 3))
            if kind == 0:
                cv2.ellipse(image, (x + w // 2, y + h // 2), (w // 2, h // 2), 0, 0, 360, colour, -1)
            else:
                cv2.rectangle(image, (x, y), (x + w, y + h), colour, -1 if kind == 1 else 3)
            lines.append(f"{kind} {(x + w / 2) / width:.6f} {(y + h / 2) / height:.6f} {w / width:.6f} {h / height:.6f}")
        cv2.imwrite(str(folder / "images" / f"scene-{number}.png"), image)
        (folder / "labels" / f"scene-{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


EXPERIMENT = """\
name: tiny
model: {cfg: net.cfg, weights: net.weights, names: net.names}
data: {format: yolo, images: images/, labels: labels/}
detection: {resize: stretch, confidence: 0.05, nms: 0.45}
precision: {default: int8}
runtime: {threads: 1}
output: runs/
"""


def write_experiment(folder: Path, cfg: str = tiny_cfg()) -> Path:
    """Write the network, the images and experiment.yaml, whose path is returned."""
    write_network(folder, text=cfg)
    write_images(folder)
    path = folder / "experiment.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path
