# SPDX-License-Identifier: MIT
"""Accuracy control as in NNCF: from everything low, raise what gives back most until the loss is within a limit."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method
from mixbench.problem import Problem

DROPS = (10.0, 5.0, 3.0, 2.0, 1.0, 0.5)
"""Points of agreement that may be lost; one answer each."""


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """One run for each limit; what was measured once is known to the next."""
    answers = [problem.lowest]
    for drop in DROPS:
        answers.append(_control_accuracy(problem, drop))
    return [*answers, problem.highest]


def _control_accuracy(problem: Problem, drop: float) -> str:
    """Rank the layers by what raising each alone gives and raise them in that order.

    After a step that made it worse, which is taken back, the rest is ranked anew.
    """
    target = problem.quality(problem.highest) - drop
    key, best = problem.lowest, problem.quality(problem.lowest)
    ranking, candidates = list[int](), set(range(len(problem.layers)))
    while best < target and candidates:
        if not ranking:
            ranking = _rank(problem, key, candidates)
        layer = ranking.pop()
        candidates.discard(layer)
        higher = _raised(problem, key, layer)
        quality = problem.quality(higher)
        if quality >= best:
            key, best = higher, quality
        else:
            candidates.add(layer)
            ranking = _rank(problem, key, candidates)
            layer = ranking.pop()
            candidates.discard(layer)
            key = _raised(problem, key, layer)
            best = problem.quality(key)
    return key


def _rank(problem: Problem, key: str, candidates: set[int]) -> list[int]:
    """Return layers by the agreement that raising each alone gives, the best last."""
    problem.prepare([_raised(problem, key, layer) for layer in candidates])
    if key == problem.lowest:
        problem.rank_layers(
            [problem.quality(_raised(problem, key, layer)) - problem.quality(key) for layer in range(len(problem.layers))]
        )
    return sorted(candidates, key=lambda layer: problem.quality(_raised(problem, key, layer)))


def _raised(problem: Problem, key: str, layer: int) -> str:
    return key[:layer] + problem.choices[layer][0] + key[layer + 1 :]


METHOD = Method(
    search, "Intel NNCF, quantize_with_accuracy_control", "agreement on all images that choose, without its ranking subset"
)
