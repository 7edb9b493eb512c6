# SPDX-License-Identifier: MIT
"""Every configuration of the space."""

from __future__ import annotations

from mpnet.sweep.problem.problem import Batch, Problem, Walk
from mpnet.sweep.problem.space import AllAssignments
from mpnet.sweep.search.strategies import Strategy


def exhaustive(problem: Problem) -> Walk:
    """Walk all configurations in one batch, in the order of the trie."""
    yield Batch(AllAssignments(problem.space))


STRATEGY = Strategy(exhaustive, is_exact=True)
