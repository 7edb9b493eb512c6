# SPDX-License-Identifier: MIT
"""Blocks of imported networks, by the paths of their nodes."""

from __future__ import annotations

from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.blocks import find_blocks

CONVOLUTION = "[convolutional]\nfilters=6\nsize=1\nactivation=linear\n{}\n"
YOLO = "[yolo]\nmask=0\nanchors=1,1\nclasses=1\n"


def _blocks(*nodes: str) -> dict[str, tuple[int, ...]]:
    layers = [CONVOLUTION.format(f"source={node}" if node else "") for node in nodes]
    return find_blocks(parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n" + "".join(layers) + YOLO))


def test_the_outermost_numbered_module_is_a_block() -> None:
    nodes = ("/model.0/conv/Conv", "/model.1/m.0/cv1/conv/Conv", "/backbone/layer1/layer1.0/conv1/Conv", "/head/Conv")
    assert _blocks(*nodes) == {"model.0": (0,), "model.1": (1,), "backbone/layer1/layer1.0": (2,)}


def test_a_block_that_feeds_heads_is_divided_once_more() -> None:
    nodes = (
        "/model.0/m.0/Conv",
        "/model.22/cv2.0/cv2.0.0/conv/Conv",
        "/model.22/cv3.0/cv3.0.0/Conv",
        "/model.22/cv3.0/cv3.0.1/Conv",
    )
    assert _blocks(*nodes) == {"model.0": (0,), "model.22/cv2.0": (1,), "model.22/cv3.0": (2, 3)}


def test_names_without_modules_make_no_block() -> None:
    assert _blocks("", "Conv_12") == {}
