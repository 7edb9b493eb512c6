# SPDX-License-Identifier: MIT
"""Which program's ways a cfg follows, and what follows from that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.demo.model import model_files
from mpnet.engine.folding import fold_network
from mpnet.engine.options import resolve_options
from mpnet.errors import ConfigError, FormatError
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.model.layers import ConvolutionSpec, RegionSpec, SoftmaxSpec
from mpnet.model.weights import random_weights

NET = "[net]\nwidth=16\nheight=16\nchannels=3\n"
CONV = "[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\npad=1\nactivation={}\n"
STRIDED_CONVOLUTION = "[convolutional]\nfilters=8\nsize=3\npad=1\nstride=2\nactivation=leaky\n"


@pytest.mark.parametrize(
    ("sections", "dialect", "reason"),
    [
        (CONV.format("leaky"), "darknet", "nothing in it needs AlexeyAB's program"),
        (CONV.format("mish"), "alexeyab", "only AlexeyAB's program has activation=mish, line 5"),
        (CONV.format("leaky") + "dilation=2\n", "alexeyab", "only AlexeyAB's program has dilation=2, line 5"),
        (CONV.format("leaky") + "[route]\nlayers=-1\ngroups=2\n", "alexeyab", "only AlexeyAB's program has groups=2, line 11"),
        (CONV.format("leaky") + "groups=1\n[empty]\n", "alexeyab", "only AlexeyAB's program has [empty], line 12"),
        (
            CONV.format("leaky") + CONV.format("leaky") + "[shortcut]\nfrom=-1,-2\n",
            "alexeyab",
            "only AlexeyAB's program has from=-1,-2, line 17",
        ),
    ],
)
def test_auto_goes_by_what_the_cfg_uses(sections: str, dialect: str, reason: str) -> None:
    network = parse_cfg(NET + sections, "t.cfg")
    assert (network.dialect, network.dialect_why) == (dialect, reason)
    assert resolve_options(network).batch_norm == dialect


def test_the_demo_and_yolov3_tiny_stay_with_the_original(repository: Path) -> None:
    for cfg in (repository / "cfg" / "yolov3-tiny.cfg", model_files().cfg):
        assert read_cfg(cfg).dialect == "darknet"


def test_batch_norm_follows_the_dialect_and_can_be_set_alone() -> None:
    text = NET + CONV.format("leaky")
    weights = random_weights(parse_cfg(text))
    folded = {
        (dialect, formula): fold_network(parse_cfg(text, "t.cfg", dialect), weights, formula)[0].weights
        for dialect in ("darknet", "alexeyab")
        for formula in ("auto", "darknet", "alexeyab")
    }
    assert np.array_equal(folded["darknet", "auto"], folded["alexeyab", "darknet"])
    assert np.array_equal(folded["alexeyab", "auto"], folded["darknet", "alexeyab"])
    assert not np.array_equal(folded["darknet", "auto"], folded["alexeyab", "auto"])


def test_the_original_program_takes_what_it_does_not_know_for_relu() -> None:
    network = parse_cfg(NET + CONV.format("mish"), "t.cfg", "darknet")
    assert isinstance(network.layers[0], ConvolutionSpec)
    assert network.layers[0].activation == "relu"
    assert network.warnings == (
        "t.cfg:10: the original Darknet does not know activation=mish and takes relu, and so does dialect darknet; use "
        "dialect alexeyab for what the word says",
    )


def test_shortcuts_of_other_sizes_are_the_originals() -> None:
    text = NET + STRIDED_CONVOLUTION.replace("stride=2", "stride=1") + STRIDED_CONVOLUTION + "[shortcut]\nfrom=-2\n"
    assert parse_cfg(text, "t.cfg").layers[-1].out_shape == (8, 8, 8)
    with pytest.raises(
        FormatError,
        match=r"^t\.cfg:18: layers 1 \(8x8x8\) and 0 \(16x16x8\) differ in width or height, where "
        r"AlexeyAB's program aborts; use dialect darknet if the original trained it$",
    ):
        parse_cfg(text, "t.cfg", "alexeyab")


@pytest.mark.parametrize(("dialect", "raw"), [("darknet", False), ("alexeyab", True)])
def test_region_without_softmax(dialect: str, raw: bool) -> None:
    text = NET + STRIDED_CONVOLUTION.replace("filters=8", "filters=7") + "[region]\nclasses=2\nnum=1\nanchors=1,2\n"
    layer = parse_cfg(text, "t.cfg", dialect).layers[-1]
    assert isinstance(layer, RegionSpec)
    assert layer.raw_classes is raw


def test_unknown_dialect() -> None:
    with pytest.raises(ConfigError, match=r"^dialect 'keras' is unknown; known are auto, darknet, alexeyab$"):
        parse_cfg(NET + STRIDED_CONVOLUTION, "t.cfg", "keras")


def test_a_tree_lies_beside_the_cfg_or_above_and_is_part_of_the_network(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "cfg").mkdir()
    (tmp_path / "data" / "t.tree").write_text("a -1\nb -1\nc 0\nd 0\n")
    cfg = tmp_path / "cfg" / "t.cfg"
    cfg.write_text(NET + STRIDED_CONVOLUTION.replace("8", "4") + "[avgpool]\n[softmax]\ntree=data/t.tree\n")
    network = read_cfg(cfg)
    layer = network.layers[-1]
    assert isinstance(layer, SoftmaxSpec)
    assert layer.tree is not None
    assert (layer.tree.parents, layer.tree.starts) == ((-1, -1, 0, 0), (0, 2, 4))
    assert network.classifier is layer
    (tmp_path / "data" / "t.tree").write_text("a -1\nb -1\nc 0\nd 1\n")
    assert read_cfg(cfg).digest != network.digest
    (tmp_path / "data" / "t.tree").write_text("a -1\nb 7\n")
    with pytest.raises(FormatError, match=r"t\.tree:2: 'b 7' is no `name parent` with an earlier line as parent, or -1$"):
        read_cfg(cfg)
    (tmp_path / "data" / "t.tree").unlink()
    with pytest.raises(FormatError, match=r"tree=data/t\.tree is no file beside the cfg, one folder above it or here; put"):
        read_cfg(cfg)


def test_memory_that_lives_at_one_time_decides() -> None:
    """40 layers of 134 MB each are 5.4 GB in all, but two of them and the image at a time."""
    net = "[net]\nwidth=2048\nheight=2048\nchannels=3\n"
    layer = "[convolutional]\nfilters=8\nsize=1\nactivation=leaky\n"
    assert parse_cfg(net + 40 * layer).peak_bytes < 330e6
    routes = "".join(f"[route]\nlayers={','.join(map(str, range(i, i + 20)))}\n" for i in (0, 20))
    with pytest.raises(FormatError, match=r"^t\.cfg:1: the layers that live at one time need 8\.\d+ GB for one image"):
        parse_cfg(net + 40 * layer + routes, "t.cfg")
