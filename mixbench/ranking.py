# SPDX-License-Identifier: MIT
"""How well a method ranks layers: rank correlations of its sensitivities with measured losses, and whom it finds.

A method that ranks hands in one sensitivity per layer, the higher the more it expects to lose where that layer has its lowest
precision. Losses are points of agreement on the images that judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.problem import HELD_OUT_AGREEMENT, Problem

FIFTH = 0.2
FEWEST = 3
"""Values that a correlation is of at least."""


@dataclass(frozen=True)
class Ranking:
    """Figures of one ranking of layers; None where the table lacks what they take, or where all values are equal.

    layers:      Spearman's rank correlation of sensitivities with losses, over the layers, each lowered alone.
    top_fifth:   share of the fifth of the layers that lose most (rounded up) that are in the method's fifth as well; of
                 equal values the layer that runs earlier counts first.
    assignments: Spearman's rank correlation over all measured assignments of the summed sensitivities of the lowered layers
                 with the loss; of tables and samples of two precisions.
    """

    layers: float | None = None
    top_fifth: float | None = None
    assignments: float | None = None


def rank_figures(problem: Problem, sensitivities: Sequence[float]) -> Ranking:
    """Compute the figures of a method's ranking. sensitivities: one per layer."""
    predicted = np.array(sensitivities, np.float64)
    losses = _losses(problem, [problem.single(layer) for layer in range(len(problem.layers))])
    if np.isnan(losses).any():
        return Ranking(assignments=_over_assignments(problem, predicted))
    count = math.ceil(FIFTH * len(losses))
    found = {*_highest(losses, count)} & {*_highest(predicted, count)}
    top_fifth = None if np.ptp(losses) == 0 or np.ptp(predicted) == 0 else len(found) / count
    return Ranking(spearman(predicted, losses), top_fifth, _over_assignments(problem, predicted))


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation, -1 to 1: Pearson's of the ranks, ties sharing the mean of theirs.

    first, second: (n,). Result: None where either has one value only, or n is below FEWEST.
    """
    if len(first) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    a, b = (ranks - ranks.mean() for ranks in (mid_ranks(first), mid_ranks(second)))
    return float((a @ b) / math.sqrt((a @ a) * (b @ b)))


def mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of (n,) values from 1 on, the lowest first; equal ones share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse.reshape(-1)]
    return ranks


def _highest(values: NDArray[np.float64], count: int) -> list[int]:
    """Return the indices of the highest values, of equal ones the first."""
    order: list[int] = np.argsort(-values, kind="stable").tolist()
    return order[:count]


def _losses(problem: Problem, keys: Sequence[str]) -> NDArray[np.float64]:
    """(n,) points of agreement that assignments lose on the images that judge; NaN for what the table lacks."""
    rows = [problem.number(key) for key in (problem.highest, *keys)]
    agreement = problem.columns[HELD_OUT_AGREEMENT][rows]
    losses: NDArray[np.float64] = agreement[0] - agreement[1:]
    return losses


def _over_assignments(problem: Problem, predicted: NDArray[np.float64]) -> float | None:
    """Correlate sums over lowered layers with losses; of a front, whose assignments are chosen by their losses, None."""
    if problem.is_front or any(len(codes) != 2 for codes in problem.choices):
        return None
    agreement = problem.columns[HELD_OUT_AGREEMENT]
    is_measured = ~np.isnan(agreement)
    lowered = np.array([[code != high for code, high in zip(key, problem.highest, strict=True)] for key in problem.keys])
    sums = lowered[is_measured].astype(np.float64) @ predicted
    return spearman(sums, -agreement[is_measured])
