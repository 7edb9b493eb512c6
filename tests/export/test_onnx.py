# SPDX-License-Identifier: MIT
"""ONNX files: what stands in them, that equal configurations give equal bytes, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import LayerQuantization, resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.export import Configuration, export
from mpnet.export.naming import layer_of
from mpnet.export.onnx.rules import FLAVOURS
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import ActivationOptions, NarrowOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.networks import NAMES

onnx = pytest.importorskip("onnx")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

DOCUMENT = {
    "name": "tiny",
    "protocol": {"resize": "stretch", "confidence": 0.1, "nms": 0.4, "nms_kind": "default"},
    "digests": {"cfg": "ab"},
    "metrics": {"AP": 44.5},
}


def _model(configuration: Configuration, flavour: str = "", **options: Any) -> Any:
    model = onnx.load_model_from_string(export("onnx", configuration, flavour, options).content)
    onnx.checker.check_model(model, full_check=True)
    return model


def _properties(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("code", "ranges"), [("f", "dynamic"), ("q", "dynamic"), ("q", "calibrated")])
def test_a_file_with_boxes_says_that_opencv_does_not_run_it(
    prepared_tiny: Configuration, flavour: str, code: str, ranges: str
) -> None:
    runs = code == "f" or (flavour, ranges) == ("onnxruntime-fast", "calibrated")
    network = prepared_tiny.network
    quantization = QuantizationOptions(ActivationOptions(ranges=ranges))
    options = resolve_options(network, quantization, ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)))
    configuration = Configuration.from_prepared(prepared_tiny.prepared, assign_key(network, code * 13), options, names=NAMES)
    exported = export("onnx", configuration, flavour, {"with_boxes": True})
    assert (exported.notes == ()) is runs
    assert export("onnx", configuration, flavour).notes == ()
    cv2 = pytest.importorskip("cv2")
    if not cv2.__version__.startswith("5.0."):
        pytest.skip("the notes speak of OpenCV 5.0")
    try:
        net = cv2.dnn.readNetFromONNX(np.frombuffer(exported.content, np.uint8))
        net.setInput(np.random.default_rng(0).random((1, 3, *network.in_shape[:2]), np.float32))
        has_run = len(net.forward(net.getUnconnectedOutLayersNames())) == len(network.yolos) + 3
    except cv2.error:
        has_run = False
    assert has_run is runs


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("key", ["f" * 13, "h" * 13, "q" * 13, "fhqwqqhfqhqfq"])
def test_equal_configurations_give_equal_files_that_the_checker_accepts(
    prepared_tiny: Configuration, key: str, flavour: str
) -> None:
    first, second = (
        replace(prepared_tiny, precisions=assign_key(prepared_tiny.network, key), document=document)
        for document in (DOCUMENT, dict(reversed(DOCUMENT.items())))
    )
    model = _model(first, flavour)
    assert export("onnx", first, flavour).content == export("onnx", second, flavour).content
    convolutions = {node.name[:9] for node in model.graph.node if node.op_type in ("Conv", "ConvInteger")}
    assert convolutions == {f"layer_{layer.index:03d}" for layer in first.network.convolutions}


def test_what_images_and_boxes_need_travels_along(prepared_tiny: Configuration) -> None:
    properties = _properties(_model(replace(prepared_tiny, document=DOCUMENT), with_boxes=True))
    assert json.loads(properties["names"]) == list(NAMES)
    assert json.loads(properties["input"])["resize"] == "stretch"
    assert json.loads(properties["thresholds"]) == {"confidence": 0.1, "nms": 0.4, "nms_kind": "default"}
    assert properties["precision"] == "q" * 13
    origin = json.loads(properties["origin"])
    assert (origin["name"], origin["digests"], origin["metrics"]) == ("tiny", {"cfg": "ab"}, {"AP": 44.5})
    heads = json.loads(properties["heads"])
    assert [head["anchors"][0] for head in heads] == [[20, 18], [8, 8]]


def test_nodes_say_their_layer_and_its_precision(prepared_tiny: Configuration) -> None:
    graph = _model(prepared_tiny).graph
    texts = {node.name: node.doc_string for node in graph.node}
    layers = zip(prepared_tiny.network.layers, prepared_tiny.plan.precision.precisions, strict=True)
    expected_texts = {layer.index: f"layer {layer.index}, {layer.name}: {precision}" for layer, precision in layers}
    assert {layer_of(name) for name in texts} - {None} <= set(expected_texts)
    assert all(text == expected_texts.get(layer_of(name), "") for name, text in texts.items())
    assert sum(bool(text) for text in texts.values()) > len(prepared_tiny.network.convolutions)


def test_heads_have_their_layers_names_and_shapes(prepared_tiny: Configuration) -> None:
    model = _model(prepared_tiny, with_boxes=True)
    shapes = {
        output.name: [axis.dim_value or axis.dim_param for axis in output.type.tensor_type.shape.dim]
        for output in model.graph.output
    }
    assert shapes == {
        "layer_015_head_016": [1, 24, 2, 2],
        "layer_022_head_023": [1, 24, 4, 4],
        "boxes": ["detections", 4],
        "scores": ["detections"],
        "classes": ["detections"],
    }


@pytest.mark.parametrize(("key", "kind"), [("f" * 13, np.float32), ("h" * 13, np.float16), ("q" * 13, np.int8)])
def test_weights_are_stored_in_their_precision(prepared_tiny: Configuration, key: str, kind: type) -> None:
    configuration = replace(prepared_tiny, precisions=assign_key(prepared_tiny.network, key))
    initializers = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in _model(configuration).graph.initializer
        if tensor.name.endswith("_weights")
    }
    assert len(initializers) == 13
    for layer in configuration.network.convolutions:
        weights = initializers[f"layer_{layer.index:03d}_weights"]
        assert (weights.dtype, weights.shape) == (kind, layer.weight_shape)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("code", "weights"), [("i", onnx.TensorProto.INT8), ("l", onnx.TensorProto.INT4)])
def test_codes_of_16_bits_ask_for_opset_21(prepared_tiny: Configuration, flavour: str, code: str, weights: int) -> None:
    network = prepared_tiny.network
    options = resolve_options(
        network,
        QuantizationOptions(
            ActivationOptions(ranges="calibrated"), narrow=NarrowOptions("per_channel", "mse", "nearest", False)
        ),
        ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)),
    )
    model = onnx.load_from_string(
        export(
            "onnx", Configuration.from_prepared(prepared_tiny.prepared, assign_key(network, code * 13), options), flavour
        ).content
    )
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    zeros = [constants[node.input[2]] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert model.opset_import[0].version == 21
    assert {(zero.dtype.name, int(zero)) for zero in zeros} == {("int16", 0)}
    assert {tensor.data_type for tensor in model.graph.initializer if tensor.name.endswith("_weights")} == {weights}


@pytest.mark.parametrize(
    ("key", "quantization", "message"),
    [
        (
            "f" * 12 + "H",
            QuantizationOptions(),
            r"layer 22 \(conv-13/yolo-2\) as fp16_half: .* configuration that can be exported is f{12}h$",
        ),
        ("f" * 12 + "q", QuantizationOptions(ActivationOptions(mode="MIN_COMBINED")), r"layer 22 .*MIN_COMBINED .*use affine"),
        ("q" + "f" * 12, QuantizationOptions(ActivationOptions(rounding="truncate")), r"layer 0 .*truncate.*calibrate"),
        (
            "i" + "f" * 12,
            QuantizationOptions(),
            r"layer 0 .* as int16: int16 ranges cannot be measured in ONNX; set .* calibrated",
        ),
    ],
)
def test_what_onnx_cannot_hold_is_refused_by_layer(
    prepared_tiny: Configuration, key: str, quantization: QuantizationOptions, message: str
) -> None:
    network, prepared = prepared_tiny.network, prepared_tiny.prepared
    configuration = Configuration.from_prepared(prepared, assign_key(network, key), resolve_options(network, quantization))
    with pytest.raises(ConfigError, match=message):
        export("onnx", configuration)


def test_paddings_and_suppressions_that_onnx_lacks_are_refused() -> None:
    cfg = (
        "[net]\nwidth=8\nheight=8\nchannels=3\n[maxpool]\nsize=2\nstride=2\npadding=3\n[convolutional]\nfilters=14\n"
        "activation=linear\n[yolo]\nmask=0,1\nnum=2\nclasses=2\nanchors=2,3, 4,5\nnms_kind=diounms\n"
    )
    network = parse_cfg(cfg, "t.cfg")
    prepared = Prepared(network, random_weights(network), kernels())
    configuration = Configuration.from_prepared(prepared, assign_key(network, "f"), resolve_options(network))
    with pytest.raises(ConfigError, match=r"layer 0 \(maxpool-1\) .* pads 3"):
        export("onnx", configuration)
    plain = parse_cfg(cfg.replace("padding=3", "padding=1"), "t.cfg")
    configuration = Configuration.from_prepared(
        Prepared(plain, random_weights(plain), kernels()), assign_key(plain, "f"), resolve_options(plain)
    )
    assert export("onnx", configuration).content
    with pytest.raises(ConfigError, match="--with-boxes: nms_kind diounms"):
        export("onnx", configuration, options={"with_boxes": True})


def test_support_asks_the_scheme_of_int8_layers_only(prepared_tiny: Configuration) -> None:
    from mpnet.export.onnx.support import support
    from mpnet.model.precision import FP16, INT8
    from mpnet.quantization.scheme import ActivationScheme

    layer = prepared_tiny.network.convolutions[0]
    layer_quantization = LayerQuantization(ActivationScheme("MIN_COMBINED"))
    assert support(layer, FP16, layer_quantization, "") == ""
    assert support(layer, INT8, layer_quantization, "") != ""
