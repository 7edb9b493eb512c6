# SPDX-License-Identifier: MIT
"""benchmarks/recipes.py: which layers it finds quantised in a file. What other programs give is for the benchmark to say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mpnet.formats.cfg.read import parse_cfg

onnx = pytest.importorskip("onnx")

OWN_NETWORK = parse_cfg(
    "[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\nfilters=3\nsize=1\nstride=1\n[connected]\noutput=4\n", "net.cfg"
)
FOREIGN_NETWORK = parse_cfg(
    "[net]\nwidth=8\nheight=8\nchannels=3\n"
    "[convolutional]\nfilters=3\nsize=1\nstride=1\nsource=/model.0/conv/Conv\n[connected]\noutput=4\nsource=/fc/Gemm\n",
    "net.cfg",
)


@pytest.fixture
def benchmark(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("recipes")


def quantised(path: Path, convolution: str, dense: str, *, coded: tuple[bool, bool], is_input_quantized: bool = True) -> Path:
    """Write a convolution and a Gemm, those of `coded` with weights behind a DequantizeLinear.

    is_input_quantized: whether what both read is.
    """
    make = onnx.helper.make_node
    constants = {
        "w0": np.ones((3, 3, 1, 1), np.int8 if coded[0] else np.float32),
        "w1": np.ones((192, 4), np.int8 if coded[1] else np.float32),
        "scale": np.float32(1),
        "zero": np.int8(0),
    }
    nodes = [
        make("QuantizeLinear", ["images", "scale", "zero"], ["codes"]),
        make("DequantizeLinear", ["codes", "scale", "zero"], ["image"]),
        *(make("DequantizeLinear", [f"w{i}", "scale", "zero"], [f"f{i}"]) for i in (0, 1) if coded[i]),
        make("Conv", ["image" if is_input_quantized else "images", "f0" if coded[0] else "w0"], ["y"], convolution),
        make("QuantizeLinear", ["y", "scale", "zero"], ["y codes"]),
        make("DequantizeLinear", ["y codes", "scale", "zero"], ["dequantised"]),
        make("Flatten", ["dequantised" if is_input_quantized else "y"], ["row"]),
        make("Gemm", ["row", "f1" if coded[1] else "w1"], ["out"], dense),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value("images", 1, (1, 3, 8, 8))],
        [value("out", 1, (1, 4))],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(onnx.helper.make_model(graph), path)
    return path


@pytest.mark.parametrize("coded", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("network", "names"),
    [(OWN_NETWORK, ("layer_000_conv", "layer_001_conv")), (FOREIGN_NETWORK, ("/model.0/conv/Conv", "/fc/Gemm"))],
)
def test_layers_are_found_by_the_names_of_the_recipe(
    benchmark: ModuleType, network: object, names: tuple[str, str], coded: tuple[bool, bool], tmp_path: Path
) -> None:
    path = quantised(tmp_path / "q.onnx", *names, coded=coded)
    assert benchmark.find_quantized_layers(path, network) == [index for index in (0, 1) if coded[index]]


def test_codes_for_weights_alone_do_not_make_a_layer_quantised(benchmark: ModuleType, tmp_path: Path) -> None:
    path = quantised(tmp_path / "q.onnx", "layer_000_conv", "layer_001_conv", coded=(True, True), is_input_quantized=False)
    assert benchmark.find_quantized_layers(path, OWN_NETWORK) == []


def test_a_node_of_no_layer_is_an_error(benchmark: ModuleType, tmp_path: Path) -> None:
    path = quantised(tmp_path / "q.onnx", "/dfl/conv/Conv", "/fc/Gemm", coded=(True, True))
    with pytest.raises(ValueError, match="'/dfl/conv/Conv' has weights in codes and is no layer"):
        benchmark.find_quantized_layers(path, FOREIGN_NETWORK)


@pytest.mark.parametrize(
    "encodings",
    [
        {"param_encodings": {"w1": []}, "activation_encodings": {"y": []}},
        {"param_encodings": [{"name": "w1"}], "activation_encodings": [{"name": "y"}]},
    ],
)
def test_encodings_beside_a_file_in_floating_point(benchmark: ModuleType, tmp_path: Path, encodings: object) -> None:
    path = quantised(tmp_path / "q.onnx", "/model.0/conv/Conv", "/fc/Gemm", coded=(False, False), is_input_quantized=False)
    path.with_suffix(".encodings").write_text(json.dumps(encodings))
    assert benchmark.find_quantized_layers(path, FOREIGN_NETWORK) == [1]
