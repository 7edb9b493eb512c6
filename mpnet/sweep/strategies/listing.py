"""Strategies that know beforehand what they try."""

from __future__ import annotations

from mpnet.errors import ConfigError
from mpnet.sweep.problem import Problem, Walk
from mpnet.sweep.space import Configuration

MAX_GRID = 4096


def exhaustive(problem: Problem) -> Walk:
    """Every configuration."""
    yield [Configuration(key, options) for options in range(len(problem.space.option_sets)) for key in problem.space.all_keys()]


def grid(problem: Problem) -> Walk:
    """Every configuration of a space that was made small with ties and choices per layer.

    Raises: ConfigError for more than 4,096 configurations, before any is tried.
    """
    if problem.space.size > MAX_GRID:
        raise ConfigError(
            f"sweep.strategy: grid is for up to {MAX_GRID:,} configurations, this space has "
            f"{problem.space.size:,}; tie layers (sweep.space.tied), narrow their choices "
            f"(sweep.space.layers), or use exhaustive"
        )
    yield from exhaustive(problem)


def one_at_a_time(problem: Problem) -> Walk:
    """Both ways: only this layer lowered, and all but this layer lowered; for every precision that it can be given."""
    yield [
        configuration
        for options in range(len(problem.space.option_sets))
        for configuration in (*only_lowered(problem, options), *all_but_lowered(problem, options))
    ]


def only_lowered(problem: Problem, options: int) -> list[Configuration]:
    """The baseline, and for each variable the baseline with that one alone at each other code."""
    space, top = problem.space, problem.space.highest()
    keys = [
        top,
        *(
            space.changed(top, number, code)
            for number, variable in enumerate(space.variables)
            for code in variable.codes
            if code != top[variable.positions[0]]
        ),
    ]
    return [Configuration(key, options) for key in keys]


def all_but_lowered(problem: Problem, options: int) -> list[Configuration]:
    """For each precision all variables at it (those that can), and that with one variable alone at the highest."""
    space, top = problem.space, problem.space.highest()
    keys = []
    for code in dict.fromkeys(code for variable in space.variables for code in variable.codes):
        low = space.lowered(code)
        keys.append(low)
        keys += [space.changed(low, number, top[v.positions[0]]) for number, v in enumerate(space.variables)]
    return [Configuration(key, options) for key in dict.fromkeys(keys)]
