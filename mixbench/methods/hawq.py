# SPDX-License-Identifier: MIT
"""HAWQ-V2: the Hessian trace of each layer times the mean squared error of its quantised weights, summed, at each cost.

The traces stand in the table (mixbench.hessian), for they need the network and the images. Each sample of Hutchinson's
estimate is a pass.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, cheapest_sums
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """Answer with the front of summed perturbation and cost."""
    statistics = problem.metadata["hessian"]
    problem.spend(int(statistics["passes"]), "Hutchinson's estimate of the Hessian's trace, layer by layer")
    layers = zip(problem.choices, statistics["trace"], statistics["weight_error"], strict=True)
    harms = [[trace * error[code] for code in codes] for codes, trace, error in layers]
    problem.rank_layers([of_layer[-1] for of_layer in harms])
    return cheapest_sums(problem, harms)


METHOD = Method(
    search,
    "HAWQ-V2, Dong et al., 2020",
    "the heads' squared error against the highest precision stands in for the training loss; products of Hessian and vector by "
    "differences of that loss, which is least and flat there",
)
