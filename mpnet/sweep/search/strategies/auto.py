# SPDX-License-Identifier: MIT
"""The way that fits the network: every configuration where that is cheap, else `deep`."""

from __future__ import annotations

from mpnet.sweep.problem.problem import Problem, Walk
from mpnet.sweep.search.strategies import Strategy
from mpnet.sweep.search.strategies.deep import deep
from mpnet.sweep.search.strategies.exhaustive import exhaustive


def auto(problem: Problem) -> Walk:
    """Walk all configurations of a small problem, else the chain of `deep` and what lies around its front."""
    yield from exhaustive(problem) if problem.is_small else deep(problem)


STRATEGY = Strategy(auto, screens=True)
