# SPDX-License-Identifier: MIT
"""Measured configurations as columns, and which of them are on a front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import MEASURES, Measure, measure
from mpnet.sweep.problem.front import knee, non_dominated


@dataclass(frozen=True)
class Configurations:
    """All measured assignments of precisions, as columns of equal length.

    keys: precision strings. front: which are not dominated in what was looked for; (objective, cost) are drawn.
    baseline and chosen: rows, or None. dropped: how many further rows were measured but are left out here.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]
    front: NDArray[np.bool_]
    objective: str
    cost: str
    baseline: int | None = None
    chosen: int | None = None
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def value(self, row: int | None, name: str) -> float:
        """Return one number; NaN when not measured."""
        if row is None or name not in self.columns:
            return float("nan")
        return float(self.columns[name][row])


def axes(columns: Mapping[str, NDArray[np.float64]], preferred: Sequence[str] = ()) -> tuple[str, str]:
    """Return the accuracy and the cost that a front is drawn over: the wanted ones, else the first that vary or exist."""
    names = []
    for cost in (False, True):
        candidates = [quantity.name for quantity in by_axis(cost) if quantity.axis]
        preferred_names = [name for name in preferred if measure(name).cost == cost]
        present = [name for name in (*preferred_names, *candidates) if name in columns]
        varying = [name for name in present if np.unique(columns[name][np.isfinite(columns[name])]).size > 1]
        names.append((varying or present or candidates)[0])
    return names[0], names[1]


def by_axis(cost: bool) -> list[Measure]:
    """Return qualities or costs, those that a front is drawn over first."""
    return sorted(
        (quantity for quantity in MEASURES if quantity.cost == cost), key=lambda quantity: quantity.axis or len(MEASURES)
    )


def front_rows(columns: Mapping[str, NDArray[np.float64]], objective: str, cost: str) -> NDArray[np.bool_]:
    """Find the rows that no other row beats; rows where one of both is not known are not on it."""
    count = len(next(iter(columns.values()))) if columns else 0
    front = np.zeros(count, dtype=bool)
    if objective not in columns or cost not in columns:
        return front
    points = np.stack([columns[cost], -columns[objective]], axis=1)
    measured_rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    front[measured_rows[non_dominated(points[measured_rows])]] = True
    return front


def front_knee(columns: Mapping[str, NDArray[np.float64]], rows: NDArray[np.intp], objective: str, cost: str) -> int:
    """Return the front's row farthest from the line between its cheapest and its most accurate end, both axes as shares."""
    x, y = columns[cost][rows], columns[objective][rows]
    if measure(objective).stand_in is not None:
        y = np.minimum(y, np.sort(y)[-2] + 6 if len(y) > 1 else y)  # equal tensors have a ratio without meaning
    return int(rows[knee(x, y)])
