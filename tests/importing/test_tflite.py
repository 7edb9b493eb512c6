# SPDX-License-Identifier: MIT
"""TensorFlow Lite files, as mpnet's own exporter writes them and LiteRT runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.calibrate import range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import FormatError
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights
from mpnet.importing import import_model
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.weights import WeightScheme, quantize_weights
from tests.importing.conftest import heads_of
from tests.importing.test_hostile import refused_in_one_line
from tests.networks import NAMES, tiny_cfg

pytest.importorskip("ai_edge_litert")
interpreter = pytest.importorskip("ai_edge_litert.interpreter")

MOBILE = (
    "[net]\nwidth=33\nheight=33\nchannels=3\n[convolutional]\nfilters=8\nsize=3\nstride=2\npad=1\nactivation=relu6\n"
    "[convolutional]\nfilters=8\nsize=3\npad=1\ngroups=8\nactivation=relu\n[convolutional]\nfilters=8\nsize=1\nactivation=linear\n"
    "[shortcut]\nfrom=-3\nactivation=linear\n[convolutional]\nfilters=16\nsize=3\nstride=2\npad=1\nactivation=swish\n"
    "[maxpool]\nsize=5\nstride=1\n[route]\nlayers=-1,-2\n[route]\nlayers=-1\ngroups=2\ngroup_id=1\n"
    "[upsample]\nstride=2\n[convolutional]\nfilters=6\nsize=1\nactivation=logistic\n"
)


def exported(network: NetworkSpec, weights: Weights, precision: str, flavour: str, folder: Path) -> Path:
    calibrated = flavour != "litert" or precision == "int16"
    quantization = QuantizationOptions(ActivationOptions(mode="affine", ranges="calibrated" if calibrated else "dynamic"))
    options = resolve_options(network, quantization, ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)))
    configuration = Configuration.from_prepared(
        Prepared(network, weights, kernels()), assign(network, precision), options, names=NAMES
    )
    path = folder / f"{flavour}-{precision}.tflite"
    path.write_bytes(export("tflite", configuration, flavour, {}).content)
    return path


def litert(path: Path, x: np.ndarray) -> list[np.ndarray]:
    engine = interpreter.Interpreter(model_path=str(path), num_threads=1)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    return [engine.get_tensor(output["index"]) for output in engine.get_output_details()]


@pytest.mark.parametrize("text", [tiny_cfg(), MOBILE], ids=["tiny", "mobile"])
def test_heads_equal_litert_and_the_weights_those_exported(text: str, tmp_path: Path) -> None:
    network = parse_cfg(text, "t.cfg")
    path = exported(network, random_weights(network, 3), "fp32", "litert", tmp_path)
    imported = import_model(path)
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), litert(path, x), strict=True):
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()
    second_export = exported(
        imported.network, parse_weights(imported.weights, imported.network, "w"), "fp32", "litert", tmp_path
    )
    assert import_model(second_export).weights == imported.weights
    if network.yolos:
        assert imported.names == NAMES
        assert [yolo.head_anchors for yolo in imported.network.yolos] == [yolo.head_anchors for yolo in network.yolos]


@pytest.mark.parametrize(("flavour", "ranges"), [("armnn", "calibrated"), ("litert", "dynamic")])
def test_int8_files_keep_their_integers(flavour: str, ranges: str, tmp_path: Path) -> None:
    network = parse_cfg(tiny_cfg(), "t.cfg")
    weights = random_weights(network, 3)
    path = exported(network, weights, "int8", flavour, tmp_path)
    imported = import_model(path)
    quantized_layers = [layer for layer in imported.network.convolutions if layer.declared is not None]
    assert len(quantized_layers) == 13
    assert {str(layer.declared.precision) for layer in quantized_layers if layer.declared is not None} == {"int8"}
    assert imported.cfg.count(f"quantize_activations={ranges}") >= 13
    prepared = Prepared(network, weights, kernels())
    imported_weights = parse_weights(imported.weights, imported.network, "w")
    for original, imported_layer in zip(network.convolutions, imported.network.convolutions, strict=True):
        codes, _ = quantize_weights(prepared.folded[original.index].weights, WeightScheme())
        imported_codes, _ = quantize_weights(
            imported_weights.layers[imported_layer.index].weights[:, :, : original.size, : original.size], WeightScheme()
        )
        assert imported_codes.tobytes() == codes.tobytes()
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), litert(path, x), strict=True):
        # One step of the ranges above, 6 / 255, is a tenth of what these heads hold; LiteRT rounds sums as well.
        assert np.sqrt(np.mean((head - reference) ** 2) / np.mean(reference**2)) < 0.15


@pytest.mark.parametrize("text", [tiny_cfg(), MOBILE], ids=["tiny", "mobile"])
def test_int16_files_run_as_they_are(text: str, tmp_path: Path) -> None:
    network = parse_cfg(text, "t.cfg")
    path = exported(network, random_weights(network, 3), "int16", "litert", tmp_path)
    imported = import_model(path)
    precisions = {str(layer.declared.precision) for layer in imported.network.convolutions if layer.declared is not None}
    assert precisions == {"int16"}
    assert range_requests(imported.network, resolve_options(imported.network)) == {}  # nothing is left to be calibrated
    x = np.random.default_rng(4).random((1, *network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), litert(path, x), strict=True):
        # LiteRT scales sums by factors of 16 bits, so that codes are one off; a head's, of -6 to 6, is 4e-4 of what it holds.
        assert np.sqrt(np.mean((head - reference) ** 2) / np.mean(reference**2)) < 2e-3


def test_what_has_no_form_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\0" * 64)
    with pytest.raises(FormatError, match="is no TensorFlow Lite file"):
        import_model(path)


def _edited(path: Path, change: Callable[[Any, Any], None]) -> Path:
    """Return a file with something else in its objects."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    change(model, schema)
    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    return path


def _made_sparse(block: int) -> Callable[[Any, Any], None]:
    """Return a change after which every second group of `block` input channels of the first weights is 0 and not stored."""

    def change(model: Any, schema: Any) -> None:
        tensor = next(t for t in model.subgraphs[0].tensors if list(t.shape)[1:3] == [3, 3] and t.shape[3] % (2 * block) == 0)
        values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32).reshape(
            -1, tensor.shape[3] // block, block
        )
        rows, groups = values.shape[:2]
        model.buffers[tensor.buffer].data = np.frombuffer(values[:, ::2].tobytes(), np.uint8)
        axes = []
        for size in tensor.shape[:3]:
            axes.append(schema.DimensionMetadataT())
            axes[-1].denseSize = int(size)
        axes.append(schema.DimensionMetadataT())
        axes[-1].format = schema.DimensionType.SPARSE_CSR
        for name, numbers in (
            ("Segments", np.arange(rows + 1) * (groups // 2)),
            ("Indices", np.tile(np.arange(0, groups, 2), rows)),
        ):
            vector = schema.Int32VectorT()
            vector.values = numbers.astype(np.int32)
            setattr(axes[-1], f"array{name}", vector)
            setattr(axes[-1], f"array{name}Type", schema.SparseIndexVector.Int32Vector)
        if block > 1:
            axes.append(schema.DimensionMetadataT())
            axes[-1].denseSize = block
        tensor.sparsity = schema.SparsityParametersT()
        tensor.sparsity.traversalOrder = np.arange(len(axes), dtype=np.int32)
        tensor.sparsity.blockMap = np.array([3], np.int32) if block > 1 else None
        tensor.sparsity.dimMetadata = axes

    return change


@pytest.mark.parametrize("block", [1, 2])
def test_sparse_constants_are_made_dense(block: int, tmp_path: Path) -> None:
    network = parse_cfg(tiny_cfg(), "t.cfg")
    path = exported(network, random_weights(network, 3), "fp32", "litert", tmp_path)
    dense = import_model(path)
    sparse = import_model(_edited(path, _made_sparse(block)))
    pairs = [
        (a.weights, b.weights)
        for a, b in zip(*(parse_weights(x.weights, x.network, "w").layers.values() for x in (dense, sparse)), strict=True)
    ]
    changed_pairs = [(a, b) for a, b in pairs if not np.array_equal(a, b)]
    assert len(changed_pairs) == 1
    [(dense_weights, sparse_weights)] = changed_pairs
    is_kept = np.arange(dense_weights.shape[1]) // block % 2 == 0
    assert np.array_equal(sparse_weights, dense_weights * is_kept.reshape(1, -1, 1, 1))


def _with_shape_computed(model: Any, schema: Any) -> None:
    """Flatten as Keras' converter flattens an image of an open batch: SHAPE, STRIDED_SLICE, PACK, RESHAPE."""
    graph = model.subgraphs[0]

    def tensor(kind: int, shape: list[int], values: np.ndarray | None = None) -> int:
        new_tensor = schema.TensorT()
        new_tensor.type, new_tensor.shape, new_tensor.name, new_tensor.buffer = (
            kind,
            np.array(shape, np.int32),
            f"x{len(graph.tensors)}".encode(),
            0,
        )
        if values is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(values.astype(np.int32).tobytes(), np.uint8)
            model.buffers.append(buffer)
            new_tensor.buffer = len(model.buffers) - 1
        graph.tensors.append(new_tensor)
        return len(graph.tensors) - 1

    def operator(word: str, options: str, inputs: list[int], output: int, **values: Any) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, word)
        model.operatorCodes.append(code)
        new_operator = schema.OperatorT()
        new_operator.opcodeIndex, new_operator.inputs, new_operator.outputs = (
            len(model.operatorCodes) - 1,
            np.array(inputs, np.int32),
            np.array([output], np.int32),
        )
        new_operator.builtinOptionsType, new_operator.builtinOptions = (
            getattr(schema.BuiltinOptions, options),
            getattr(schema, f"{options}T")(),
        )
        for name, value in values.items():
            setattr(new_operator.builtinOptions, name, value)
        graph.operators.append(new_operator)

    x, int32 = int(graph.outputs[0]), schema.TensorType.INT32
    slice_bounds = [tensor(int32, [1], np.array([number])) for number in (0, 1, 1)]
    shape, batch, sides = tensor(int32, [4]), tensor(int32, []), tensor(int32, [2])
    row = tensor(schema.TensorType.FLOAT32, [1, int(graph.tensors[x].shape[3])])
    operator("SHAPE", "ShapeOptions", [x], shape)
    operator("STRIDED_SLICE", "StridedSliceOptions", [shape, *slice_bounds], batch, shrinkAxisMask=1)
    operator("PACK", "PackOptions", [batch, tensor(int32, [], np.array([8]))], sides, valuesCount=2)
    operator("RESHAPE", "ReshapeOptions", [x, sides], row)
    graph.outputs = np.array([row], np.int32)


def test_a_shape_of_an_open_batch_is_known(tmp_path: Path) -> None:
    network = parse_cfg(MOBILE.split("[shortcut]")[0] + "[avgpool]\n", "t.cfg")
    path = exported(network, random_weights(network, 3), "fp32", "litert", tmp_path)
    plain, shaped = import_model(path), import_model(_edited(path, _with_shape_computed))
    assert shaped.weights == plain.weights
    assert [layer.kind for layer in shaped.network.layers] == [layer.kind for layer in plain.network.layers]


@pytest.mark.slow
def test_mutated_files_end_in_one_line_under_a_memory_limit(tmp_path: Path) -> None:
    network = parse_cfg(tiny_cfg(), "t.cfg")
    content = exported(network, random_weights(network, 3), "fp32", "litert", tmp_path).read_bytes()
    refused_in_one_line(content, ".tflite", tmp_path / "mutated")
