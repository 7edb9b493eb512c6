# SPDX-License-Identifier: MIT
"""mpnet's own strategies, run on a table instead of images; they need mpnet."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterable

import numpy as np

from mixbench.errors import benchmark_errors, require_mpnet
from mixbench.methods import Method
from mixbench.problem import COST, QUALITY, Problem

RANKED_BY: dict[str, Callable[[Problem, str], float]] = {
    "deep": lambda problem, key: problem.head_error(key),
    **dict.fromkeys(("one_at_a_time", "additive", "greedy"), lambda problem, key: 100 - problem.quality(key)),
}
"""Of strategies that begin with each layer lowered alone, the figure of such an assignment by which they rank layers."""


def replayed(name: str, trials: int | None = None) -> Method:
    """Return a strategy of mpnet's by name; trials: its budget."""

    def search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
        require_mpnet(f"mpnet's strategy {name}")
        # Imported here, so that the other methods run where mpnet is not installed.
        from mpnet.sweep.problem.problem import Problem as SweepProblem
        from mpnet.sweep.problem.problem import objectives_of
        from mpnet.sweep.problem.space import Assignment, Space, Variable
        from mpnet.sweep.search.strategies import strategy
        from mpnet.sweep.store import Trial

        variables = tuple(Variable((position,), codes) for position, codes in enumerate(problem.choices))
        space = Space(tuple(range(len(variables))), variables)
        sweep = SweepProblem(
            space,
            problem.macs,
            objectives_of([QUALITY, COST]),
            seed=int(generator.integers(1 << 31)),
            trials=trials,
            outputs=frozenset(problem.metadata["heads"]),
        )
        with benchmark_errors():  # such as a package that the strategy needs
            walk = strategy(name).walk(sweep)
            batch = next(walk, None)
        outcomes = dict[Assignment, Trial]()
        while batch is not None:
            found: dict[Assignment, Trial] = {} if batch.screen else outcomes
            problem.prepare([requested.key for requested in batch.configurations])
            for requested in batch.configurations:
                if trials is not None and len(outcomes) >= trials and requested not in outcomes:
                    walk.close()
                    return [configuration.key for configuration in outcomes]
                values = {**problem.evaluate(requested.key), COST: problem.cost(requested.key)}
                found[requested] = Trial(requested.key, values)
            try:
                batch = walk.send(found)
            except StopIteration:
                batch = None
        return [configuration.key for configuration in outcomes]

    def ranking_search(problem: Problem, generator: np.random.Generator) -> Iterable[str]:
        try:
            return search(problem, generator)
        finally:  # also where the budget ended it
            singles = [problem.single(layer) for layer in range(len(problem.layers))]
            if name in RANKED_BY and all(key in problem.asked for key in singles):
                problem.rank_layers([RANKED_BY[name](problem, key) for key in singles])

    return Method(ranking_search, "mpnet, docs/sweeps.md")


METHODS = {
    "mpnet-deep": replace(
        replayed("deep"), differs="what it screens costs a pass, as noise in the table is that of all images that choose"
    ),
    "mpnet-one-at-a-time": replayed("one_at_a_time"),
    "mpnet-additive": replayed("additive"),
    "mpnet-greedy": replayed("greedy"),
    "mpnet-pareto": replace(replayed("pareto", 100), differs="100 trials, NSGA-II"),
    "exhaustive": replace(replayed("exhaustive"), differs="every assignment: what all others are held against"),
}
