# SPDX-License-Identifier: MIT
"""Operators on integers: the QOperator form of ONNX Runtime becomes the Q/DQ form of a file, which the passes behind know.

Each such node stands for three: its integers made reals, the operator on reals, and its result made integers again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpnet.importing.graph import Node, NodeGraph, Refused

_MICROSOFT = "com.microsoft."
_SUFFIX = "_quantized"
"""What ONNX Runtime appends to the name of a tensor of reals."""


@dataclass(frozen=True)
class _Form:
    """The form of a node on integers.

    operator: the same on reals. inputs: positions of its tensors of integers, each with its scale and zero point behind it.
    result: position of the result's scale. bias: of the int32 bias, whose scale is the product of those of the inputs.
    """

    operator: str
    inputs: tuple[int, ...]
    result: int
    bias: int | None = None


_TWO, _ONE = ((0, 3), 6), ((0,), 3)
_FORMS = {
    "QLinearConv": _Form("Conv", *_TWO, 8),
    "QLinearMatMul": _Form("MatMul", *_TWO),
    f"{_MICROSOFT}QGemm": _Form("Gemm", (0, 3), 7, 6),
    f"{_MICROSOFT}QLinearAdd": _Form("Add", *_TWO),
    f"{_MICROSOFT}QLinearMul": _Form("Mul", *_TWO),
    f"{_MICROSOFT}QLinearLeakyRelu": _Form("LeakyRelu", *_ONE),
    f"{_MICROSOFT}QLinearSigmoid": _Form("Sigmoid", *_ONE),
    f"{_MICROSOFT}QLinearSoftmax": _Form("Softmax", *_ONE),
    f"{_MICROSOFT}QLinearAveragePool": _Form("AveragePool", *_ONE),
    f"{_MICROSOFT}QLinearGlobalAveragePool": _Form("GlobalAveragePool", *_ONE),
}
_CONCAT = f"{_MICROSOFT}QLinearConcat"
# What takes integers as it takes reals, and gives integers of the same scale.
_SCALE_KEEPING = (
    "MaxPool",
    "Slice",
    "Split",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Identity",
    "Gather",
    "Resize",
    "Pad",
)
_QUANTIZE = ("QuantizeLinear", f"{_MICROSOFT}QuantizeLinear")
_PLAIN = {"opset": None, "channels_last": 0}
"""Attributes that the operators on reals do not have -> the only value that means the same, None: any."""


def expand_integer_operators(graph: NodeGraph) -> None:
    """Replace the nodes on integers that have a counterpart on reals. Raises: FormatError."""
    if not any(node.operator in _FORMS or node.operator == _CONCAT for node in graph.nodes):
        return
    graph.order()
    _Expander(graph).expand()


class _Expander:
    """A graph whose nodes on integers are replaced.

    nodes: the new ones. codes: (scale, zero point) of the tensors of integers. reals: tensors that were made of integers.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.codes: dict[str, tuple[str, str]] = {}
        self.reals: dict[tuple[str, str, str], str] = {}
        self.names = {*graph.constants, *graph.inputs, *(name for node in graph.nodes for name in node.outputs)}

    def expand(self) -> None:
        """Go through the nodes in their order."""
        for node in self.graph.nodes:
            try:
                self._expand_node(node)
            except Refused as reason:
                self.graph.refuse(node, reason)
        self.graph.nodes = self.nodes

    def _expand_node(self, node: Node) -> None:
        form = _FORMS.get(node.operator)
        if form is not None:
            self._expand_form(node, form)
        elif node.operator == _CONCAT:
            tensors = [self._dequantize(node, position) for position in range(2, len(node.inputs), 3)]
            self._put(node, "Concat", tensors, _input(node, 0), _input(node, 1))
        elif node.operator in _SCALE_KEEPING and _input(node, 0) in self.codes:
            self._expand_scale_keeping(node)
        else:
            if node.operator in _QUANTIZE and len(node.inputs) > 1:
                self.codes[node.output] = (node.inputs[1], _input(node, 2))
            self.nodes.append(node)

    def _expand_form(self, node: Node, form: _Form) -> None:
        if not _input(node, form.result):
            raise Refused("its result has no scale; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        for name, value in _PLAIN.items():
            if node.attributes.pop(name, value) != value and value is not None:
                raise Refused(f"{name} is not supported; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
        tensors = [self._dequantize(node, position, _axis(self.graph, node, form, position)) for position in form.inputs]
        if form.bias is not None and _input(node, form.bias):
            if node.attributes.get("alpha", 1.0) != 1.0:
                raise Refused("alpha is not supported; write the file in the QDQ form (quant_format=QuantFormat.QDQ)")
            scales = [_input(node, position + 1) for position in form.inputs]
            product, bias = self._name(f"{node.output}/bias_scale"), self._name(f"{node.output}/bias")
            self.nodes.append(Node("Mul", product, scales, [product]))
            self.nodes.append(Node("DequantizeLinear", bias, [node.inputs[form.bias], product], [bias], {"axis": 0}))
            tensors.append(bias)
        self._put(node, form.operator, tensors, node.inputs[form.result], _input(node, form.result + 1))

    def _expand_scale_keeping(self, node: Node) -> None:
        """Replace an operator that takes integers as they are by the same on reals."""
        codes, scale, zero = node.inputs[0], *self.codes[node.inputs[0]]
        tensors = [self._make_reals(codes, scale, zero, 1), *node.inputs[1:]]
        if node.operator == "Pad" and node.attributes.get("mode", "constant") == "constant":
            value = _input(node, 2)
            if not value:
                value = self._name(f"{node.output}/value")
                zero_array = self.graph.constants.get(zero)
                self.graph.constants[value] = np.zeros((), np.uint8 if zero_array is None else zero_array.dtype)
            tensors[2:3] = [self._make_reals(value, scale, zero, 0)]
        self._put(node, node.operator, tensors, scale, zero)

    def _put(self, node: Node, operator: str, tensors: list[str], scale: str, zero: str) -> None:
        """Append the node on reals, and those that make its results integers."""
        reals = [self._name(output.removesuffix(_SUFFIX)) if output else "" for output in node.outputs]
        self.nodes.append(Node(operator, node.name, tensors, reals, node.attributes))
        for real, output in zip(reals, node.outputs, strict=True):
            if output:
                inputs = [real, scale, zero] if zero else [real, scale]
                self.nodes.append(Node("QuantizeLinear", f"{output}/quantize", inputs, [output]))
                self.codes[output] = (scale, zero)

    def _dequantize(self, node: Node, position: int, axis: int = 1) -> str:
        codes, scale = _input(node, position), _input(node, position + 1)
        if not codes or not scale:
            raise Refused(f"its input {position} or the scale behind it is missing; the file is damaged")
        return self._make_reals(codes, scale, _input(node, position + 2), axis)

    def _make_reals(self, codes: str, scale: str, zero: str, axis: int) -> str:
        """Return the tensor of reals that a tensor of integers means."""
        key = (codes, scale, zero)
        if key not in self.reals:
            real = self._name(f"{codes.removesuffix(_SUFFIX)}/real")
            inputs = [codes, scale, zero] if zero else [codes, scale]
            self.nodes.append(Node("DequantizeLinear", real, inputs, [real], {"axis": axis}))
            self.reals[key] = real
        return self.reals[key]

    def _name(self, name: str) -> str:
        """Return a name that no tensor has, the given one where it is free."""
        while name in self.names:
            name += "'"
        self.names.add(name)
        return name


def _input(node: Node, position: int) -> str:
    return node.inputs[position] if position < len(node.inputs) else ""


def _axis(graph: NodeGraph, node: Node, form: _Form, position: int) -> int:
    """Return the axis of weights that a scale per channel goes along: that of the results."""
    if form.operator == "Conv":
        return 0 if position else 1
    weights = graph.constants.get(node.inputs[position])
    if position == 0 or weights is None:
        return 1
    return 0 if node.attributes.get("transB") else max(0, weights.ndim - 1)
