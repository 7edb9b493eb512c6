# SPDX-License-Identifier: MIT
"""ONNX Runtime and OpenVINO run what mpnet exports, and give what mpnet gives."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.backends import Model, backend
from mpnet.backends.deployment import deploy
from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.images import read_image
from mpnet.detection.nms import suppress
from mpnet.detection.preprocess import preprocess
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import EngineError
from mpnet.export import Configuration, Exported, export
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.environment import int8_sums_saturate
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.model.weights import ConvolutionWeights, Weights, random_weights
from tests.backends.foreign_cases import ODD, WITHOUT_STATISTICS, decided, head_error, one_layer, without_pairs
from tests.conftest import DemoModel

onnx: Any = pytest.importorskip("onnx")
Floats = NDArray[np.float32]
CALIBRATED = ActivationOptions(ranges="calibrated")
COUNT = ODD.count("[convolutional]")


@pytest.fixture(params=["onnxruntime", "openvino"])
def engine(request: pytest.FixtureRequest) -> str:
    """Return a backend whose program is installed."""
    for package in backend(request.param).packages:
        pytest.importorskip(package.partition(">=")[0])
    return str(request.param)


def sums_of(engine: str, weights: Weights) -> Weights:
    """Return the weights, or what of them this engine can add up on this CPU
    (`test_int8_sums_saturate_where_the_engine_says_so`)."""
    return without_pairs(weights) if engine == "openvino" and int8_sums_saturate() else weights


def _open(engine: str, configuration: Configuration) -> tuple[Model, Exported]:
    engine_backend = backend(engine)
    exported = export(engine_backend.target, configuration, engine_backend.flavour)
    return engine_backend.load(exported, 1), exported


@pytest.fixture(scope="module")
def batch() -> Floats:
    return np.random.Generator(np.random.PCG64(2)).random((2, 23, 37, 3), np.float32)


# Engines sum in another order and round elsewhere: 2e-6 in fp32, a half's rounding in fp16; a value within that of the
# border between two codes falls on the other side, and the next layers see a whole step: 2e-2 covers a few of them here.
@pytest.mark.parametrize(
    ("key", "quantization", "bound"),
    [
        ("f" * COUNT, QuantizationOptions(), 2e-6),
        ("w" * COUNT, QuantizationOptions(), 2e-5),
        ("h" * COUNT, QuantizationOptions(), 2e-3),
        ("b" * COUNT, QuantizationOptions(), 1.6e-2),
        ("q" * COUNT, QuantizationOptions(CALIBRATED), 2e-2),
        ("q" * COUNT, QuantizationOptions(), 2e-2),
        ("fhqqfqhqf", QuantizationOptions(CALIBRATED), 2e-2),
        ("i" * COUNT, QuantizationOptions(CALIBRATED), 3e-3),
        ("iqiqifihi", QuantizationOptions(CALIBRATED), 2e-2),
        ("4" * COUNT, QuantizationOptions(CALIBRATED, narrow=WITHOUT_STATISTICS), 2e-2),
        ("4" * COUNT, QuantizationOptions(narrow=WITHOUT_STATISTICS), 2e-2),
        ("4bq4fhb4f", QuantizationOptions(CALIBRATED, narrow=WITHOUT_STATISTICS), 2e-2),
        ("4" * COUNT, QuantizationOptions(CALIBRATED, narrow=replace(WITHOUT_STATISTICS, granularity="per_group")), 2e-2),
        ("l" * COUNT, QuantizationOptions(CALIBRATED, narrow=WITHOUT_STATISTICS), 3e-3),
        ("lqli4ifhl", QuantizationOptions(CALIBRATED, narrow=replace(WITHOUT_STATISTICS, granularity="per_group")), 2e-2),
        ("q" * COUNT, QuantizationOptions(CALIBRATED, WeightOptions(granularity="per_tensor")), 2e-2),
        ("q" * COUNT, QuantizationOptions(ActivationOptions(mode="symmetric", ranges="calibrated")), 2e-2),
        ("q" * COUNT, QuantizationOptions(ActivationOptions(mode="symmetric")), 2e-2),
        ("q" * COUNT, QuantizationOptions(ActivationOptions(mode="power_of_two", ranges="calibrated")), 2e-2),
        ("q" * COUNT, QuantizationOptions(ActivationOptions(rounding="half_away", ranges="calibrated")), 2e-2),
        ("q" * COUNT, QuantizationOptions(ActivationOptions(mode="SCALED", ranges="calibrated")), 2e-2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_layer_at_every_precision_gives_mpnets_heads(
    engine: str, batch: Floats, key: str, quantization: QuantizationOptions, bound: float
) -> None:
    network = parse_cfg(ODD, "t.cfg")
    configuration = decided(
        Prepared(network, sums_of(engine, random_weights(network, seed=1)), kernels()), key, quantization, batch
    )
    model, _ = _open(engine, configuration)
    expected = Session(configuration.prepared, configuration.plan).forward(batch)
    assert head_error(model.forward(batch), expected) <= bound


@pytest.mark.parametrize("layers", ["[convolutional]\nfilters=5\nsize=1\nactivation=leaky\n[avgpool]\n", "[dropout]\n"])
def test_a_network_without_heads_gives_its_last_tensor(engine: str, layers: str) -> None:
    network = parse_cfg(f"[net]\nwidth=9\nheight=7\nchannels=3\n{layers}", "t.cfg")
    batch = np.random.Generator(np.random.PCG64(3)).random((2, 7, 9, 3), np.float32)
    key = "q" * len(network.convolutions)
    weights = sums_of(engine, random_weights(network))
    configuration = decided(Prepared(network, weights, kernels()), key, QuantizationOptions(CALIBRATED), batch)
    expected = Session(configuration.prepared, configuration.plan).forward(batch)
    assert head_error(_open(engine, configuration)[0].forward(batch), expected) <= 2e-6


@pytest.mark.parametrize("saturates", [False, True])
def test_int8_sums_saturate_where_the_engine_says_so(monkeypatch: pytest.MonkeyPatch, saturates: bool) -> None:
    pytest.importorskip("openvino")
    network = parse_cfg(one_layer("[convolutional]\nfilters=1\nsize=1\nactivation=linear\n", 4, 4, 3), "t.cfg")
    weights = replace(
        random_weights(network),
        layers={0: ConvolutionWeights(np.zeros(1, np.float32), np.array([1, 1, 0], np.float32).reshape(1, 3, 1, 1))},
    )
    batch = np.ones((1, 4, 4, 3), np.float32)
    configuration = decided(Prepared(network, weights, kernels()), "q", QuantizationOptions(CALIBRATED), batch)
    deployment = deploy("openvino", configuration)
    # Two products of 255 * 127 in place of 2.0; in 16 bits their sum ends at 32767.
    (head,) = deployment.open(1).forward(batch)
    saturated_share = 1 - 32767 / (2 * 255 * 127) if int8_sums_saturate() else 0.0
    np.testing.assert_allclose(head, 2 * (1 - saturated_share), rtol=1e-5)
    assert any("can overflow on this CPU" in note for note in deployment.notes) == int8_sums_saturate()
    monkeypatch.setattr("mpnet.backends.openvino.int8_sums_saturate", lambda: saturates)
    assert any("can overflow on this CPU" in note for note in deploy("openvino", configuration).notes) == saturates


def test_openvino_converts_an_array_before_threads_can_meet_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    openvino: Any = pytest.importorskip("openvino")
    network = parse_cfg(one_layer("[convolutional]\nfilters=1\nsize=1\nactivation=linear\n", 4, 4, 3), "t.cfg")
    images = np.ones((1, 4, 4, 3), np.float32)
    configuration = decided(Prepared(network, random_weights(network), kernels()), "f", QuantizationOptions(), images)
    converted: list[Any] = []
    tensor, core = openvino.Tensor, openvino.Core
    monkeypatch.setattr(openvino, "Tensor", lambda array: converted.append(array) or tensor(array))
    monkeypatch.setattr(openvino, "Core", lambda: core() if converted else pytest.fail("no array was converted before"))
    _open("openvino", configuration)
    assert isinstance(converted[0], np.ndarray)


@pytest.fixture(scope="module")
def demo(demo_model: DemoModel) -> tuple[NetworkSpec, Weights, Floats]:
    network = read_cfg(demo_model.cfg)
    images = [
        preprocess(read_image(path), network.width, network.height)[0]
        for path in sorted(Path(demo_model.images).glob("*.png"))[:4]
    ]
    return network, read_weights(demo_model.weights, network), np.concatenate(images)


def test_what_layers_run_in_is_read_from_the_engine(engine: str, demo: tuple[NetworkSpec, Weights, Floats]) -> None:
    network, weights, batch = demo
    count = len(network.convolutions)
    key = "f" + "q" * (count - 2) + "h"
    configuration = decided(Prepared(network, weights, kernels()), key, QuantizationOptions(CALIBRATED), batch)
    model, exported = _open(engine, configuration)
    executed = model.executed()
    assert executed is not None
    indices = [layer.index for layer in network.convolutions]
    assert list(exported.layers) == indices == sorted(executed)
    assert executed[indices[0]][0] == executed[indices[-1]][0] == "fp32"
    assert "widened" in executed[indices[-1]][1]
    # ONNX Runtime convolves codes only where it stores codes.
    quantized_layers = [step.layer for step in configuration.plan.steps if step.operation.name == "Quantize"]
    expected = {"openvino": count - 2, "onnxruntime": 1}[engine]
    assert quantized_layers
    assert sum(precision == "int8" for precision, _ in executed.values()) >= expected
    times = model.layer_ms()
    assert times is not None
    assert set(indices) <= set(times)
    assert min(times.values()) >= 0


def test_the_fast_form_runs_all_but_heads_in_codes(demo: tuple[NetworkSpec, Weights, Floats]) -> None:
    pytest.importorskip("onnxruntime")
    network, weights, batch = demo
    prepared = Prepared(network, weights, kernels())
    mixed = "f" + "q" * (len(network.convolutions) - 1)
    heads = {index for layer in network.yolos for index in layer.inputs}
    int8_layers = {layer.index for layer in network.convolutions[1:]} - heads
    configuration = decided(prepared, mixed, QuantizationOptions(CALIBRATED), batch)
    model, _ = _open("onnxruntime-fast", configuration)
    executed = model.executed()
    assert executed is not None
    assert {index for index, (precision, _) in executed.items() if precision == "int8"} == int8_layers
    # Sums are rounded once more, to steps that are larger than the result's where LeakyReLU shrinks what is below 0.
    expected = Session(prepared, configuration.plan).forward(batch)
    assert 0 < head_error(model.forward(batch), expected) <= 0.1
    dynamic = decided(prepared, mixed, QuantizationOptions(), batch)
    fast, plain = (
        onnx.load_from_string(export("onnx", dynamic, flavour).content).graph for flavour in ("onnxruntime-fast", "onnxruntime")
    )
    assert fast.SerializeToString(deterministic=True) == plain.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("key", "bounds"),
    [
        ("f", {"openvino": 2e-6, "onnxruntime": 2e-6}),
        ("h", {"openvino": 2e-3, "onnxruntime": 2e-3}),
        ("q", {"openvino": 1e-2, "onnxruntime": 3.5e-2}),
    ],
)
def test_the_demos_heads_survive(
    engine: str, demo: tuple[NetworkSpec, Weights, Floats], key: str, bounds: dict[str, float]
) -> None:
    network, weights, batch = demo
    weights = sums_of(engine, weights)
    configuration = decided(Prepared(network, weights, kernels()), key, QuantizationOptions(CALIBRATED), batch)
    expected = Session(configuration.prepared, configuration.plan).forward(batch)
    assert head_error(_open(engine, configuration)[0].forward(batch), expected) <= bounds[engine]


def test_boxes_in_the_graph_are_mpnets_detections(demo: tuple[NetworkSpec, Weights, Floats]) -> None:
    runtime: Any = pytest.importorskip("onnxruntime")
    network, weights, batch = demo
    configuration = decided(
        Prepared(network, weights, kernels()),
        "f",
        QuantizationOptions(),
        batch,
        document={"protocol": {"confidence": 0.05, "nms": 0.45, "nms_kind": "default"}},
    )
    content = export("onnx", configuration, "onnxruntime", {"with_boxes": True}).content
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    heads = Session(configuration.prepared, configuration.plan).forward(batch)
    square = np.array([[0, 0, 1, 1]], np.float32)
    total = 0
    for index, image in enumerate(batch):
        candidates = [
            decode_head(head[index : index + 1], yolo, square, 0.05)
            for yolo, head in zip(yolo_heads(network), heads, strict=True)
        ]
        detections = suppress(candidates, np.ones((1, 2), np.float32))
        boxes, scores, classes = session.run(
            ["boxes", "scores", "classes"], {"picture": np.ascontiguousarray(image.transpose(2, 0, 1)[None])}
        )
        assert classes.tolist() == detections.category.tolist()
        np.testing.assert_allclose(scores, detections.score, rtol=2e-5, atol=2e-6)
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], axis=1)
        np.testing.assert_allclose(corners, detections.box, rtol=2e-4, atol=2e-6)
        total += len(classes)
    assert total > 0


def test_a_file_that_the_engine_refuses_is_one_line(engine: str) -> None:
    with pytest.raises(EngineError, match=r"refuses the file") as excinfo:
        backend(engine).load(Exported({".onnx": b"no such thing"}), 1)
    assert "\n" not in str(excinfo.value)


def test_backends_import_nothing_before_a_model_is_opened() -> None:
    import subprocess
    import sys

    code = (
        "import sys, mpnet.backends as b, mpnet.export as e; b.backends(); e.targets(); "
        "print([n for n in ('onnx', 'onnxruntime', 'openvino') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    assert importlib.import_module("mpnet.backends.onnxruntime").BACKEND.target == "onnx"
