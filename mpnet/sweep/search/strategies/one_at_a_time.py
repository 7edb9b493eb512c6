# SPDX-License-Identifier: MIT
"""Each layer alone: lowered where all others are high, and high where all others are lowered."""

from __future__ import annotations

from mpnet.sweep.problem.problem import Batch, Problem, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy


def one_at_a_time(problem: Problem) -> Walk:
    """Walk both ways: only this layer lowered, and all but this layer lowered; for every precision that it can be given."""
    yield Batch(
        [
            configuration
            for options in range(len(problem.space.option_sets))
            for configuration in (*only_lowered(problem, options), *all_but_lowered(problem, options))
        ]
    )


def only_lowered(problem: Problem, options: int) -> list[Assignment]:
    """Return the baseline, and for each variable the baseline with that one alone at each other code."""
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
    return [Assignment(key, options) for key in keys]


def all_but_lowered(problem: Problem, options: int) -> list[Assignment]:
    """Return for each precision all variables at it (those that can), and that with one variable alone at the highest."""
    space, top = problem.space, problem.space.highest()
    keys = []
    for code in dict.fromkeys(code for variable in space.variables for code in variable.codes):
        low = space.lowered(code)
        keys.append(low)
        keys += [space.changed(low, number, top[v.positions[0]]) for number, v in enumerate(space.variables)]
    return [Assignment(key, options) for key in dict.fromkeys(keys)]


STRATEGY = Strategy(one_at_a_time)
