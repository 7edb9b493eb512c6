"""Activations of mpnet.spec.layers as ONNX operators."""

from __future__ import annotations

from typing import Callable

import numpy as np

from mpnet.export.onnx.graph import Graph


def _scalar(graph: Graph, value: float) -> str:
    return graph.constant(f"constant_{value:g}", np.float32(value))


_OPERATORS: dict[str, Callable[[Graph, str, str], str]] = {
    "linear": lambda graph, x, name: x,
    "leaky": lambda graph, x, name: graph.node("LeakyRelu", [x], name, alpha=0.1),
    "relu": lambda graph, x, name: graph.node("Relu", [x], name),
    "relu6": lambda graph, x, name: graph.node("Clip", [x, _scalar(graph, 0), _scalar(graph, 6)], name),
    "logistic": lambda graph, x, name: graph.node("Sigmoid", [x], name),
    "swish": lambda graph, x, name: graph.node("Mul", [x, graph.node("Sigmoid", [x], f"{name}_sigmoid")], name),
    # Opset 18 has Mish; engines of opset 17 know it by this pattern.
    "mish": lambda graph, x, name: graph.node(
        "Mul", [x, graph.node("Tanh", [graph.node("Softplus", [x], f"{name}_softplus")], f"{name}_tanh")], name),
}

CLAMPS = ("linear", "relu", "relu6")
"""Results of these are clamps of their sums, which engines do when they store codes."""
RISING = (*CLAMPS, "leaky", "logistic")
"""These keep the order of values, so that the largest may be taken before."""


def activate(graph: Graph, activation: str, x: str, name: str) -> str:
    """The tensor after the activation. Raises: KeyError for one that mpnet.export.onnx.support refuses."""
    return _OPERATORS[activation](graph, x, name)
