# SPDX-License-Identifier: MIT
"""mpnet's operations in TensorFlow Lite: each function appends operators and returns the tensor of the result."""

from __future__ import annotations

from typing import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import ArrayLike, NDArray

from mpnet.export.tflite.file import TfliteGraph
from mpnet.export.tflite.rules import count_missing, find_pool_padding
from mpnet.model.network import MaxpoolSpec
from mpnet.quantization.codes import LEAKY_SLOPE, Codes

CHANNELS = 3
"""The axis of channels in (1, h, w, c)."""
NO_FUSION = schema.ActivationFunctionType.NONE
FUSED = {"linear": NO_FUSION, "relu": schema.ActivationFunctionType.RELU, "relu6": schema.ActivationFunctionType.RELU6}
PADDING = {"SAME": schema.Padding.SAME, "VALID": schema.Padding.VALID}
_TWO_OPTIONS = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
    "MINIMUM": "MaximumMinimumOptions",
}
_LOWEST = np.finfo(np.float32).min
_OF_16_BITS = {"ADD": 3, "PAD": 3, "MAX_POOL_2D": 3, "RESIZE_NEAREST_NEIGHBOR": 4, "SLICE": 4, "CONCATENATION": 3}
"""The versions of operators that take int16; of others it is that which takes int8."""


def _version(operator: str, codes: Codes | None) -> int:
    if codes is None:
        return 1
    return _OF_16_BITS.get(operator, 2) if codes.is_wide else 2


class TfliteWriter:
    """Operators on a graph. name: of the layer that they belong to; its last tensor gets it, the others what they are."""

    def __init__(self, graph: TfliteGraph) -> None:
        self.graph = graph
        self.name = ""

    def add_tensor(self, role: str, shape: Sequence[int], codes: Codes | None = None) -> int:
        """Add a tensor of the layer: reals, or codes."""
        return self.graph.tensor(f"{self.name}/{role}", shape, "float32" if codes is None else f"int{codes.bits}", codes)

    def add_constant(self, role: str, values: ArrayLike, kind: type[np.generic] = np.int32) -> int:
        """Add a constant of the layer."""
        return self.graph.constant(f"{self.name}/{role}", np.asarray(values, kind))

    def quantize(self, x: int, codes: Codes) -> int:
        """Quantize reals to codes, or codes to others."""
        output = self.add_tensor("codes", self.graph.shape(x), codes)
        return self.graph.operator("QUANTIZE", [x], output, version=2 if codes.is_wide else 1, options="QuantizeOptions")

    def dequantize(self, x: int) -> int:
        """Dequantize codes to reals."""
        return self.graph.operator(
            "DEQUANTIZE", [x], self.add_tensor("reals", self.graph.shape(x)), version=2, options="DequantizeOptions"
        )

    def pad(
        self,
        x: int,
        margins: tuple[int, int, int, int],
        codes: Codes | None,
        lowest: bool = False,
        channels: tuple[int, int] = (0, 0),
    ) -> int:
        """Write zeros (or the lowest value) around each channel.

        margins: rows before and after, columns before and after.
        channels: more of them, before and after.
        """
        graph = self.graph
        _, height, width, depth = graph.shape(x)
        top, bottom, left, right = margins
        output = self.add_tensor("padded", (1, height + top + bottom, width + left + right, depth + sum(channels)), codes)
        amounts = self.add_constant("padding", [[0, 0], [top, bottom], [left, right], channels])
        if not lowest:
            return graph.operator("PAD", [x, amounts], output, version=_version("PAD", codes), options="PadOptions")
        if codes is None:
            value = self.add_constant("lowest", [_LOWEST], np.float32)
        else:
            value = graph.constant(f"{self.name}/lowest", np.full(1, codes.least, f"int{codes.bits}"), codes)
        return graph.operator("PADV2", [x, amounts, value], output, version=_version("PADV2", codes), options="PadV2Options")

    def maxpool(self, x: int, layer: MaxpoolSpec, codes: Codes | None) -> int:
        """Write max pooling; outside is never chosen: TensorFlow's paddings leave it out, others hold the lowest value."""
        word = find_pool_padding(layer)
        if word is None:
            padding_before = layer.padding // 2
            padding_behind = count_missing(layer.in_shape, layer.out_shape, layer.size, layer.stride, padding_before)
            x, word = (
                self.pad(x, (padding_before, padding_behind[0], padding_before, padding_behind[1]), codes, lowest=True),
                "VALID",
            )
        return self.graph.operator(
            "MAX_POOL_2D",
            [x],
            self.add_tensor("pooled", (1, *layer.out_shape), codes),
            version=_version("MAX_POOL_2D", codes),
            options="Pool2DOptions",
            padding=PADDING[word],
            strideW=layer.stride,
            strideH=layer.stride,
            filterWidth=layer.size,
            filterHeight=layer.size,
        )

    def avgpool(self, x: int) -> int:
        """Append operators for the mean of each channel."""
        _, height, width, channels = self.graph.shape(x)
        return self.graph.operator(
            "AVERAGE_POOL_2D",
            [x],
            self.add_tensor("mean", (1, 1, 1, channels)),
            options="Pool2DOptions",
            padding=PADDING["VALID"],
            strideW=width,
            strideH=height,
            filterWidth=width,
            filterHeight=height,
        )

    def upsample(self, x: int, factor: int, codes: Codes | None) -> int:
        """Append operators for the image enlarged by a whole factor, each pixel repeated."""
        _, height, width, channels = self.graph.shape(x)
        size = [height * factor, width * factor]
        return self.graph.operator(
            "RESIZE_NEAREST_NEIGHBOR",
            [x, self.add_constant("size", size)],
            self.add_tensor("larger", (1, *size, channels), codes),
            version=_version("RESIZE_NEAREST_NEIGHBOR", codes),
            options="ResizeNearestNeighborOptions",
        )

    def slice_channels(self, x: int, start: int, stop: int, codes: Codes | None) -> int:
        """Append operators for the channels from start to stop."""
        shape = (*self.graph.shape(x)[:CHANNELS], stop - start)
        return self.graph.operator(
            "SLICE",
            [x, self.add_constant("begin", [0, 0, 0, start]), self.add_constant("extent", shape)],
            self.add_tensor("part", shape, codes),
            version=_version("SLICE", codes),
            options="SliceOptions",
        )

    def concatenate(self, tensors: Sequence[int], codes: Codes | None) -> int:
        """Append operators for the parts joined along their channels."""
        channels = sum(self.graph.shape(x)[CHANNELS] for x in tensors)
        shape = (*self.graph.shape(tensors[0])[:CHANNELS], channels)
        return self.graph.operator(
            "CONCATENATION",
            tensors,
            self.add_tensor("joined", shape, codes),
            version=_version("CONCATENATION", codes),
            options="ConcatenationOptions",
            axis=CHANNELS,
        )

    def space_to_depth(self, x: int, block: int, codes: Codes | None) -> int:
        """Append operators for the pixels of a square as channels of one."""
        _, height, width, channels = self.graph.shape(x)
        return self.graph.operator(
            "SPACE_TO_DEPTH",
            [x],
            self.add_tensor("depth", (1, height // block, width // block, channels * block * block), codes),
            version=_version("SPACE_TO_DEPTH", codes),
            options="SpaceToDepthOptions",
            blockSize=block,
        )

    def shuffle(self, x: int, groups: int, codes: Codes | None) -> int:
        """Append operators for the channels of so many groups in turn."""
        shape = self.graph.shape(x)
        pixels, group_channels = shape[1] * shape[2], shape[CHANNELS] // groups
        transposed = self.graph.operator(
            "TRANSPOSE",
            [self._reshape(x, (pixels, groups, group_channels), "groups", codes), self.add_constant("order", [0, 2, 1])],
            self.add_tensor("turned", (pixels, group_channels, groups), codes),
            version=_version("TRANSPOSE", codes),
            options="TransposeOptions",
        )
        return self._reshape(transposed, shape, "shuffled", codes)

    def softmax(self, x: int) -> int:
        """Append operators for the softmax over the channels of each pixel."""
        output = self.add_tensor("softmax", self.graph.shape(x))
        return self.graph.operator("SOFTMAX", [x], output, options="SoftmaxOptions", beta=1.0)

    def multiply(self, a: int, b: int, activation: str) -> int:
        """Write activation(a * b) of reals; b may have one value per channel, or per pixel."""
        return self.activate(self._add_binary("MUL", a, b, FUSED.get(activation, NO_FUSION)), activation)

    def line(self, x: int, scale: float, shift: float, activation: str) -> int:
        """Write activation(x * scale + shift)."""
        if scale != 1:
            x = self._add_binary("MUL", x, self._add_number(scale))
        if shift != 0:
            x = self._add_binary("ADD", x, self._add_number(shift))
        if activation in ("relu", "relu6"):
            return self.graph.operator(activation.upper(), [x], self.add_tensor(activation, self.graph.shape(x)))
        return self.activate(x, activation)

    def add(self, a: int, b: int, activation: str) -> int:
        """Write activation(a + b) of reals."""
        return self.activate(self._add_binary("ADD", a, b, FUSED.get(activation, NO_FUSION)), activation)

    def add_codes(self, a: int, b: int, codes: Codes, activation: str) -> int:
        """Write activation(a + b) of codes, of FUSED."""
        wide = {"potScaleInt16": False} if codes.is_wide else {}
        return self.graph.operator(
            "ADD",
            [a, b],
            self.add_tensor("sum", self.graph.shape(a), codes),
            version=_version("ADD", codes),
            options="AddOptions",
            fusedActivationFunction=FUSED[activation],
            **wide,
        )

    def activate(self, x: int, activation: str) -> int:
        """Append an activation of reals, which no operator has in itself."""
        graph, shape = self.graph, self.graph.shape(x)
        if activation in FUSED:
            return x
        if activation == "leaky":
            return self.leaky(x, None)
        if activation == "mish":
            # x * n / (n + 2) with n = e * (e + 2), e = exp(min(x, 20)): docs/arithmetic.md, section 3.
            e = graph.operator(
                "EXP",
                [self._add_binary("MINIMUM", x, self._add_number(20), None)],
                self.add_tensor("exp", shape),
                options="ExpOptions",
            )
            n = self._add_binary("MUL", e, self._add_binary("ADD", e, self._add_number(2)))
            return self._add_binary("MUL", x, self._add_binary("DIV", n, self._add_binary("ADD", n, self._add_number(2))))
        if activation == "tanh":
            return graph.operator("TANH", [x], self.add_tensor("tanh", shape))
        if activation == "sqrt":
            relu = graph.operator("RELU", [x], self.add_tensor("relu", shape))
            return graph.operator("SQRT", [relu], self.add_tensor("sqrt", shape))
        if activation == "hard_swish":
            return graph.operator("HARD_SWISH", [x], self.add_tensor("hard_swish", shape), options="HardSwishOptions")
        if activation == "hard_sigmoid":
            sixths = self._add_binary("ADD", x, self._add_number(3), FUSED["relu6"])
            return self._add_binary("MUL", sixths, self._add_number(1 / 6))
        logistic = graph.operator("LOGISTIC", [x], self.add_tensor("logistic", shape))
        return logistic if activation == "logistic" else self._add_binary("MUL", x, logistic)

    def leaky(self, x: int, codes: Codes | None) -> int:
        """Write LeakyReLU. codes: of the result, None for reals."""
        return self.graph.operator(
            "LEAKY_RELU",
            [x],
            self.add_tensor("leaky", self.graph.shape(x), codes),
            version=_version("LEAKY_RELU", codes),
            options="LeakyReluOptions",
            alpha=LEAKY_SLOPE,
        )

    def round_to_half(self, x: int) -> int:
        """Round reals to the eleven bits of fp16, in float32: t = x * (2^13 + 1); t - (t - x). Source: Veltkamp."""
        t = self._add_binary("MUL", x, self._add_number(8193))
        return self._add_binary("SUB", t, self._add_binary("SUB", t, x))

    def copy(self, x: int) -> int:
        """Append operators for the same values as a tensor of its own."""
        return self._reshape(x, self.graph.shape(x), "copy", None)

    def _reshape(self, x: int, shape: Sequence[int], name: str, codes: Codes | None) -> int:
        return self.graph.operator(
            "RESHAPE",
            [x, self.add_constant("shape", shape)],
            self.add_tensor(name, shape, codes),
            options="ReshapeOptions",
            newShape=list(shape),
        )

    def _add_number(self, value: float) -> int:
        constants: NDArray[np.float32] = np.array([value], np.float32)
        return self.graph.constant(f"number_{value}", constants)

    def _add_binary(self, operator: str, a: int, b: int, fused: int | None = NO_FUSION) -> int:
        """Append an operator of two tensors of reals. fused: None for one that has no activation in itself."""
        values = {} if fused is None else {"fusedActivationFunction": fused}
        output = self.add_tensor(operator.lower(), self.graph.shape(a))
        return self.graph.operator(operator, [a, b], output, options=_TWO_OPTIONS[operator], **values)
