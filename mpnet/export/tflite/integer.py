# SPDX-License-Identifier: MIT
"""A plan in whole numbers alone as a TensorFlow Lite graph: one operator for each step, tensors with the plan's own codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Sequence

from mpnet.engine.operations import (
    Dequantize,
    IntegerAdd,
    IntegerConcat,
    IntegerConvolve,
    IntegerLeaky,
    IntegerQuantize,
    IntegerRescale,
    MaxPool,
    Operation,
    Pad,
    Reorg3d,
    Shuffle,
    Slice,
    Upsample,
)
from mpnet.engine.plan import Step
from mpnet.errors import ConfigError
from mpnet.export.configuration import Configuration, describe_layer
from mpnet.export.naming import layer_name
from mpnet.export.tflite.convolution import Convolution, write_convolution
from mpnet.export.tflite.file import TfliteGraph
from mpnet.export.tflite.operations import TfliteWriter
from mpnet.export.tflite.rules import TfliteRules
from mpnet.model.network import MaxpoolSpec
from mpnet.quantization.codes import Codes


class IntegerExport:
    """One configuration on its way into a file.

    graph: the operators. input, outputs: the tensors of the image and of the heads. layers: what became of each layer.
    Raises: ConfigError naming a layer that TensorFlow Lite has no operator for.
    """

    def __init__(self, configuration: Configuration, rules: TfliteRules) -> None:
        self.graph = TfliteGraph()
        self._configuration, self._rules = configuration, rules
        self._plan = configuration.plan
        self._writer = TfliteWriter(self.graph)
        self._codes: dict[int, Codes] = {}
        self.input = self.graph.tensor("picture", (1, *configuration.network.in_shape))
        self._tensors = {0: self.input}
        for step in self._plan.steps:
            if not step.operation.is_head:
                self._step(step)
        self.outputs: list[int] = []
        for slot in self._plan.outputs:
            tensor = self._tensors[slot]
            if tensor in self.outputs or tensor == self.input:
                self._writer.name = "output"
                tensor = self._writer.copy(tensor)
            self.outputs.append(tensor)
        precisions = configuration.precisions
        self.layers = {i: (str(precisions[i]), str(precisions[i]), "") for i in (*precisions.weighted, *precisions.keyed)}

    def _step(self, step: Step) -> None:
        operation, layer = step.operation, self._plan.network.layers[step.layer]
        write = _WRITERS.get(type(operation))
        if write is None or (isinstance(operation, Pad) and operation.edge):
            described = describe_layer(self._plan.network, step.layer)
            raise ConfigError(f"--to tflite: {described} takes {operation.name} here, which has no form in whole numbers there")
        self._writer.name = layer_name(layer.index, layer.short)
        inputs = [self._tensors[slot] for slot in step.inputs]
        codes: Any = getattr(operation, "result", None) or getattr(operation, "codes", None) or self._codes.get(step.inputs[0])
        tensor = self._tensors[step.output] = write(self, step, inputs, codes)
        if not isinstance(operation, Dequantize) and codes is not None:
            self._codes[step.output] = codes
        self.graph.rename(tensor, layer_name(layer.index, layer.short))

    def _convolve(self, step: Step, x: Sequence[int], codes: Codes) -> int:
        operation = step.operation
        assert isinstance(operation, IntegerConvolve)
        layer = replace(operation.layer_of(self._plan.network), activation=operation.activation)
        constants = self._configuration.prepared.constants(operation)
        convolution = Convolution(layer, constants, "coded", False, False, operation.codes, operation.result, codes)
        source = x[0]
        if operation.result.is_wide and not operation.codes.is_wide:
            # The same steps in int16, exactly: of int8 there is no convolution that gives int16.
            widened = Codes(operation.codes.scale, 0, operation.result.bits)
            convolution, source = replace(convolution, codes=widened), self._writer.quantize(source, widened)
        return write_convolution(self._writer, self._rules, convolution, source)

    def _maxpool(self, step: Step, x: Sequence[int], codes: Codes) -> int:
        layer = self._plan.network.layers[step.layer]
        assert isinstance(layer, MaxpoolSpec)
        return self._writer.maxpool(x[0], layer, codes)

    def _space_to_depth(self, step: Step, x: Sequence[int], codes: Codes) -> int:
        assert isinstance(step.operation, Reorg3d)
        if codes.is_wide:
            described = describe_layer(self._plan.network, step.layer)
            raise ConfigError(f"--to tflite: {described}: SPACE_TO_DEPTH knows no int16; set the layer to int8")
        return self._writer.space_to_depth(x[0], step.operation.stride, codes)

    def _pad(self, step: Step, x: Sequence[int], codes: Codes) -> int:
        pad = step.operation
        assert isinstance(pad, Pad)
        return self._writer.pad(x[0], (pad.top, pad.bottom, pad.left, pad.right), codes, channels=(pad.front, pad.back))


def _slice(export: IntegerExport, step: Step, x: Sequence[int], codes: Codes) -> int:
    operation = step.operation
    assert isinstance(operation, Slice)
    return export._writer.slice_channels(x[0], operation.start, operation.stop, codes)


def _shuffle(export: IntegerExport, step: Step, x: Sequence[int], codes: Codes) -> int:
    operation = step.operation
    assert isinstance(operation, Shuffle)
    return export._writer.shuffle(x[0], operation.groups, codes)


def _upsample(export: IntegerExport, step: Step, x: Sequence[int], codes: Codes) -> int:
    operation = step.operation
    assert isinstance(operation, Upsample)
    return export._writer.upsample(x[0], operation.factor, codes)


def _add(export: IntegerExport, step: Step, x: Sequence[int], codes: Codes) -> int:
    operation = step.operation
    assert isinstance(operation, IntegerAdd)
    return export._writer.add_codes(x[0], x[1], codes, operation.activation)


_WRITERS: dict[type[Operation], Callable[[IntegerExport, Step, Sequence[int], Codes], int]] = {
    IntegerQuantize: lambda export, _, x, codes: export._writer.quantize(x[0], codes),
    IntegerRescale: lambda export, _, x, codes: export._writer.quantize(x[0], codes),
    IntegerLeaky: lambda export, _, x, codes: export._writer.leaky(x[0], codes),
    IntegerConcat: lambda export, _, x, codes: export._writer.concatenate(x, codes),
    IntegerAdd: _add,
    IntegerConvolve: IntegerExport._convolve,
    Dequantize: lambda export, _, x, codes: export._writer.dequantize(x[0]),
    MaxPool: IntegerExport._maxpool,
    Upsample: _upsample,
    Shuffle: _shuffle,
    Slice: _slice,
    Pad: IntegerExport._pad,
    Reorg3d: IntegerExport._space_to_depth,
}
