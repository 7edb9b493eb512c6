# SPDX-License-Identifier: MIT
"""What `mpnet export --to onnx` wrote comes back as the same network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights, weights_content
from mpnet.importing import Choices, Imported, import_model
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights, random_weights
from tests.engine.family import family_cfg
from tests.importing.conftest import heads_of
from tests.importing.graphs import LARGE_MODELS, MODELS
from tests.networks import NAMES, tiny_cfg

onnx = pytest.importorskip("onnx")


def exported(network: NetworkSpec, weights: Weights, folder: Path) -> Path:
    prepared = Prepared(network, weights, kernels())
    configuration = Configuration.from_prepared(prepared, assign(network, "fp32"), resolve_options(network), names=NAMES)
    path = folder / "net.onnx"
    path.write_bytes(export("onnx", configuration, "openvino", {}).content)
    return path


def test_heads_and_digests_are_the_same(tmp_path: Path) -> None:
    network = parse_cfg(tiny_cfg(), "t.cfg")
    first = import_model(exported(network, random_weights(network, 3), tmp_path))
    assert first.names == NAMES
    assert [(yolo.head_anchors, yolo.classes) for yolo in first.network.yolos] == [
        (yolo.head_anchors, yolo.classes) for yolo in network.yolos
    ]
    assert [layer.weight_shape for layer in first.network.convolutions] == [c.weight_shape for c in network.convolutions]
    # Batch norms are folded by the first export; from then on nothing changes any more.
    weights = parse_weights(first.weights, first.network, "w")
    second = import_model(exported(first.network, weights, tmp_path))
    assert second.weights == first.weights == weights_content(weights, first.network)
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    assert [y.tobytes() for y in heads_of(second, x)] == [y.tobytes() for y in heads_of(first, x)]


@pytest.mark.parametrize("target", ["onnx", "tflite"])
def test_channel_shuffles_come_back(target: str, tmp_path: Path) -> None:
    network = parse_cfg(family_cfg("shuffle"), "t.cfg")
    weights = random_weights(network, 3)
    prepared = Prepared(network, weights, kernels())
    configuration = Configuration.from_prepared(prepared, assign(network, "fp32"), resolve_options(network))
    path = tmp_path / f"net.{target}"
    path.write_bytes(export(target, configuration, "", {}).content)
    imported = import_model(path)
    assert [(layer.kind, getattr(layer, "groups", 0)) for layer in imported.network.layers[:-1]] == [
        (layer.kind, getattr(layer, "groups", 0)) for layer in network.layers
    ]
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    # The first convolution's batch norm is folded.
    [head], [exported_head] = heads_of(imported, x), Session(prepared, configuration.plan).forward(x)
    np.testing.assert_allclose(head, exported_head, rtol=1e-5, atol=1e-6)


def export_and_import(name: str, target: str, folder: Path) -> tuple[Path, Imported, Imported]:
    """Import a network of another program, export it again, and import the file."""
    source = folder / "model.onnx"
    onnx.save(MODELS[name](), source)
    first = import_model(source)
    prepared = Prepared(first.network, parse_weights(first.weights, first.network, "w"), kernels())
    configuration = Configuration.from_prepared(
        prepared, assign(first.network, "fp32"), resolve_options(first.network), names=first.names
    )
    path = folder / f"again.{target}"
    path.write_bytes(export(target, configuration, "", {}).content)
    return path, first, import_model(path)


def decoders(model: Any) -> list[tuple[Any, ...]]:
    """Return what boxes of each head are made by."""
    return [(yolo.decoder, yolo.anchors, yolo.classes) for yolo in model.network.yolos]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n-relu", "yolov5n", "yolox-nano", "mobilenetv2-ssdlite"])
def test_networks_of_other_programs_come_back_with_their_decoders(name: str, tmp_path: Path) -> None:
    _, first, second = export_and_import(name, "onnx", tmp_path)
    assert second.weights == first.weights
    assert decoders(second) == decoders(first)
    x = np.random.default_rng(4).random((1, *first.network.in_shape), np.float32)
    assert [y.tobytes() for y in heads_of(second, x)] == [y.tobytes() for y in heads_of(first, x)]


def test_classes_behind_a_softmax_come_back(tmp_path: Path) -> None:
    _, first, second = export_and_import("efficientnet-lite0", "onnx", tmp_path)
    assert [layer.kind for layer in second.network.layers][-1] == "softmax"
    assert second.weights == first.weights


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LARGE_MODELS else ()) for name in MODELS if name != "yolox-nano-raw"],
)
def test_through_tensorflow_lite_too_and_litert_gives_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from tests.importing.test_tflite import litert

    path, first, second = export_and_import(name, "tflite", tmp_path)
    assert second.weights == first.weights
    assert decoders(second) == decoders(first)
    x = np.random.default_rng(4).random((1, *first.network.in_shape), np.float32)
    for head, exported_head, reference in zip(heads_of(second, x), heads_of(first, x), litert(path, x), strict=True):
        assert head.tobytes() == exported_head.tobytes()
        assert np.abs(head - reference.reshape(head.shape)).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.parametrize("flavour", ["openvino", "onnxruntime", "onnxruntime-fast"])
@pytest.mark.parametrize("ranges", ["dynamic", "calibrated"])
@pytest.mark.parametrize("mode", ["affine", "symmetric"])
def test_a_mixture_keeps_its_precisions_ranges_and_integers(flavour: str, ranges: str, mode: str, tmp_path: Path) -> None:
    """Whatever form the exporter gives integers: pairs, ConvInteger, scales computed by nodes, two convolutions and the larger
    of both; and with boxes decoded behind them."""
    network = parse_cfg(tiny_cfg(), "t.cfg")
    weights = random_weights(network, 3)
    prepared = Prepared(network, weights, kernels())
    precisions = assign(network, "int8", {"first, heads": "fp32"})
    quantization = QuantizationOptions(ActivationOptions(mode=mode, ranges=ranges))
    options = resolve_options(network, quantization, ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)))
    path = tmp_path / "mixed.onnx"
    configuration = Configuration.from_prepared(prepared, precisions, options, names=NAMES)
    path.write_bytes(export("onnx", configuration, flavour, {"with_boxes": True}).content)
    imported = import_model(path, Choices(rounded=False))
    assert imported.names == NAMES
    assert len(imported.network.yolos) == len(network.yolos)
    declared_precisions = [layer.declared.precision for layer in imported.network.convolutions if layer.declared is not None]
    int8_layers = [precision for precision in declared_precisions if str(precision) == "int8"]
    assert len(int8_layers) == sum(precisions[layer.index].name == "int8" for layer in network.convolutions)
    assert imported.cfg.count(f"int8=1\nquantize_activations={ranges}") == len(int8_layers)
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    expected = Session(prepared, build_plan(network, precisions, options)).forward(x)
    for head, reference in zip(heads_of(imported, x), expected, strict=True):
        # Scales of ranges are computed in another order; a batch norm in the weights moves a value between two codes.
        assert np.abs(head - reference).max() <= 1e-3 * np.abs(reference).max()
