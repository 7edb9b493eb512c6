# SPDX-License-Identifier: MIT
"""Every configuration of the space."""

from __future__ import annotations

from mpnet.sweep.problem import Batch, Problem, Walk
from mpnet.sweep.space import Configuration
from mpnet.sweep.strategies import Strategy


def exhaustive(problem: Problem) -> Walk:
    """All configurations in one batch, in the order of the trie."""
    space = problem.space
    yield Batch([Configuration(key, options) for options in range(len(space.option_sets)) for key in space.all_keys()])


STRATEGY = Strategy(exhaustive, is_exact=True)
