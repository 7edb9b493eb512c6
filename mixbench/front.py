# SPDX-License-Identifier: MIT
"""Fronts of quality and cost: what no other pair beats, and how far a front is from the exact one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pairs = NDArray[np.float64]
"""(n, 2) of quality, to be maximised, and cost, to be minimised."""


@dataclass(frozen=True)
class FrontGap:
    """The distance of a front from the exact one.

    hypervolume_ratio: share of the exact front's hypervolume that this one reaches, 1 when nothing is missing.
    quality_lost_max, quality_lost_mean: over the exact front's points, the quality that this front lacks at equal or lower
    cost. uncovered: points of the exact front that are cheaper than anything on this front; they count in no mean.
    """

    hypervolume_ratio: float
    quality_lost_max: float
    quality_lost_mean: float
    uncovered: int


def best_pairs(pairs: Pairs) -> Pairs:
    """Return those of (n, 2) pairs that no other one dominates, the best quality first; equal ones are all kept."""
    order = np.lexsort((pairs[:, 1], -pairs[:, 0]))
    qualities, costs = pairs[order, 0], pairs[order, 1]
    # Not beaten by a better one: cheaper than all before, or equal to the very pair that set the record.
    is_record = costs < np.concatenate(([np.inf], np.minimum.accumulate(costs)[:-1]))
    holder = np.maximum.accumulate(np.where(is_record, np.arange(len(order)), 0))
    front: Pairs = pairs[order[is_record | ((costs == costs[holder]) & (qualities == qualities[holder]))]]
    return front


def front_gap(front: Pairs, exact: Pairs) -> FrontGap:
    """Compare a front with the exact one; neither is empty."""
    all_pairs = np.concatenate([front, exact])
    # The corner just beyond the worst of both, by one percent of the spread, so that end points count as well.
    spread = all_pairs.max(axis=0) - all_pairs.min(axis=0)
    spread[spread == 0] = 1.0
    lowest_quality, highest_cost = all_pairs[:, 0].min() - 0.01 * spread[0], all_pairs[:, 1].max() + 0.01 * spread[1]
    losses: list[float] = []
    for quality, cost in exact:
        affordable = front[front[:, 1] <= cost, 0]
        if len(affordable):
            losses.append(max(0.0, float(quality - affordable.max())))
    return FrontGap(
        hypervolume_ratio=_hypervolume(front, lowest_quality, highest_cost) / _hypervolume(exact, lowest_quality, highest_cost),
        quality_lost_max=max(losses, default=0.0),
        quality_lost_mean=float(np.mean(losses)) if losses else 0.0,
        uncovered=len(exact) - len(losses),
    )


def _hypervolume(pairs: Pairs, lowest_quality: float, highest_cost: float) -> float:
    """Return the area that pairs dominate up to a corner: slices between costs, the cheapest first."""
    front = best_pairs(pairs)[::-1]
    total = 0.0
    for (quality, cost), following_cost in zip(front, [*front[1:, 1], highest_cost], strict=True):
        total += (following_cost - cost) * (quality - lowest_quality)
    return float(total)
