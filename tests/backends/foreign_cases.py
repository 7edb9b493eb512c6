# SPDX-License-Identifier: MIT
"""Small networks with everything that an export must get right, and configurations of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.images import read_image
from mpnet.detection.preprocess import preprocess
from mpnet.engine.assign import assign_key
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, NarrowOptions, QuantizationOptions
from mpnet.model.weights import Weights, random_weights

Floats = NDArray[np.float32]
DYNAMIC = ActivationOptions(mode="affine", ranges="dynamic")
CALIBRATED = ActivationOptions(mode="affine", ranges="calibrated")
WITHOUT_STATISTICS = NarrowOptions(rounding="nearest", bias_correction=False)  # few bits without calibration images
SYMMETRIC = ActivationOptions(mode="symmetric", ranges="calibrated", rounding="half_away")

# Odd sizes, stride 2 and 3, groups, depthwise, dilation, 1x1 with stride and with padding, every activation, pooling with
# and without padding and one that is neither SAME nor VALID, routes of groups and of several, an average at the end.
ODD = """[net]
width=37
height=23
channels=3
[convolutional]
batch_normalize=1
filters=16
size=3
stride=2
pad=1
activation=leaky
[convolutional]
filters=16
size=3
pad=1
groups=16
activation=relu6
[convolutional]
filters=32
size=5
pad=1
groups=4
activation=leaky
[convolutional]
filters=16
size=1
activation=linear
[shortcut]
from=-3
activation=relu
[dropout]
[maxpool]
size=2
stride=1
[maxpool]
size=3
stride=2
padding=1
[convolutional]
filters=14
size=1
activation=linear
[yolo]
mask=0,1
num=4
classes=2
anchors=2,3, 4,5, 6,7, 8,9
[route]
layers=-3
groups=2
group_id=1
[convolutional]
filters=24
size=3
dilation=2
padding=2
activation=mish
[convolutional]
filters=8
size=1
stride=2
activation=swish
[upsample]
stride=3
[convolutional]
filters=8
size=1
padding=1
activation=relu
[convolutional]
filters=14
size=1
activation=logistic
[yolo]
mask=2,3
num=4
classes=2
anchors=2,3, 4,5, 6,7, 8,9
"""


SHUFFLED = (
    "[net]\nwidth=13\nheight=9\nchannels=8\n"
    "[convolutional]\nfilters=24\nsize=1\nactivation=relu\n"
    "[shuffle]\n[shuffle]\ngroups=3\n[convolutional]\nfilters=24\nsize=3\ngroups=24\nactivation=linear\n"
)
"""Two channel shuffles, of which an error in the order of channels would survive the depthwise layer behind them."""


def one_layer(section: str, width: int = 13, height: int = 9, channels: int = 8) -> str:
    """Return a cfg of one section."""
    return f"[net]\nwidth={width}\nheight={height}\nchannels={channels}\n{section}"


def batch_of(network: NetworkSpec, images: int = 2, seed: int = 5) -> Floats:
    """Return images from 0 to 1, each of a range of its own."""
    random = np.random.default_rng(seed)
    scale = random.uniform(0.4, 1.0, (images, 1, 1, 1)).astype(np.float32)
    return random.random((images, *network.in_shape), np.float32) * scale


def configured(
    text: str,
    key: str,
    activations: ActivationOptions = DYNAMIC,
    weights: Weights | None = None,
    narrow: NarrowOptions = WITHOUT_STATISTICS,
    quantization: QuantizationOptions = NO_OPTIONS,
    **keywords: Any,
) -> Configuration:
    """Return a configuration with random weights. key: a precision string, or one character for all layers."""
    network = parse_cfg(text, "net.cfg")
    prepared = Prepared(network, weights or random_weights(network, 3), kernels())
    options = QuantizationOptions(activations, narrow=narrow).overlaid(quantization)
    return decided(prepared, key, options, batch_of(network), content=text.encode(), **keywords)


def trained(
    shared_data: Path, name: str, key: str, activations: ActivationOptions, quantization: QuantizationOptions = NO_OPTIONS
) -> tuple[Configuration, Floats]:
    """Return a network of the developers' data (`aix` or `fastest`) and two of its images; ranges are of four others."""
    folder, stem, image_folder, batch_norm = {
        "aix": ("aix2022", "yolov3-tiny-aix2022", "aix2022/images", "darknet"),
        "fastest": ("yolo-fastest", "yolo-fastest-1.1", "coco/images", "alexeyab"),
    }[name]
    network = read_cfg(shared_data / folder / f"{stem}.cfg")
    weights = read_weights(shared_data / folder / f"{stem}.weights", network)
    files = sorted((shared_data / image_folder).iterdir())[:6]
    images = np.concatenate([preprocess(read_image(file), network.width, network.height, "stretch")[0] for file in files])
    prepared = Prepared(network, weights, kernels(), batch_norm=batch_norm)
    return decided(prepared, key, QuantizationOptions(activations).overlaid(quantization), images[2:]), images[:2]


def decided(prepared: Prepared, key: str, quantization: QuantizationOptions, images: Floats, **keywords: Any) -> Configuration:
    """Return a configuration whose ranges, where it has any, are of the images. key: as in `configured`."""
    network = prepared.network
    options = resolve_options(network, quantization, batch_norm=prepared.batch_norm)
    requests = range_requests(network, options)
    if requests:
        ranges = calibrate(prepared, [images], requests, {}).by_tensor()
        options = resolve_options(network, quantization, batch_norm=prepared.batch_norm, ranges=ranges)
    full = key * len(network.convolutions) if len(key) == 1 else key
    return Configuration.from_prepared(prepared, assign_key(network, full), options, **keywords)


def without_pairs(weights: Weights) -> Weights:
    """Return the same with every second input channel at 0: no pair of int8 products exceeds 16 bits, on any CPU."""
    layers = {}
    for index, layer in weights.layers.items():
        is_kept = np.arange(layer.weights.shape[1]) % 2 == 0
        layers[index] = replace(layer, weights=layer.weights * is_kept[:, None, None].astype(np.float32))
    return replace(weights, layers=layers)


def random_keys(configuration: Configuration, count: int) -> list[str]:
    """Return mixed precisions, the same ones each time."""
    random = np.random.default_rng(11)
    return ["".join(random.choice(list("fhq"), len(configuration.network.convolutions))) for _ in range(count)]


def with_key(configuration: Configuration, key: str) -> Configuration:
    """Return the same at other precisions."""
    return Configuration.from_prepared(configuration.prepared, assign_key(configuration.network, key), configuration.options)


def compute_heads(configuration: Configuration, batch: Floats) -> list[Floats]:
    """Return the heads that mpnet gives."""
    return Session(configuration.prepared, configuration.plan, 1).forward(batch)


def head_error(actual: list[Floats], expected: list[Floats]) -> float:
    """Return the largest relative RMS difference of a head."""
    worst = 0.0
    for head, expected_head in zip(actual, expected, strict=True):
        assert head.shape == expected_head.shape
        difference = head.astype(np.float64) - expected_head
        worst = max(worst, float(np.sqrt((difference**2).sum() / (expected_head.astype(np.float64) ** 2).sum())))
    return worst
