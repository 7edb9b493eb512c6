"""A plan's steps as ONNX nodes: every conversion, precision, range and weight code as mpnet runs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from mpnet.engine.fuse import fuse_plan
from mpnet.engine.operations import (
    Add,
    AvgPool,
    Cast,
    Concat,
    Convolve,
    Dequantize,
    MaxPool,
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
)
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.export.onnx.activations import activate
from mpnet.export.onnx.convolution import convolve
from mpnet.export.onnx.graph import Graph, layer_name
from mpnet.export.onnx.rules import Rules
from mpnet.export.onnx.values import Later, Value, pair, quantised, real_of, rounded_to_half
from mpnet.spec.precision import FLOAT16

INPUT = "picture"


class Lowered:
    """A graph whose tensors are NCHW for one picture; heads: tensor of each of the plan's outputs."""

    def __init__(self, plan: Plan, prepared: Prepared, rules: Rules) -> None:
        self.graph = Graph()
        self.rules = rules
        self.prepared = prepared
        self.plan = fuse_plan(plan)
        height, width, channels = plan.network.in_shape
        self._values: dict[int, Value] = {0: Value(self.graph.input(INPUT, (1, channels, height, width)))}
        for step in self.plan.steps:
            if not step.operation.is_head:
                self._values[step.output] = self._step(step)
        self.heads = [
            real_of(self.graph, self._ready(slot), layer_name(index, "head"))
            for index, slot in zip(plan.network.outputs, self.plan.outputs, strict=True)
        ]

    def _step(self, step: Step) -> Value:
        name = layer_name(step.layer, step.operation.name.lower())
        if isinstance(step.operation, (MaxPool, Slice)):
            [slot] = step.inputs
            return self._moved(step.operation, self._values[slot], name)
        inputs = [self._ready(slot) for slot in step.inputs]
        if isinstance(step.operation, Upsample):
            return self._moved(step.operation, inputs[0], name)
        if isinstance(step.operation, Convolve):
            return self._convolve(step, inputs[0])
        if isinstance(step.operation, Quantize):
            return quantised(self.graph, real_of(self.graph, inputs[0], name), name, step.operation)
        if isinstance(step.operation, (Dequantize, Cast)):
            return self._stored(real_of(self.graph, inputs[0], name), step)
        reals = [real_of(self.graph, value, name) for value in inputs]
        return self._stored(_WRITE[type(step.operation)](self.graph, step.operation, reals, name), step)

    def _ready(self, slot: int) -> Value:
        """A slot with all that was put off until something computes with it."""
        value, later = self._values[slot], self._values[slot].later
        if later is not None:
            real = activate(self.graph, later.activation, value.real, layer_name(later.layer, later.activation))
            name = layer_name(later.layer, "result")
            if later.quantize is None:
                value = Value(rounded_to_half(self.graph, real, name, self.rules))
            else:
                value = quantised(self.graph, real, name, later.quantize)
            self._values[slot] = value
        return value

    def _stored(self, real: str, step: Step) -> Value:
        """A result that is stored as the step gives it."""
        has_halves = step.operation.moves_values and step.takes is step.gives
        rounds = step.gives.stored is FLOAT16 and not has_halves
        return Value(real, later=Later(step.layer, "linear", None) if rounds else None)

    def _convolve(self, step: Step, x: Value) -> Value:
        operation = step.operation
        assert isinstance(operation, Convolve)
        value = convolve(self.graph, self.prepared, operation, x, self.rules)
        if operation.quantize is None:
            value = self._stored(value.real, step)
        if operation.pool is not None:
            value = self._moved(operation.pool, value, layer_name(step.layer, "maxpool"))
        return value

    def _moved(self, operation: Operation, x: Value, name: str) -> Value:
        write, coded = _WRITE[type(operation)], x.coded
        if coded is None:
            return Value(write(self.graph, operation, [x.real], name), later=x.later)
        if coded.params is None:
            return Value("", replace(coded, tensor=write(self.graph, operation, [coded.tensor], name)))
        moved = write(self.graph, operation, [x.real], name)
        return pair(self.graph, moved, name, coded.params) if self.rules.fused_only else Value(moved, coded)


def _maxpool(graph: Graph, operation: MaxPool, inputs: list[str], name: str) -> str:
    before = operation.padding // 2
    after = operation.padding - before
    size = operation.size
    return graph.node(
        "MaxPool", inputs, name, kernel_shape=[size, size], strides=[operation.stride] * 2,
        pads=[before, before, after, after],
    )


def _upsample(graph: Graph, operation: Upsample, inputs: list[str], name: str) -> str:
    factor = operation.factor
    scales = graph.constant(f"scales_{factor}", np.array([1, 1, factor, factor], np.float32))
    return graph.node(
        "Resize", [*inputs, "", scales], name, mode="nearest", coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _slice(graph: Graph, operation: Slice, inputs: list[str], name: str) -> str:
    numbers = [graph.constant(f"number_{n}", np.array([n], np.int64)) for n in (operation.start, operation.stop, 1)]
    return graph.node("Slice", [*inputs, *numbers], name)


def _add(graph: Graph, operation: Add, inputs: list[str], name: str) -> str:
    return activate(graph, operation.activation, graph.node("Add", inputs, name), f"{name}_{operation.activation}")


_WRITE: dict[type[Operation], Callable[[Graph, Any, list[str], str], str]] = {
    MaxPool: _maxpool,
    Upsample: _upsample,
    Slice: _slice,
    Add: _add,
    Concat: lambda graph, operation, inputs, name: graph.node("Concat", inputs, name, axis=1),
    AvgPool: lambda graph, operation, inputs, name: graph.node("GlobalAveragePool", inputs, name),
}
OPERATIONS = (*_WRITE, Convolve, Quantize, Dequantize, Cast, Yolo)
