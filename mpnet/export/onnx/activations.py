# SPDX-License-Identifier: MIT
"""Activations of mpnet.model.layers as ONNX operators."""

from __future__ import annotations

from typing import Callable

import numpy as np

from mpnet.export.onnx.graph import OnnxGraph
from mpnet.quantization.codes import LEAKY_SLOPE


def _scalar(graph: OnnxGraph, value: float) -> str:
    return graph.constant(f"constant_{value:g}", np.float32(value))


def _clip(graph: OnnxGraph, x: str, low: float, high: float, name: str) -> str:
    return graph.node("Clip", [x, _scalar(graph, low), _scalar(graph, high)], name)


def _multiply(graph: OnnxGraph, x: str, factor: float, name: str) -> str:
    return graph.node("Mul", [x, _scalar(graph, factor)], name)


def _slow_outside(graph: OnnxGraph, x: str, low: float, high: float, slope: float, name: str) -> tuple[str, str]:
    """Return x kept in [low, high], and `slope` times what lies outside."""
    clipped = _clip(graph, x, low, high, f"{name}_inside")
    return clipped, _multiply(graph, graph.node("Sub", [x, clipped], f"{name}_outside"), slope, f"{name}_slow")


def _plse(graph: OnnxGraph, x: str, name: str) -> str:
    clipped, outside = _slow_outside(graph, x, -4, 4, 0.01, name)
    line = graph.node("Add", [_multiply(graph, clipped, 0.125, f"{name}_line"), _scalar(graph, 0.5)], f"{name}_middle")
    return graph.node("Add", [line, outside], name)


def _gelu(graph: OnnxGraph, x: str, name: str) -> str:
    cube = graph.node("Mul", [graph.node("Mul", [x, x], f"{name}_square"), x], f"{name}_cube")
    terms = [_multiply(graph, x, 0.797885, f"{name}_line"), _multiply(graph, cube, 0.035677, f"{name}_bend")]
    curve = graph.node("Tanh", [graph.node("Add", terms, f"{name}_inner")], f"{name}_tanh")
    plus_one = graph.node("Add", [curve, _scalar(graph, 1)], f"{name}_grown")
    return graph.node("Mul", [_multiply(graph, x, 0.5, f"{name}_half"), plus_one], name)


def _gelu_erf(graph: OnnxGraph, x: str, name: str) -> str:
    curve = graph.node("Erf", [_multiply(graph, x, 0.5**0.5, f"{name}_inner")], f"{name}_erf")
    plus_one = graph.node("Add", [curve, _scalar(graph, 1)], f"{name}_grown")
    return graph.node("Mul", [_multiply(graph, x, 0.5, f"{name}_half"), plus_one], name)


def _hard_mish(graph: OnnxGraph, x: str, name: str) -> str:
    negative = _clip(graph, x, -2, 0, f"{name}_low")
    square = _multiply(graph, graph.node("Mul", [negative, negative], f"{name}_square"), 0.5, f"{name}_bend")
    bent = graph.node("Add", [square, negative], f"{name}_bent")
    return graph.node("Add", [graph.node("Relu", [x], f"{name}_high"), bent], name)


def _ramp(graph: OnnxGraph, x: str, name: str) -> str:
    return graph.node("Add", [graph.node("Relu", [x], f"{name}_relu"), _multiply(graph, x, 0.1, f"{name}_slope")], name)


def _mish(graph: OnnxGraph, x: str, name: str) -> str:
    # Opset 18 has Mish; engines of opset 17 know it by this pattern.
    return graph.node("Mul", [x, graph.node("Tanh", [graph.node("Softplus", [x], f"{name}_softplus")], f"{name}_tanh")], name)


_OPERATORS: dict[str, Callable[[OnnxGraph, str, str], str]] = {
    "linear": lambda graph, x, name: x,
    "leaky": lambda graph, x, name: graph.node("LeakyRelu", [x], name, alpha=LEAKY_SLOPE),
    "relu": lambda graph, x, name: graph.node("Relu", [x], name),
    "relu6": lambda graph, x, name: _clip(graph, x, 0, 6, name),
    "logistic": lambda graph, x, name: graph.node("Sigmoid", [x], name),
    "swish": lambda graph, x, name: graph.node("Mul", [x, graph.node("Sigmoid", [x], f"{name}_sigmoid")], name),
    "mish": _mish,
    "loggy": lambda graph, x, name: graph.node("Tanh", [_multiply(graph, x, 0.5, f"{name}_half")], name),
    "tanh": lambda graph, x, name: graph.node("Tanh", [x], name),
    "relie": lambda graph, x, name: graph.node("LeakyRelu", [x], name, alpha=0.01),
    "ramp": _ramp,
    "plse": _plse,
    "elu": lambda graph, x, name: graph.node("Elu", [x], name, alpha=1.0),
    "selu": lambda graph, x, name: graph.node("Selu", [x], name, alpha=1.6732, gamma=1.0507),
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "hardtan": lambda graph, x, name: _clip(graph, x, -1, 1, name),
    "lhtan": lambda graph, x, name: graph.node("Add", _slow_outside(graph, x, 0, 1, 0.001, name), name),
    "hard_mish": _hard_mish,
    "hard_sigmoid": lambda graph, x, name: graph.node("HardSigmoid", [x], name, alpha=1 / 6, beta=0.5),
    "hard_swish": lambda graph, x, name: graph.node("HardSwish", [x], name),
    "sqrt": lambda graph, x, name: graph.node("Sqrt", [graph.node("Relu", [x], f"{name}_relu")], name),
}
WRITTEN_ACTIVATIONS = frozenset(_OPERATORS)

CLAMPS = ("linear", "relu", "relu6")
"""Results of these are clamps of their sums, which engines do when they store codes."""
MONOTONIC = (*CLAMPS, "leaky", "logistic")
"""These keep the order of values, so that the largest may be taken before."""


def activate(graph: OnnxGraph, activation: str, x: str, name: str) -> str:
    """Append an activation and return its result. Raises: KeyError for one that mpnet.export.onnx.support refuses."""
    return _OPERATORS[activation](graph, x, name)
