# SPDX-License-Identifier: MIT
"""Random configurations of small networks as bundles, of two in integers alone, with what a session gives for one input.

Usage: cases.py FOLDER COUNT     writes them, and FOLDER/list.txt for heads.c; `compare FOLDER` looks at what heads.c wrote.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mpnet.engine.assign import assign
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import MpnetError
from mpnet.export import Configuration
from mpnet.export.bundle.write import bundle_bytes
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BASE_NAMES, PRECISIONS
from mpnet.model.quantization import (
    MODES,
    NARROW_GRANULARITIES,
    NARROW_METHODS,
    WEIGHT_GRANULARITIES,
    WEIGHT_METHODS,
    WEIGHTS,
    ActivationOptions,
    NarrowOptions,
    QuantizationOptions,
    WeightOptions,
)
from mpnet.model.weights import random_weights
from tests.engine.family import LAYERS, family_cfg
from tests.networks import tiny_cfg


def _net(side: int) -> str:
    return f"[net]\nwidth={side}\nheight={side}\nchannels=3\n\n"


def _conv(filters: int, size: int = 3, activation: str = "leaky", **keys: int) -> str:
    key_lines = "".join(f"{key}={value}\n" for key, value in {"stride": 1, "pad": 1, **keys}.items())
    return f"[convolutional]\nbatch_normalize=1\nfilters={filters}\nsize={size}\n{key_lines}activation={activation}\n\n"


def _section(name: str, **keys: object) -> str:
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in keys.items()) + "\n"


def _yolo(mask: str, **keys: object) -> str:
    return _section("yolo", mask=mask, anchors="4,5, 8,8, 12,10, 20,18", classes=3, num=4, **keys)


def residual() -> str:
    """Return a network of shortcuts, halves of routes, mish."""
    return (
        _net(40)
        + _conv(8, activation="mish")
        + _conv(16, stride=2)
        + _conv(8, 1)
        + _conv(16, activation="mish")
        + _section("shortcut", **{"from": -3}, activation="leaky")
        + _section("route", layers=-1, groups=2, group_id=1)
        + _conv(8)
        + _section("route", layers="-1,-2")
        + _section("maxpool", size=2, stride=2)
        + _conv(16, activation="linear")
        + _yolo("0,1")
    )


def mobile() -> str:
    """Return a network of depthwise convolutions, every activation, a global mean at the end, no head."""
    return (
        _net(24)
        + _conv(8, activation="relu6")
        + _conv(8, groups=8, activation="swish", stride=2)
        + _conv(12, 1, activation="relu")
        + _conv(12, groups=12, activation="logistic")
        + _section("dropout")
        + _conv(10, 1, activation="swish")
        + _section("avgpool")
        + _conv(5, 1, activation="linear")
    )


def pyramid() -> str:
    """Return a network of pools side by side, enough channels for Winograd, upsampling, boxes in the newer encodings."""
    return (
        _net(32)
        + _conv(16, stride=2)
        + _conv(16)
        + _section("maxpool", size=5, stride=1)
        + _section("route", layers=-2)
        + _section("maxpool", size=3, stride=1)
        + _section("route", layers="-1,-3,-4")
        + _conv(16, 1)
        + _conv(16, stride=2)
        + _conv(16, 1, activation="logistic")
        + _yolo("2,3", new_coords=1, scale_x_y=2.0)
        + _section("route", layers=-3)
        + _section("upsample", stride=2)
        + _section("route", layers="-1,1")
        + _conv(16)
        + _conv(16, 1, activation="linear")
        + _yolo("0,1", scale_x_y=1.1)
    )


def integer_only() -> str:
    """Return a network of all that integers alone have: activations, depthwise layers, sums, fused pools and others, joined
    tensors."""
    return (
        _net(16)
        + _conv(8)
        + _section("maxpool", size=2, stride=2)
        + _conv(8, groups=8, activation="relu6")
        + _conv(8, 1, activation="relu")
        + _section("shortcut", **{"from": -3}, activation="leaky")
        + _conv(16, activation="linear")
        + _section("shuffle", groups=4)
        + _section("activation", activation="leaky")
        + _section("maxpool", size=3, stride=1)
        + _section("route", layers=-1, groups=2, group_id=1)
        + _section("upsample", stride=2)
        + _section("route", layers="-1,0")
        + _section("reorg", stride=2)
        + _conv(14, 1, activation="linear")
        + _yolo("0,1").replace("classes=3", "classes=2")
    )


NETWORKS = {"tiny": tiny_cfg, "residual": residual, "mobile": mobile, "pyramid": pyramid}
FAMILY = {f"family-{name.replace(' ', '-')}": partial(family_cfg, name) for name in LAYERS}
INTEGER_ONLY = {"integer-only": integer_only, "integer-only-tiny": tiny_cfg}
"""Those that configurations in integers alone are made of."""


def draw_quantization(draw: random.Random) -> QuantizationOptions:
    mode = draw.choice(tuple(MODES.values()))
    method = draw.choice(WEIGHT_METHODS)
    return QuantizationOptions(
        ActivationOptions(mode=mode.name, ranges=draw.choice(("dynamic", "calibrated")), rounding=draw.choice(mode.roundings)),
        WeightOptions(draw.choice(WEIGHT_GRANULARITIES), method, draw.choice(WEIGHTS[method].roundings)),
        bias_correction=draw.random() < 0.3,
        equalisation=None,
        # What is learnt needs images.
        narrow=NarrowOptions(draw.choice(NARROW_GRANULARITIES), draw.choice(NARROW_METHODS), "nearest", False),
    )


def _options(network: NetworkSpec, draw: random.Random) -> EngineOptions:
    layer_name = draw.choice(network.convolutions).name
    ranges = {index: (-draw.uniform(0.2, 3.0), draw.uniform(0.5, 4.0)) for index in range(-1, len(network.layers))}
    return resolve_options(network, draw_quantization(draw), [(layer_name, draw_quantization(draw))], ranges=ranges)


def configuration(network: NetworkSpec, seed: int) -> Configuration:
    """Draw random precisions, also of layers without weights, and random ways to quantise."""
    draw = random.Random(f"{network.source} {seed}")
    weights = random_weights(network, seed)
    while True:
        rows = [draw.choice(tuple(PRECISIONS.values())) for _ in network.layers]
        if seed % 5 == 0:
            rows = [PRECISIONS[draw.choice(BASE_NAMES)]] * len(network.layers)
        precisions = {
            layer.index: row if layer.has_weights else row.tensor
            for layer, row in zip(network.layers, rows, strict=True)
            if layer.has_weights or (draw.random() < 0.3 and not layer.always_fp32)
        }
        options = _options(network, draw)
        means = {layer.index: np.linspace(-0.1, 0.2, layer.in_shape[2]) for layer in network.convolutions}
        prepared = Prepared(network, weights, kernels(), batch_norm=options.batch_norm, channel_means=means)
        try:
            case = Configuration.from_prepared(prepared, assign(network, overrides=precisions), options, content=b"")
            Session(prepared, case.plan).forward(image(network))
        except MpnetError:
            continue  # not every network stays within halves, nor every range within every mode
        return case


def integer_configuration(network: NetworkSpec, seed: int) -> Configuration:
    """Draw random precisions in integers alone, also of layers without weights, and random ways to quantise."""
    draw = random.Random(f"{network.source} {seed}")
    rows = [row for row in PRECISIONS.values() if row.carries_scale]
    weights = random_weights(network, seed)
    while True:
        precisions = {
            layer.index: (row := draw.choice(rows)) if layer.has_weights else row.tensor
            for layer in network.layers
            if layer.has_weights or (draw.random() < 0.3 and not layer.always_fp32)
        }
        mode = draw.choice(("affine", "symmetric", "power_of_two"))
        quantization = draw_quantization(draw)
        activations = ActivationOptions(mode, "calibrated", draw.choice(MODES[mode].roundings))
        ranges = {index: (-draw.uniform(0.2, 3.0), draw.uniform(0.5, 4.0)) for index in range(-1, len(network.layers))}
        options = resolve_options(network, replace(quantization, activations=activations, integer_only=True), ranges=ranges)
        means = {layer.index: np.linspace(-0.1, 0.2, layer.in_shape[2]) for layer in network.convolutions}
        prepared = Prepared(network, weights, kernels(), batch_norm=options.batch_norm, channel_means=means)
        try:
            case = Configuration.from_prepared(prepared, assign(network, overrides=precisions), options, content=b"")
            Session(prepared, case.plan).forward(image(network))
        except MpnetError:
            continue  # not every range can be scaled to the next
        return case


def image(network: NetworkSpec) -> np.ndarray:
    """Return the input of all configurations of a network."""
    return np.random.default_rng(len(network.layers)).random((1, *network.in_shape), np.float32)


def write(folder: Path, count: int, levels: tuple[str, ...] = ()) -> None:
    """Write `count` bundles of each network, a tenth of each kind of layer, their inputs, the expected tensors and heads.c's
    list."""
    lines = []
    for name, text in {**NETWORKS, **INTEGER_ONLY, **FAMILY}.items():
        network = parse_cfg(text(), name)
        x = image(network)
        x.tofile(folder / f"{name}.input")
        for seed in range(-(-count // 10) if name in FAMILY else count):
            case = (integer_configuration if name in INTEGER_ONLY else configuration)(network, seed)
            stem = folder / f"{name}-{seed}"
            stem.with_suffix(".mpnet").write_bytes(bundle_bytes(case, levels, profile=False)[0])
            heads = Session(case.prepared, case.plan).forward(x)
            stem.with_suffix(".expected").write_bytes(b"".join(head.tobytes() for head in heads))
            lines.append(f"{stem}.mpnet {folder / name}.input {stem}.found")
    (folder / "list.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def compare(folder: Path) -> list[str]:
    """Return the bundles whose tensors differ from the session's, removing what was found."""
    differing = []
    for expected in sorted(folder.glob("*.expected")):
        actual = expected.with_suffix(".found")
        if not actual.exists() or actual.read_bytes() != expected.read_bytes():
            differing.append(expected.stem)
        actual.unlink(missing_ok=True)
    return differing


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        differing = compare(Path(sys.argv[2]))
        print(f"{len(list(Path(sys.argv[2]).glob('*.expected')))} configurations, {len(differing)} differ", *differing)
        sys.exit(bool(differing))
    write(Path(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]))
