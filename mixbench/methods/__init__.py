# SPDX-License-Identifier: MIT
"""Methods, one file each: a module of this folder that declares `METHOD` is a method of its file's name.

`search` is given a `Problem` of which nothing was asked and a random generator, asks what it wants and gives the assignments
that it stands by. Where the budget ends it, its answers are all that it asked for. Methods call nothing of mpnet's search,
but for those in `mpnet_strategies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.problem import Problem

Search = Callable[[Problem, np.random.Generator], Iterable[str]]


@dataclass(frozen=True)
class Method:
    """search: see the module. source: where it was published. differs: what is other than there, '' for nothing."""

    search: Search
    source: str
    differs: str = ""


def single(problem: Problem, layer: int, step: int = -1) -> str:
    """All layers at the highest precision but one, that has the code number `step` of its own."""
    key = list(problem.highest)
    key[layer] = problem.choices[layer][step]
    return "".join(key)


def summed(problem: Problem, harms: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """(size,) harm of all assignments where that of layers adds up. harms: of each layer at each of its choices."""
    lowered = problem.lowered()
    total = np.zeros(problem.size)
    for layer, of_layer in enumerate(harms):
        total += np.array(of_layer)[lowered[:, layer]]
    return total


def cheapest_first(problem: Problem, harm: NDArray[np.float64], budget: int = 64) -> list[str]:
    """Return the assignments that are best by a predicted harm at their cost: exact, by listing all.

    harm: (size,) of all assignments, in the order of the table's keys. budget: answers, evenly from the front.
    """
    costs = problem.costs()
    order = np.lexsort((harm, costs))
    best = np.minimum.accumulate(harm[order])
    on_front = order[np.flatnonzero(np.diff(best, prepend=np.inf) < 0)]
    rows = on_front[np.unique(np.linspace(0, len(on_front) - 1, min(budget, len(on_front))).round().astype(int))]
    keys = problem.keys
    return [keys[row] for row in rows]
