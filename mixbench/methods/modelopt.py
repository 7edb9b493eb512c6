# SPDX-License-Identifier: MIT
"""Sensitivities of single layers and the assignment of least sum at each cost, as ModelOpt's auto_quantize does."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, cheapest_sums, single
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """Losses of single layers add up; the best of all sums at each cost."""
    losses = [
        [0.0, *(problem.head_error(single(problem, layer, step)) for step in range(1, len(codes)))]
        for layer, codes in enumerate(problem.choices)
    ]
    problem.rank_layers([of_layer[-1] for of_layer in losses])
    return cheapest_sums(problem, losses)


METHOD = Method(
    search,
    "NVIDIA ModelOpt, auto_quantize",
    "the heads' squared error stands in for its score by gradients; all sums are listed instead of a linear programme",
)
