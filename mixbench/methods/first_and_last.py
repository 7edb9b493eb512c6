# SPDX-License-Identifier: MIT
"""The rule of thumb: the first layer, the layers that feed the heads, or both at the highest precision; no pass is needed."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """All low, three combinations, all high."""
    heads = set(map(int, problem.metadata["heads"]))
    problem.rank_layers([float(layer == 0 or layer in heads) for layer in range(len(problem.layers))])
    raised: list[set[int]] = [set(), {0}, heads, {0} | heads, set(range(len(problem.layers)))]
    return [
        "".join(codes[0 if layer in raised_layers else -1] for layer, codes in enumerate(problem.choices))
        for raised_layers in raised
    ]


METHOD = Method(search, "baseline")
