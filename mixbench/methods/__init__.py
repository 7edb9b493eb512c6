# SPDX-License-Identifier: MIT
"""Methods, one file each: a module of this folder that declares `METHOD` is a method of its file's name.

`search` is given a `Problem` of which nothing was asked and a random generator, asks what it wants and gives the assignments
that it stands by; a method that ranks layers calls `rank_layers` as well. Where the budget ends it, its answers are all that
it asked for. Methods call nothing of mpnet's search, but for those in `mpnet_strategies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.problem import Problem

Search = Callable[[Problem, np.random.Generator], Iterable[str]]
ANSWERS, PARTIAL_SUMS = 64, 2048
"""Answers of a method that adds up, evenly from its front; sums of some layers that are kept where all cannot be listed."""


@dataclass(frozen=True)
class Method:
    """search: see the module. source: where it was published. differs: what is other than there, '' for nothing."""

    search: Search
    source: str
    differs: str = ""


def single(problem: Problem, layer: int, step: int = -1) -> str:
    """All layers at the highest precision but one, that has the code number `step` of its own."""
    return problem.single(layer, step)


def raised_in_order(problem: Problem, order: Sequence[int]) -> list[str]:
    """Return all low, and what comes of raising layers to their highest precision one after the other."""
    key = list(problem.lowest)
    answers = [problem.lowest]
    for layer in order:
        key[layer] = problem.choices[layer][0]
        answers.append("".join(key))
    return answers


def single_keys(problem: Problem) -> list[dict[str, str]]:
    """Return of each layer, by each of its lower codes, the key in which it alone is lowered."""
    return [
        {code: single(problem, layer, step) for step, code in enumerate(codes) if step}
        for layer, codes in enumerate(problem.choices)
    ]


def summed(problem: Problem, harms: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """(size,) harm of all assignments where that of layers adds up. harms: of each layer at each of its choices."""
    lowered = problem.lowered()
    total = np.zeros(problem.size)
    for layer, of_layer in enumerate(harms):
        total += np.array(of_layer)[lowered[:, layer]]
    return total


def cheapest_sums(problem: Problem, harms: Sequence[Sequence[float]]) -> list[str]:
    """Return the assignments of least summed harm at their cost. harms: of each layer at each of its choices.

    Of a sample, whose assignments cannot be listed, sums are made layer by layer; of these the ones that no other one beats are
    kept (PARTIAL_SUMS of them, evenly).
    """
    if not problem.is_sample:
        return cheapest_first(problem, summed(problem, harms))
    costs, totals, steps = np.zeros(1), np.zeros(1), np.zeros((1, 0), np.uint8)
    for codes, code_costs, of_layer in zip(problem.choices, problem.metadata["layer_costs"], harms, strict=True):
        costs = np.add.outer(costs, [float(code_costs[code]) for code in codes]).ravel()
        totals = np.add.outer(totals, of_layer).ravel()
        last_steps = np.tile(np.arange(len(codes), dtype=np.uint8), len(steps))
        steps = np.column_stack([np.repeat(steps, len(codes), axis=0), last_steps])
        kept = _thinned(_front(costs, totals), PARTIAL_SUMS)
        costs, totals, steps = costs[kept], totals[kept], steps[kept]
    rows = _thinned(np.arange(len(steps)), ANSWERS)
    return ["".join(codes[step] for codes, step in zip(problem.choices, steps[row], strict=True)) for row in rows]


def cheapest_first(problem: Problem, harm: NDArray[np.float64]) -> list[str]:
    """Return the assignments that are best by a predicted harm at their cost: exact, by listing all.

    harm: (size,) of all assignments, in the order of the table's keys.
    """
    keys = problem.keys
    return [keys[row] for row in _thinned(_front(problem.costs(), harm), ANSWERS)]


def _front(costs: NDArray[np.float64], harm: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the rows of least harm at their cost, the cheapest first."""
    order = np.lexsort((harm, costs))
    best = np.minimum.accumulate(harm[order])
    rows: NDArray[np.intp] = order[np.flatnonzero(np.diff(best, prepend=np.inf) < 0)]
    return rows


def _thinned(rows: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Return at most so many of the rows, evenly spread."""
    kept: NDArray[np.intp] = rows[np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).round().astype(int))]
    return kept
