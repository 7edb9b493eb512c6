# SPDX-License-Identifier: MIT
"""TensorFlow Lite files: what stands in them for each flavour, what they say of themselves, what is refused."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest

from mpnet.errors import ConfigError
from mpnet.export import Configuration, export
from mpnet.model.quantization import ActivationOptions
from tests.backends.foreign_cases import CALIBRATED, DYNAMIC, ODD, configured, one_layer
from tests.networks import tiny_cfg

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
pytest.importorskip("flatbuffers")
CONVOLUTION = "[convolutional]\nfilters=6\nsize=3\npad=1\nactivation=leaky\n"


def _model(content: bytes) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))


def _operators(content: bytes) -> list[tuple[str, list[str], bool]]:
    """Return (name, types of inputs, whether the first input is a constant) of every operator."""
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    types = {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}
    model = _model(content)
    tensors = model.subgraphs[0].tensors
    return [
        (
            names[model.operatorCodes[operator.opcodeIndex].builtinCode],
            [types[tensors[i].type] for i in operator.inputs],
            model.buffers[tensors[operator.inputs[0]].buffer].data is not None,
        )
        for operator in model.subgraphs[0].operators
    ]


def _export_bytes(configuration: Configuration, flavour: str = "litert") -> bytes:
    return export("tflite", configuration, flavour).content


def _mixed(activations: Any) -> Configuration:
    return configured(tiny_cfg(), "fqhqqqhqfqqfq", activations)


@pytest.mark.parametrize("key", ["f", "h", "q", "fqhqqqhqfqqfq"])
def test_armnn_gets_no_hybrid_operator_and_no_dequantized_weights(key: str) -> None:
    for name, inputs, constant in _operators(_export_bytes(configured(tiny_cfg(), key, CALIBRATED), "armnn")):
        if name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            assert inputs in (["FLOAT32", "FLOAT32", "FLOAT32"], ["INT8", "INT8", "INT32"])
        assert not (name == "DEQUANTIZE" and constant)
        assert "FLOAT16" not in inputs


def test_litert_gets_hybrid_convolutions_for_dynamic_ranges_and_halves_as_they_are() -> None:
    operators = _operators(_export_bytes(_mixed(DYNAMIC)))
    convolutions = [inputs[:2] for name, inputs, _ in operators if name == "CONV_2D"]
    assert convolutions.count(["FLOAT32", "INT8"]) == "fqhqqqhqfqqfq".count("q")
    assert sum(name == "DEQUANTIZE" and constant for name, _, constant in operators) == 2
    assert not any(name == "QUANTIZE" for name, _, _ in operators)


def test_armnn_stays_in_int8_between_int8_layers() -> None:
    operators = _operators(_export_bytes(configured(tiny_cfg(), "q", CALIBRATED), "armnn"))
    convolutions = [inputs[0] for name, inputs, _ in operators if name == "CONV_2D"]
    # But for the heads, whose ranges nobody has calibrated.
    assert convolutions.count("INT8") == 11
    assert convolutions.count("FLOAT32") == 2
    assert [name for name, _, _ in operators].count("QUANTIZE") <= 3


@pytest.mark.parametrize("flavour", ["litert", "integer"])
def test_int16_convolutions_have_int16_in_and_out_and_biases_of_64_bits(flavour: str) -> None:
    operators = _operators(_export_bytes(configured(tiny_cfg(), "i", CALIBRATED), flavour))
    assert {tuple(inputs) for name, inputs, _ in operators if name == "CONV_2D"} == {("INT16", "INT8", "INT64")}
    assert {inputs[0] for name, inputs, _ in operators if name in ("LEAKY_RELU", "MAX_POOL_2D", "CONCATENATION")} == {"INT16"}
    assert [name for name, _, _ in operators].count("QUANTIZE") == 1


def test_codes_of_16_bits_lie_around_zero() -> None:
    model = _model(_export_bytes(configured(tiny_cfg(), "i", CALIBRATED)))
    wide = [t.quantization for t in model.subgraphs[0].tensors if t.type == schema.TensorType.INT16]
    assert wide
    assert all(len(meaning.scale) == 1 and list(meaning.zeroPoint) == [0] for meaning in wide)


def test_full_integers_pass_between_8_and_16_bits_without_reals() -> None:
    text = one_layer(CONVOLUTION + CONVOLUTION + CONVOLUTION + "[convolutional]\nfilters=6\nsize=1\nactivation=linear\n")
    operators = _operators(_export_bytes(configured(text, "qiqi", CALIBRATED), "integer"))
    assert [name for name, _, _ in operators].count("DEQUANTIZE") == 1
    assert [inputs[0] for name, inputs, _ in operators if name == "QUANTIZE"] == ["FLOAT32", "INT8", "INT16", "INT8"]


def test_it_says_where_ranges_are_others_than_the_calibrated() -> None:
    layers = export("tflite", configured(tiny_cfg(), "q", CALIBRATED)).layers
    assert {reason for _, _, reason in layers.values()} == {"hybrid: ranges are the image's own, not the calibrated ones"}


@pytest.mark.parametrize("flavour", ["litert", "armnn"])
def test_the_same_configuration_gives_the_same_bytes(flavour: str) -> None:
    assert _export_bytes(_mixed(CALIBRATED), flavour) == _export_bytes(_mixed(CALIBRATED), flavour)


def test_buffers_lie_where_readers_can_map_them() -> None:
    content = _export_bytes(configured(tiny_cfg(), "f"))
    weights = next(data for buffer in _model(content).buffers if (data := buffer.data) is not None and len(data) > 1000)
    assert content.index(np.asarray(weights, np.uint8).tobytes()) % 16 == 0


def test_labels_and_origin_travel_in_the_file() -> None:
    document = {"name": "street", "digests": {"cfg": "ab"}, "protocol": {"resize": "letterbox", "nms": 0.45}}
    content = _export_bytes(configured(tiny_cfg(), "f", names=("disc", "box", "ring"), document=document))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.read("labels.txt") == b"disc\nbox\nring\n"
    model = _model(content)
    blocks = {entry.name.decode(): bytes(model.buffers[entry.buffer].data) for entry in model.metadata}
    assert blocks["TFLITE_METADATA"][4:8] == b"M001"
    description = json.loads(blocks["mpnet"])
    assert description["names"] == ["disc", "box", "ring"]
    assert description["input"]["resize"] == "letterbox"
    assert description["origin"]["digests"] == {"cfg": "ab"}
    outputs = [model.subgraphs[0].tensors[index].name.decode() for index in model.subgraphs[0].outputs]
    assert [head["output"] for head in description["heads"]] == outputs
    assert description["heads"][0]["anchors"]


def test_without_names_there_is_no_archive() -> None:
    assert not zipfile.is_zipfile(io.BytesIO(_export_bytes(configured(tiny_cfg(), "f"))))


@pytest.mark.parametrize(
    ("flavour", "activations", "message"),
    [
        ("armnn", DYNAMIC, "layer 0 .* as int8: ArmNN takes no range that is measured on the image"),
        ("litert", ActivationOptions(mode="symmetric", ranges="dynamic"), "LiteRT measures affine ranges"),
        ("litert", ActivationOptions(mode="MIN_COMBINED", ranges="calibrated"), "do not hit the real 0"),
        ("litert", ActivationOptions(mode="power_of_two", ranges="calibrated"), "never towards zero"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_layer(flavour: str, activations: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^[^\n]*{message}[^\n]*$"):
        _export_bytes(configured(one_layer(CONVOLUTION), "q", activations), flavour)


@pytest.mark.parametrize(
    ("flavour", "activations", "key", "message"),
    [
        (
            "litert",
            DYNAMIC,
            "i",
            "layer 0 .* as int16: LiteRT has no int16 range that is measured on the image; set .* to calibrated",
        ),
        ("integer", DYNAMIC, "i", "LiteRT takes no range that is measured on the image"),
        ("litert", ActivationOptions(mode="power_of_two", ranges="calibrated"), "i", "never towards zero"),
        ("armnn", CALIBRATED, "i", "it has no int16 that mpnet writes"),
        ("litert", CALIBRATED, "l", "as int16w4: it has no weights of 4 bits beside int16 that mpnet writes; .* is i"),
        ("integer", CALIBRATED, "j", "as int16w6: it has no weights of 6 bits beside int16 that mpnet writes; .* is i"),
    ],
)
def test_int16_that_cannot_be_expressed_is_refused_by_layer(flavour: str, activations: Any, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^[^\n]*{message}[^\n]*$"):
        _export_bytes(configured(one_layer(CONVOLUTION), key, activations), flavour)


def test_half_sums_are_refused() -> None:
    with pytest.raises(ConfigError, match="the nearest configuration that can be exported is h"):
        _export_bytes(configured(one_layer(CONVOLUTION), "H"))


def test_a_pooling_that_armnn_cannot_pad_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither SAME nor VALID"):
        _export_bytes(configured(ODD, "f"), "armnn")


def test_it_says_what_became_of_each_layer() -> None:
    layers = export("tflite", _mixed(CALIBRATED), "armnn").layers
    reasons = {precision: reason for _, precision, reason in layers.values()}
    assert set(reasons) == {"fp32", "int8"}
    # No int8 layer reads the heads, so that nobody has calibrated their ranges.
    head = max(layers)
    assert layers[head] == ("int8", "fp32", "no range of its sums is known; it computes on the reals that int8 codes mean")


def test_an_output_that_is_read_twice_leaves_twice() -> None:
    heads = "[yolo]\nmask=0\nnum=1\nclasses=1\nanchors=2,3\n"
    route = "[route]\nlayers=-2\n"
    content = _export_bytes(configured(one_layer(CONVOLUTION + heads + route + heads), "f"))
    outputs = _model(content).subgraphs[0].outputs
    assert len(set(outputs)) == 2


def test_ranges_of_sums_that_somebody_found_put_heads_into_int8() -> None:
    text = one_layer("[convolutional]\nfilters=6\nsize=1\nactivation=mish\n")
    configuration = configured(text, "q", CALIBRATED)
    assert export("tflite", configuration, "armnn").layers[0][1] == "fp32"
    exported = export("tflite", configuration, "armnn", {"sums": {0: (-4.0, 5.0)}})
    assert exported.layers[0][1] == "int8"
    assert ("CONV_2D", ["INT8", "INT8", "INT32"], False) in _operators(exported.content)
