# SPDX-License-Identifier: MIT
"""The exact front without measuring everything: what cannot be on it is ruled out once that is proven, by `sweep.race`."""

from __future__ import annotations

from itertools import islice

from mpnet.errors import ConfigError
from mpnet.model.task import TASKS
from mpnet.sweep.problem.front import evenly
from mpnet.sweep.problem.problem import Batch, Problem, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy
from mpnet.sweep.search.strategies.additive import ALONE_STAGE, PREDICTED_STAGE, predicted_front
from mpnet.sweep.search.strategies.one_at_a_time import only_lowered

BATCH_SIZE = 1 << 16
"""Configurations that are looked at together: enough to share their beginnings, few enough that rivals are fresh."""
FIRST_RIVALS = 32
"""Of a predicted front so many are measured on all images; the rest of it is held against these."""
AROUND = 100
"""One of so many configurations at most is looked at early, since it lies beside the front: a better front rules out sooner."""


def exact_front(problem: Problem) -> Walk:
    """Walk the front that follows if harms add up, what lies beside the front so far, then all configurations against it.

    Raises: as `check_bounds`.
    """
    check_bounds(problem)
    for options in range(len(problem.space.option_sets)):
        results = yield Batch(only_lowered(problem, options), stage=ALONE_STAGE)
        predicted = [Assignment(key, options) for key in predicted_front(problem, options, results)]
        yield Batch(evenly(predicted, FIRST_RIVALS), stage=PREDICTED_STAGE)
        yield Batch(predicted, prune=True, again=True)
    yield from around_front(problem)
    for options in range(len(problem.space.option_sets)):
        # Those of low cost first: what costs more than one that loses nothing needs no image.
        keys = problem.space.all_keys(lowest_first=True)
        while batch := [Assignment(key, options) for key in islice(keys, BATCH_SIZE)]:
            yield Batch(batch, prune=True)


def around_front(problem: Problem) -> Walk:
    """Walk each single change of what is on the front so far, until the front has no other neighbours."""
    results = yield Batch((), prune=True, again=True)
    requested = set(results)
    room = problem.space.size // AROUND
    while room > 0:
        configurations, trials = list(results), list(results.values())
        neighbours = (
            Assignment(problem.space.changed(c.key, number, code), c.options)
            for c in [configurations[i] for i in problem.front(trials)]
            for number, variable in enumerate(problem.space.variables)
            for code in variable.codes
        )
        batch = list(islice((c for c in dict.fromkeys(neighbours) if c not in requested), room))
        if not batch:
            return
        requested.update(batch)
        room -= len(batch)
        results = yield Batch(batch, prune=True, again=True)


def check_bounds(problem: Problem) -> None:
    """Check that the problem can be answered exactly.

    Raises: ConfigError for objectives that nothing bounds from part of the images, and for a budget of trials or limits that
    would need the figures of what is no longer measured.
    """
    for row in problem.objectives:
        bounded = [name for task in TASKS.values() if row.task in ("", task.name) for name in (task.quality, task.agreement)]
        if row.higher and row.name not in bounded:
            raise ConfigError(
                f"sweep.objectives: {row.name} cannot be bounded from part of the images, which "
                f"exact_front needs; use {' or '.join(bounded)}, or strategy exhaustive"
            )
    if problem.trials is not None:
        raise ConfigError(
            "sweep.budget.trials: exact_front looks at every configuration; leave it out (budget.seconds is "
            "fine: the same command goes on), or use strategy additive"
        )
    unbounded = [name for name in problem.constraints.measures if name not in problem.names]
    if unbounded:
        raise ConfigError(
            f"sweep.constraints: exact_front measures no more than its objectives need; add {', '.join(unbounded)} "
            "to sweep.objectives, or use strategy exhaustive"
        )


STRATEGY = Strategy(exact_front, is_exact=True, prunes=True, check=check_bounds)
