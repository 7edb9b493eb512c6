# SPDX-License-Identifier: MIT
"""Networks with something wrong, and sound ones, for `mpnet doctor`: each function writes net.cfg, net.weights, net.names."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights, weights_content
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Weights
from tests.conftest import DemoModel

COLOURS = ("blue", "green", "red")
CLASSIFIER_CFG = """[net]
width=16
height=16
channels=3
[convolutional]
filters={classes}
size=1
activation=linear
[avgpool]
[softmax]
"""
Change = Callable[[NetworkSpec, dict[int, ConvolutionWeights]], None]


def write_changed(demo: DemoModel, folder: Path, change: Change) -> Path:
    """Write the demo's network with changed weights, and its images and labels; return the cfg."""
    folder.mkdir(exist_ok=True)
    cfg = Path(shutil.copy(demo.cfg, folder / "net.cfg"))
    shutil.copy(demo.names, folder / "net.names")
    shutil.copytree(demo.images, folder / "images")
    shutil.copytree(demo.labels, folder / "labels")
    network = read_cfg(cfg)
    weights = read_weights(demo.weights, network)
    layers = dict(weights.layers)
    change(network, layers)
    write_weights(folder, network, replace(weights, layers=layers))
    return cfg


def write_weights(folder: Path, network: NetworkSpec, weights: Weights) -> None:
    """Write net.weights."""
    (folder / "net.weights").write_bytes(weights_content(weights, network))


def expect_bytes(_: NetworkSpec, layers: dict[int, ConvolutionWeights]) -> None:
    """Make the network one that was trained on values from 0 to 255."""
    layers[0] = replace(layers[0], weights=layers[0].weights / np.float32(255))


def scale_channels(factor: float, written: slice, read: slice, writer: int, reader: int) -> Change:
    """Return what multiplies channels of a layer, and divides what another reads of them: fp32 results stay."""

    def change(_: NetworkSpec, layers: dict[int, ConvolutionWeights]) -> None:
        first, second = layers[writer], layers[reader]
        assert first.scales is not None
        scales, biases, weights = first.scales.copy(), first.biases.copy(), second.weights.copy()
        scales[written] *= np.float32(factor)
        biases[written] *= np.float32(factor)
        weights[:, read] /= np.float32(factor)
        layers[writer] = replace(first, scales=scales, biases=biases)
        layers[reader] = replace(second, weights=weights)

    return change


def kill_channels(layer: int, count: int) -> Change:
    """Return what makes the first channels of a layer say the same of every image."""

    def change(_: NetworkSpec, layers: dict[int, ConvolutionWeights]) -> None:
        scales = layers[layer].scales
        assert scales is not None
        layers[layer] = replace(layers[layer], scales=np.where(np.arange(len(scales)) < count, 0, scales).astype(np.float32))

    return change


def change_nothing(_: NetworkSpec, layers: dict[int, ConvolutionWeights]) -> None:
    """Leave the network as it is."""


def write_bands(folder: Path) -> None:
    """Replace the images by the middle band of each scene, twice as wide as high, with the objects whose middle is in it."""
    for image in sorted((folder / "images").iterdir()):
        scene = cv2.imread(str(image))
        height = scene.shape[0]
        top, bottom = height // 4, height // 4 + height // 2
        cv2.imwrite(str(image), scene[top:bottom])
        label = folder / "labels" / f"{image.stem}.txt"
        lines = []
        for line in label.read_text(encoding="utf-8").splitlines():
            kind, cx, cy, w, h = (float(word) for word in line.split())
            low, high = max(cy - h / 2, 0.25), min(cy + h / 2, 0.75)
            if high - low > 0.5 * h:
                lines.append(f"{int(kind)} {cx} {((low + high) / 2 - 0.25) * 2} {w} {(high - low) * 2}")
        label.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_colour_classifier(folder: Path, is_bgr: bool) -> Path:
    """Write a classifier of plain colours and images of them; return the cfg. is_bgr: it was trained on blue first."""
    to_class = np.eye(3, dtype=np.float32)[:: 1 if is_bgr else -1] * np.float32(40)
    cfg = write_classifier(folder, COLOURS, to_class)
    random = np.random.default_rng(0)
    for index, colour in enumerate(COLOURS):  # in the order of OpenCV's channels
        (folder / "images" / colour).mkdir(parents=True)
        for number in range(5):
            pixels = random.integers(0, 60, (20, 24, 3))
            pixels[..., index] += 120
            cv2.imwrite(str(folder / "images" / colour / f"{number}.png"), pixels.astype(np.uint8))
    return cfg


def write_brightness_classifier(folder: Path) -> Path:
    """Write a classifier of dark and bright images that was trained on values from -1 to 1, and images; return the cfg."""
    cfg = write_classifier(folder, ("dark", "bright"), np.array([[-9] * 3, [9] * 3], np.float32))
    for name, count, value in (("dark", 10, 40), ("bright", 2, 200)):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(count):
            cv2.imwrite(str(folder / "images" / name / f"{number}.png"), np.full((20, 24, 3), value + number, np.uint8))
    return cfg


def write_classifier(folder: Path, names: tuple[str, ...], to_class: NDArray[np.float32]) -> Path:
    """Write a classifier by the mean of each channel; return the cfg. to_class: (classes, 3)."""
    cfg = folder / "net.cfg"
    cfg.write_text(CLASSIFIER_CFG.format(classes=len(names)), encoding="utf-8")
    (folder / "net.names").write_text("\n".join(names) + "\n", encoding="utf-8")
    layer = ConvolutionWeights(np.zeros(len(names), np.float32), to_class.reshape(-1, 3, 1, 1))
    write_weights(folder, read_cfg(cfg), Weights({0: layer}))
    return cfg
