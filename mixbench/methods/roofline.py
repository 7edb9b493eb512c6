# SPDX-License-Identifier: MIT
"""Search guided by a roofline, as in AMD Quark 0.13 (September 2026): classes of sensitivity, and the cheapest layer first.

Its design (quark/experimental/torch/mix_precision/README.md, sections 3.3 and 3.4) is this. An operator's time is the longer
of that of its arithmetic and that of its bytes. More sensitive parts of a network never have a lower precision than less
sensitive ones; among what this allows, configurations are tried in the order of their modelled time. Here the parts are
classes of layers whose error at the heads, each lowered alone, is within the same power of ten; within a class that layer is
raised first whose modelled time grows least.
"""

from __future__ import annotations

import math
from typing import Iterable

import numpy as np

from mixbench.layer_figures import Operator
from mixbench.methods import Method, raised_in_order, single
from mixbench.problem import Problem

MACS_PER_BYTE = {"f": 2.0, "h": 4.0, "q": 8.0, "4": 8.0}
"""Multiply-accumulates in the time of one byte from memory, by code: a core with two vector units of 128 bits at 2 GHz, thus
16 GMAC/s in fp32, twice as many in fp16 and four times as many in int8, beside memory of 8 GB/s."""
WEIGHT_BYTES = {"f": 4.0, "h": 2.0, "q": 1.0, "4": 0.5}
ACTIVATION_BYTES = {"f": 4.0, "h": 2.0, "q": 1.0, "4": 1.0}


def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
    """From all low, raise the layers one after the other: the most sensitive class first, in it the cheapest."""
    figures = problem.layer_figures()
    problem.prepare([single(problem, layer) for layer in range(len(problem.layers))])
    errors = [problem.head_error(single(problem, layer)) for layer in range(len(problem.layers))]

    def added_time(layer: int) -> float:
        highest, lowest = problem.choices[layer][0], problem.choices[layer][-1]
        return sum(operator_time(operator, highest) - operator_time(operator, lowest) for operator in figures.operators[layer])

    order = sorted(range(len(errors)), key=lambda layer: (-_decade(errors[layer]), added_time(layer)))
    problem.rank_layers([float(len(order) - order.index(layer)) for layer in range(len(order))])
    return raised_in_order(problem, order)


def operator_time(operator: Operator, code: str) -> float:
    """Return the modelled time of a layer in a precision, in that of one byte: the longer of arithmetic and traffic."""
    activations = (operator.inputs + operator.outputs) * ACTIVATION_BYTES[code]
    return max(operator.macs / MACS_PER_BYTE[code], operator.parameters * WEIGHT_BYTES[code] + activations)


def _decade(error: float) -> float:
    """Return the class of an error at the heads: its power of ten."""
    return -math.inf if error == 0 else math.floor(math.log10(error))


METHOD = Method(
    search,
    "AMD Quark 0.13, mixed-precision search guided by a roofline, 2026",
    "sensitivities are measured layer by layer instead of given for kinds of modules; every step from all low to all high is "
    "answered instead of stopping at an accuracy budget; it orders by modelled time, but is judged by bit operations",
)
