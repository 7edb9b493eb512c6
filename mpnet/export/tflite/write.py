# SPDX-License-Identifier: MIT
"""A plan as a TensorFlow Lite graph: step by step, each tensor in the form that `forms` chose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from mpnet.engine.operations import (
    Cast,
    Concat,
    Convolve,
    Dequantize,
    MaxPool,
    Pad,
    Quantize,
    Reorg3d,
    Shuffle,
    Slice,
    Upsample,
)
from mpnet.engine.plan import Step
from mpnet.export.configuration import Configuration
from mpnet.export.naming import layer_name
from mpnet.export.tflite.convolution import Convolution, write_convolution
from mpnet.export.tflite.file import TfliteGraph
from mpnet.export.tflite.forms import Form, Way, carries_codes, choose_forms
from mpnet.export.tflite.operations import Writer
from mpnet.export.tflite.rules import COMPUTED, Rules
from mpnet.export.weights import halves_of
from mpnet.model.network import MaxpoolSpec
from mpnet.model.precision import FLOAT16, FP16, FP32, Precision
from mpnet.quantization.codes import Codes, Ranges
from mpnet.quantization.weights import dequantize_weights

Layers = dict[int, tuple[str, str, str]]


def _written(way: Way, asked: Precision) -> tuple[str, str]:
    """The precision that a convolution of codes has in the file, and why it is another or what is to be said."""
    if way == "simulated":
        return FP32.name, "no range of its sums is known; it computes on the reals that int8 codes mean"
    return asked.name, f"its sums have {8 * asked.stored.item_bytes} bits" if way == "descaled" else ""


class TfliteExport:
    """One configuration on its way into a file.

    graph: the operators. input, outputs: the tensors of the image and of the heads. layers: what became of each layer.
    """

    def __init__(self, configuration: Configuration, rules: Rules, sums: Ranges) -> None:
        self.graph = TfliteGraph()
        self.layers: Layers = {}
        self._configuration = configuration
        self._rules = rules
        self._plan = configuration.plan
        self._forms = choose_forms(self._plan, rules, sums, self._reach)
        self._writer = Writer(self.graph)
        self._made: dict[tuple[int, Form], int] = {}
        self._same: dict[int, int] = {}
        self._exact_halves = any(step.gives.carries_scale for step in self._plan.steps)
        self.input = self._made[0, None] = self.graph.tensor("picture", (1, *configuration.network.in_shape))
        for number, step in enumerate(self._plan.steps):
            self._step(number, step)
        self.outputs = self._outputs()
        self._weightless()

    def _step(self, number: int, step: Step) -> None:
        operation, layer = step.operation, self._plan.network.layers[step.layer]
        if operation.is_head:
            return
        self._writer.name = layer_name(layer.index, layer.short)
        source = step.inputs[0]
        if isinstance(operation, Cast) and self._exact_halves and operation.target.stored is FLOAT16:
            self._made[step.output, None] = self._writer.halve(self._get(source, None))
        elif isinstance(operation, (Quantize, Cast)):
            self._same[step.output] = source
        elif isinstance(operation, Dequantize):
            codes = self._forms.maps[source]
            if codes is None:
                self._same[step.output] = source
            else:
                self._made[step.output, None] = self._writer.dequantize(self._get(source, codes))
        else:
            form = self._forms.kept.get(step.output)
            if type(operation) in COMPUTED:
                made = COMPUTED[type(operation)](self._writer, operation, [self._get(slot, None) for slot in step.inputs])
            else:
                made = _WRITERS[type(operation)](self, number, step, form)
            if self._exact_halves and form is None and not carries_codes(operation) and step.gives.stored is FLOAT16:
                made = self._writer.halve(made)
            self._made[step.output, form] = made
            self.graph.rename(made, layer_name(layer.index, layer.short))

    def _get(self, slot: int, form: Form) -> int:
        """The tensor of a slot in a form; converted once where it is kept in another."""
        while (slot, form) not in self._made and slot in self._same:
            slot = self._same[slot]
        if (slot, form) not in self._made:
            kept = self._forms.kept.get(slot)
            x = self._made[slot, kept]
            self._made[slot, form] = self._writer.dequantize(x) if form is None else self._writer.quantize(x, form)
        return self._made[slot, form]

    def _convolve(self, number: int, step: Step, form: Form) -> int:
        operation = step.operation
        assert isinstance(operation, Convolve)
        layer, way = operation.layer_of(self._plan.network), self._forms.ways[number]
        codes: Codes | None = None if way in ("float", "hybrid") else self._forms.maps[step.inputs[0]]
        constants = self._configuration.prepared.constants(operation)
        asked, written, why = operation.precision, FP32.name, ""
        halves = operation.weights is None and asked.stored is FLOAT16
        if halves:
            written = FP16.name if self._rules.stored_halves else FP32.name
            why = "16-bit weights; computed in fp32" if self._rules.stored_halves else "weights rounded to half, kept as fp32"
            if not self._rules.stored_halves:
                rounded = halves_of(layer, constants.weights).astype(np.float32)
                constants, halves = replace(constants, weights=rounded), False
        elif operation.weights is not None:
            written, why = (asked.name, "") if asked.is_narrow else _written(way, asked)
            if way == "hybrid" and self._forms.maps[step.inputs[0]] is not None:
                why = "hybrid: ranges are the image's own, not the calibrated ones"
        self.layers[layer.index] = (asked.name, written, why)
        convolution = Convolution(layer, constants, way, halves, asked.is_narrow, codes, self._forms.sums.get(number), form)
        return write_convolution(self._writer, self._rules, convolution, self._get(step.inputs[0], codes))

    def _reach(self, convolution: Convolve, codes: Codes) -> float:
        constants = self._configuration.prepared.constants(convolution)
        assert constants.weight_scale is not None
        filters = np.abs(dequantize_weights(constants.weights, constants.weight_scale)).sum(axis=(1, 2, 3), dtype=np.float64)
        return float((np.abs(constants.bias) + filters * -codes.least * codes.scale).max())

    def _maxpool(self, number: int, step: Step, form: Form) -> int:
        layer = self._plan.network.layers[step.layer]
        assert isinstance(layer, MaxpoolSpec)
        return self._writer.maxpool(self._get(step.inputs[0], form), layer, form)

    def _moved(self, number: int, step: Step, form: Form) -> int:
        operation, tensors = step.operation, [self._get(slot, form) for slot in step.inputs]
        if isinstance(operation, Upsample):
            return self._writer.upsample(tensors[0], operation.factor, form)
        if isinstance(operation, Slice):
            return self._writer.part(tensors[0], operation.start, operation.stop, form)
        if isinstance(operation, Pad):
            around = (operation.top, operation.bottom, operation.left, operation.right)
            return self._writer.pad(tensors[0], around, form, channels=(operation.front, operation.back))
        if isinstance(operation, Reorg3d):
            return self._writer.space_to_depth(tensors[0], operation.stride, form)
        if isinstance(operation, Shuffle):
            return self._writer.shuffle(tensors[0], operation.groups, form)
        return self._writer.concatenate(tensors, form)

    def _outputs(self) -> list[int]:
        """A tensor of its own for each output: readers take no tensor twice, nor the input as an output."""
        chosen: list[int] = []
        for slot in self._plan.outputs:
            tensor = self._get(slot, None)
            if tensor in chosen or tensor == self.input:
                self._writer.name = "output"
                tensor = self._writer.copy(tensor)
            chosen.append(tensor)
        return chosen

    def _weightless(self) -> None:
        """Say what became of layers without weights that have a precision of their own."""
        for index in self._configuration.precisions.keyed:
            asked, slot = self._configuration.precisions[index], self._plan.layer_slots[index]
            while slot in self._same and (slot, None) not in self._made:
                slot = self._same[slot]
            coded = any(form is not None and made == slot for made, form in self._made)
            if asked.carries_scale and not coded:
                self.layers[index] = (asked.name, FP32.name, "only convolutions quantise by the image's own range")
            elif asked.carries_scale:
                self.layers[index] = (asked.name, asked.name, "")
            else:
                self.layers[index] = (asked.name, FP32.name, "activations are held in fp32" if asked is not FP32 else "")


_WRITERS: dict[type[Any], Callable[[TfliteExport, int, Step, Form], int]] = {
    Convolve: TfliteExport._convolve,
    MaxPool: TfliteExport._maxpool,
    Upsample: TfliteExport._moved,
    Slice: TfliteExport._moved,
    Concat: TfliteExport._moved,
    Pad: TfliteExport._moved,
    Reorg3d: TfliteExport._moved,
    Shuffle: TfliteExport._moved,
}
