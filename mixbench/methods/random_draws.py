# SPDX-License-Identifier: MIT
"""Assignments at random, 100 of them or what the budget holds: what every method should beat."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method
from mixbench.problem import Problem

DRAWS = 100


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """Answer with the lowest, the highest and draws without repetition."""
    keys = [problem.lowest, problem.highest]
    while len(keys) < min(DRAWS, problem.size):
        key = "".join(codes[generator.integers(len(codes))] for codes in problem.choices)
        if key not in keys:
            keys.append(key)
    for key in keys:
        problem.evaluate(key)
    return keys


METHOD = Method(search, "baseline", "100 draws")
