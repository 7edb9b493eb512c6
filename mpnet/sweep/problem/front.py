# SPDX-License-Identifier: MIT
"""Exact fronts: which configurations no other one beats, and how far another front is from that.

Everything here minimises costs and maximises qualities; `Measure.sense` says which. Nothing is pruned by
assuming that sensitivities add up or that a lower precision is worse: int8 does beat fp32 by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import Measure
from mpnet.errors import ConfigError
from mpnet.sweep.result import Gap

Points = NDArray[np.float64]
_Item = TypeVar("_Item")


def evenly(items: Sequence[_Item], limit: int) -> list[_Item]:
    """Return at most `limit` (2 and more) of the items, evenly spread, both ends among them."""
    if len(items) <= limit:
        return list(items)
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


@dataclass(frozen=True)
class Rivals:
    """Configurations that others are held against. names: of the objectives; points: their values, to be minimised."""

    names: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]

    @cached_property
    def _points(self) -> Points:
        return np.array(self.points, dtype=np.float64).reshape(-1, len(self.names))

    def beat(self, best: Points) -> NDArray[np.bool_]:
        """Return bool (n,): which configurations, at best so good (n, k), to be minimised, are dominated for certain."""
        return dominated(best, self._points)


def dominated(points: Points, rivals: Points) -> NDArray[np.bool_]:
    """Return bool (n,): whether a rival (m, k) is nowhere worse than a point (n, k) and somewhere better, all minimised."""
    columns = points[:, None, :]
    is_beaten: NDArray[np.bool_] = np.all(rivals <= columns, axis=2) & np.any(rivals < columns, axis=2)
    return np.asarray(np.any(is_beaten, axis=1))


def to_minimise(values: Points, objectives: Sequence[Measure]) -> Points:
    """Turn values (n, k) as measured into (n, k) of which every column is to be minimised."""
    return values * np.array([o.sense for o in objectives], dtype=np.float64)


def non_dominated(points: Points) -> NDArray[np.intp]:
    """Return the indices of the points that no other point dominates, in ascending order of the first column.

    points: (n, k), every column to be minimised, no NaN. A point dominates another when it is nowhere worse and
    somewhere better; equal points do not dominate each other, so all of them are kept.
    """
    if len(points) == 0:
        return np.zeros(0, dtype=np.intp)
    # lexsort sorts by the last key first: column 0 is the most significant one.
    order = np.lexsort(points.T[::-1])
    if points.shape[1] == 2:
        return _non_dominated_2d(points, order)
    # In lexicographic order a point can only be dominated by an earlier one, and domination is transitive, so it is
    # enough to compare with those kept so far.
    front_points = np.empty_like(points)
    indices: list[int] = []
    for index in order:
        point = points[index]
        if not dominated(point[None], front_points[: len(indices)])[0]:
            front_points[len(indices)] = point
            indices.append(int(index))
    return np.array(indices, dtype=np.intp)


def best_pairs(pairs: Points) -> Points:
    """Return (m, 2) of (n, 2) quality and cost as measured: those that no other one dominates, the best quality first."""
    front: Points = pairs[non_dominated(pairs * np.array([-1.0, 1.0]))]
    return front


def _non_dominated_2d(points: Points, order: NDArray[np.intp]) -> NDArray[np.intp]:
    first_column, second_column = points[order, 0], points[order, 1]
    best = np.minimum.accumulate(second_column)
    # Not beaten by an earlier one: strictly lower than all before, or equal to the very point that set the record.
    previous_best = np.concatenate(([np.inf], best[:-1]))
    is_record = second_column < previous_best
    holder = np.maximum.accumulate(np.where(is_record, np.arange(len(order)), 0))
    equals_holder = (second_column == second_column[holder]) & (first_column == first_column[holder])
    front: NDArray[np.intp] = order[is_record | equals_holder]
    return front


def knee(costs: NDArray[np.float64], qualities: NDArray[np.float64]) -> int:
    """Find the point of a front farthest above the straight line between its cheapest and its most accurate end.

    costs, qualities: (n,), both axes being taken as shares of their spread; the most accurate one when either is flat.
    """
    if np.ptp(costs) == 0 or np.ptp(qualities) == 0:
        return int(np.argmax(qualities))
    return int(np.argmax((qualities - qualities.min()) / np.ptp(qualities) - (costs - costs.min()) / np.ptp(costs)))


def hypervolume(points: Points, reference: Sequence[float]) -> float:
    """Return the volume that the points dominate, up to `reference`; all columns minimised.

    points: (n, k). Points that are not better than the reference in every column add nothing. Exact, by slicing along
    the last column; meant for fronts (hundreds of points) and k up to 4.
    """
    limit = np.asarray(reference, dtype=np.float64)
    inner_points = points[np.all(points < limit, axis=1)]
    if len(inner_points) == 0:
        return 0.0
    return _volume(inner_points[non_dominated(inner_points)], limit)


def _volume(points: Points, limit: Points) -> float:
    dimensions = points.shape[1]
    if dimensions == 1:
        return float(limit[0] - points[:, 0].min())
    points = points[np.argsort(points[:, -1], kind="stable")]
    levels = np.append(points[1:, -1], limit[-1])
    total = 0.0
    for count, (level, following) in enumerate(zip(points[:, -1], levels, strict=True), start=1):
        if following > level:
            slice_points = points[:count, :-1]
            total += (following - level) * _volume(slice_points[non_dominated(slice_points)], limit[:-1])
    return float(total)


def front_gap(front: Points, exact: Points) -> Gap:
    """Compare a front with the exact one.

    front, exact: (n, 2) of (quality, cost) as measured: quality to be maximised, cost to be minimised. The exact front
    should be the non-dominated set of everything that could be chosen.
    Raises ConfigError when either is empty.
    """
    if len(front) == 0 or len(exact) == 0:
        raise ConfigError("a front without points cannot be compared; evaluate at least one configuration")
    all_points = np.concatenate([front, exact])
    # The corner just beyond the worst of both, by one percent of the spread, so that end points count as well.
    spread = all_points.max(axis=0) - all_points.min(axis=0)
    spread[spread == 0] = 1.0
    reference = (-(all_points[:, 0].min() - 0.01 * spread[0]), all_points[:, 1].max() + 0.01 * spread[1])
    sense = np.array([-1.0, 1.0])
    exact_volume = hypervolume(exact * sense, reference)
    volume = hypervolume(front * sense, reference)
    losses = []
    uncovered = shared = 0
    for quality, cost in exact:
        affordable = front[front[:, 1] <= cost, 0]
        if len(affordable) == 0:
            uncovered += 1
            continue
        losses.append(max(0.0, float(quality - affordable.max())))
        shared += bool(np.any(np.all(front == (quality, cost), axis=1)))
    return Gap(
        hypervolume_ratio=volume / exact_volume,
        quality_lost_max=max(losses, default=0.0),
        quality_lost_mean=float(np.mean(losses)) if losses else 0.0,
        uncovered=uncovered,
        shared=shared,
        exact_points=len(exact),
    )
