"""What a configuration costs, without running it: bytes, multiply-accumulates, bit operations, layer by layer."""

from __future__ import annotations

from typing import Any

from mpnet.engine.memory import peak_activation_bytes
from mpnet.engine.plan import Plan
from mpnet.spec.network import ConvolutionSpec, LayerSpec
from mpnet.spec.precision import Precision
from mpnet.spec.selectors import layer_selectors

BIAS_BYTES = 4
SCALE_BYTES = 4


def weight_bytes(layer: LayerSpec, precision: Precision, per_channel: bool = True) -> int:
    """Bytes that a layer's constants need at a precision: weights, float32 biases and, for int8, float32 scales.

    Batch normalisation is folded and needs none.
    """
    if not isinstance(layer, ConvolutionSpec):
        return 0
    constants = layer.weight_count * precision.weight_bits // 8 + layer.filters * BIAS_BYTES
    if precision.carries_scale:
        constants += SCALE_BYTES * (layer.filters if per_channel else 1)
    return constants


def bit_operations(layer: LayerSpec, precision: Precision) -> int:
    """MACs x bits of a weight x bits of an activation, for one image."""
    return layer.macs * precision.weight_bits * precision.weight_bits


def layer_rows(plan: Plan) -> list[dict[str, Any]]:
    """One row per layer: index, type, name, selectors, precision, origin, conversions, shapes, costs for one image."""
    selectors = layer_selectors(plan.network)
    rows = []
    for layer in plan.network.layers:
        precision = plan.precision[layer.index]
        slot = plan.slots[plan.layer_slots[layer.index]]
        rows.append({
            "index": layer.index,
            "type": layer.kind,
            "name": layer.name,
            "selectors": list(selectors[layer.index]),
            "precision": precision.name,
            "origin": plan.precision.origins[layer.index],
            "conversions": [_conversion(step.operation.name, step.takes, step.gives)
                            for step in plan.conversions[layer.index]],
            "in_shape": list(layer.in_shape),
            "shape": list(layer.out_shape),
            "detail": describe_layer(layer),
            "macs": layer.macs,
            "parameters": layer.parameters,
            "weight_bytes": _weight_bytes(plan, layer),
            "activation_bytes": slot.values * storage_bytes(slot.precision),
            "bit_operations": bit_operations(layer, precision),
        })
    return rows


def plan_cost(plan: Plan) -> dict[str, int]:
    """The `cost` of a result, for one image: weight_bytes, peak_activation_bytes, macs, int8_macs, bit_operations."""
    layers = plan.network.layers
    return {
        "weight_bytes": sum(_weight_bytes(plan, layer) for layer in layers),
        "peak_activation_bytes": peak_activation_bytes(plan),
        "macs": plan.network.macs,
        "int8_macs": sum(layer.macs for layer in layers if plan.precision[layer.index].carries_scale),
        "bit_operations": sum(bit_operations(layer, plan.precision[layer.index]) for layer in layers),
    }


def storage_bytes(precision: Precision) -> int:
    """Bytes of one activation in memory."""
    return {"float32": 4, "float16": 2, "int8": 1}[precision.storage]


def describe_layer(layer: LayerSpec) -> str:
    """Kernel size, stride, groups and the like, in a few characters."""
    if isinstance(layer, ConvolutionSpec):
        groups = f" groups {layer.groups}" if layer.groups > 1 else ""
        return f"{layer.size}x{layer.size}/{layer.stride} {layer.activation}{groups}"
    size, stride = getattr(layer, "size", 0), getattr(layer, "stride", 0)
    if size and stride:
        return f"{size}x{size}/{stride}"
    return ""




def _weight_bytes(plan: Plan, layer: LayerSpec) -> int:
    per_channel = plan.options.of(layer.index).weights.granularity == "per_channel"
    return weight_bytes(layer, plan.precision[layer.index], per_channel)


def _conversion(name: str, takes: Precision, gives: Precision) -> str:
    return f"{name} {takes}->{gives}"
