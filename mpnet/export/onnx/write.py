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
from mpnet.export.onnx.operations import OperationWriter, write
from mpnet.export.onnx.rules import OnnxRules
from mpnet.export.onnx.values import NARROW, Pending, Value, add_pair, quantize_value, real_of, round_to_16_bits
from mpnet.model.network import Shape
from mpnet.quantization.scheme import range_to_params

INPUT = "picture"


class OnnxExport:
    """A graph whose tensors are NCHW for one image; heads: tensor of each of the plan's outputs."""

    def __init__(self, plan: Plan, prepared: Prepared, rules: OnnxRules) -> None:
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
            real_of(self.graph, self._complete(slot), layer_name(index, "head"))
            for index, slot in zip(plan.network.outputs, self.plan.outputs, strict=True)
        ]

    def _step(self, step: Step) -> Value:
        name = layer_name(step.layer, step.operation.name.lower())
        if isinstance(step.operation, (MaxPool, Slice)):
            [slot] = step.inputs
            return self._move(step, step.operation, self._values[slot], name)
        inputs = [self._complete(slot) for slot in step.inputs]
        if step.operation.moves_values and len(inputs) == 1:
            return self._move(step, step.operation, inputs[0], name)
        if isinstance(step.operation, Convolve):
            return self._convolve(step, inputs[0])
        if isinstance(step.operation, Quantize):
            return quantize_value(self.graph, real_of(self.graph, inputs[0], name), name, step.operation)
        if isinstance(step.operation, (Dequantize, Cast)):
            return self._round_to_stored(real_of(self.graph, inputs[0], name), step)
        reals = [real_of(self.graph, value, name) for value in inputs]
        shapes = [self.plan.slots[slot].shape for slot in step.inputs]
        value = self._round_to_stored(self._write_operation(step.operation, reals, shapes, step, name), step)
        bounds = self.plan.options.ranges.get(step.layer)
        codes = [value_of_input.coded.params if value_of_input.coded else None for value_of_input in inputs]
        if self.rules.coded_sums and isinstance(step.operation, (Add, Concat)) and all(codes) and bounds is not None:
            scheme = self.plan.options.of(step.layer).activations
            return add_pair(self.graph, value.real, layer_name(step.layer, "result"), range_to_params(*bounds, scheme))
        return value

    def _write_operation(self, operation: Operation, inputs: list[str], shapes: list[Shape], step: Step, name: str) -> str:
        shape = self.plan.slots[step.output].shape
        return write(OperationWriter(self.graph, operation, inputs, shapes, shape, name, self.prepared))

    def _complete(self, slot: int) -> Value:
        """Return a slot with all that was put off until something computes with it."""
        value, pending = self._values[slot], self._values[slot].pending
        if pending is not None:
            real = activate(self.graph, pending.activation, value.real, layer_name(pending.layer, pending.activation))
            name = layer_name(pending.layer, "result")
            if pending.quantize is None:
                value = Value(round_to_16_bits(self.graph, real, name, pending.stored_type, self.rules))
            else:
                value = quantize_value(self.graph, real, name, pending.quantize)
            self._values[slot] = value
        return value

    def _round_to_stored(self, real: str, step: Step) -> Value:
        """Return a result that is stored as the step gives it."""
        stored_type = step.output_precision.stored
        has_rounded = step.operation.moves_values and step.input_precision is step.output_precision
        rounds = stored_type in NARROW and not has_rounded
        return Value(real, pending=Pending(step.layer, "linear", None, stored_type) if rounds else None)

    def _convolve(self, step: Step, x: Value) -> Value:
        operation = step.operation
        assert isinstance(operation, Convolve)
        layer = operation.layer_of(self.plan.network)
        if layer.kernel_input != self.plan.slots[step.inputs[0]].shape:
            x = self._as_channels(x, layer_name(step.layer, "values"))
        value = convolve(self.graph, self.prepared, operation, x, self.rules, self.plan.options)
        if operation.quantize is None and value.coded is None:
            value = self._round_to_stored(value.real, step)
        if operation.pool is not None:
            value = self._move(step, operation.pool, value, layer_name(step.layer, "maxpool"))
        return value

    def _as_channels(self, x: Value, name: str) -> Value:
        """Write all values of a tensor as the channels of one pixel, in the order that they have in memory, channels last."""

        def flat(tensor: str) -> str:
            channels_last = self.graph.node("Transpose", [tensor], f"{name}_last", perm=[0, 2, 3, 1])
            return self.graph.node(
                "Reshape", [channels_last, self.graph.constant("one_pixel", np.array([1, -1, 1, 1], np.int64))], name
            )

        coded = None if x.coded is None else replace(x.coded, tensor=flat(x.coded.tensor))
        return Value(flat(x.real) if x.real else "", coded)

    def _move(self, step: Step, operation: Operation, x: Value, name: str) -> Value:
        def move(tensor: str) -> str:
            source = step.inputs[0]
            shape = self.plan.slots[source].shape
            if isinstance(step.operation, Convolve):
                shape = step.operation.layer_of(self.plan.network).kernel_output
            return self._write_operation(operation, [tensor], [shape], step, name)

        coded = x.coded
        if coded is None:
            return Value(move(x.real), pending=x.pending)
        if coded.params is None:
            return Value("", replace(coded, tensor=move(coded.tensor)))
        real = move(x.real)
        return add_pair(self.graph, real, name, coded.params) if self.rules.fused_only else Value(real, coded)
