# SPDX-License-Identifier: MIT
"""A TensorFlow Lite file, put together tensor by tensor with the schema's own classes; no TensorFlow.

Source: TensorFlow Lite's schema.fbs, as ai-edge-litert brings it (`ai_edge_litert.schema_py_generated`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.export.naming import unused
from mpnet.export.weights import pack_bits
from mpnet.quantization.codes import Codes

SCHEMA_VERSION = 3
# Readers map weights where they lie in the file: the schema asks for this alignment.
_ALIGNMENT = 16
_TYPES: dict[str, int] = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int8": schema.TensorType.INT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "int4": schema.TensorType.INT4,
}


@dataclass(frozen=True)
class Channels:
    """The map from int8, int32 or int64 constants to reals: one scale for each index of the dimension `axis`."""

    scales: NDArray[np.float32]
    axis: int


class TfliteGraph:
    """The tensors and operators of one subgraph. Tensors are numbers; equal constants are kept once."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: dict[tuple[int, int], int] = {}
        self._buffers: list[Any] = [schema.BufferT()]  # by convention the first is empty
        self._constants: dict[tuple[object, ...], int] = {}
        self._names: set[str] = set()

    def tensor(self, name: str, shape: Sequence[int], kind: str = "float32", codes: Codes | None = None) -> int:
        """Add a tensor that an operator writes, or the input. shape: with the leading 1 of one image."""
        return self._add(name, shape, kind, 0, codes)

    def constant(self, name: str, values: Array, meaning: Channels | Codes | None = None, in_4_bits: bool = False) -> int:
        """Add a tensor whose values stand in the file. in_4_bits: they are int8, but lie there in half of that."""
        content = pack_bits(np.ascontiguousarray(values), 4) if in_4_bits else values.tobytes()
        kind = "int4" if in_4_bits else values.dtype.name
        meaning_key = (meaning.scales.tobytes(), meaning.axis) if isinstance(meaning, Channels) else meaning
        key = (hashlib.sha256(content).digest(), values.shape, kind, meaning_key)
        if key not in self._constants:
            self._buffers.append(_Aligned(content))
            self._constants[key] = self._add(name, values.shape, kind, len(self._buffers) - 1, meaning)
        return self._constants[key]

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Return the shape of a tensor, with the leading 1."""
        return tuple(self._tensors[tensor].shape)

    def name(self, tensor: int) -> str:
        """Return the name of a tensor."""
        return str(self._tensors[tensor].name)

    def operator(
        self, name: str, inputs: Sequence[int], output: int, *, version: int = 1, options: str = "", **values: object
    ) -> int:
        """Append an operator and return its output.

        name: of BuiltinOperator; options: the name of its options table in the schema, whose fields are `values`.
        """
        code = (getattr(schema.BuiltinOperator, name), version)
        number = self._codes.setdefault(code, len(self._codes))
        operator = _table("Operator", opcodeIndex=number, inputs=list(inputs), outputs=[output])
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = _table(options, **values)
        self._operators.append(operator)
        return output

    def rename(self, tensor: int, name: str) -> None:
        """Give a tensor another name."""
        self._names.discard(self._tensors[tensor].name)
        self._tensors[tensor].name = unused(name, self._names)

    def content(self, inputs: Sequence[int], outputs: Sequence[int], description: str, metadata: Mapping[str, bytes]) -> bytes:
        """Return the content of the file. metadata: named blocks that readers find by their names."""
        blocks = []
        for name, block in metadata.items():
            self._buffers.append(_Aligned(block))
            blocks.append(_table("Metadata", name=name, buffer=len(self._buffers) - 1))
        model = _table(
            "Model",
            version=SCHEMA_VERSION,
            description=description,
            buffers=self._buffers,
            metadata=blocks,
            operatorCodes=[
                _table("OperatorCode", deprecatedBuiltinCode=min(code, 127), version=version, builtinCode=code)
                for code, version in self._codes
            ],
            subgraphs=[
                _table(
                    "SubGraph",
                    tensors=self._tensors,
                    inputs=list(inputs),
                    outputs=list(outputs),
                    operators=self._operators,
                    name="main",
                )
            ],
        )
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _add(self, name: str, shape: Sequence[int], kind: str, buffer: int, meaning: Codes | Channels | None) -> int:
        quantization = None
        if isinstance(meaning, Codes):
            quantization = _table("QuantizationParameters", scale=[meaning.scale], zeroPoint=[meaning.zero_point])
        elif meaning is not None:
            quantization = _table(
                "QuantizationParameters",
                scale=meaning.scales.astype(np.float32),
                zeroPoint=np.zeros(len(meaning.scales), np.int64),
                quantizedDimension=meaning.axis,
            )
        self._tensors.append(
            _table(
                "Tensor",
                shape=[int(size) for size in shape],
                type=_TYPES[kind],
                buffer=buffer,
                name=unused(name, self._names),
                quantization=quantization,
                hasRank=True,
            )
        )
        return len(self._tensors) - 1


def _table(kind: str, **values: object) -> Any:
    """Make a table of the schema; older versions of its classes take no values when they are made."""
    table = getattr(schema, f"{kind}T")()
    for name, value in values.items():
        setattr(table, name, value)
    return table


class _Aligned(schema.BufferT):  # type: ignore[misc]
    """A buffer whose bytes lie on a multiple of 16, which the schema's classes leave to chance."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._bytes = content

    def Pack(self, builder: Any) -> int:
        builder.StartVector(1, len(self._bytes), _ALIGNMENT)
        builder.head -= len(self._bytes)
        builder.Bytes[builder.head : builder.head + len(self._bytes)] = self._bytes
        data = builder.EndVector()
        schema.BufferStart(builder)
        schema.BufferAddData(builder, data)
        return int(schema.BufferEnd(builder))
