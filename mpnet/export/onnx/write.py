# SPDX-License-Identifier: MIT
"""A plan's steps as ONNX nodes: every conversion, precision, range and weight code as mpnet runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpnet.engine.fuse import fuse_plan
from mpnet.engine.operations import Add, Cast, Concat, Convolve, Dequantize, MaxPool, Operation, Quantize, Slice
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.export.naming import layer_name
from mpnet.export.onnx.activations import activate
from mpnet.export.onnx.convolution import convolve
from mpnet.export.onnx.graph import OnnxGraph
from mpnet.export.onnx.operations import Job, write
from mpnet.export.onnx.rules import Rules
from mpnet.export.onnx.values import NARROW, Later, Value, pair, quantised, real_of, rounded
from mpnet.model.network import Shape
from mpnet.quantization.scheme import range_to_params

INPUT = "picture"


class OnnxExport:
    """A graph whose tensors are NCHW for one image; heads: tensor of each of the plan's outputs."""

    def __init__(self, plan: Plan, prepared: Prepared, rules: Rules) -> None:
        self.graph = OnnxGraph()
        self.rules = rules
        self.prepared = prepared
        self.plan = fuse_plan(plan, for_export=True)
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
            return self._moved(step, step.operation, self._values[slot], name)
        inputs = [self._ready(slot) for slot in step.inputs]
        if step.operation.moves_values and len(inputs) == 1:
            return self._moved(step, step.operation, inputs[0], name)
        if isinstance(step.operation, Convolve):
            return self._convolve(step, inputs[0])
        if isinstance(step.operation, Quantize):
            return quantised(self.graph, real_of(self.graph, inputs[0], name), name, step.operation)
        if isinstance(step.operation, (Dequantize, Cast)):
            return self._stored(real_of(self.graph, inputs[0], name), step)
        reals = [real_of(self.graph, value, name) for value in inputs]
        shapes = [self.plan.slots[slot].shape for slot in step.inputs]
        value = self._stored(self._written(step.operation, reals, shapes, step, name), step)
        bounds = self.plan.options.ranges.get(step.layer)
        codes = [each.coded.params if each.coded else None for each in inputs]
        if self.rules.coded_sums and isinstance(step.operation, (Add, Concat)) and all(codes) and bounds is not None:
            scheme = self.plan.options.of(step.layer).activations
            return pair(self.graph, value.real, layer_name(step.layer, "result"), range_to_params(*bounds, scheme))
        return value

    def _written(self, operation: Operation, inputs: list[str], shapes: list[Shape], step: Step, name: str) -> str:
        shape = self.plan.slots[step.output].shape
        return write(Job(self.graph, operation, inputs, shapes, shape, name, self.prepared))

    def _ready(self, slot: int) -> Value:
        """A slot with all that was put off until something computes with it."""
        value, later = self._values[slot], self._values[slot].later
        if later is not None:
            real = activate(self.graph, later.activation, value.real, layer_name(later.layer, later.activation))
            name = layer_name(later.layer, "result")
            if later.quantize is None:
                value = Value(rounded(self.graph, real, name, later.stored, self.rules))
            else:
                value = quantised(self.graph, real, name, later.quantize)
            self._values[slot] = value
        return value

    def _stored(self, real: str, step: Step) -> Value:
        """A result that is stored as the step gives it."""
        stored = step.gives.stored
        has_rounded = step.operation.moves_values and step.takes is step.gives
        rounds = stored in NARROW and not has_rounded
        return Value(real, later=Later(step.layer, "linear", None, stored) if rounds else None)

    def _convolve(self, step: Step, x: Value) -> Value:
        operation = step.operation
        assert isinstance(operation, Convolve)
        layer = operation.layer_of(self.plan.network)
        if layer.kernel_input != self.plan.slots[step.inputs[0]].shape:
            x = self._as_channels(x, layer_name(step.layer, "values"))
        value = convolve(self.graph, self.prepared, operation, x, self.rules, self.plan.options)
        if operation.quantize is None and value.coded is None:
            value = self._stored(value.real, step)
        if operation.pool is not None:
            value = self._moved(step, operation.pool, value, layer_name(step.layer, "maxpool"))
        return value

    def _as_channels(self, x: Value, name: str) -> Value:
        """All values of a tensor as the channels of one pixel, in the order that they have in memory, channels last."""

        def flat(tensor: str) -> str:
            last = self.graph.node("Transpose", [tensor], f"{name}_last", perm=[0, 2, 3, 1])
            return self.graph.node("Reshape", [last, self.graph.constant("one_pixel", np.array([1, -1, 1, 1], np.int64))], name)

        coded = None if x.coded is None else replace(x.coded, tensor=flat(x.coded.tensor))
        return Value(flat(x.real) if x.real else "", coded)

    def _moved(self, step: Step, operation: Operation, x: Value, name: str) -> Value:
        def moved(tensor: str) -> str:
            source = step.inputs[0]
            shape = self.plan.slots[source].shape
            if isinstance(step.operation, Convolve):
                shape = step.operation.layer_of(self.plan.network).kernel_output
            return self._written(operation, [tensor], [shape], step, name)

        coded = x.coded
        if coded is None:
            return Value(moved(x.real), later=x.later)
        if coded.params is None:
            return Value("", replace(coded, tensor=moved(coded.tensor)))
        real = moved(x.real)
        return pair(self.graph, real, name, coded.params) if self.rules.fused_only else Value(real, coded)
