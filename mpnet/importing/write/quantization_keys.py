# SPDX-License-Identifier: MIT
"""The quantisation of a file as keys of a cfg: ranges of tensors, and which layers run on its integers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpnet.arrays import FloatArray
from mpnet.engine.lowering import range_owner
from mpnet.importing.graph import NodeGraph, QuantizationParameters
from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.importing.write.cfg_writer import WEIGHTED, CfgWriter
from mpnet.model.layers import MaxpoolSpec, ShuffleSpec, UpsampleSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.quantization.weights import WeightScheme, quantize_weights

Keys = dict[str, Any]


@dataclass(frozen=True)
class LayerRange:
    """The range that the file gives the result of a layer.

    low, high:    the reals that its integers span. bits: of such an integer.
    is_symmetric: whether its codes span the same below 0 as above.
    """

    low: float
    high: float
    bits: int
    is_symmetric: bool


@dataclass
class QuantizationKeys:
    """Keys of a cfg that a quantised file asks for.

    network: those of [net]. layers: those of each layer, by its index. notes: what is worth saying, for people.
    """

    network: Keys = field(default_factory=dict)
    layers: dict[int, Keys] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of_layer(self, index: int) -> Keys:
        """Return the keys of a layer, or of [net] for the network's input, to add to."""
        return self.network if index == NETWORK_INPUT else self.layers.setdefault(index, {})


def rounded_tensors(graph: NodeGraph, layers: LayerGraph) -> dict[str, str]:
    """Return the tensors that the file rounds for readers that don't round themselves, and the precision of their codes.

    Layers on the file's integers round what they read themselves.
    """
    readers = layers.readers()
    return {
        name: f"int{parameters.bits}"
        for name, parameters in graph.quantization.items()
        if name in layers.shapes
        and not (
            readers.get(name)
            and all(
                operation.kind in WEIGHTED and operation.values["weights_name"] in graph.stored_integers
                for operation in readers[name]
            )
        )
    }


def find_quantization_keys(graph: NodeGraph, layers: LayerGraph, writer: CfgWriter, network: NetworkSpec) -> QuantizationKeys:
    """Return the keys of a file: none where it is not quantised.

    A layer is int8 or int16 where its weights have integers in the file and the range of its input is known.
    """
    keys = QuantizationKeys()
    if not graph.quantization:
        return keys
    ranges = _find_ranges(graph, writer, network)
    for index, layer_range in ranges.items():
        keys.of_layer(index)["quantize_range"] = f"{layer_range.low:.9g},{layer_range.high:.9g}"
        if writer.rounded_tensors and index != NETWORK_INPUT:
            keys.of_layer(index)["quantize_activations"] = "calibrated"
    for name, index in writer.unrounded_index.items():
        if index in ranges and ranges[index].is_symmetric:
            keys.of_layer(writer.layer_of[name])["quantize_mode"] = "symmetric"
    _add_weight_keys(keys, ranges, graph, layers, writer, network)
    return keys


def _find_ranges(graph: NodeGraph, writer: CfgWriter, network: NetworkSpec) -> dict[int, LayerRange]:
    """Return the ranges by index of the layer whose result they are of."""
    ranges: dict[int, LayerRange] = {}
    for name, index in writer.layer_of.items():
        parameters = graph.quantization.get(name)
        if parameters is None or name in graph.constants or parameters.scale.size != 1:
            continue
        owner = writer.unrounded_index.get(name, index)
        # Codes from -127 to 127 around 0.
        is_symmetric = parameters.low + parameters.high == 2 * int(parameters.zero_point[0])
        if owner not in ranges:
            ranges[owner] = LayerRange(*parameters.bounds, parameters.bits, is_symmetric)
        elif is_symmetric:
            ranges[owner] = replace(ranges[owner], is_symmetric=True)
    for index, name in writer.padded_tensors.items():
        inner = ranges.get(writer.layer_of[name])
        if inner is not None:
            ranges[index] = LayerRange(min(inner.low, 0.0), max(inner.high, 0.0), inner.bits, is_symmetric=False)
    for layer in network.layers:
        # What moves values of a range has values of that range.
        if isinstance(layer, (MaxpoolSpec, UpsampleSpec, ShuffleSpec)) and layer.index not in ranges:
            owner = range_owner(network, layer.inputs[0])
            if owner in ranges:
                ranges[layer.index] = ranges[owner]
    return ranges


def _add_weight_keys(
    keys: QuantizationKeys,
    ranges: dict[int, LayerRange],
    graph: NodeGraph,
    layers: LayerGraph,
    writer: CfgWriter,
    network: NetworkSpec,
) -> None:
    """Let layers with weights run on the file's integers, and note how many of these stay as they are."""
    differing = values = 0
    layers_by_precision: Counter[str] = Counter()
    fp32_nodes: list[str] = []
    for operation in layers.operations:
        if operation.kind not in WEIGHTED:
            continue
        index = writer.unrounded_index.get(operation.output, writer.layer_of[operation.output])
        name, weights = operation.values["weights_name"], writer.weights[index].weights
        parameters = graph.quantization.get(name)
        input_range = ranges.get(range_owner(network, network.layers[index].inputs[0]))
        measured_mode = None if input_range is not None else _find_measured_mode(graph, operation)
        if (
            parameters is None
            or (input_range is None and measured_mode is None)
            or not _fits_int8_weights(parameters, len(weights))
        ):
            if name in graph.stored_integers:
                fp32_nodes.append(operation.nodes[0])
            continue
        factor = operation.values.get("factor", 1.0)
        is_per_tensor = parameters.scale.size == 1 and bool(np.all(factor == 1.0))
        precision = f"int{8 if input_range is None else input_range.bits}"
        layers_by_precision[precision] += 1
        layer_keys = keys.of_layer(index)
        layer_keys |= {precision: 1, "quantize_activations": "dynamic" if input_range is None else "calibrated"}
        if is_per_tensor:
            layer_keys["quantize_weights"] = "per_tensor"
        if measured_mode == "symmetric" or (input_range is not None and input_range.is_symmetric):
            layer_keys["quantize_mode"] = "symmetric"
        differing += _count_differing(weights, parameters.scale * factor, is_per_tensor)
        differing += int((graph.stored_integers.get(name, np.zeros(0)) == -128).sum())
        values += weights.size
    layers_text = ", ".join(f"{name}: {count} layers" for name, count in (layers_by_precision or {"int8": 0}).items())
    keys.notes.append(f"{layers_text} with the file's own ranges; {values - differing} of {values} weights keep their integers")
    if fp32_nodes:
        keys.notes.append(
            f"fp32 though quantised in the file ({len(fp32_nodes)}): {', '.join(fp32_nodes[:6])}: mpnet's weights are int8 "
            "without zero point, and the range of the input must be known"
        )


def _find_measured_mode(graph: NodeGraph, operation: LayerOperation) -> str | None:
    """Return the mode of a range that the file measures when it runs, None where the file has no range.

    TensorFlow Lite's hybrid layers measure their input without saying so.
    """
    return graph.dynamic_ranges.get(operation.inputs[0], "affine" if graph.format == "TensorFlow Lite" else None)


def _fits_int8_weights(parameters: QuantizationParameters, filters: int) -> bool:
    """Return whether the integers of weights are int8 without zero point, with one scale or one for each filter."""
    return parameters.low == -128 and not parameters.zero_point.any() and parameters.scale.size in (1, filters)


def _count_differing(weights: FloatArray, scales: FloatArray, is_per_tensor: bool) -> int:
    """Count the integers that mpnet makes otherwise; a line behind the weights may turn a channel's sign."""
    scale = np.broadcast_to(scales, len(weights)).reshape(-1, *[1] * (weights.ndim - 1))
    integers, _ = quantize_weights(weights, WeightScheme("per_tensor" if is_per_tensor else "per_channel"))
    return int(np.count_nonzero(integers != np.rint(weights / scale)))
