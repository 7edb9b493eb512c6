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
        answers.append(_controlled(problem, drop))
    return [*answers, problem.highest]


def _controlled(problem: Problem, drop: float) -> str:
    """Rank the layers by what raising each alone gives and raise them in that order.

    After a step that made it worse, which is taken back, the rest is ranked anew.
    """
    target = problem.quality(problem.highest) - drop
    here, best = problem.lowest, problem.quality(problem.lowest)
    ranking, left = list[int](), set(range(len(problem.layers)))
    while best < target and left:
        if not ranking:
            ranking = sorted(left, key=lambda layer: problem.quality(_raised(problem, here, layer)))
        layer = ranking.pop()
        left.discard(layer)
        higher = _raised(problem, here, layer)
        quality = problem.quality(higher)
        if quality >= best:
            here, best = higher, quality
        else:
            left.add(layer)
            ranking = sorted(left, key=lambda layer: problem.quality(_raised(problem, here, layer)))
            layer = ranking.pop()
            left.discard(layer)
            here = _raised(problem, here, layer)
            best = problem.quality(here)
    return here


def _raised(problem: Problem, key: str, layer: int) -> str:
    return key[:layer] + problem.choices[layer][0] + key[layer + 1 :]


METHOD = Method(
    search, "Intel NNCF, quantize_with_accuracy_control", "agreement on all images that choose, without its ranking subset"
)
