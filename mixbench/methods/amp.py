# SPDX-License-Identifier: MIT
"""Automatic mixed precision as in AIMET: each layer alone is lowered and measured, then all one after the other, best first."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, single
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """Phase 1: the accuracy list. Phase 2: flip along the list, measuring each step."""
    steps = [(layer, step) for layer, codes in enumerate(problem.choices) for step in range(1, len(codes))]
    quality = {(layer, step): problem.quality(single(problem, layer, step)) for layer, step in steps}
    problem.rank_layers([100 - quality[layer, len(codes) - 1] for layer, codes in enumerate(problem.choices)])
    key, now = list(problem.highest), dict.fromkeys(range(len(problem.layers)), 0)
    problem.evaluate(problem.highest)
    # Of equal accuracy the flip that saves more comes first.
    for layer, step in sorted(steps, key=lambda flip: (-quality[flip], problem.cost(single(problem, *flip)))):
        if step > now[layer]:
            key[layer], now[layer] = problem.choices[layer][step], step
            problem.evaluate("".join(key))
    return list(problem.asked)


METHOD = Method(search, "Qualcomm AIMET, automatic mixed precision (two phases)", "phase 2 goes on to the lowest precision")
