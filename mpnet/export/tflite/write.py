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
from mpnet.export.tflite.operations import TfliteWriter
from mpnet.export.tflite.rules import COMPUTED, TfliteRules
from mpnet.export.weights import round_to_halves
from mpnet.model.network import MaxpoolSpec
from mpnet.model.precision import FLOAT16, FP16, FP32, Precision
from mpnet.quantization.codes import Codes, Ranges
from mpnet.quantization.weights import dequantize_weights

Layers = dict[int, tuple[str, str, str]]


def _describe_written(way: Way, requested: Precision) -> tuple[str, str]:
    """Return the precision that a convolution of codes has in the file, and why it is another or what is to be said."""
    if way == "simulated":
        return FP32.name, "no range of its sums is known; it computes on the reals that int8 codes mean"
    return requested.name, f"its sums have {8 * requested.stored.item_bytes} bits" if way == "descaled" else ""


class TfliteExport:
    """One configuration on its way into a file.

    graph: the operators. input, outputs: the tensors of the image and of the heads. layers: what became of each layer.
    """

    def __init__(self, configuration: Configuration, rules: TfliteRules, sums: Ranges) -> None:
        self.graph = TfliteGraph()
        self.layers: Layers = {}
        self._configuration = configuration
        self._rules = rules
        self._plan = configuration.plan
        self._forms = choose_forms(self._plan, rules, sums, self._reach)
        self._writer = TfliteWriter(self.graph)
        self._tensors: dict[tuple[int, Form], int] = {}
        self._sources: dict[int, int] = {}
        self._exact_halves = any(step.output_precision.carries_scale for step in self._plan.steps)
        self.input = self._tensors[0, None] = self.graph.tensor("picture", (1, *configuration.network.in_shape))
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
            self._tensors[step.output, None] = self._writer.round_to_half(self._get(source, None))
        elif isinstance(operation, (Quantize, Cast)):
            self._sources[step.output] = source
        elif isinstance(operation, Dequantize):
            codes = self._forms.maps[source]
            if codes is None:
                self._sources[step.output] = source
            else:
                self._tensors[step.output, None] = self._writer.dequantize(self._get(source, codes))
        else:
            form = self._forms.stored_forms.get(step.output)
            if type(operation) in COMPUTED:
                tensor = COMPUTED[type(operation)](self._writer, operation, [self._get(slot, None) for slot in step.inputs])
            else:
                tensor = _WRITERS[type(operation)](self, number, step, form)
            if self._exact_halves and form is None and not carries_codes(operation) and step.output_precision.stored is FLOAT16:
                tensor = self._writer.round_to_half(tensor)
            self._tensors[step.output, form] = tensor
            self.graph.rename(tensor, layer_name(layer.index, layer.short))

    def _get(self, slot: int, form: Form) -> int:
        """Return the tensor of a slot in a form; converted once where it is kept in another."""
        while (slot, form) not in self._tensors and slot in self._sources:
            slot = self._sources[slot]
        if (slot, form) not in self._tensors:
            stored_form = self._forms.stored_forms.get(slot)
            x = self._tensors[slot, stored_form]
            self._tensors[slot, form] = self._writer.dequantize(x) if form is None else self._writer.quantize(x, form)
        return self._tensors[slot, form]

    def _convolve(self, number: int, step: Step, form: Form) -> int:
        operation = step.operation
        assert isinstance(operation, Convolve)
        layer, way = operation.layer_of(self._plan.network), self._forms.ways[number]
        codes: Codes | None = None if way in ("float", "hybrid") else self._forms.maps[step.inputs[0]]
        constants = self._configuration.prepared.constants(operation)
        requested, written_name, remark = operation.precision, FP32.name, ""
        is_half = operation.weights is None and requested.stored is FLOAT16
        if is_half:
            written_name = FP16.name if self._rules.stored_halves else FP32.name
            remark = (
                "16-bit weights; computed in fp32" if self._rules.stored_halves else "weights rounded to half, kept as fp32"
            )
            if not self._rules.stored_halves:
                rounded = round_to_halves(layer, constants.weights).astype(np.float32)
                constants, is_half = replace(constants, weights=rounded), False
        elif operation.weights is not None:
            written_name, remark = (requested.name, "") if requested.is_narrow else _describe_written(way, requested)
            if way == "hybrid" and self._forms.maps[step.inputs[0]] is not None:
                remark = "hybrid: ranges are the image's own, not the calibrated ones"
        self.layers[layer.index] = (requested.name, written_name, remark)
        convolution = Convolution(
            layer, constants, way, is_half, requested.is_narrow, codes, self._forms.sums.get(number), form
        )
        return write_convolution(self._writer, self._rules, convolution, self._get(step.inputs[0], codes))

    def _reach(self, convolution: Convolve, codes: Codes) -> float:
        constants = self._configuration.prepared.constants(convolution)
        assert constants.weight_scale is not None
        filters = np.abs(dequantize_weights(constants.codes, constants.weight_scale)).sum(axis=(1, 2, 3), dtype=np.float64)
        return float((np.abs(constants.bias) + filters * -codes.least * codes.scale).max())

    def _maxpool(self, number: int, step: Step, form: Form) -> int:
        layer = self._plan.network.layers[step.layer]
        assert isinstance(layer, MaxpoolSpec)
        return self._writer.maxpool(self._get(step.inputs[0], form), layer, form)

    def _move(self, number: int, step: Step, form: Form) -> int:
        operation, tensors = step.operation, [self._get(slot, form) for slot in step.inputs]
        if isinstance(operation, Upsample):
            return self._writer.upsample(tensors[0], operation.factor, form)
        if isinstance(operation, Slice):
            return self._writer.slice_channels(tensors[0], operation.start, operation.stop, form)
        if isinstance(operation, Pad):
            margins = (operation.top, operation.bottom, operation.left, operation.right)
            return self._writer.pad(tensors[0], margins, form, channels=(operation.front, operation.back))
        if isinstance(operation, Reorg3d):
            return self._writer.space_to_depth(tensors[0], operation.stride, form)
        if isinstance(operation, Shuffle):
            return self._writer.shuffle(tensors[0], operation.groups, form)
        return self._writer.concatenate(tensors, form)

    def _outputs(self) -> list[int]:
        """Return a tensor of its own for each output: readers take no tensor twice, nor the input as an output."""
        outputs: list[int] = []
        for slot in self._plan.outputs:
            tensor = self._get(slot, None)
            if tensor in outputs or tensor == self.input:
                self._writer.name = "output"
                tensor = self._writer.copy(tensor)
            outputs.append(tensor)
        return outputs

    def _weightless(self) -> None:
        """Say what became of layers without weights that have a precision of their own."""
        for index in self._configuration.precisions.keyed:
            requested, slot = self._configuration.precisions[index], self._plan.layer_slots[index]
            while slot in self._sources and (slot, None) not in self._tensors:
                slot = self._sources[slot]
            coded = any(form is not None and number == slot for number, form in self._tensors)
            if requested.carries_scale and not coded:
                self.layers[index] = (requested.name, FP32.name, "only convolutions quantise by the image's own range")
            elif requested.carries_scale:
                self.layers[index] = (requested.name, requested.name, "")
            else:
                self.layers[index] = (
                    requested.name,
                    FP32.name,
                    "activations are held in fp32" if requested is not FP32 else "",
                )


_WRITERS: dict[type[Any], Callable[[TfliteExport, int, Step, Form], int]] = {
    Convolve: TfliteExport._convolve,
    MaxPool: TfliteExport._maxpool,
    Upsample: TfliteExport._move,
    Slice: TfliteExport._move,
    Concat: TfliteExport._move,
    Pad: TfliteExport._move,
    Reorg3d: TfliteExport._move,
    Shuffle: TfliteExport._move,
}
