# SPDX-License-Identifier: MIT
"""KL divergence of each layer and coverage, as in ModelOpt's sensitivity scan of ONNX files (2026).

NVIDIA/Model-Optimizer, pull request #2240 (August 2026), describes it: each node alone is quantised, the network's outputs are
taken for logits and compared with those of the unquantised network by KL divergence, and the picker excludes from
quantisation the fewest nodes that together have a given share of the divergences' sum, their coverage. Here each set that is
the smallest for some coverage is an answer.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mixbench.methods import Method, raised_in_order
from mixbench.problem import Problem


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """From all low, raise the layers one after the other, the greatest divergence first."""
    figures = problem.layer_figures()
    problem.spend(figures.passes, "KL divergences at the heads, layer by layer")
    divergences = [row[codes[-1]] for row, codes in zip(figures.divergences, problem.choices, strict=True)]
    problem.rank_layers(divergences)
    return raised_in_order(problem, np.argsort(-np.array(divergences), kind="stable").tolist())


METHOD = Method(
    search,
    "NVIDIA ModelOpt, pull request #2240: KL divergence per node with coverage, 2026",
    "all coverages are answers instead of one; a layer is convolution and activation, without blocks or floors of scores",
)
