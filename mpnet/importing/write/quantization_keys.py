# SPDX-License-Identifier: MIT
"""What a quantised file says, as keys of a cfg: ranges of tensors, and which layers run on its integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpnet.engine.lowering import range_owner
from mpnet.importing.graph import NodeGraph
from mpnet.importing.layer_graph import LayerGraph
from mpnet.importing.write.cfg_writer import WEIGHTED, Writer
from mpnet.model.layers import MaxpoolSpec, ShuffleSpec, UpsampleSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.quantization.weights import WeightScheme, quantize_weights


def rounded_tensors(graph: NodeGraph, layers: LayerGraph) -> dict[str, str]:
    """Tensors that the file rounds to codes for other readers than its layers on integers, which do that themselves, and the
    precision of these codes."""
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


def quantised_keys(
    graph: NodeGraph, layers: LayerGraph, writer: Writer, network: NetworkSpec
) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """Keys by layer index (-1: of [net]), and what is worth saying. A layer is int8 or int16 where its weights have integers in
    the file and the range of its input is known."""
    ranges: dict[int, tuple[float, float]] = {}
    modes: dict[int, str] = {}
    bits: dict[int, int] = {}
    for name, index in writer.layer_of.items():
        if name in graph.quantization and name not in graph.constants and graph.quantization[name].scale.size == 1:
            owner, tensor = writer.made_at.get(name, index), graph.quantization[name]
            ranges.setdefault(owner, tensor.bounds)
            bits.setdefault(owner, tensor.bits)
            # Codes from -127 to 127 around 0.
            if tensor.low + tensor.high == 2 * tensor.zero_point[0]:
                modes.setdefault(owner, "symmetric")
    for index, name in writer.padded.items():
        if writer.layer_of[name] in ranges:
            low, high = ranges[writer.layer_of[name]]
            ranges[index] = (min(low, 0.0), max(high, 0.0))
            bits |= {index: bits[writer.layer_of[name]]} if writer.layer_of[name] in bits else {}
    for layer in network.layers:
        # What moves values of a range has values of that range.
        if isinstance(layer, (MaxpoolSpec, UpsampleSpec, ShuffleSpec)) and layer.index not in ranges:
            owner = range_owner(network, layer.inputs[0])
            if owner in ranges:
                ranges[layer.index] = ranges[owner]
                bits |= {layer.index: bits[owner]} if owner in bits else {}
                modes |= {layer.index: modes[owner]} if owner in modes else {}
    keys: dict[int, dict[str, Any]] = {}
    if not graph.quantization:
        return keys, []
    for index, (low, high) in ranges.items():
        keys[index] = {"quantize_range": f"{low:.9g},{high:.9g}"}
        if writer.rounded and index >= 0:
            keys[index]["quantize_activations"] = "calibrated"
    for name, index in writer.made_at.items():
        if modes.get(index) == "symmetric":
            keys.setdefault(writer.layer_of[name], {})["quantize_mode"] = "symmetric"
    differing = values = 0
    of_each: dict[str, int] = {}
    left: list[str] = []
    for operation in layers.operations:
        if operation.kind not in WEIGHTED:
            continue
        index = writer.made_at.get(operation.output, writer.layer_of[operation.output])
        name, weights = operation.values["weights_name"], writer.weights[index].weights
        parameters = graph.quantization.get(name)
        owner = range_owner(network, network.layers[index].inputs[0])
        # TensorFlow Lite's hybrid layers measure their input when they run.
        hybrid = owner not in ranges and (graph.format == "TensorFlow Lite" or operation.inputs[0] in graph.dynamic_ranges)
        if (
            parameters is None
            or (owner not in ranges and not hybrid)
            or parameters.low != -128
            or parameters.zero_point.any()
            or parameters.scale.size not in (1, len(weights))
        ):
            if name in graph.stored_integers:
                left.append(operation.nodes[0])
            continue
        factor = operation.values.get("factor", 1.0)
        per_tensor = parameters.scale.size == 1 and bool(np.all(factor == 1.0))
        wrong, count = _compare(weights, parameters.scale * factor, per_tensor)
        precision = f"int{bits.get(owner, 8)}"
        of_each[precision] = of_each.get(precision, 0) + 1
        layer_keys = keys.setdefault(index, {}) | {precision: 1, "quantize_activations": "dynamic" if hybrid else "calibrated"}
        keys[index] = layer_keys | ({"quantize_weights": "per_tensor"} if per_tensor else {})
        if (graph.dynamic_ranges.get(operation.inputs[0]) if hybrid else modes.get(owner)) == "symmetric":
            keys[index]["quantize_mode"] = "symmetric"
        differing, values = differing + wrong, values + count
    kept = values - differing
    layers_of = ", ".join(f"{name}: {count} layers" for name, count in (of_each or {"int8": 0}).items())
    notes = [f"{layers_of} with the file's own ranges; {kept} of {values} weights keep their integers"]
    if left:
        notes.append(
            f"fp32 though quantised in the file ({len(left)}): {', '.join(left[:6])}: mpnet's weights are int8 "
            "without zero point, and the range of the input must be known"
        )
    return {NETWORK_INPUT if index < 0 else index: layer_keys for index, layer_keys in keys.items()}, notes


def _compare(weights: np.ndarray[Any, Any], scales: np.ndarray[Any, Any], per_tensor: bool) -> tuple[int, int]:
    """(integers that mpnet makes otherwise, all); a line behind the weights may turn a channel's sign."""
    scale = np.broadcast_to(scales, len(weights)).reshape(-1, *[1] * (weights.ndim - 1))
    made, _ = quantize_weights(weights, WeightScheme("per_tensor" if per_tensor else "per_channel"))
    return int(np.count_nonzero(made != np.rint(weights / scale))), weights.size
