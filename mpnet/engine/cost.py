# SPDX-License-Identifier: MIT
"""The cost of a configuration, counted: bytes, multiply-accumulates, bit operations; one row per layer for tables.

A cost that is a sum over layers is one row of LAYER_COSTS. Sweeps count the same for every configuration, from its
layout, without making plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Collection, Iterable, Mapping

from mpnet.engine.fuse import fuse, fuse_plan
from mpnet.engine.layout import lay_out
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.memory import plan_arena
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan
from mpnet.model.keys import json_key
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, Precision
from mpnet.model.selectors import layer_selectors

PEAK = "peak_activation_bytes"
LAYER_COSTS: dict[str, Callable[[Lowering], int]] = {
    "weight_bytes": lambda low: sum(operation.weight_bytes(low.layer) for operation in low.operations),
    "macs": lambda low: low.layer.macs,
    "int8_macs": lambda low: low.layer.macs if low.precision.multiplies_bytes else 0,
    "bit_operations": lambda low: low.layer.macs * low.precision.weight_bits * 8 * low.precision.stored.item_bytes,
}
"""Of one layer, for one image: stored parameters (weights at their precision, fp32 biases, int8 scales);
multiply-accumulates, padding counted; those in int8; macs * weight bits * activation bits."""


@dataclass(frozen=True)
class LayerCost:
    """A layer with its precision and cost, as result.json and `mpnet show --json` hold it.

    origin:      who chose its precision. conversions: inserted on its behalf, such as `fp32 -> int8`.
    in_shape, shape: [h, w, c] of its input and its output.
    activation_bytes: of its result, for one image, as stored.
    """

    index: int
    type: str = ""
    name: str = ""
    selectors: tuple[str, ...] = ()
    precision: str = ""
    origin: str = field(default="", metadata=json_key(omit_default=True))
    conversions: tuple[str, ...] = ()
    in_shape: tuple[int, ...] = field(default=(), metadata=json_key(omit_default=True))
    shape: tuple[int, ...] = ()
    macs: int = 0
    parameters: int = 0
    weight_bytes: float = 0
    activation_bytes: float = 0


def layer_costs(plan: Plan) -> tuple[LayerCost, ...]:
    """Return one row per layer, in order."""
    return tuple(
        LayerCost(
            index=layer.index,
            type=layer.kind,
            name=layer.name,
            selectors=tuple(selectors),
            precision=str(low.precision),
            origin=plan.precision.origins[layer.index],
            conversions=tuple(f"{step.input_precision} -> {step.output_precision}" for step in plan.conversions[layer.index]),
            in_shape=tuple(layer.in_shape),
            shape=tuple(layer.out_shape),
            macs=layer.macs,
            parameters=layer.parameters,
            weight_bytes=LAYER_COSTS["weight_bytes"](low),
            activation_bytes=layer.activations * low.result.stored.item_bytes,
        )
        for layer, selectors, low in zip(plan.network.layers, layer_selectors(plan.network), plan.lowerings, strict=True)
    )


def plan_cost(plan: Plan) -> dict[str, int]:
    """Return the totals of a plan for one image: those of LAYER_COSTS and two of memory.

    peak_activation_bytes: the most that lives at one time when the plan runs (fused), the image included.
    arena_bytes:           what the engine allocates for activations, without the image.
    """
    arena = plan_arena(fuse_plan(plan))
    # In the order of result.json.
    memory = {"weight_bytes": 0, PEAK: arena.peak_bytes, "arena_bytes": arena.size_bytes}
    return memory | _sums(map(_counts, plan.lowerings))


class CostModel:
    """Costs of very many configurations of one network under one set of options, each without a plan.

    Layers that are as in the configuration before are not counted again, so neighbours come best one after the other.

    keyed: layers without weights that have a precision of their own.
    """

    def __init__(self, network: NetworkSpec, options: EngineOptions, keyed: Mapping[int, Precision] | None = None) -> None:
        self._lowerings = Lowerings(network, options, keyed)
        self._nothing: list[Precision | None] = [None] * len(network.layers)
        self._weighted = [layer.index for layer in network.convolutions]
        self._counts: dict[Lowering, tuple[int, ...]] = {}
        self._follows_later = options.integer_only
        self._previous: tuple[list[Precision | None], list[Lowering]] = [], []
        self._previous_sums = [(0,) * len(LAYER_COSTS)]  # of the last configuration's first layers: none, one, two, ...

    def costs(self, key: str, names: Collection[str] | None = None) -> dict[str, int]:
        """Return what `plan_cost` says of a configuration, but for arena_bytes.

        names: the measures that are needed, None for all; without the peak of memory, which asks for a layout, it takes a tenth
        of the time.
        """
        requested = self._nothing.copy()
        for index, code in zip(self._weighted, split_key(key)[0], strict=True):
            requested[index] = BY_CODE[code]
        if names is not None and PEAK not in names:
            return dict(zip(LAYER_COSTS, self._layer_sums(requested), strict=True))
        layout = lay_out(self._lowerings, requested)
        sums = _sums(map(self._counts_of, layout.lowerings))
        fuse(layout, self._lowerings.network)
        return sums | {PEAK: layout.peak_bytes()}

    def _layer_sums(self, requested: list[Precision | None]) -> tuple[int, ...]:
        """Return the sums of LAYER_COSTS; those of the first layers are taken over from the call before."""
        shared_count, sums = 0, self._previous_sums
        if not self._follows_later:
            previous = self._previous[0]
            pairs = zip(requested, previous, strict=False)  # before the first call there is no previous one
            shared_count = next((index for index, (new, old) in enumerate(pairs) if new is not old), len(previous))
        lowered = self._lowerings.lower_all(requested, self._previous[1][:shared_count])
        del sums[shared_count + 1 :]
        for lowering in lowered[shared_count:]:
            sums.append(tuple([total + count for total, count in zip(sums[-1], self._counts_of(lowering), strict=True)]))
        self._previous = requested, lowered
        return sums[-1]

    def _counts_of(self, lowering: Lowering) -> tuple[int, ...]:
        counts = self._counts.get(lowering)
        if counts is None:
            counts = self._counts[lowering] = _counts(lowering)
        return counts


def _counts(lowering: Lowering) -> tuple[int, ...]:
    return tuple(count(lowering) for count in LAYER_COSTS.values())


def _sums(counts: Iterable[tuple[int, ...]]) -> dict[str, int]:
    return dict(zip(LAYER_COSTS, map(sum, zip(*counts, strict=True)), strict=True))
