# SPDX-License-Identifier: MIT
"""Convolutions in TensorFlow Lite, in each way that `forms` knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.engine.prepare import Constants
from mpnet.engine.rules import kernel_activation
from mpnet.export.tflite.file import Channels
from mpnet.export.tflite.forms import Form, Way
from mpnet.export.tflite.operations import CHANNELS, FUSED, NO_FUSION, PADDING, TfliteWriter
from mpnet.export.tflite.rules import TfliteRules, count_missing, find_convolution_padding
from mpnet.export.weights import round_to_halves
from mpnet.model.network import ConvolutionSpec
from mpnet.quantization.codes import Codes
from mpnet.quantization.fixed_point import BIAS_TYPES, integer_bias, within_reach
from mpnet.quantization.weights import dequantize_weights

_VERSION = {
    "CONV_2D": {"float": 1, "hybrid": 5, "coded": 3, "coded16": 4},
    "DEPTHWISE_CONV_2D": {"float": 1, "hybrid": 6, "coded": 3, "coded16": 5},
}
_GROUPED_VERSION = 6
_4_BITS_VERSION = 7


@dataclass(frozen=True)
class Convolution:
    """One convolution as it is to be written.

    in_4_bits: weights are codes of four bits. codes: of the input, None for reals. sums: codes of the sums, None for reals.
    result: codes of the result.
    """

    layer: ConvolutionSpec
    constants: Constants
    way: Way
    is_half: bool
    in_4_bits: bool
    codes: Codes | None
    sums: Codes | None
    result: Form


def write_convolution(writer: TfliteWriter, rules: TfliteRules, conv: Convolution, x: int) -> int:
    """Append a convolution with its padding and activation. x: its input, codes or reals as the way wants."""
    layer = conv.layer
    if conv.way == "simulated":
        x = writer.dequantize(x)
        scales = conv.constants.weight_scale
        assert scales is not None
        conv = replace(
            conv, codes=None, constants=Constants(dequantize_weights(conv.constants.codes, scales), conv.constants.bias, None)
        )
    word = find_convolution_padding(layer)
    if word is None:
        x, word = writer.pad(x, _zeros_around(layer), conv.codes), "VALID"
    if conv.way == "hybrid" and (layer.size, layer.stride) == (1, 1) and not layer.depthwise:
        # XNNPACK runs such a convolution as a product of matrices, with a range for each pixel, where mpnet has one for the
        # image. A second row of zeros in the filters, read below the image, leads to the path of other sizes.
        codes = conv.constants.weights
        conv = replace(conv, constants=replace(conv.constants, weights=np.concatenate([codes, np.zeros_like(codes)], axis=2)))
        word = "SAME"
    output = _grouped(writer, rules, conv, x, word)
    if conv.way == "descaled":
        output = writer.dequantize(output)
    activation = kernel_activation(layer.activation)
    if conv.result is not None:
        return output if activation in FUSED else writer.leaky(output, conv.result)
    return writer.activate(output, activation)


def _zeros_around(layer: ConvolutionSpec) -> tuple[int, int, int, int]:
    window = layer.dilation * (layer.size - 1) + 1
    behind = count_missing(layer.in_shape, layer.out_shape, window, layer.stride, layer.padding)
    return layer.padding, behind[0], layer.padding, behind[1]


def _grouped(writer: TfliteWriter, rules: TfliteRules, conv: Convolution, x: int, word: str) -> int:
    """Write a convolution in one operator, or group by group where a reader knows no groups."""
    layer = conv.layer
    if layer.groups == 1 or layer.depthwise or (rules.grouped and conv.way in ("float", "simulated", "coded")):
        return _operator(writer, conv, x, word, slice(0, layer.filters))
    inputs, filters = layer.in_shape[2] // layer.groups, layer.filters // layer.groups
    group_results = []
    for group in range(layer.groups):
        group_input = writer.slice_channels(x, group * inputs, (group + 1) * inputs, conv.codes)
        group_results.append(_operator(writer, conv, group_input, word, slice(group * filters, (group + 1) * filters)))
    return writer.concatenate(group_results, conv.sums)


def _operator(writer: TfliteWriter, conv: Convolution, x: int, word: str, filters: slice) -> int:
    layer, graph = conv.layer, writer.graph
    depthwise = layer.depthwise
    weights: NDArray[np.float32 | np.float16 | np.int8] = conv.constants.weights[filters]
    bias = conv.constants.bias[filters]
    scales = None if conv.constants.weight_scale is None else conv.constants.weight_scale[filters]
    if conv.codes is not None and scales is not None:
        weights, scales = within_reach(conv.constants.codes[filters], scales, bias, conv.codes, conv.sums)
    # (out, in, h, w) to TensorFlow's (out, h, w, in), or (1, h, w, out) with a filter per channel.
    stored_weights = weights.transpose(0, 2, 3, 1) if not depthwise else weights[:, 0].transpose(1, 2, 0)[None]
    meaning = None if scales is None else Channels(scales, CHANNELS if depthwise else 0)
    kernel = _kernel(writer, conv, stored_weights, meaning)
    if conv.codes is None or scales is None:
        offset = writer.add_constant("bias", bias, np.float32)
    else:
        bias_steps = integer_bias(bias, scales, conv.codes).astype(BIAS_TYPES[conv.codes.bits])
        steps = scales.astype(np.float64) * conv.codes.scale
        offset = graph.constant(f"{writer.name}/bias", bias_steps, Channels(steps.astype(np.float32), 0))
    output = writer.add_tensor("sums", (1, *layer.out_shape[:2], len(bias)), conv.sums)
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    wide = conv.codes is not None and conv.codes.is_wide
    kind = "hybrid" if conv.way == "hybrid" else "float" if scales is None else "coded16" if wide else "coded"
    version = _VERSION[name][kind]
    depthwise_options: dict[str, Any] = {}
    if depthwise:
        depthwise_options["depthMultiplier"] = layer.filters // layer.groups
        version = max(version, 2 if layer.dilation > 1 else 1)
    elif graph.shape(x)[CHANNELS] != stored_weights.shape[CHANNELS]:
        version = _GROUPED_VERSION
    if conv.in_4_bits:
        version = _4_BITS_VERSION
    return graph.operator(
        name,
        [x, kernel, offset],
        output,
        version=version,
        options="DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
        padding=PADDING[word],
        strideW=layer.stride,
        strideH=layer.stride,
        dilationWFactor=layer.dilation,
        dilationHFactor=layer.dilation,
        fusedActivationFunction=FUSED.get(layer.activation, NO_FUSION),
        **depthwise_options,
    )


def _kernel(writer: TfliteWriter, conv: Convolution, stored_weights: Array, meaning: Channels | None) -> int:
    graph, name = writer.graph, f"{writer.name}/weights"
    if not conv.is_half:
        return graph.constant(name, stored_weights, meaning, in_4_bits=conv.in_4_bits)
    half_weights = round_to_halves(conv.layer, stored_weights)
    wide = graph.tensor(f"{name}_wide", stored_weights.shape)
    return graph.operator("DEQUANTIZE", [graph.constant(name, half_weights)], wide, version=3, options="DequantizeOptions")
