# SPDX-License-Identifier: MIT
"""Every configuration of a space that was made small with ties and choices per layer."""

from __future__ import annotations

from mpnet.errors import ConfigError
from mpnet.sweep.problem.problem import Problem, Walk
from mpnet.sweep.search.strategies import Strategy
from mpnet.sweep.search.strategies.exhaustive import exhaustive

MAX_GRID = 4096


def grid(problem: Problem) -> Walk:
    """Walk as `exhaustive`. Raises: ConfigError for more than 4,096 configurations, before any is tried."""
    if problem.space.size > MAX_GRID:
        raise ConfigError(
            f"sweep.strategy: grid is for up to {MAX_GRID:,} configurations, this space has "
            f"{problem.space.size:,}; tie layers (sweep.space.tied), narrow their choices "
            f"(sweep.space.layers), or use exhaustive"
        )
    yield from exhaustive(problem)


STRATEGY = Strategy(grid, is_exact=True)
