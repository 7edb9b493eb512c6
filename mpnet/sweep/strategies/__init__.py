"""Ways through a space. Each is a generator: it yields configurations to try and is sent all that is known of them.

A strategy decides from results alone (and its seed), so an interrupted sweep resumes by asking the same questions
again: whatever the store knows is answered at once.
"""

from __future__ import annotations

from typing import Callable

from mpnet.errors import ConfigError
from mpnet.sweep.problem import Problem, Walk
from mpnet.sweep.strategies.additive import additive
from mpnet.sweep.strategies.exact_front import check_bounds, exact_front
from mpnet.sweep.strategies.greedy import greedy
from mpnet.sweep.strategies.listing import exhaustive, grid, one_at_a_time
from mpnet.sweep.strategies.pareto import pareto

Strategy = Callable[[Problem], Walk]
"""problem -> generator of batches; what is sent back holds at least the batch's results."""

STRATEGIES: dict[str, Strategy] = {
    "grid": grid,
    "one_at_a_time": one_at_a_time,
    "exhaustive": exhaustive,
    "greedy": greedy,
    "pareto": pareto,
    "additive": additive,
    "exact_front": exact_front,
}
# Those whose result is the exact front of the space.
EXACT: frozenset[str] = frozenset({"grid", "exhaustive", "exact_front"})
# Those that do not measure what cannot be on it.
RULES_OUT: frozenset[str] = frozenset({"exact_front"})


def strategy(name: str) -> Strategy:
    """The strategy called `name`. Raises ConfigError that lists the known ones."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise ConfigError(f"sweep.strategy: unknown strategy {name!r}; known are {', '.join(STRATEGIES)}") from None


def check_strategy(name: str, problem: Problem) -> None:
    """Raises: ConfigError for a problem that the strategy cannot solve, before anything is written."""
    if name in RULES_OUT:
        check_bounds(problem)
