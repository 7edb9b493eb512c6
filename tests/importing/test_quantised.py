# SPDX-License-Identifier: MIT
"""Files that ONNX Runtime quantised keep their integers and ranges."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import onnx
import pytest

from mpnet.engine.assign import assign, assign_key
from mpnet.engine.calibrate import range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import FormatError
from mpnet.formats.weights import parse_weights
from mpnet.importing import Choices, import_model
from mpnet.kernels.isa import kernels
from mpnet.quantization.weights import WeightScheme, quantize_weights
from mpnet.sweep.problem.space import build_space
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder, yolov8n

quantization = pytest.importorskip("onnxruntime.quantization")


class Images:
    """What the quantiser calibrates on."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._remaining: Iterator[Any] = iter(
            [{"images": np.random.default_rng(i).random(shape, np.float32)} for i in range(4)]
        )

    def get_next(self) -> Any:
        return next(self._remaining, None)


def quantised(model: onnx.ModelProto, folder: Path, per_channel: bool, form: str = "QDQ", **kinds: Any) -> Path:
    plain, path = folder / "plain.onnx", folder / "quantised.onnx"
    onnx.save(model, plain)
    shape = tuple(side.dim_value for side in model.graph.input[0].type.tensor_type.shape.dim)
    logging.disable(logging.WARNING)
    quantization.quantize_static(
        plain,
        path,
        Images(shape),
        quant_format=quantization.QuantFormat[form],
        per_channel=per_channel,
        weight_type=quantization.QuantType.QInt8,
        **kinds,
    )
    logging.disable(logging.NOTSET)
    return path


def integers(path: Path) -> dict[bytes, None]:
    """Return the weights of four dimensions in a file, in order, as bytes."""
    return {
        np.ascontiguousarray(array).tobytes(): None
        for tensor in onnx.load(path).graph.initializer
        if (array := onnx.numpy_helper.to_array(tensor)).ndim == 4 and array.dtype == np.int8
    }


@pytest.mark.slow
@pytest.mark.parametrize(("per_channel", "kind"), [(True, "QUInt8"), (False, "QInt8")])
def test_a_detector_runs_on_the_files_integers(per_channel: bool, kind: str, tmp_path: Path) -> None:
    path = quantised(yolov8n(64, "Relu", 4, w=8), tmp_path, per_channel, activation_type=quantization.QuantType[kind])
    imported, exacter = import_model(path), import_model(path, Choices(rounded=False))
    network = imported.network
    options = resolve_options(network)
    assert range_requests(network, options) == {}  # nothing is left to be calibrated
    weights = parse_weights(imported.weights, network, "w")
    scheme = WeightScheme("per_channel" if per_channel else "per_tensor")
    network_codes = {
        quantize_weights(weights.layers[layer.index].weights, scheme)[0].tobytes() for layer in network.convolutions
    }
    # Beside those, the file holds the 16 bins of box decoding.
    assert network_codes < set(integers(path))
    assert len(network.convolutions) == 63
    assert all(layer.declared is not None and str(layer.declared.precision) == "int8" for layer in network.convolutions)
    assert [yolo.decoder for yolo in network.yolos] == ["yolov8"] * 3  # type: ignore[attr-defined]
    x = np.random.default_rng(9).random((1, *network.in_shape), np.float32)
    expected = reference_heads(path, imported, x)
    as_deployed, less_rounded = (
        [
            np.sqrt(np.mean((head - reference) ** 2) / np.mean(reference**2))
            for head, reference in zip(heads_of(detector, x), expected, strict=True)
        ]
        for detector in (imported, exacter)
    )
    # ONNX Runtime rounds to 8 bits after every node; random weights hide nothing of what mpnet does not.
    assert max(as_deployed) < 0.03, (as_deployed, less_rounded)
    assert max(as_deployed) < max(less_rounded) < 0.06


def detector_of_all_integer_operators() -> onnx.ModelProto:
    b = Builder(16)
    x = b.conv("images", 8, 3, 2, act="silu")
    z = b.node("Add", [x, b.conv(x, 8, 3, act="Relu")])
    first, second = b.node("Split", [z], 4, outputs=2, axis=1)
    pooled = b.node("MaxPool", [z], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    y = b.conv(b.concat([first, second, pooled]), 8, act="leaky")
    y = b.node("Resize", [y, "", b.constant([1, 1, 2, 2])], mode="nearest", coordinate_transformation_mode="asymmetric")
    y = b.node("AveragePool", [y], kernel_shape=[2, 2], strides=[2, 2])
    return b.model([b.conv(b.node("Mul", [y, b.node("Sigmoid", [b.conv(y, 8)])]), 4)])


def classifier_of_all_integer_operators() -> onnx.ModelProto:
    b = Builder(16)
    x = b.conv(b.conv("images", 8, 3, 2, act="Relu"), 16, 3, 2, act="relu6")
    weights, bias = (b.constant(np.random.default_rng(0).normal(0, 0.3, shape)) for shape in ((10, 16), 10))
    rows = b.node("Flatten", [b.node("GlobalAveragePool", [x])])
    return b.model([b.node("Gemm", [rows, weights, bias], 10, transB=1)])


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("make", [detector_of_all_integer_operators, classifier_of_all_integer_operators])
def test_operators_on_integers_are_read_as_the_pairs_that_they_mean(make: Any, kind: str, tmp_path: Path) -> None:
    """The bytes of the network of the Q/DQ form, but for the names of nodes, which the two forms name otherwise."""
    imported = {}
    for form in ("QDQ", "QOperator"):
        path = quantised(make(), tmp_path, kind == "QUInt8", form, activation_type=quantization.QuantType[kind])
        imported[form] = import_model(path)
    operators = {node.op_type for node in onnx.load(path).graph.node}
    assert not operators & {"Conv", "Gemm", "Add", "Mul", "Concat", "Sigmoid", "GlobalAveragePool", "AveragePool"}
    pairs, integers_alone = imported["QDQ"], imported["QOperator"]
    assert integers_alone.weights == pairs.weights
    sections = [re.sub(r"(?m)^(#|source=).*\n", "", network.cfg) for network in (pairs, integers_alone)]
    assert sections[0] == sections[1]
    assert "quantize_range" in sections[0]


def test_an_operator_on_integers_without_counterpart_is_refused_by_name(tmp_path: Path) -> None:
    path = quantised(classifier_of_all_integer_operators(), tmp_path, True, "QOperator")
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "QLinearGlobalAveragePool":
            node.attribute.append(onnx.helper.make_attribute("channels_last", 1)) if not node.attribute else None
            for attribute in node.attribute:
                if attribute.name == "channels_last":
                    attribute.i = 1
    onnx.save(model, path)
    with pytest.raises(
        FormatError, match=r"QLinearGlobalAveragePool\): channels_last is not supported; write the file in the QDQ"
    ):
        import_model(path)


def test_a_relu_that_the_lowest_code_stands_for_comes_back(tmp_path: Path) -> None:
    b = Builder(16)
    x = b.conv("images", 8, 3, act="Relu")
    y = b.node("Relu", [b.node("Add", [x, b.conv(x, 8, 3)])])
    path = quantised(b.model([b.conv(y, 4)]), tmp_path, True)
    assert [node.op_type for node in onnx.load(path).graph.node].count("Relu") < 2
    imported = import_model(path)
    assert imported.cfg.count("activation=relu") == 2


def test_integers_that_mpnet_does_not_have_are_refused_by_name(tmp_path: Path) -> None:
    b = Builder(16)
    model = b.model([b.conv(b.conv("images", 8, 3), 4)])
    path = quantised(model, tmp_path, True, activation_type=quantization.QuantType.QInt16)
    with pytest.raises(FormatError, match=r"node '.*' \(QuantizeLinear\): .* mean 0 by another than the middle one; quantise"):
        import_model(path)


@pytest.mark.parametrize("kind", ["QInt16", "QUInt16"])
def test_integers_of_16_bits_around_zero_run_as_they_are(kind: str, tmp_path: Path) -> None:
    b = Builder(16)
    model = b.model([b.conv(b.conv(b.conv("images", 8, 3, act="Relu"), 8, 3, act="LeakyRelu"), 4)])
    symmetric = {"ActivationSymmetric": True}
    path = quantised(model, tmp_path, True, activation_type=quantization.QuantType[kind], extra_options=symmetric)
    imported = import_model(path)
    precisions = [str(layer.declared.precision) for layer in imported.network.convolutions if layer.declared is not None]
    assert precisions == ["int16"] * 3
    assert range_requests(imported.network, resolve_options(imported.network)) == {}
    x = np.random.default_rng(9).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        np.testing.assert_allclose(head, reference, atol=2e-4 * np.abs(reference).max())


@pytest.mark.parametrize(
    ("scale", "expected"), [(1.9, r"steps of 1\.9 \('\w+', which holds boxes"), (0.01, r"steps of at most 0\.01 ")]
)
def test_rounding_behind_the_heads_is_named(scale: float, expected: str, tmp_path: Path) -> None:
    """A whole network quantised after training: one scale for boxes and scores makes every score 0 in the file."""
    model = yolov8n(64, classes=4, w=4)
    plain = import_model(saved(model, tmp_path / "plain.onnx"))
    [output] = model.graph.output
    for name, value in (("scale", np.float32(scale)), ("zero", np.uint8(0))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    model.graph.node.append(onnx.helper.make_node("QuantizeLinear", [output.name, "scale", "zero"], ["integers"]))
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", ["integers", "scale", "zero"], ["rounded"]))
    output.name = "rounded"
    imported = import_model(saved(model, tmp_path / "rounded.onnx"))
    assert imported.heads == plain.heads
    [note] = [note for note in imported.notes if note.startswith("rounding behind the heads")]
    assert re.search(expected, note)
    assert not any(note.startswith("rounding behind") for note in plain.notes)


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def trainers_model(*, stored: bool, scales: int, narrow: bool = False, highest: int = 255) -> onnx.ModelProto:
    """Build two convolutions with fake quantisation, as trainers write it: of weights in the file, in front of them.

    stored: weights as integers instead. scales: of weights, 1 or one per filter; too small ones, as a range that moves slowly.
    narrow: integers from -127. highest: of the codes of activations.
    """
    b = Builder(16)
    x, filters = "images", 8
    for _ in range(2):
        weights = b.random.normal(0, 0.4, (filters, b.channels[x], 3, 3)).astype(np.float32)
        largest = np.abs(weights).reshape(scales, -1).max(axis=1)
        scale_values = (largest * 0.8 / 127).astype(np.float32)
        lowest = -127 if narrow else -128
        codes = np.clip(np.rint(weights / scale_values.reshape(-1, 1, 1, 1)), lowest, 127).astype(np.int8)
        scale = b.constant(scale_values if scales > 1 else scale_values[0])
        zero = b.constant(np.zeros(scales) if scales > 1 else 0, np.int8)
        axis = {"axis": 0} if scales > 1 else {}
        integers_of = b.constant(codes, np.int8)
        if not stored:
            integers_of = b.node("QuantizeLinear", [b.constant(weights), scale, zero], **axis)
            if narrow:
                integers_of = b.node("Clip", [integers_of, b.constant(-127, np.int8), b.constant(127, np.int8)])
        dequantized = b.node("DequantizeLinear", [integers_of, scale, zero], **axis)
        parameters = [b.constant(0.02), b.constant(0, np.uint8)]
        code = b.node("QuantizeLinear", [x, *parameters])
        if highest < 255:
            code = b.node("Clip", [code, b.constant(0, np.uint8), b.constant(highest, np.uint8)])
        x = b.node("DequantizeLinear", [code, *parameters])
        x = b.node("Relu", [b.node("Conv", [x, dequantized], filters, kernel_shape=[3, 3], pads=[1] * 4)])
    return b.model([x])


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("scales", [1, 8])
def test_weights_that_the_file_quantises_are_those_integers(scales: int, narrow: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    imported = []
    for stored in (False, True):
        onnx.save(trainers_model(stored=stored, scales=scales, narrow=narrow), path)
        imported.append(import_model(path))
    fake, whole = imported
    assert fake.weights == whole.weights
    assert fake.cfg.count("int8=1") == whole.cfg.count("int8=1") == 2


def test_layers_of_a_trained_quantisation_are_raised_under_its_own_ranges(tmp_path: Path) -> None:
    """What a sweep chooses from: the file's integers and ranges where a layer is int8, their reals where it is raised."""
    path = saved(trainers_model(stored=False, scales=8, narrow=True), tmp_path / "model.onnx")
    imported = import_model(path, Choices(rounded=False))
    network = imported.network
    options = resolve_options(network)
    assert range_requests(network, options) == {}
    space = build_space(network, ("fp32", "int8"))
    assert assign(network).key == "qq" in space.all_keys()
    prepared = Prepared.under(options, network, parse_weights(imported.weights, network, "w"), kernels())
    x = np.random.default_rng(9).random((1, *network.in_shape), np.float32)
    results = {
        key: np.array(Session(prepared, build_plan(network, assign_key(network, key), options)).forward(x)[0])
        for key in space.all_keys()
    }
    (expected,) = reference_heads(path, imported, x)
    distances = {key: float(np.abs(result - expected).max()) for key, result in results.items()}
    # The trainer's file rounds activations as the ranges say: all in int8 is the file, and what is raised leaves that out.
    assert set(distances) == {"ff", "fq", "qf", "qq"}
    assert distances["qq"] < 1e-4 < min(distances[key] for key in ("ff", "fq", "qf"))


@pytest.mark.parametrize("scales", [1, 8])
def test_weights_of_minus_128_leave_the_others_as_they_are(scales: int, tmp_path: Path) -> None:
    """Codes of mpnet are symmetric: those weights alone are one step off, as the import says."""
    path = saved(trainers_model(stored=True, scales=scales), tmp_path / "model.onnx")
    codes = [np.frombuffer(content, np.int8) for content in integers(path)]
    lowest, total = (sum(int(count(code)) for code in codes) for count in (lambda code: (code == -128).sum(), np.size))
    assert lowest > 0
    assert any(f"; {total - lowest} of {total} weights keep their integers" in note for note in import_model(path).notes)


def test_activations_of_fewer_than_eight_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(trainers_model(stored=False, scales=1, highest=127), path)
    with pytest.raises(FormatError, match=r"\(Clip\): keeps integers from 0 to 127, .* \(reduce_range=False\)"):
        import_model(path)


@pytest.mark.parametrize("joined", [True, False])
def test_a_tensor_of_reals_that_the_file_rounds_is_rounded(joined: bool, tmp_path: Path) -> None:
    """A concatenation or a sum of tensors in float, quantised for a convolution in float: both ends were left out of int8."""
    b = Builder(16)
    x = b.conv("images", 8, 3, 2, act="Relu")
    y = b.node("Concat", [x, b.conv(x, 8)], 16, axis=1) if joined else b.node("Add", [x, b.conv(x, 8)], 8)
    limits = (b.constant(0.05), b.constant(3, np.int8))
    y = b.node("DequantizeLinear", [b.node("QuantizeLinear", [y, *limits]), *limits])
    path = tmp_path / "m.onnx"
    onnx.save(b.model([b.conv(y, 5)]), path)
    imported = import_model(path, Choices())
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    [head], [reference] = heads_of(imported, x), reference_heads(path, imported, x)
    assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()
    plain = import_model(path, Choices(rounded=False))
    assert np.abs(heads_of(plain, x)[0] - reference).max() > 1e-3
