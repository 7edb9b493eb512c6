# SPDX-License-Identifier: MIT
"""Names of layers and what chooses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.model.network import NetworkSpec
from mpnet.model.selectors import layer_groups, layer_selectors, select_layers


@pytest.fixture(scope="module")
def tiny(repository: Path) -> NetworkSpec:
    return read_cfg(repository / "cfg" / "yolov3-tiny.cfg")


ALL_CONVOLUTIONS = (0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 18, 21, 22)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (0, (0,)),
        ("13", (13,)),
        ("2..6", (2, 4, 6)),
        ("all", ALL_CONVOLUTIONS),
        ("conv", ALL_CONVOLUTIONS),
        ("*", ALL_CONVOLUTIONS),
        ("conv-*", ALL_CONVOLUTIONS),
        ("first", (0,)),
        ("last", (22,)),
        ("heads", (15, 22)),
        ("*/yolo-1", (15,)),
        ("*/yolo-2", (22,)),
        ("*/yolo-*", (15, 22)),
        ("conv-10/yolo-1", (15,)),
        ("conv-10", (15,)),
        ("conv-1?", (12, 21, 18, 15, 22)),
        ("trunk", (0, 2, 4, 6, 8, 10, 12, 13)),
        ("head-1", (14, 15)),
        ("head-2", (18, 21, 22)),
        ("1x1", (13, 15, 18, 22)),
        ("first, heads", (0, 15, 22)),
        ("1", (1,)),
        ("maxpool-2", (3,)),
        ("maxpool-*", (1, 3, 5, 7, 9, 11)),
        ("route-*, 4", (4, 17, 20)),
        ("yolo-1", (16,)),
    ],
)
def test_selectors_of_yolov3_tiny(tiny: NetworkSpec, selector: str | int, expected: tuple[int, ...]) -> None:
    if selector == "conv-1?":
        expected = tuple(layer.index for layer in tiny.convolutions if layer.name in ("conv-11", "conv-12"))
    assert select_layers(tiny, selector) == expected


def test_three_by_three(tiny: NetworkSpec) -> None:
    assert select_layers(tiny, "3x3") == tuple(index for index in ALL_CONVOLUTIONS if index not in select_layers(tiny, "1x1"))


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("24", "layer '24': {} has the layers 0 to 23"),
        ("99999999", "layer '99999999': {} has the layers 0 to 23"),
        ("6..2", "layers '6..2': a range goes upwards and {} has the layers 0 to 23"),
        ("16..17", "layers '16..17': no layer with weights in this range of {}"),
        ("hedas", "layers 'hedas': nothing in {} has this index, name or group; did you mean 'heads'? (see mpnet show)"),
        ("conv-99", "layers 'conv-99': nothing in {} has this index, name or group; did you mean 'conv-9'? (see mpnet show)"),
        ("yolo-*", "layers 'yolo-*': nothing in {} has this index, name or group; did you mean 'yolo-2'? (see mpnet show)"),
    ],
)
def test_what_chooses_nothing_is_an_error(tiny: NetworkSpec, selector: str, message: str) -> None:
    with pytest.raises(ConfigError) as excinfo:
        select_layers(tiny, selector)
    assert str(excinfo.value) == message.format(tiny.source)


def test_names_and_selectors_of_a_layer(tiny: NetworkSpec) -> None:
    assert layer_selectors(tiny)[15] == ("15", "conv-10/yolo-1", "heads", "1x1", "head-1")
    assert layer_selectors(tiny)[11] == ("11", "maxpool-6")


def test_groups_by_kind_of_convolution() -> None:
    network = parse_cfg(
        "[net]\nwidth=8\nheight=8\nchannels=4\n"
        "[convolutional]\nfilters=4\nsize=3\nstride=2\npad=1\ngroups=4\n"
        "[convolutional]\nfilters=6\nsize=1\ngroups=2\n"
        "[dropout]\n[route]\nlayers=-1\n[yolo]\nclasses=1\nanchors=1,1\nnum=1\n"
    )
    assert layer_groups(network) == {
        "all": (0, 1),
        "conv": (0, 1),
        "first": (0,),
        "last": (1,),
        "heads": (1,),
        "trunk": (0, 1),
        "3x3": (0,),
        "depthwise": (0,),
        "strided": (0,),
        "1x1": (1,),
        "grouped": (1,),
    }
    assert network.layers[1].name == "conv-2/yolo-1"


def test_heads_of_boxes_and_classes_side_by_side() -> None:
    """As YOLOv8 is imported: two convolutions joined before each head."""
    convolution = "[convolutional]\nfilters={}\nsize=1\n"
    network = parse_cfg(
        "[net]\nwidth=8\nheight=8\nchannels=4\n"
        + convolution.format(4)
        + convolution.format(8)
        + "[route]\nlayers=0\n"
        + convolution.format(2)
        + "[route]\nlayers=1,3\n[dropout]\n[yolo]\ndecoder=yolov8\nreg_max=2\nclasses=2\n"
    )
    assert select_layers(network, "heads") == (1, 3)
    assert network.sources(2) == (0,)
