# SPDX-License-Identifier: MIT
"""Networks of other programs give what ONNX Runtime gives, and what has no form is refused by its node's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from mpnet.errors import ConfigError, FormatError
from mpnet.importing import Imported
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import ANCHORS, LARGE_MODELS, MODELS, Builder, yolov8n

Importing = Callable[..., tuple[Path, Imported]]
DECODERS = {
    "yolov8n": "yolov8",
    "yolov8n-relu": "yolov8",
    "yolov5n": "yolov5",
    "yolov3-tiny": "yolov5",
    "yolox-nano": "yolox",
    "yolox-nano-raw": "yolox",
    "mobilenetv2-ssdlite": "ssd",
}
# Two engines sum in different orders: depths of up to 4608 products, some hundred layers.
BOUND = 2e-6


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE_MODELS else ()) for name in MODELS]
)
def test_heads_equal_onnx_runtimes(name: str, importing: Importing) -> None:
    path, imported = importing(MODELS[name]())
    network = imported.network
    x = np.random.default_rng(1).random((1, *network.in_shape), np.float32)
    heads, expected = heads_of(imported, x), reference_heads(path, imported, x)
    assert len(heads) == len(expected)
    for head, reference in zip(heads, expected, strict=True):
        assert np.abs(head - reference).max() <= BOUND * np.abs(reference).max()
    assert {yolo.decoder for yolo in network.yolos} == ({DECODERS[name]} if name in DECODERS else set())  # type: ignore[attr-defined]
    if name in DECODERS:
        assert len(imported.names) == network.classes
    assert all(node.became for node in imported.nodes)


def test_anchors_come_out_of_the_graph(importing: Importing) -> None:
    _, imported = importing(MODELS["yolov5n"]())
    assert [yolo.anchors for yolo in imported.network.yolos] == [tuple(map(tuple, anchors.tolist())) for anchors in ANCHORS]


def test_names_come_from_the_metadata(importing: Importing) -> None:
    _, imported = importing(yolov8n(64, classes=3, w=8))
    assert imported.names == ("thing 0", "thing 1", "thing 2")


def build_small_model(*, add_layers: Callable[[Builder, str], str]) -> Any:
    b = Builder(16)
    return b.model([add_layers(b, b.conv("images", 8, 3, 2, act="Relu"))])


def _repeated(b: Builder, x: str) -> str:
    """Repeat pixels three times along both axes, as Keras 3 writes it."""
    x = b.reshape(b.node("Transpose", [x], perm=[0, 2, 3, 1]), [1, 8, 1, 8, 8])
    x = b.node("Tile", [x, b.constant([1, 1, 3, 1, 1], np.int64)])
    x = b.node("Tile", [b.reshape(x, [1, 24, 8, 1, 8]), b.constant([1, 1, 1, 3, 1], np.int64)])
    return str(b.node("Transpose", [b.reshape(x, [1, 24, 24, 8])], 8, perm=[0, 3, 1, 2]))


def _shuffled(b: Builder, x: str, channels: int, groups: int) -> str:
    groups_of_channels = b.reshape(x, [1, groups, channels // groups, 8, 8])
    return str(b.reshape(b.node("Transpose", [groups_of_channels], perm=[0, 2, 1, 3, 4]), [1, channels, 8, 8]))


FORMS: dict[str, Callable[[Builder, str], str]] = {
    "prelu": lambda b, x: b.node("PRelu", [x, b.constant(np.linspace(-0.2, 0.7, 8).reshape(8, 1, 1))]),
    "leaky": lambda b, x: b.node("LeakyRelu", [b.conv(x, 8)], alpha=0.3),
    "clip": lambda b, x: b.node("Clip", [b.conv(x, 8), b.constant(-0.5), b.constant(0.25)]),
    "hard sigmoid": lambda b, x: b.node("HardSigmoid", [b.conv(x, 8)], alpha=0.2),
    "hard swish in parts": lambda b, x: b.node(
        "Div", [b.node("Mul", [x, b.act(b.node("Add", [x, b.constant(3.0)]), "relu6")]), b.constant(6.0)]
    ),
    "mish": lambda b, x: b.node("Mul", [x, b.node("Tanh", [b.node("Softplus", [x])])]),
    "tanh": lambda b, x: b.node("Tanh", [b.conv(x, 4)]),
    "unequal split": lambda b, x: b.node(
        "Mul", b.node("Split", [b.conv(x, 8), b.constant([3, 2, 3], np.int64)], 3, 3, axis=1)[::2]
    ),
    "bilinear by 2": lambda b, x: b.node("Resize", [x, "", b.constant([1, 1, 2, 2])], mode="linear"),
    "bilinear to a half": lambda b, x: b.node("Resize", [x, "", b.constant([1, 1, 0.5, 0.5])], mode="linear"),
    "bilinear by 3": lambda b, x: b.node("Resize", [x, "", b.constant([1, 1, 3, 3])], mode="linear"),
    "bilinear by 4": lambda b, x: b.node("Resize", [x, "", b.constant([1, 1, 4, 4])], mode="linear"),
    "average": lambda b, x: b.node("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1),
    "average inside": lambda b, x: b.node("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "repeated": lambda b, x: b.conv(_repeated(b, x), 4),
    "repeated, then flat": lambda b, x: b.node(
        "Gemm", [b.reshape(_repeated(b, x), [1, -1]), b.constant(b.random.normal(0, 0.1, (8 * 24 * 24, 5)))], 5
    ),
    "shuffle": lambda b, x: b.conv(_shuffled(b, x, 8, 2), 5),
    "three axes of channels": lambda b, x: b.conv(
        b.reshape(b.node("Transpose", [b.reshape(x, [1, 2, 2, 2, 64])], perm=[0, 3, 2, 1, 4]), [1, 8, 8, 8]), 5
    ),
    "transposed": lambda b, x: b.node(
        "ConvTranspose", [x, b.constant(b.random.normal(0, 0.3, (8, 5, 2, 2)))], 5, kernel_shape=[2, 2], strides=[2, 2]
    ),
    "one axis": lambda b, x: b.node(
        "Conv", [x, b.constant(b.random.normal(0, 0.3, (6, 8, 1, 5)))], 6, kernel_shape=[1, 5], pads=[0, 2, 0, 2]
    ),
    "strides": lambda b, x: b.node(
        "Conv",
        [x, b.constant(b.random.normal(0, 0.3, (6, 8, 3, 3)))],
        6,
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[2, 1],
    ),
    "dilated": lambda b, x: b.node(
        "Conv",
        [x, b.constant(b.random.normal(0, 0.3, (6, 4, 3, 3)))],
        6,
        kernel_shape=[3, 3],
        pads=[2] * 4,
        dilations=[2, 2],
        group=2,
    ),
    "same lower": lambda b, x: b.node(
        "Conv", [x, b.constant(b.random.normal(0, 0.3, (6, 8, 4, 4)))], 6, kernel_shape=[4, 4], auto_pad="SAME_LOWER"
    ),
    "space to depth": lambda b, x: b.node("Relu", [b.node("SpaceToDepth", [x], 32, blocksize=2)]),
    "image twice": lambda b, x: b.concat([b.pool("images", 2, 2, 0), x]),
    "difference": lambda b, x: b.node("Sub", [x, b.conv(x, 8)]),
    "per pixel": lambda b, x: b.node("Mul", [x, b.node("Sigmoid", [b.conv(x, 1)])]),
    "channel padding": lambda b, x: b.node("Pad", [x, b.constant([0, 0, 0, 0, 0, 4, 1, 0], np.int64)], 12),
    "ceil": lambda b, x: b.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "batch norm alone": lambda b, x: b.node(
        "BatchNormalization", [b.concat([x, x]), *(b.constant(b.random.uniform(0.5, 1.5, 16)) for _ in range(4))]
    ),
    "dead end": lambda b, x: [b.node("Exp", [b.conv(x, 3)]), b.conv(x, 4)][1],
    "dense of channels last": lambda b, x: b.node(
        "Gemm",
        [b.node("Flatten", [b.node("Transpose", [x], perm=[0, 2, 3, 1])]), b.constant(b.random.normal(0, 0.1, (512, 7)))],
        7,
    ),
    "all pixels but the first row and columns": lambda b, x: b.node(
        "Slice", [x, b.constant([1, 2], np.int64), b.constant([8, 8], np.int64), b.constant([2, 3], np.int64)]
    ),
    "every second pixel behind the first": lambda b, x: b.node(
        "Slice", [x, *(b.constant(values, np.int64) for values in ([0, 1], [8, 8], [2, 3], [2, 2]))]
    ),
    "wide dense": lambda b, x: b.node("Gemm", [b.node("Flatten", [x]), b.constant(b.random.normal(0, 0.1, (512, 7)))], 7),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_each_form_equals_onnx_runtimes(name: str, importing: Importing) -> None:
    path, imported = importing(build_small_model(add_layers=FORMS[name]))
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        assert head.shape == reference.shape
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_channel_shuffles_are_layers_of_their_own(groups: int, importing: Importing) -> None:
    """As ShuffleNetV2 has them: half of the channels pass by, the other half is convolved. Nothing but values is moved."""

    def add_layers(b: Builder, x: str) -> str:
        x = b.conv(x, 24)
        first, second = b.node("Split", [x, b.constant([12, 12], np.int64)], 12, 2, axis=1)
        return _shuffled(b, b.node("Concat", [first, b.conv(second, 12, act="Relu")], 24, axis=1), 24, groups)

    path, imported = importing(build_small_model(add_layers=add_layers))
    assert [layer.groups for layer in imported.network.layers if layer.kind == "shuffle"] == [groups]  # type: ignore[attr-defined]
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    [head], [reference] = heads_of(imported, x), reference_heads(path, imported, x)
    assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.parametrize("groups", [1, 8])
def test_branches_are_merged_as_networks_with_them_are_deployed(groups: int, importing: Importing) -> None:
    """RepVGG's block: 3x3, 1x1 and a batch norm of one tensor, added."""

    def add_layers(b: Builder, x: str) -> str:
        branches = [b.conv(x, 8, size, groups=groups, bn=True) for size in (3, 1)]
        norm = [b.constant(values) for values in b.random.uniform(0.5, 1.5, (4, 8))]
        total = b.node("Add", [b.node("Add", branches), b.node("BatchNormalization", [x, *norm], 8)])
        return b.conv(b.act(total, "Relu"), 5)

    path, imported = importing(build_small_model(add_layers=add_layers))
    assert [layer.kind for layer in imported.network.layers] == ["convolutional"] * 3 + ["yolo"]
    assert any(note.startswith("merged 2 branches") for note in imported.notes)
    assert [bool(layer.source) for layer in imported.network.convolutions] == [True, False, True]
    _, apart = importing(build_small_model(add_layers=add_layers), merged=False)
    assert [layer.kind for layer in apart.network.layers].count("shortcut") == 2
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    [reference] = reference_heads(path, imported, x)
    for network in (imported, apart):
        [head] = heads_of(network, x)
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


def build_two_convolutions(*names: str) -> Any:
    """Return a model whose two convolutions have these names."""
    model = build_small_model(add_layers=lambda b, x: b.conv(x, 8))
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    for node, name in zip(convolutions, names, strict=True):
        node.name = name
    return model


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("", "not all nodes of the file have a name of their own", id="none"),
        pytest.param("/second", "not all nodes of the file have a name of their own", id="twice"),
        pytest.param("a" * 5_000, "names of nodes are longer than a line of a cfg, 4096 characters", id="long"),
        pytest.param("ü" * 700, "names of nodes are longer than a line of a cfg, 4096 characters", id="long when escaped"),
    ],
)
def test_nodes_that_no_recipe_can_name_are_left_to_the_exported_file(name: str, reason: str, importing: Importing) -> None:
    _, imported = importing(build_two_convolutions(name, "/second"))
    assert not any(layer.source for layer in imported.network.layers)
    assert any(note.startswith(f"{reason}: recipes for other programs are for the file") for note in imported.notes)
    _, named = importing(build_two_convolutions("/first", "/second"))
    assert [layer.source[0] for layer in named.network.convolutions] == ["/first", "/second"]
    assert not any("recipes" in note for note in named.notes)


def _choose_queries(b: Builder, x: str) -> str:
    """Build the choice of the four best places, and weights on what is there."""
    rows = b.node("Transpose", [b.reshape(x, [1, 8, 64])], perm=[0, 2, 1])
    scores = b.node("ReduceMax", [rows], axes=[2], keepdims=0)
    _, indices = b.node("TopK", [scores, b.constant([4], np.int64)], 1, 2, axis=1)
    queries = b.node("Gather", [rows, b.reshape(indices, [4])], axis=1)
    return str(b.node("MatMul", [queries, b.constant(b.random.normal(0, 1, (8, 64)))]))


REFUSED: dict[str, tuple[Callable[[Builder, str], str], str]] = {
    "attention": (
        lambda b, x: b.conv(b.node("Einsum", [x, x], 8, equation="nchw,nkhw->nchw"), 4),
        r"node '/Einsum_2' \(Einsum\): has no form in a cfg; name tensors before it with --heads",
    ),
    "attention by products": (
        lambda b, x: b.conv(
            b.reshape(b.node("MatMul", [b.reshape(x, [1, 4, 2, 64]), b.reshape(x, [1, 4, 64, 2])], 8), [1, 4, 2, 2]), 80
        ),
        r"node '/Reshape_\d' \(Reshape\): .*; it is part of attention of a kind that has no form in a cfg: a product of two "
        r"computed tensors follows \(/MatMul_4\)",
    ),
    "sampled features": (
        lambda b, x: b.conv(b.node("GridSample", [x, b.constant(np.zeros((1, 2, 2, 2)))], 8), 80),
        r"node '/GridSample_2' \(GridSample\): .*; it is part of a transformer that samples its features \(RT-DETR, D-FINE\)",
    ),
    "computed queries": (
        lambda b, x: _choose_queries(b, b.conv(x, 8)),
        r"it is part of a transformer that samples its features \(RT-DETR, D-FINE\), .* import what is before it, without "
        r"boxes, with --heads t\d_0$",
    ),
    "cubic": (
        lambda b, x: b.conv(b.node("Resize", [x, "", b.constant([1, 1, 2, 2])], mode="cubic"), 4),
        r"node '/Resize_2' \(Resize\): mode cubic to 16x16 has no form in a cfg; nearest by a whole factor has",
    ),
    "per pixel constant": (
        lambda b, x: b.conv(b.node("Mul", [x, b.constant(np.ones((8, 8, 8)))]), 80),
        r"node '/Mul_2' \(Mul\): its constant differs by pixel; one value per channel is possible",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_has_no_form_is_refused_by_name(name: str, importing: Importing) -> None:
    add_layers, message = REFUSED[name]
    with pytest.raises(FormatError, match=message):
        importing(build_small_model(add_layers=add_layers))


def test_heads_that_the_user_names_leave_as_they_are(importing: Importing) -> None:
    _, imported = importing(yolov8n(64, classes=3, w=8))
    names = tuple(head for head in imported.heads[:2])
    path, imported = importing(yolov8n(64, classes=3, w=8), heads=names)
    assert [yolo.decoder for yolo in imported.network.yolos] == ["none", "none"]  # type: ignore[attr-defined]
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


def test_heads_of_keypoints_are_not_joined_to_those_of_boxes(importing: Importing) -> None:
    _, imported = importing(yolov8n(64, classes=3, w=8))
    [head] = imported.heads[0]
    for heads, message in (
        (((head, head, head),), "yolov8 takes the tensors of boxes and of classes, not 3"),
        (((head, head),), "the tensor of boxes comes first"),
    ):
        with pytest.raises(ConfigError, match=message):
            importing(yolov8n(64, classes=3, w=8), heads=heads, decoder="yolov8")


def test_images_enter_as_the_network_takes_them(importing: Importing) -> None:
    from mpnet.importing.file_metadata import PixelOptions

    model = build_small_model(add_layers=lambda b, x: b.conv(x, 4))
    _, plain = importing(model)
    mean, std = np.array([120.0, 110, 100]), np.array([50.0, 60, 70])
    _, shifted = importing(model, pixels=PixelOptions(tuple(mean), tuple(std), True))
    x = np.random.default_rng(2).random((1, 16, 16, 3), np.float32)
    # The shift comes before the zeros of the first padding, so only what lies inside is equal to the shifted image's.
    normalized = ((x[..., ::-1] * 255 - mean) / std).astype(np.float32)
    [head], [reference] = heads_of(shifted, x), heads_of(plain, normalized)
    np.testing.assert_allclose(head, reference, rtol=2e-5, atol=2e-5)
