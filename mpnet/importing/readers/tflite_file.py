# SPDX-License-Identifier: MIT
"""TensorFlow Lite files as graphs in ONNX's words, channels first.

Read by the schema that ai-edge-litert brings, lazily: the sizes that a damaged file promises are checked before anything is
made.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mpnet.errors import FormatError
from mpnet.formats.files.bounded import read_bounded
from mpnet.importing.graph import MAX_NODES, MAX_OPERANDS, MAX_TENSORS, Array, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.importing.readers.tflite_graph import GraphBuilder, TfliteOperator, TfliteTensor
from mpnet.importing.readers.tflite_operators import convert
from mpnet.messages import shown
from mpnet.packages import require, requirements

MAX_FILE_BYTES = 1 << 30
_MAX_READ_BYTES = 1 << 26
_MAX_LABELS = 1 << 20
# Of TensorType.
_TYPES: dict[int, type[np.generic]] = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
    10: np.float64,
    15: np.uint32,
}
_BROKEN = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    UnicodeError,
    AssertionError,
    zipfile.BadZipFile,
)


def read_tflite(path: Path) -> NodeGraph:
    """Return the graph of a file. Raises: FormatError, ConfigError without ai-edge-litert."""
    require(f"reading {path.name}", requirements("ai-edge-litert", "flatbuffers"), "litert")
    content = read_bounded(path, MAX_FILE_BYTES, "TensorFlow Lite model")
    if content[4:8] != b"TFL3":
        raise FormatError(f"{path}: is no TensorFlow Lite file: its identifier is missing")
    try:
        return _graph(content, path)
    except Refused as reason:
        raise FormatError(f"{path}: {reason}") from None
    except _BROKEN as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: is damaged ({str(error)[:120] or type(error).__name__})") from None


def _graph(content: bytes, path: Path) -> NodeGraph:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    if model.SubgraphsLength() != 1:
        raise FormatError(f"{path}: {model.SubgraphsLength()} subgraphs; one is possible, without control flow")
    source = model.Subgraphs(0)
    if source.OperatorsLength() > MAX_NODES or source.TensorsLength() > MAX_TENSORS or model.BuffersLength() > MAX_TENSORS:
        raise FormatError(f"{path}: has more than {MAX_NODES} operators or {MAX_TENSORS} tensors")
    graph = NodeGraph(str(path), [], {}, {}, [], _metadata(model, content), format="TensorFlow Lite")
    # Parts of a file may lie over each other: a part that is read often takes more than the file has.
    bytes_left = _MAX_READ_BYTES + 4 * len(content)
    builder = GraphBuilder(graph, schema, bytes_left)
    for number in range(source.TensorsLength()):
        tensor = source.Tensors(number)
        name = (tensor.Name() or b"").decode("utf-8", "replace") or f"tensor_{number}"
        name = name if name not in builder.names else f"{name}:{number}"
        shape = _integers(tensor, "Shape") if tensor.ShapeLength() <= 8 else [-1]
        if min(shape, default=1) < 0:
            raise FormatError(
                f"{path}: the tensor {shown(name)} has more than 8 axes, or open ones; export it with static shapes"
            )
        dtype = _TYPES.get(tensor.Type())
        values = _stored_values(model, tensor, tuple(shape), dtype)
        parameters = _quantization(tensor)
        bytes_left -= len(name) + (0 if values is None else values.nbytes)
        bytes_left -= 0 if parameters is None else parameters.scale.nbytes
        if bytes_left < 0:
            raise FormatError(f"{path}: its tensors take more than the file; the file is damaged")
        unsupported = dtype is None or (dtype is np.int16 and parameters is None)
        builder.add(TfliteTensor(name, tuple(shape), values, parameters, unsupported))
    inputs, outputs = _integers(source, "Inputs"), _integers(source, "Outputs")
    for number in range(source.OperatorsLength()):
        operator = source.Operators(number)
        code = model.OperatorCodes(operator.OpcodeIndex())
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = (code.CustomCode() or b"").decode("utf-8", "replace")
        operator_inputs, operator_outputs = _integers(operator, "Inputs"), _integers(operator, "Outputs")
        bytes_left -= len(custom)
        if bytes_left < 0:
            raise FormatError(f"{path}: the names of its operators take more than the file; the file is damaged")
        word = custom or builder.words.get(builtin, f"operator {builtin}")
        name = f"{builder.name(operator_outputs[0])}" if operator_outputs else f"{word}_{number}"
        options = operator.BuiltinOptions()
        custom_options = operator.CustomOptionsAsNumpy().tobytes() if operator.CustomOptionsLength() else b""
        try:
            convert(word, TfliteOperator(builder, name, operator_inputs, operator_outputs, options, custom_options))
        except Refused as reason:
            graph.refuse(Node(word, name, [], []), str(reason))
    builder.finish(inputs, outputs)
    return graph


def _integers(table: Any, name: str) -> list[int]:
    """Return a list of integers of a table. Raises: ValueError for one that is too long to be a shape or operands."""
    count = getattr(table, f"{name}Length")()
    if count > MAX_OPERANDS:
        raise ValueError(f"a list of {count} {name.lower()}")
    return [int(number) for number in getattr(table, f"{name}AsNumpy")()] if count else []


def _stored_values(model: Any, tensor: Any, shape: tuple[int, ...], dtype: type[np.generic] | None) -> Array | None:
    buffer = model.Buffers(tensor.Buffer())
    if buffer is None or buffer.DataLength() == 0:
        return None
    if dtype is None:
        raise ValueError(f"a constant of type {tensor.Type()}, which is no precision of mpnet")
    data = buffer.DataAsNumpy()
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    if tensor.Sparsity() is not None:
        return _dense_values(tensor.Sparsity(), np.frombuffer(data.tobytes(), dtype), shape)
    if count * np.dtype(dtype).itemsize != data.nbytes:
        raise ValueError(f"a constant of {data.nbytes} bytes for the shape {list(shape)}")
    return np.frombuffer(data.tobytes(), dtype).reshape(shape)


def _dense_values(sparsity: Any, stored_values: Array, shape: tuple[int, ...]) -> Array:
    """Return a constant of which only some values are stored (TensorFlow Lite's SparsityParameters).

    Its axes have an order of their own; the last of them are blocks of others. Each axis is either dense or a list of the
    indices that are stored.
    """
    order = [int(axis) for axis in sparsity.TraversalOrderAsNumpy()]
    blocks = [int(axis) for axis in sparsity.BlockMapAsNumpy()] if sparsity.BlockMapLength() else []
    axes = [sparsity.DimMetadata(number) for number in range(sparsity.DimMetadataLength())]
    if len(axes) > 16 or sorted(order) != list(range(len(axes))) or len(axes) != len(shape) + len(blocks):
        raise ValueError("a sparse constant whose axes do not fit its shape")
    max_values = math.prod(shape)
    if max_values > _MAX_READ_BYTES // 8 + 64 * stored_values.size:
        raise ValueError("a sparse constant that is much larger than what is stored of it")
    # Where each stored value lies along each stored axis, level by level; segments: its number among those of the level.
    coordinates, sizes = np.zeros((1, 0), np.int64), [0] * len(axes)
    segments = np.arange(1)
    for level, axis in enumerate(axes):
        if axis.Format() == 0:
            sizes[order[level]] = size = int(axis.DenseSize())
            if size <= 0 or len(segments) * size > max_values:
                raise ValueError("a sparse constant with more places than its shape")
            counts, indices_on_axis = np.full(len(segments), size), np.tile(np.arange(size), len(segments))
            segments = (segments[:, None] * size + np.arange(size)).ravel()
        else:
            bounds, indices = _vector(axis, "ArraySegments"), _vector(axis, "ArrayIndices")
            starts, stops = bounds[segments], bounds[segments + 1]
            counts = stops - starts
            if (starts < 0).any() or (counts < 0).any() or counts.sum() > len(stored_values):
                raise ValueError("a sparse constant whose segments do not fit")
            # 0, 1, ... within each segment, from where it begins.
            offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            segments = np.repeat(starts, counts) + offsets
            indices_on_axis = indices[segments]
        coordinates = np.column_stack([np.repeat(coordinates, counts, axis=0), indices_on_axis])
    if len(coordinates) != len(stored_values):
        raise ValueError("a sparse constant with other values than places")
    column = {axis: level for level, axis in enumerate(order)}
    index = [coordinates[:, column[axis]] for axis in range(len(shape))]
    for number, axis in enumerate(blocks):
        index[axis] = index[axis] * sizes[len(shape) + number] + coordinates[:, column[len(shape) + number]]
    dense = np.zeros(shape, stored_values.dtype)
    dense[tuple(index)] = stored_values
    return dense


def _vector(axis: Any, name: str) -> Array:
    """Return array segments or indices, which are of one of three types."""
    from flatbuffers import number_types
    from flatbuffers.table import Table

    kind, table = getattr(axis, f"{name}Type")(), getattr(axis, name)()
    flags = {1: number_types.Int32Flags, 2: number_types.Uint16Flags, 3: number_types.Uint8Flags}.get(kind)
    if flags is None or table is None:
        raise ValueError("a sparse constant without places")
    values = Table(table.Bytes, table.Pos)
    offset = int(values.Offset(4))
    return np.asarray(values.GetVectorAsNumpy(flags, offset) if offset else np.zeros(0), np.int64)


def _quantization(tensor: Any) -> QuantizationParameters | None:
    quantization, dtype = tensor.Quantization(), _TYPES.get(tensor.Type())
    if quantization is None or quantization.ScaleLength() == 0:
        return None
    if max(quantization.ScaleLength(), quantization.ZeroPointLength()) > MAX_TENSORS:
        raise ValueError(f"{quantization.ScaleLength()} scales of one tensor")
    zero = quantization.ZeroPointAsNumpy() if quantization.ZeroPointLength() else np.zeros(1, np.int64)
    name = "" if dtype is None else np.dtype(dtype).name
    return QuantizationParameters.from_file(quantization.ScaleAsNumpy(), zero, name, quantization.QuantizedDimension())


def _metadata(model: Any, content: bytes) -> dict[str, str]:
    """Return the labels and normalisation of TensorFlow Lite's metadata, and mpnet's own block."""
    metadata: dict[str, str] = {}
    for number in range(min(model.MetadataLength(), 64)):
        entry = model.Metadata(number)
        block = model.Buffers(entry.Buffer())
        data = b"" if block is None or block.DataLength() == 0 else block.DataAsNumpy().tobytes()
        if entry.Name() == b"mpnet" and len(data) < _MAX_LABELS:
            document = json.loads(data)
            metadata |= {key: json.dumps(document[key]) for key in ("names", "heads", "input") if key in document}
        elif entry.Name() == b"TFLITE_METADATA" and len(data) < _MAX_LABELS:
            numbers = _read_normalization(data)
            if numbers is not None:
                metadata["mpnet.pixels"] = json.dumps({"mean": numbers[0], "std": numbers[1]})
    if "names" not in metadata and zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist()[:16]:
                if info.filename.endswith(".txt") and info.file_size < _MAX_LABELS:
                    metadata["names"] = json.dumps(archive.read(info).decode("utf-8", "replace").split("\n")[:-1])
                    break
    return metadata


def _read_normalization(data: bytes) -> tuple[list[float], list[float]] | None:
    """Return (means, deviations) of the first input, of values from 0 to 255.

    Fields of TensorFlow Lite Support's metadata schema.
    """
    from flatbuffers import number_types
    from flatbuffers.table import Table

    def field(table: Table, number: int) -> int:
        return int(table.Offset(4 + 2 * number))

    def tables(table: Table, number: int) -> list[Table]:
        offset = field(table, number)
        if not offset:
            return []
        start, count = table.Vector(offset), table.VectorLen(offset)
        return [Table(data, table.Indirect(start + 4 * i)) for i in range(min(count, 64))]

    root = Table(data, struct.unpack_from("<I", data)[0])
    for graph in tables(root, 3):
        for tensor in tables(graph, 2)[:1]:
            for unit in tables(tensor, 4):
                kind = field(unit, 0)
                if not kind or unit.Get(number_types.Uint8Flags, kind + unit.Pos) != 1 or not field(unit, 1):
                    continue
                options = Table(data, unit.Indirect(field(unit, 1) + unit.Pos))
                mean_and_std = []
                for number in (0, 1):
                    offset = field(options, number)
                    mean_and_std.append(
                        [
                            float(options.Get(number_types.Float32Flags, options.Vector(offset) + 4 * i))
                            for i in range(min(options.VectorLen(offset), 4))
                        ]
                        if offset
                        else []
                    )
                if mean_and_std[0] and mean_and_std[1] and all(mean_and_std[1]):
                    return mean_and_std[0], mean_and_std[1]
    return None
