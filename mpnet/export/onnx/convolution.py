"""Convolutions: on reals with the weights that the precision has, or on codes."""

from __future__ import annotations

import numpy as np

from mpnet.engine.operations import Convolve
from mpnet.engine.prepare import Prepared
from mpnet.export.onnx.activations import CLAMPS, activate
from mpnet.export.onnx.graph import Graph, layer_name
from mpnet.export.onnx.rules import Rules
from mpnet.export.onnx.sums import sums_params
from mpnet.export.onnx.values import Value, pair, real_of
from mpnet.spec.precision import FLOAT16


def convolve(graph: Graph, prepared: Prepared, operation: Convolve, x: Value, rules: Rules) -> Value:
    """The result of a convolution with bias and activation, as reals that are not yet rounded to anything."""
    layer = operation.layer_of(prepared.network)
    index = layer.index
    constants = prepared.constants(operation.alone)
    bias, weights = constants.bias, constants.weights
    window = {
        "kernel_shape": [layer.size] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4,
        "dilations": [layer.dilation] * 2, "group": layer.groups,
    }
    name, activated = layer_name(index, "conv"), layer_name(index, layer.activation)
    if constants.weight_scale is None:
        stored = graph.constant(layer_name(index, "weights"), weights.astype(operation.precision.stored.dtype))
        if operation.precision.stored is FLOAT16:
            stored = graph.node("Cast", [stored], layer_name(index, "weights_widened"), to=1)
        inputs = [real_of(graph, x, name), stored, graph.constant(layer_name(index, "bias"), bias)]
        return Value(activate(graph, layer.activation, graph.node("Conv", inputs, name, **window), activated))

    scales = constants.weight_scale
    assert scales is not None
    assert x.coded is not None
    stored = graph.constant(layer_name(index, "weights"), weights)
    if x.coded.params is None and rules.integer:
        sums = graph.node("ConvInteger", [x.coded.tensor, stored, x.coded.zero_point], name, **window)
        reals = graph.node("Cast", [sums], layer_name(index, "sums"), to=1)
        columns = graph.constant(layer_name(index, "weights_scale"), scales.reshape(1, -1, 1, 1))
        factor = graph.node("Mul", [x.coded.scale, columns], layer_name(index, "factor"))
        scaled = graph.node("Mul", [reals, factor], layer_name(index, "scaled"))
        sums = graph.node(
            "Add", [scaled, graph.constant(layer_name(index, "bias"), bias.reshape(1, -1, 1, 1))], layer_name(index, "biased"))
        return Value(activate(graph, layer.activation, sums, activated))
    scale = graph.constant(layer_name(index, "weights_scale"), scales)
    zeros = graph.constant("weights_zero_point", np.zeros(len(scales), np.int8))
    real = graph.node("DequantizeLinear", [stored, scale, zeros], layer_name(index, "weights_dequantize"), axis=0)
    inputs = [real_of(graph, x, name), real, graph.constant(layer_name(index, "bias"), bias)]
    sums = graph.node("Conv", inputs, name, **window)
    if rules.coded_sums and operation.quantize is not None and layer.activation not in CLAMPS:
        assert operation.quantize.range is not None
        params = sums_params(layer.activation, operation.quantize)
        sums = pair(graph, sums, layer_name(index, "sums"), params).real
    return Value(activate(graph, layer.activation, sums, activated))
