# SPDX-License-Identifier: MIT
"""ONNX files as graphs: what is read is bounded before it is parsed, and nothing outside the file's folder is opened."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any, Iterable, Iterator

import numpy as np

from mpnet.errors import FormatError
from mpnet.formats.files.bounded import read_bounded
from mpnet.formats.files.foreign import foreign_content
from mpnet.importing.graph import MAX_NODES, MAX_TENSORS, Array, Node, NodeGraph
from mpnet.messages import bytes_text, shown
from mpnet.packages import require

MAX_FILE_BYTES = 1 << 30
MAX_EXTERNAL_BYTES = 3 << 28
"""Of all constants in files of their own together: with the program itself they stay below 1 GB."""
_MAX_FIELDS, _MAX_PACKED_BYTES, _MAX_LIST = 1 << 19, 1 << 29, 1 << 12
# Bytes that one byte of a packed list becomes: int32, int64, uint32, uint64, enum; by FieldDescriptor.CPPTYPE_.
_PACKED = {1: 4, 2: 8, 3: 4, 4: 8, 8: 4}


def read_onnx(path: Path) -> NodeGraph:
    """Return the graph of a file, its opset's operators as they are.

    Raises: FormatError, ConfigError without the package onnx.
    """
    require(f"reading {path.name}", ("onnx>=1.14",), "onnx")
    content = read_bounded(path, MAX_FILE_BYTES, "ONNX model")
    foreign = foreign_content(content[:256])
    if foreign:
        raise FormatError(f"{path}: is {foreign}")
    _check_size(content, str(path))
    try:
        import onnx

        model = onnx.ModelProto()
        model.ParseFromString(content)
    except Exception as error:  # protobuf's own, which differ by implementation
        raise FormatError(f"{path}: is no ONNX file ({str(error)[:80] or type(error).__name__})") from None
    del content
    if not model.graph.node:
        raise FormatError(f"{path}: holds no nodes; is it an ONNX model?")
    try:
        return _OnnxFile(path).graph(model)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, UnicodeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: is damaged ({str(error)[:120]})") from None


class _OnnxFile:
    """A file while it is read. external_left: bytes that constants in files of their own may still take."""

    def __init__(self, path: Path) -> None:
        self.path, self.external_left = path, MAX_EXTERNAL_BYTES

    def graph(self, model: Any) -> NodeGraph:
        """Return the graph of a parsed file. Raises: FormatError."""
        from onnx import TensorProto

        source, graph = str(self.path), model.graph
        domains = {entry.domain: entry.version for entry in model.opset_import}
        opset = domains.get("", domains.get("ai.onnx", 0))
        if not 7 <= opset <= 100:
            raise FormatError(f"{source}: opset {opset} is not supported; write it with opset 11 to 22")
        if len(graph.initializer) + len(graph.sparse_initializer) > MAX_TENSORS:
            raise FormatError(f"{source}: {len(graph.initializer)} constants; the limit is {MAX_TENSORS}")
        constants = {tensor.name: self._array(tensor) for tensor in graph.initializer}
        inputs, input_types = {}, {}
        for value in graph.input:
            if value.name not in constants:
                inputs[value.name] = _shape(value, source)
                input_types[value.name] = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
        own = {(function.domain, function.name) for function in model.functions}
        calling = next((node for node in graph.node if (node.domain, node.op_type) in own), None)
        if calling is not None:
            raise FormatError(
                f"{source}: node {shown(calling.name)} calls a function of the file's own ({shown(calling.op_type)}); write it "
                "out with onnx.inliner.inline_local_functions, and import the result"
            )
        nodes = [self._node(node, opset) for node in graph.node]
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        if model.producer_name:
            metadata.setdefault("producer", f"{model.producer_name} {model.producer_version}".strip())
        outputs = [value.name for value in graph.output]
        texts: tuple[Iterable[object], ...] = (
            constants,
            inputs,
            outputs,
            metadata,
            metadata.values(),
            *((node.operator, node.name, *node.inputs, *node.outputs, *node.attributes) for node in nodes),
        )
        for text in chain.from_iterable(texts):
            if not isinstance(text, str):  # protobuf gives bytes where a text is none
                raise FormatError(f"{source}: the name {str(text)[:40]} is not UTF-8; the file is damaged")
        return NodeGraph(source, nodes, constants, inputs, outputs, metadata, input_types=input_types)

    def _node(self, node: Any, opset: int) -> Node:
        operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        attributes = {attribute.name: self._attribute(attribute) for attribute in node.attribute}
        result = Node(operator, node.name, list(node.input), list(node.output) or [""], attributes)
        _state_old_defaults(result, opset)
        return result

    def _attribute(self, attribute: Any) -> Any:
        # Of onnx.AttributeProto: FLOAT 1, INT 2, STRING 3, TENSOR 4, FLOATS 6, INTS 7, STRINGS 8; graphs are not read.
        match attribute.type:
            case 1:
                return float(attribute.f)
            case 2:
                return int(attribute.i)
            case 3:
                return attribute.s.decode("utf-8", "replace")
            case 4:
                return self._array(attribute.t)
            case 6:
                return _numbers(attribute.floats, np.float32)
            case 7:
                return _numbers(attribute.ints, np.int64)
            case 8:
                return [value.decode("utf-8", "replace") for value in attribute.strings]
        return None

    def _array(self, tensor: Any) -> Array:
        from onnx import TensorProto, numpy_helper

        sides = [int(side) for side in tensor.dims]
        if min(sides, default=0) < 0 or len(sides) > 8:
            raise FormatError(f"{self.path}: the constant {shown(tensor.name)} has the shape {sides[:8]}; the file is damaged")
        count = int(np.prod(np.array(sides, np.float64))) if sides else 1
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, sides)
        stored_bytes = max(
            len(tensor.raw_data),
            *(
                len(getattr(tensor, name)) * size
                for name, size in (
                    ("float_data", 4),
                    ("int32_data", 8),
                    ("int64_data", 8),
                    ("double_data", 8),
                    ("uint64_data", 8),
                    ("string_data", 64),
                )
            ),
        )
        if count > 2 * stored_bytes + 1:  # two values of 4 bits in a byte
            raise FormatError(
                f"{self.path}: the constant {shown(tensor.name)} of shape {sides[:8]} holds {bytes_text(stored_bytes)}; "
                "the file is damaged"
            )
        return np.asarray(numpy_helper.to_array(tensor))

    def _external(self, tensor: Any, sides: list[int]) -> Array:
        """Read a constant from a file of its own, which must lie in the model's folder. Raises: FormatError."""
        from onnx import helper

        entries = {entry.key: entry.value for entry in tensor.external_data}
        location, folder = entries.get("location", ""), os.path.realpath(self.path.parent)
        target = os.path.realpath(os.path.join(folder, location))
        if not location or os.path.isabs(location) or os.path.commonpath([folder, target]) != folder:
            raise FormatError(
                f"{self.path}: the constant {shown(tensor.name)} lies in {shown(location)}, outside of the model's folder; "
                "put its data beside the model"
            )
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        offset, length = int(entries.get("offset", 0) or 0), int(np.prod(sides, dtype=np.int64)) * dtype.itemsize
        if offset < 0 or length < 0:
            raise FormatError(
                f"{self.path}: the constant {shown(tensor.name)} takes {length} bytes from {offset}; the file is damaged"
            )
        self.external_left -= length
        if self.external_left < 0:
            raise FormatError(
                f"{self.path}: its constants in files of their own take more than {bytes_text(MAX_EXTERNAL_BYTES)} together; "
                "export a smaller model"
            )
        try:
            size = os.stat(target).st_size if os.path.isfile(target) else -1
            if offset + length > size:
                raise OSError(f"it has {size} bytes, {offset + length} are wanted" if size >= 0 else "no such file")
            with open(target, "rb") as file:
                file.seek(offset)
                data = file.read(length)
        except (OSError, ValueError) as error:
            raise FormatError(
                f"{self.path}: the data of constant {shown(tensor.name)} in {shown(location)} cannot be read ({error})"
            ) from None
        return np.frombuffer(data, dtype).reshape(sides)


def _state_old_defaults(node: Node, opset: int) -> None:
    """Write into a node's attributes what operator sets before the current one mean where they say nothing.

    Upsample and, up to 10, Resize count from the corners of pixels; up to 12, Softmax takes all axes from `axis` on as one;
    up to 13, a BatchNormalization of several results is in training.
    """
    attributes = node.attributes
    match node.operator:
        case "Upsample" | "Resize" if opset < 11 or node.operator == "Upsample":
            attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        case "Softmax" if opset < 13:
            attributes.setdefault("axis", 1)
            attributes["flattened"] = 1
        case "BatchNormalization" if opset < 14:
            attributes["training_mode"] = int(sum(map(bool, node.outputs)) > 1)


def _numbers(values: Any, kind: Any) -> list[float] | list[int] | Array:
    """Return a list of plain numbers; longer lists, which only constants have, as an array, with a tenth of the memory."""
    return list(values) if len(values) <= _MAX_LIST else np.array(values, kind)


def _shape(value: Any, source: str) -> tuple[int, ...]:
    """Return the shape of an input, 0 for a side that the file leaves open. Raises: FormatError."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise FormatError(f"{source}: the input {shown(value.name)} has no shape; export it with a fixed one")
    sides = tuple(int(side.dim_value) if side.HasField("dim_value") else 0 for side in value.type.tensor_type.shape.dim)
    if any(side < 0 or side > 1 << 24 for side in sides):
        return tuple(0 if side < 0 else side for side in sides)
    return sides


def _check_size(content: bytes, source: str) -> None:
    """Check the number of everything that parsing would make objects of, before it does. Raises: FormatError.

    A node takes two bytes of a file and kilobytes of memory, a number one byte and eight.
    """
    from onnx import ModelProto

    nodes_left, constants_left, fields_left, number_bytes_left = MAX_NODES, MAX_TENSORS, _MAX_FIELDS, _MAX_PACKED_BYTES
    waiting = [(ModelProto.DESCRIPTOR, 0, len(content))]
    while waiting:
        message, position, end = waiting.pop()
        fields = message.fields_by_number
        for number, start, stop in _fields(content, position, end, source):
            fields_left -= 1
            field = fields.get(number)
            if field is None:
                continue
            if field.message_type is not None:
                waiting.append((field.message_type, start, stop))
            elif field.cpp_type in _PACKED:
                number_bytes_left -= _PACKED[field.cpp_type] * (stop - start)
            nodes_left -= field.full_name == "onnx.GraphProto.node"
            constants_left -= field.full_name == "onnx.GraphProto.initializer"
            if nodes_left < 0 or constants_left < 0:
                raise FormatError(f"{source}: has more than {MAX_NODES} nodes or {MAX_TENSORS} constants")
            if fields_left < 0 or number_bytes_left < 0:
                raise FormatError(f"{source}: has more than {_MAX_FIELDS} fields, or numbers that take too much memory")


def _fields(content: bytes, position: int, end: int, source: str) -> Iterator[tuple[int, int, int]]:
    """Yield (number, first, one past the last byte) of the fields of a protobuf message.

    Ends where the message is damaged, which parsing refuses. Raises: FormatError for groups, whose length is not written, so
    that nothing hides behind one.
    """
    while position < end:
        tag, position = _varint(content, position, end)
        kind = tag & 7
        if kind == 0:
            start, (_, position) = position, _varint(content, position, end)
            yield tag >> 3, start, position
            continue
        if kind in (3, 4):
            raise FormatError(f"{source}: is no ONNX file (it has a group)")
        if kind == 2:
            length, position = _varint(content, position, end)
        else:
            length = {1: 8, 5: 4}.get(kind, -1)
        if length < 0 or position + length > end:
            return
        yield tag >> 3, position, position + length
        position += length


def _varint(content: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = content[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    return 0, end
