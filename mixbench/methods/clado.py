# SPDX-License-Identifier: MIT
"""CLADO: losses of single layers and of pairs, and the quadratic programme over them.

The loss of an assignment is a quadratic form of which layers are lowered. Its matrix comes from singles and pairs, is made
positive semidefinite, and the form is least at each cost.
"""

from __future__ import annotations

from itertools import combinations
from typing import Iterable

import numpy as np
from numpy.typing import NDArray

from mixbench.methods import Method, cheapest_first, single
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """Singles, pairs of different layers, then the form."""
    variables = [(layer, step) for layer, codes in enumerate(problem.choices) for step in range(1, len(codes))]
    problem.prepare([single(problem, layer, step) for layer, step in variables])
    singles = [problem.head_error(single(problem, layer, step)) for layer, step in variables]
    lowest = dict(zip(variables, singles, strict=True))
    problem.rank_layers([lowest[layer, len(codes) - 1] for layer, codes in enumerate(problem.choices)])
    form = np.diag(np.array(singles))
    pairs: dict[tuple[int, int], str] = {}
    for (i, (layer, step)), (j, (second, other_step)) in combinations(enumerate(variables), 2):
        if layer != second:
            key = list(single(problem, layer, step))
            key[second] = problem.choices[second][other_step]
            pairs[i, j] = "".join(key)
    problem.prepare(list(pairs.values()))
    for (i, j), pair in pairs.items():
        form[i, j] = form[j, i] = (problem.head_error(pair) - singles[i] - singles[j]) / 2
    values, vectors = np.linalg.eigh(form)
    form = (vectors * np.maximum(values, 0)) @ vectors.T
    if problem.is_sample:
        return _lower_greedily(problem, form, variables)
    lowered = problem.lowered()
    is_lowered = np.column_stack([lowered[:, layer] == step for layer, step in variables]).astype(np.float64)
    return cheapest_first(problem, np.einsum("ni,ij,nj->n", is_lowered, form, is_lowered, optimize=True))


def _lower_greedily(problem: Problem, form: NDArray[np.float64], variables: list[tuple[int, int]]) -> list[str]:
    """Lower one layer after the other, the least rise of the form for the bit operations that it saves first."""
    steps = [0] * len(problem.choices)
    lowered = np.zeros(len(variables))
    answers = [problem.highest]
    while True:
        rises: list[tuple[float, int]] = []
        for number, (layer, step) in enumerate(variables):
            if step > steps[layer]:
                changed = lowered.copy()
                changed[[i for i, (other, _) in enumerate(variables) if other == layer]] = 0
                changed[number] = 1
                costs = problem.metadata["layer_costs"][layer]
                saving = costs[problem.choices[layer][steps[layer]]] - costs[problem.choices[layer][step]]
                rises.append((float(changed @ form @ changed - lowered @ form @ lowered) / max(saving, 1), number))
        if not rises:
            return answers
        layer, step = variables[min(rises)[1]]
        lowered[[i for i, (other, _) in enumerate(variables) if other == layer]] = 0
        lowered[min(rises)[1]] = 1
        steps[layer] = step
        answers.append("".join(codes[chosen] for codes, chosen in zip(problem.choices, steps, strict=True)))


METHOD = Method(
    search,
    "CLADO, Deng et al., 2023",
    "the heads' squared error against the highest precision stands in for the training loss, activations are lowered as well; "
    "all assignments are listed instead of a solver's integer quadratic programme, or, where there are too many, layers are "
    "lowered one by one",
)
