"""What a configuration costs, counted: bytes, multiply-accumulates, bit operations; one row per layer for tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpnet.engine.fuse import fuse_plan
from mpnet.engine.memory import plan_arena
from mpnet.engine.operations import Convolve
from mpnet.engine.plan import Plan
from mpnet.engine.prepare import weight_bytes
from mpnet.spec.network import ConvolutionSpec, Shape
from mpnet.spec.precision import Precision
from mpnet.spec.selectors import layer_selectors


@dataclass(frozen=True)
class LayerCost:
    """One layer of a plan, for tables and results.

    conversions: inserted on its behalf, such as `fp32 -> int8`.
    activation_bytes: its result, for one image, as stored.
    """

    index: int
    type: str
    name: str
    selectors: tuple[str, ...]
    precision: Precision
    origin: str
    conversions: tuple[str, ...]
    in_shape: Shape
    shape: Shape
    macs: int
    parameters: int
    weight_bytes: int
    activation_bytes: int

    def as_json(self) -> dict[str, Any]:
        """The row as result.json and `mpnet show --json` hold it."""
        return {
            "index": self.index, "type": self.type, "name": self.name, "selectors": list(self.selectors),
            "precision": str(self.precision), "origin": self.origin, "conversions": list(self.conversions),
            "in_shape": list(self.in_shape), "shape": list(self.shape), "macs": self.macs,
            "parameters": self.parameters, "weight_bytes": self.weight_bytes,
            "activation_bytes": self.activation_bytes,
        }


@dataclass(frozen=True)
class Cost:
    """Totals for one image.

    weight_bytes:          stored parameters: weights at their precision, fp32 biases, int8 scales.
    peak_activation_bytes: the most that lives at one time when the plan runs (fused), the picture included.
    arena_bytes:           what the engine allocates for activations, without the picture.
    macs, int8_macs:       multiply-accumulates, padding counted; those in int8.
    bit_operations:        sum over convolutions of macs * weight bits * activation bits.
    """

    weight_bytes: int
    peak_activation_bytes: int
    arena_bytes: int
    macs: int
    int8_macs: int
    bit_operations: int

    def as_json(self) -> dict[str, int]:
        """As result.json holds it."""
        return dict(vars(self))


def layer_costs(plan: Plan) -> tuple[LayerCost, ...]:
    """One row per layer, in order."""
    weights = _weight_bytes(plan)
    rows = []
    for layer, selectors in zip(plan.network.layers, layer_selectors(plan.network), strict=True):
        slot = plan.slots[plan.layer_slots[layer.index]]
        rows.append(LayerCost(
            layer.index, layer.kind, layer.name, selectors, plan.precision[layer.index],
            plan.precision.origins[layer.index],
            tuple(f"{step.takes} -> {step.gives}" for step in plan.conversions[layer.index]),
            layer.in_shape, layer.out_shape, layer.macs, layer.parameters, weights.get(layer.index, 0),
            layer.activations * np.dtype(slot.precision.storage).itemsize,
        ))
    return tuple(rows)


def plan_cost(plan: Plan) -> Cost:
    """The totals of a plan."""
    arena = plan_arena(fuse_plan(plan))
    macs = int8_macs = bit_operations = 0
    for layer in plan.network.convolutions:
        precision = plan.precision[layer.index]
        activation_bits = 8 * np.dtype(precision.storage).itemsize
        macs += layer.macs
        int8_macs += layer.macs if precision.carries_scale else 0
        bit_operations += layer.macs * precision.weight_bits * activation_bits
    return Cost(sum(_weight_bytes(plan).values()), arena.peak_bytes, arena.size_bytes, macs, int8_macs, bit_operations)


def _weight_bytes(plan: Plan) -> dict[int, int]:
    found = {}
    for step in plan.steps:
        layer = plan.network.layers[step.layer]
        if isinstance(step.operation, Convolve) and isinstance(layer, ConvolutionSpec):
            found[layer.index] = weight_bytes(layer, step.operation)
    return found
