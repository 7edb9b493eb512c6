# SPDX-License-Identifier: MIT
"""Layers by the heads' signal to noise when each alone is lowered: the loudest are raised first."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, single
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """From all high, lower the layers one after the other, the quietest first."""
    errors = [problem.head_error(single(problem, layer)) for layer in range(len(problem.layers))]
    problem.rank_layers(errors)
    key = list(problem.highest)
    answers = [problem.highest]
    for layer in np.argsort(errors, kind="stable"):
        key[layer] = problem.choices[layer][-1]
        answers.append("".join(key))
    return answers


METHOD = Method(search, "what debuggers of converters list, such as ONNX Runtime's")
