# SPDX-License-Identifier: MIT
"""Writes the bundle target's seeds: bundle_seeds.py FOLDER. A network of few pixels in several configurations, and images."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Callable

import cv2
import numpy as np

from mpnet.export.bundle.write import bundle_bytes
from mpnet.formats.cfg.read import parse_cfg
from tests.mprun.cases import FAMILY, configuration, integer_configuration

MAX_BYTES = 10 << 10
"""Of a seed: mutations of large ones change little that matters. run.sh has room for no more."""

CFG = """[net]
width=8
height=8
channels=3

[convolutional]
batch_normalize=1
filters=4
size=3
stride=1
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=4
size=1
stride=1
pad=1
activation=mish

[shortcut]
from=-2
activation=linear

[route]
layers=-1
groups=2
group_id=1

[upsample]
stride=2

[route]
layers=-1,0

[convolutional]
filters=7
size=1
stride=1
pad=1
activation=linear

[yolo]
mask=0
anchors=4,5, 8,8
classes=2
num=2
"""

ANCHORS = "num=2\nanchors=4,5, 8,8\n"
IMPORTED = {
    "yolov5": (14, ANCHORS),
    "yolov8": (10, "reg_max=2\n"),
    "yolov8_obb": (11, "reg_max=2\n"),
    "rtmdet": (10, "reg_max=2\n"),
    "picodet": (11, "reg_max=2\n"),
    "yolox": (7, ""),
    "ssd": (14, ANCHORS),
    "none": (3, ""),
}


_NET = "[net]\nwidth=8\nheight=8\nchannels=3\n\n"
_CONV = "[convolutional]\nfilters={}\nsize=1\nstride=2\nactivation=linear\n\n"
SMALL: dict[str, Callable[[], str]] = {
    **{
        f"attention-{areas}": partial(str.join, "", (_NET, _CONV.format(12), f"[attention]\nheads=2\nkey=2\nareas={areas}\n"))
        for areas in (1, 2, 4)
    },
    "shuffle": lambda: _NET + _CONV.format(6) + "[shuffle]\ngroups=3\n\n" + _CONV.format(4),
    "concatenation": lambda: _NET
    + _CONV.format(4)
    + _CONV.format(4).replace("stride=2", "stride=1")
    + "[route]\nlayers=-1,-2\n",
}
"""Networks of operations whose family is too large for a seed."""


def imported(decoder: str) -> str:
    """Return one convolution, and a head of another program."""
    channels, keys = IMPORTED[decoder]
    return (
        f"[net]\nwidth=8\nheight=8\nchannels=3\n\n[convolutional]\nfilters={channels}\nsize=1\nstride=2\n"
        f"activation=linear\n\n[yolo]\ndecoder={decoder}\nclasses=2\n{keys}"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    network = parse_cfg(CFG, "fuzz")
    for seed in range(8):
        content, _ = bundle_bytes(configuration(network, seed), ("scalar",) if seed % 2 else (), profile=False)
        (folder / f"network-{seed}.mpnet").write_bytes(content)
    integer_network = parse_cfg(CFG.replace("mish", "relu6"), "whole")
    for seed in range(4):
        content, _ = bundle_bytes(integer_configuration(integer_network, seed), ("scalar",) if seed == 3 else (), profile=False)
        (folder / f"whole-{seed}.mpnet").write_bytes(content)
    for level in ("avx2", "avx512vnni"):
        (folder / f"packed-{level}.mpnet").write_bytes(bundle_bytes(configuration(network, 5), (level,), profile=False)[0])
    imported_heads = {f"head-{decoder}": partial(imported, decoder) for decoder in IMPORTED}
    for name, text in {**FAMILY, **SMALL, **imported_heads}.items():
        network = parse_cfg(text(), name)
        contents = (bundle_bytes(configuration(network, seed), (), profile=False)[0] for seed in range(1, 5))
        small_content = next((content for content in contents if len(content) <= MAX_BYTES), None)
        if small_content:
            (folder / f"{name}.mpnet").write_bytes(small_content)
    image = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    for name, options in {"a.ppm": [], "b.jpg": [], "c.jpg": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]}.items():
        cv2.imwrite(str(folder / name), image, options)


if __name__ == "__main__":
    main()
