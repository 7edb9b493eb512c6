# SPDX-License-Identifier: MIT
"""HAWQ-V2: the Hessian trace of each layer times the mean squared error of its quantised weights, summed, at each cost.

The traces stand in the table (mixbench.hessian), for they need the network and the images. Each sample of Hutchinson's
estimate is a pass.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, cheapest_first
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """The front of summed perturbation and cost."""
    statistics = problem.metadata["hessian"]
    problem.spend(int(statistics["passes"]), "Hutchinson's estimate of the Hessian's trace, layer by layer")
    lowered, harm = problem.lowered(), np.zeros(problem.size)
    for layer, codes in enumerate(problem.choices):
        errors = [statistics["weight_error"][layer][code] for code in codes]
        harm += statistics["trace"][layer] * np.array(errors)[lowered[:, layer]]
    return cheapest_first(problem, harm)


METHOD = Method(
    search,
    "HAWQ-V2, Dong et al., 2020",
    "the heads' squared error against the highest precision stands in for the training loss; products of Hessian and vector by "
    "differences of that loss, which is least and flat there",
)
