# SPDX-License-Identifier: MIT
"""An ONNX graph while it is written: nodes and constants with names that tell their layer."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from mpnet.arrays import Array
from mpnet.export.naming import layer_of, unused

# Of onnx.TensorProto.
FLOAT, INT8, INT64, HALF, BFLOAT16, INT4 = 1, 3, 7, 10, 16, 22
# Opset 17 and IR 8 hold most of what is written, and engines of 2022 and later read them; types that came later ask for more.
VERSIONS = (17, 8)
VERSIONS_BY_TYPE = {INT4: (21, 10)}
_QUANTISED_16 = (21, 10)
"""QuantizeLinear and DequantizeLinear of int16, whose zero points are the only constants of that type."""


class OnnxGraph:
    """Nodes in order. A node with one result has that result's name. The package `onnx` is imported by the first one."""

    def __init__(self) -> None:
        import onnx
        from onnx import numpy_helper

        self._onnx: Any = onnx
        self._helper: Any = onnx.helper
        self._tensor = numpy_helper.from_array
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[Any] = []
        self._names: set[str] = set()
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._versions = VERSIONS

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add a float32 input."""
        self._names.add(name)
        self._inputs.append(self._helper.make_tensor_value_info(name, FLOAT, list(shape)))
        return name

    def output(self, name: str, source: str, shape: Sequence[int | str], kind: int = FLOAT) -> None:
        """Let a tensor leave under a name."""
        self._names.add(name)
        self._nodes.append(self._helper.make_node("Identity", [source], [name], name=name))
        self._outputs.append(self._helper.make_tensor_value_info(name, kind, list(shape)))

    def constant(self, name: str, array: Array | np.generic) -> str:
        """Add a constant; equal ones are written once."""
        value = np.asarray(array)
        key = (value.dtype.str, value.shape, value.tobytes())
        cached_name = self._constants.get(key)
        if value.dtype == np.int16:
            self._versions = max(self._versions, _QUANTISED_16)
        if cached_name is None:
            cached_name = self._constants[key] = unused(name, self._names)
            self._initializers.append(self._tensor(np.ascontiguousarray(value).reshape(value.shape), cached_name))
        return cached_name

    def packed(self, name: str, kind: int, shape: Sequence[int], content: bytes) -> str:
        """Add a constant of a type that NumPy lacks, as the bytes that ONNX stores."""
        key = (str(kind), tuple(shape), content)
        cached_name = self._constants.get(key)
        if cached_name is None:
            cached_name = self._constants[key] = unused(name, self._names)
            self._initializers.append(self._helper.make_tensor(cached_name, kind, list(shape), content, raw=True))
            self._versions = max(self._versions, VERSIONS_BY_TYPE.get(kind, VERSIONS))
        return cached_name

    def node(self, operator: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Append a node with one result; the result's name."""
        result = unused(name, self._names)
        self._nodes.append(self._helper.make_node(operator, list(inputs), [result], name=result, **attributes))
        return result

    def nodes(self, operator: str, inputs: Sequence[str], names: Sequence[str], **attributes: object) -> list[str]:
        """Append a node with several results; their names."""
        results = [unused(name, self._names) for name in names]
        self._nodes.append(self._helper.make_node(operator, list(inputs), results, name=results[0], **attributes))
        return results

    def describe(self, layers: Mapping[int, str]) -> None:
        """Let the nodes that were written for a layer say what `layers` has of it; viewers such as Netron show that."""
        for node in self._nodes:
            index = layer_of(node.name)
            if index is not None and index in layers:
                node.doc_string = layers[index]

    def model(self, name: str, producer_version: str, metadata: dict[str, str]) -> Any:
        """Return the whole model, checked. Raises: onnx.checker.ValidationError for a mistake in the writer."""
        opset, ir_version = self._versions
        graph = self._helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._initializers)
        model = self._helper.make_model(
            graph,
            opset_imports=[self._helper.make_opsetid("", opset)],
            ir_version=ir_version,
            producer_name="mpnet",
            producer_version=producer_version,
        )
        self._helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return model
