# SPDX-License-Identifier: MIT
"""The share of each layer in an object's loss, and the least to raise so that the object is back."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.diagnose.objects import LostObject
from mpnet.diagnose.runs import ImageRuns, Layers, list_prefixes
from mpnet.evaluation.intervals import t_quantile

Floats = NDArray[np.float64]
NOTHING: Layers = frozenset()
Value = Callable[[Layers], float]
Orders = list[tuple[int, ...]]
"""In which layers are raised one after the other; each is followed by the same backwards."""


@dataclass(frozen=True)
class LayerShare:
    """A layer's share of what is lost, percent, after Shapley (1953).

    It is the gain when the layer is raised, averaged over all orders in which layers can be raised. Shares of all layers add up
    to 100; below 0 where raising it harms.

    half_width: half the width of the 95 % interval over the orders that were drawn; 0 where all orders count.
    """

    layer: int
    percent: float
    half_width: float


@dataclass(frozen=True)
class Way:
    """Layers that bring the object back when they are raised. bit_operations: that this adds. score: of the object then."""

    layers: tuple[int, ...]
    bit_operations: int
    score: float


@dataclass(frozen=True)
class ExplainedObject:
    """The explanation of a lost object.

    loss: what all layers raised together bring back of its score. shares: of that, the largest first;
    none where nothing is lost. way: None where no set of layers helps.
    """

    object: LostObject
    loss: float
    shares: tuple[LayerShare, ...]
    way: Way | None


def draw_orders(layers: Sequence[int], pairs: int, seed: Sequence[int]) -> Orders:
    """Draw orders of raising the layers: each that is drawn, and the same backwards, which halves what chance leaves."""
    random = np.random.default_rng(seed)
    orders = (tuple(int(i) for i in random.permutation(layers)) for _ in range(pairs))
    return [order for forward in orders for order in (forward, forward[::-1])]


def covers_all_orders(layers: Sequence[int], pairs: int) -> bool:
    """Return whether running all sets of layers costs no more than the drawn orders."""
    return len(layers) < 24 and 2 ** len(layers) <= 2 * pairs * len(layers)


def list_sets(layers: Sequence[int], orders: Orders | None) -> list[Layers]:
    """List the sets of raised layers that shares need. orders: drawn ones; None: all orders count."""
    if orders is None:
        return [frozenset(chosen) for size in range(len(layers) + 1) for chosen in itertools.combinations(layers, size)]
    return [NOTHING, *(chosen for order in orders for chosen in list_prefixes(order))]


def estimate_shares(
    runs: ImageRuns, lost_object: LostObject, finds_index: int, layers: Sequence[int], orders: Orders | None
) -> tuple[float, tuple[LayerShare, ...]]:
    """Return the loss, as `ExplainedObject` has it, and the shares of the layers, the largest first.

    finds_index: the object's number in the image, from 0. orders: as `list_sets`, which must have run.
    """

    def value(raised: Layers) -> float:
        return lost_object.value(runs[raised], finds_index)

    loss = value(frozenset(layers)) - value(NOTHING)
    if loss <= 0:
        return loss, ()
    if orders is None:
        estimates = [(layer, _exact(value, layer, layers), 0.0) for layer in layers]
    else:
        pairs = len(orders) // 2
        gains = np.array([_gains(value, order, layers) for order in orders]).reshape(pairs, 2, len(layers)).mean(axis=1)
        error = gains.std(axis=0, ddof=1) / math.sqrt(pairs) * t_quantile(max(2.0, pairs - 1.0), 0.025)
        estimates = list(zip(layers, gains.mean(axis=0).tolist(), error.tolist(), strict=True))
    of_layers = [LayerShare(layer, 100 * gain / loss, 100 * half_width / loss) for layer, gain, half_width in estimates]
    return loss, tuple(sorted(of_layers, key=lambda share: (-share.percent, share.layer)))


def _exact(value: Value, layer: int, layers: Sequence[int]) -> float:
    other_layers, total = [i for i in layers if i != layer], 0.0
    for size in range(len(other_layers) + 1):
        weight = 1 / (len(layers) * math.comb(len(other_layers), size))
        for chosen in itertools.combinations(other_layers, size):
            total += weight * (value(frozenset((*chosen, layer))) - value(frozenset(chosen)))
    return total


def _gains(value: Value, order: Sequence[int], layers: Sequence[int]) -> list[float]:
    """Return what each layer brings when layers are raised in this order, in the order of `layers`."""
    values = [value(NOTHING), *(value(chosen) for chosen in list_prefixes(order))]
    gains = {layer: current - previous for layer, previous, current in zip(order, values, values[1:], strict=False)}
    return [gains[layer] for layer in layers]


def find_cheapest_way(runs: ImageRuns, lost_object: LostObject, finds_index: int, costs: Mapping[int, int]) -> Way | None:
    """Find the least that brings the object back: the cheapest layer that does so alone.

    Else layers are raised one after the other, each time the one that gains most, and those that turn out not to be needed are
    lowered again, the dearest first. Whatever ran before is looked at as well.

    costs: bit operations that raising each layer adds.
    """

    def cost(layers: Layers) -> int:
        return sum(costs[layer] for layer in layers)

    def is_back(layers: Layers) -> bool:
        return lost_object.is_back(runs[layers], finds_index)

    def gain(layers: Layers) -> tuple[float, int]:
        return lost_object.value(runs[layers], finds_index), -cost(layers)

    runs.run(frozenset({layer}) for layer in costs)
    raised = NOTHING
    while not is_back(raised) and len(raised) < len(costs):
        steps = [raised | {layer} for layer in costs if layer not in raised]
        runs.run(steps)
        sufficient = [step for step in steps if is_back(step)]
        raised = min(sufficient, key=cost) if sufficient else max(steps, key=gain)
    for layer in sorted(raised, key=lambda layer: -costs[layer]):
        if is_back(raised - {layer}):
            raised -= {layer}
    sufficient_sets = [layers for layers, finds in runs.finds_by_layers.items() if lost_object.is_back(finds, finds_index)]
    if not sufficient_sets:
        return None
    best = min(sufficient_sets, key=lambda layers: (cost(layers), len(layers), sorted(layers)))
    return Way(tuple(sorted(best)), cost(best), float(runs[best].score[finds_index]))
