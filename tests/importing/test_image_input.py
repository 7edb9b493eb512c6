# SPDX-License-Identifier: MIT
"""What a graph does to its image before the first convolution tells which values it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mpnet.importing import Imported
from mpnet.importing.file_metadata import PixelOptions
from tests.importing.conftest import heads_of
from tests.importing.graphs import Builder

Importing = Callable[..., tuple[Path, Imported]]
SIDE = 16
MEAN, STD = np.array([123.7, 116.3, 103.5], np.float32), np.array([58.4, 57.1, 57.4], np.float32)
TYPES = {"float": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


def build_model_behind(add_nodes: Callable[[Builder], str], kind: str, is_channels_last: bool) -> onnx.ModelProto:
    """Return a convolution behind nodes on an image of a type."""
    b = Builder(SIDE)
    x = b.conv(add_nodes(b), 8, 3, 2, act="Relu")
    shape = [1, SIDE, SIDE, 3] if is_channels_last else [1, 3, SIDE, SIDE]
    image = helper.make_tensor_value_info("images", TYPES[kind], shape)
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, None)
    graph = helper.make_graph(b.nodes, "net", [image], [result], b.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _reals(b: Builder) -> str:
    return str(b.node("Cast", ["images"], 3, to=TensorProto.FLOAT))


def _first_channels(b: Builder, x: str) -> str:
    return str(b.node("Transpose", [x], 3, perm=[0, 3, 1, 2]))


def _per_channel(b: Builder, values: Any) -> str:
    return b.constant(np.asarray(values).reshape(1, 3, 1, 1))


BYTES: dict[str, tuple[Callable[[Builder], str], str, bool]] = {
    "uint8": (_reals, "uint8", False),
    "uint8 / 255": (lambda b: b.node("Div", [_reals(b), b.constant(255.0)]), "uint8", False),
    "uint8, channels last": (lambda b: b.node("Cast", [_first_channels(b, "images")], 3, to=TensorProto.FLOAT), "uint8", True),
    "uint8 / 255, channels last": (lambda b: _first_channels(b, b.node("Div", [_reals(b), b.constant(255.0)])), "uint8", True),
    "int8": (_reals, "int8", False),
    "/ 255": (lambda b: b.node("Div", ["images", b.constant(255.0)], 3), "float", False),
    "x 1/255": (lambda b: b.node("Mul", ["images", b.constant(1 / 255)], 3), "float", False),
    "(x - 127) / 128": (
        lambda b: b.node("Div", [b.node("Sub", ["images", b.constant(127.0)], 3), b.constant(128.0)]),
        "float",
        False,
    ),
    "mean and deviation": (
        lambda b: b.node("Div", [b.node("Sub", ["images", _per_channel(b, MEAN)], 3), _per_channel(b, STD)]),
        "float",
        False,
    ),
    "mean of channels last": (lambda b: _first_channels(b, b.node("Sub", ["images", b.constant(MEAN)], 3)), "float", True),
    "batch norm": (
        lambda b: b.node("BatchNormalization", ["images", *map(b.constant, ([1.0] * 3, [0.0] * 3, MEAN, STD**2))], 3),
        "float",
        False,
    ),
}
SHARES: dict[str, Callable[[Builder], str]] = {
    "nothing": lambda b: "images",
    "(x - 0.45) / 0.225": lambda b: b.node("Div", [b.node("Sub", ["images", b.constant(0.45)], 3), b.constant(0.225)]),
    "2 x - 1": lambda b: b.node("Sub", [b.node("Mul", ["images", b.constant(2.0)], 3), b.constant(1.0)]),
}


def compute_reference(model: onnx.ModelProto, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [result] = session.run(None, {"images": np.ascontiguousarray(values)})
    return np.asarray(result).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("name", list(BYTES))
def test_graphs_that_take_bytes_get_them(name: str, importing: Importing) -> None:
    add_nodes, kind, is_channels_last = BYTES[name]
    model = build_model_behind(add_nodes, kind, is_channels_last)
    _, imported = importing(model)
    pixels = np.random.default_rng(3).integers(0, 256, (1, SIDE, SIDE, 3))
    values = pixels if is_channels_last else pixels.transpose(0, 3, 1, 2)
    stored = {"float": values.astype(np.float32), "uint8": values.astype(np.uint8), "int8": (values - 128).astype(np.int8)}
    reference = compute_reference(model, stored[kind])
    [head] = heads_of(imported, (pixels / np.float32(255)).astype(np.float32))
    # Inside: a shift before padding is no shift of the zeros around the image.
    inside = slice(1, None)
    assert np.abs(head - reference)[:, inside, inside].max() <= 4e-6 * np.abs(reference).max()
    assert any(note.startswith(f"images: {'-128 to 127' if kind == 'int8' else '0 to 255'}, RGB") for note in imported.notes)


@pytest.mark.parametrize("name", list(SHARES))
def test_graphs_that_take_shares_get_them(name: str, importing: Importing) -> None:
    model = build_model_behind(SHARES[name], "float", False)
    _, imported = importing(model)
    x = np.random.default_rng(3).random((1, SIDE, SIDE, 3), np.float32)
    reference = compute_reference(model, x.transpose(0, 3, 1, 2))
    assert np.abs(heads_of(imported, x)[0] - reference).max() <= 4e-6 * np.abs(reference).max()
    assert any(note.startswith("images: 0 to 1, RGB, stretch: assumed") for note in imported.notes)


def test_what_is_asked_for_leaves_the_rest_to_the_file(importing: Importing) -> None:
    """--bgr and --resize alone keep the mean and the deviation that the file shows."""
    model = build_model_behind(*BYTES["/ 255"])
    x = np.random.default_rng(3).random((1, SIDE, SIDE, 3), np.float32)
    _, plain = importing(model)
    _, turned = importing(model, pixels=PixelOptions(bgr=True))
    _, resized = importing(model, pixels=PixelOptions(resize="letterbox"))
    _, shares = importing(model, pixels=PixelOptions((0.0,), (255.0,)))
    assert (turned.pixels.std, resized.pixels.std, shares.pixels.std) == ((1.0,), (1.0,), (255.0,))
    assert resized.pixels.resize == "letterbox"
    [head] = heads_of(turned, x[..., ::-1])
    np.testing.assert_allclose(head, heads_of(plain, x)[0], rtol=1e-5, atol=1e-6)
