"""What `mpnet export --to onnx` wrote comes back as the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.export import Configuration, export
from mpnet.formats.cfg import parse_cfg
from mpnet.formats.weights import parse_weights
from mpnet.formats.weights_write import weights_content
from mpnet.importing import import_model
from mpnet.kernels.isa import kernels
from mpnet.spec.network import NetworkSpec
from mpnet.spec.weights import Weights, random_weights
from tests.importing.conftest import heads_of
from tests.importing.graphs import MODELS
from tests.networks import NAMES, tiny_cfg

onnx = pytest.importorskip("onnx")


def exported(network: NetworkSpec, weights: Weights, folder: Path) -> Path:
    prepared = Prepared(network, weights, kernels())
    configuration = Configuration.of(prepared, assign(network, "fp32"), resolve_options(network), names=NAMES)
    path = folder / "net.onnx"
    path.write_bytes(export("onnx", configuration, "openvino", {}).content)
    return path


def test_heads_and_digests_are_the_same(tmp_path: Path) -> None:
    network = parse_cfg(tiny_cfg(), "t.cfg")
    first = import_model(exported(network, random_weights(network, 3), tmp_path))
    assert first.names == NAMES
    assert [(yolo.head_anchors, yolo.classes) for yolo in first.network.yolos] == [
        (yolo.head_anchors, yolo.classes) for yolo in network.yolos]
    assert [layer.weight_shape for layer in first.network.convolutions] == [c.weight_shape for c in network.convolutions]
    # Batch norms are folded by the first export; from then on nothing changes any more.
    weights = parse_weights(first.weights, first.network, "w")
    second = import_model(exported(first.network, weights, tmp_path))
    assert second.weights == first.weights == weights_content(weights, first.network)
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    assert [y.tobytes() for y in heads_of(second, x)] == [y.tobytes() for y in heads_of(first, x)]


@pytest.mark.parametrize("target", ["onnx", "tflite"])
@pytest.mark.parametrize("name", ["yolov8n-relu", "yolov5n", "yolox-nano"])
def test_networks_of_other_programs_come_back_with_their_decoders(name: str, target: str, tmp_path: Path) -> None:
    if target == "tflite":
        pytest.importorskip("ai_edge_litert")
        if name == "yolox-nano":
            pytest.skip("the exporter has no form for space to depth in TensorFlow Lite")
    source = tmp_path / "model.onnx"
    onnx.save(MODELS[name](), source)
    first = import_model(source)
    network = first.network
    prepared = Prepared(network, parse_weights(first.weights, network, "w"), kernels())
    configuration = Configuration.of(prepared, assign(network, "fp32"), resolve_options(network), names=first.names)
    again = tmp_path / f"again.{target}"
    again.write_bytes(export(target, configuration, "", {}).content)
    second = import_model(again)
    assert second.weights == first.weights
    assert [(y.decoder, y.anchors, y.classes) for y in second.network.yolos] == [
        (y.decoder, y.anchors, y.classes) for y in network.yolos]
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    assert [y.tobytes() for y in heads_of(second, x)] == [y.tobytes() for y in heads_of(first, x)]
