# SPDX-License-Identifier: MIT
"""A plan as ncnn layers. Tensors between layers are reals; an int8 convolution sums codes, and a layer behind it de-scales."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
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
    Shuffle,
    Slice,
    Upsample,
)
from mpnet.engine.plan import Step
from mpnet.engine.prepare import Constants
from mpnet.export.configuration import Configuration
from mpnet.export.naming import layer_name
from mpnet.export.ncnn.file import NcnnFiles
from mpnet.export.weights import round_to_halves
from mpnet.model.network import ConvolutionSpec, LayerSpec
from mpnet.model.precision import FLOAT16
from mpnet.quantization.codes import LEAKY_SLOPE
from mpnet.quantization.scheme import QuantParams, range_to_params

INPUT = "picture"
_KEEP = -233
"""ncnn's word for as many as there are."""
# The activation inside a convolution: its number, and its parameters.
_FUSED: dict[str, tuple[int, list[float]]] = {
    "linear": (0, []),
    "relu": (1, []),
    "leaky": (2, [LEAKY_SLOPE]),
    "relu6": (3, [0.0, 6.0]),
    "logistic": (4, []),
    "mish": (5, []),
}
_ALONE: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("ReLU", {}),
    "leaky": ("ReLU", {"p0": LEAKY_SLOPE}),
    "relu6": ("Clip", {"p0": 0.0, "p1": 6.0}),
    "logistic": ("Sigmoid", {}),
    "mish": ("Mish", {}),
    "swish": ("Swish", {}),
}
_FLOAT, _HALF, _CODE = 1, 2, 3
"""ncnn's numbers of types, for Cast."""
_NO_16_BITS = 0b111
"""Parameter 31, options that a layer refuses: storage and arithmetic in half and bfloat16, whose range sums of codes leave."""
_NO_WINOGRAD = 1 << 6
"""The same: products of transformed tiles, whose rounding errors are ten times those of sums."""


class NcnnExport:
    """One configuration on its way into ncnn's files.

    files: the layers. outputs: blobs by the names that the heads' tensors have outside. layers: what became of each layer.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.files = NcnnFiles()
        self.layers: dict[int, tuple[str, str, str]] = {}
        self._configuration = configuration
        self._plan = configuration.plan
        network = configuration.network
        # By slot: the blob of its reals, and how its codes mean reals where the plan holds codes.
        self._blobs: dict[int, str] = {
            0: self.files.add_layer("Input", INPUT, [], p0=network.width, p1=network.height, p2=network.channels)
        }
        self._maps: dict[int, QuantParams] = {}
        # By slot: the blob of its codes, once something has read them.
        self._codes: dict[int, str] = {}
        self._extra_layers = 0
        # Codes hang on the last bits of what they are made of: where there are int8 layers, halves are rounded as in mpnet, and
        # convolutions of reals add products as they are.
        self._exact = any(step.output_precision.carries_scale for step in self._plan.steps)
        for step in self._plan.steps:
            self._step(step)
        self.outputs = {
            layer_name(index, "output"): self._blobs[slot]
            for index, slot in zip(network.outputs, self._plan.outputs, strict=True)
        }
        for index in configuration.precisions.keyed:
            requested = configuration.precisions[index]
            if requested.stored is FLOAT16:
                self.layers[index] = (requested.name, "fp32", "ncnn's files store weights in half, not activations")
            elif requested.carries_scale:
                self.layers[index] = (requested.name, requested.name, "its values are those of codes, held in fp32")

    def _step(self, step: Step) -> None:
        operation, source = step.operation, step.inputs[0]
        layer = self._plan.network.layers[step.layer]
        if operation.is_head:
            return
        if isinstance(operation, Quantize):
            assert operation.range is not None
            self._maps[step.output] = range_to_params(*operation.range, operation.scheme)
            self._blobs[step.output] = self._blobs[source]
        elif isinstance(operation, Cast):
            halved = self._exact and operation.target.stored is FLOAT16
            self._blobs[step.output] = self._round_to_half(layer, self._blobs[source]) if halved else self._blobs[source]
        elif isinstance(operation, Dequantize):
            self._blobs[step.output] = self._dequantize(layer, source)
        else:
            blob = _WRITERS[type(operation)](self, step, layer_name(layer.index, layer.short))
            computes = not (operation.moves_values or isinstance(operation, Concat))
            rounds = self._exact and computes and step.output_precision.stored is FLOAT16
            self._blobs[step.output] = self._round_to_half(layer, blob) if rounds else blob
            if source in self._maps and step.output_precision.carries_scale:
                self._maps[step.output] = self._maps[source]

    def _round_to_half(self, layer: LayerSpec, blob: str) -> str:
        """Append layers for the reals rounded to half, where mpnet stores halves.

        An int8 layer behind them then finds the same codes.
        """
        self._extra_layers += 1
        name = f"{layer_name(layer.index, layer.short)}/half_{self._extra_layers}"
        half_blob = self.files.add_layer("Cast", f"{name}/stored", [blob], p0=_FLOAT, p1=_HALF)
        return self.files.add_layer("Cast", name, [half_blob], p0=_HALF, p1=_FLOAT)

    def _dequantize(self, layer: LayerSpec, slot: int) -> str:
        """Append layers for the reals that codes mean: ncnn holds no codes between layers."""
        wide = self._widen_codes(layer, slot)
        scale = float(np.float32(self._maps[slot].scale))
        return self.files.add_layer("BinaryOp", f"{wide}/reals", [wide], p0=2, p1=1, p2=scale)

    def _widen_codes(self, layer: LayerSpec, slot: int) -> str:
        """Widen codes to float32."""
        self._extra_layers += 1
        name = f"{layer_name(layer.index, layer.short)}/wide_{self._extra_layers}"
        return self.files.add_layer("Cast", name, [self._quantize_slot(layer, slot)], p0=_CODE, p1=_FLOAT, p31=_NO_16_BITS)

    def _quantize_slot(self, layer: LayerSpec, slot: int) -> str:
        """Return the blob of a slot's codes; all who read them share it."""
        if slot not in self._codes:
            self._extra_layers += 1
            name = f"{layer_name(layer.index, layer.short)}/codes_{self._extra_layers}"
            self._codes[slot] = self._quantize_blob(self._blobs[slot], name, slot)
        return self._codes[slot]

    def _quantize_blob(self, blob: str, name: str, slot: int) -> str:
        """Append layers for a blob's codes, by the scale of a slot."""
        codes = self.files.add_layer("Quantize", name, [blob], p0=1, p31=_NO_16_BITS)
        self.files.add_floats(np.array([self._maps[slot].inv_scale], np.float32))
        return codes

    def _convolve(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, Convolve)
        layer, requested = operation.layer_of(self._plan.network), operation.precision
        constants = self._configuration.prepared.constants(operation)
        if operation.weights is not None:
            return self._convolve_codes(layer, requested.name, constants, step.inputs[0], name)
        if requested.stored is FLOAT16:
            constants = Constants(round_to_halves(layer, constants.reals), constants.bias, None)
            self.layers[layer.index] = (requested.name, "fp16", "16-bit weights; computed in fp32")
        else:
            self.layers[layer.index] = (requested.name, "fp32", "")
        return self._convolve_reals(layer, constants, self._blobs[step.inputs[0]], name)

    def _convolve_reals(self, layer: ConvolutionSpec, constants: Constants, x: str, name: str) -> str:
        """Append layers for a convolution with bias and activation."""
        number, numbers = _FUSED.get(layer.activation, _FUSED["linear"])
        alone = layer.activation not in _FUSED
        parameters: dict[str, Any] = {"p5": 1}
        if self._exact and layer.size == 3 and layer.groups == 1:
            parameters["p31"] = _NO_WINOGRAD
        if number:
            parameters["p9"] = number
        if numbers:
            parameters["p10"] = numbers
        blob = self._add_convolution(layer, constants.weights, x, f"{name}/sums" if alone else name, layer.groups, **parameters)
        self.files.add_floats(constants.bias)
        return self._activate(blob, layer.activation, name) if alone else blob

    def _convolve_codes(self, layer: ConvolutionSpec, requested: str, constants: Constants, slot: int, name: str) -> str:
        """Convolve to whole sums, then apply mpnet's product and sum: ncnn rounds thrice what it de-scales int8 sums by.

        Depthwise sums are of the same codes in float32, which holds them exactly: on x86 ncnn would de-scale int8 ones, even
        by 1, by the CPU's approximate reciprocal, good to four digits and different between makers.
        """
        assert constants.weight_scale is not None
        if layer.depthwise and layer.filters == layer.groups:
            self.layers[layer.index] = (
                requested,
                "fp32",
                "the same codes and sums: ncnn's int8 depthwise sums lose digits on x86",
            )
            weights = constants.weights.astype(np.float16)
            sums = self._add_convolution(
                layer, weights, self._widen_codes(layer, slot), f"{name}/sums", layer.groups, p31=_NO_16_BITS
            )
        else:
            self.layers[layer.index] = (requested, "int8", "")
            sums = self._sum_codes(layer, constants.codes, slot, f"{name}/sums")
        alone = layer.activation != "linear"
        reals = self.files.add_layer(
            "Scale", f"{name}/reals" if alone else name, [sums], p0=layer.filters, p1=1, p31=_NO_16_BITS
        )
        self.files.add_floats(np.float32(self._maps[slot].scale) * constants.weight_scale)
        self.files.add_floats(constants.bias)
        return self._activate(reals, layer.activation, name) if alone else reals

    def _sum_codes(self, layer: ConvolutionSpec, weights: NDArray[np.int8], slot: int, name: str) -> str:
        """Append the sums of an int8 convolution.

        Groups are convolutions of their own: ncnn's gave other numbers from run to run.
        """
        if layer.groups == 1:
            return self._add_int8_convolution(layer, weights, self._quantize_slot(layer, slot), name)
        inputs = layer.in_shape[2] // layer.groups
        group_sums = []
        for group, group_weights in enumerate(np.split(weights, layer.groups)):
            x = self.files.add_layer(
                "Crop", f"{name}/in_{group}", [self._blobs[slot]], p2=group * inputs, p3=_KEEP, p4=_KEEP, p5=inputs
            )
            group_sums.append(
                self._add_int8_convolution(
                    layer, group_weights, self._quantize_blob(x, f"{name}/codes_{group}", slot), f"{name}/out_{group}"
                )
            )
        return self.files.add_layer("Concat", name, group_sums, p0=0, p31=_NO_16_BITS)

    def _add_int8_convolution(self, layer: ConvolutionSpec, weights: NDArray[np.int8], x: str, name: str) -> str:
        sums = self._add_convolution(layer, weights, x, name, p8=2, p31=_NO_16_BITS)
        self.files.add_floats(np.ones(len(weights) + 1, np.float32))  # what it de-scales by: of each filter, and of the input
        return sums

    def _add_convolution(
        self, layer: ConvolutionSpec, weights: Array, x: str, name: str, groups: int = 1, **parameters: Any
    ) -> str:
        """Append a convolution's line and its weights. What ncnn reads behind them is the caller's: bias, scales."""
        kind = "Convolution" if groups == 1 else "ConvolutionDepthWise"
        if groups > 1:
            parameters["p7"] = groups
        blob = self.files.add_layer(
            kind,
            name,
            [x],
            p0=len(weights),
            p1=layer.size,
            p2=layer.dilation,
            p3=layer.stride,
            p4=layer.padding,
            p6=weights.size,
            **parameters,
        )
        self.files.add_weights(np.ascontiguousarray(weights))
        return blob

    def _activate(self, blob: str, activation: str, name: str) -> str:
        kind, parameters = _ALONE[activation]
        return self.files.add_layer(kind, name, [blob], **parameters)

    def _maxpool(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, MaxPool)
        padding_before = operation.padding // 2
        padding_behind = operation.padding - padding_before
        return self.files.add_layer(
            "Pooling",
            name,
            [self._blobs[step.inputs[0]]],
            p0=0,
            p1=operation.size,
            p2=operation.stride,
            p3=padding_before,
            p13=padding_before,
            p14=padding_behind,
            p15=padding_behind,
            p5=1,
        )

    def _upsample(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, Upsample)
        factor = float(operation.factor)
        return self.files.add_layer("Interp", name, [self._blobs[step.inputs[0]]], p0=1, p1=factor, p2=factor)

    def _slice(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, Slice)
        self._extra_layers += 1
        return self.files.add_layer(
            "Crop",
            f"{name}/part_{self._extra_layers}",
            [self._blobs[step.inputs[0]]],
            p2=operation.start,
            p3=_KEEP,
            p4=_KEEP,
            p5=operation.stop - operation.start,
        )

    def _shuffle(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, Shuffle)
        return self.files.add_layer("ShuffleChannel", name, [self._blobs[step.inputs[0]]], p0=operation.groups)

    def _concat(self, step: Step, name: str) -> str:
        return self.files.add_layer("Concat", name, [self._blobs[slot] for slot in step.inputs], p0=0)

    def _add(self, step: Step, name: str) -> str:
        operation = step.operation
        assert isinstance(operation, Add)
        summands = [self._blobs[slot] for slot in step.inputs]
        if operation.activation == "linear":
            return self.files.add_layer("BinaryOp", name, summands, p0=0)
        return self._activate(self.files.add_layer("BinaryOp", f"{name}/sum", summands, p0=0), operation.activation, name)

    def _avgpool(self, step: Step, name: str) -> str:
        mean = self.files.add_layer("Pooling", f"{name}/mean", [self._blobs[step.inputs[0]]], p0=1, p4=1)
        # ncnn gives a vector; the layers behind it expect (c, 1, 1).
        return self.files.add_layer("Reshape", name, [mean], p0=1, p1=1, p2=-1)


_WRITERS: dict[type[Operation], Callable[[NcnnExport, Step, str], str]] = {
    Convolve: NcnnExport._convolve,
    MaxPool: NcnnExport._maxpool,
    Upsample: NcnnExport._upsample,
    Shuffle: NcnnExport._shuffle,
    Slice: NcnnExport._slice,
    Concat: NcnnExport._concat,
    Add: NcnnExport._add,
    AvgPool: NcnnExport._avgpool,
}
