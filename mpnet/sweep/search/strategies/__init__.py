# SPDX-License-Identifier: MIT
"""Ways through a space, one file each: a module of this folder that declares `STRATEGY` is a strategy of its file's name.

The contract of `Strategy.walk`, a generator made for one `Problem`:

- It yields a `Batch` of configurations of `problem.space` at a time and is sent a mapping of all trials that are known so
  far, those of the batch among them. What a batch with `prune` asked for may be missing: it was ruled out. So may any other
  configuration but the baseline: it failed, and counts as worse than all others.
- Some batch holds the baseline, `Configuration(problem.baseline)`: everything is compared with it.
- It decides by the problem and by what it was sent alone, a random generator being seeded with `problem.seed`. An
  interrupted sweep resumes by replay: the walk begins anew, and what the store knows is answered at once.
- It may ask twice for the same. It ends by returning; when a budget ends the sweep it is closed in the middle of a batch.
- A batch with `screen` is sent what was screened of it alone: noise at the heads on a few images, and costs
  (`problem.screened_noise`); what failed is missing.
- Where it measures in several batches, each says what it is a part of (`stage`), since a rest of time is that of a stage then;
  one with `prune` is held against the whole space.
- What it asks for beyond `problem.trials`, where that is not None, is cut off, and the sweep ends there.

`tests/sweep/test_strategies.py` holds every declared strategy to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from mpnet.errors import ConfigError
from mpnet.packages import declared
from mpnet.sweep.problem.problem import Problem, Walk


def _any_problem(problem: Problem) -> None:
    """Accept every problem."""


@dataclass(frozen=True)
class Strategy:
    """One way through a space.

    walk:     a new generator for a problem, see the module.
    is_exact: its result is the exact front of the space.
    prunes:   it has batches of which what cannot be on the front is not measured.
    screens:  it has batches of which only the noise at the heads is wanted, so there has to be a baseline.
    check:    raises ConfigError for a problem that it cannot solve, before anything is written.
    """

    walk: Callable[[Problem], Walk]
    is_exact: bool = False
    prunes: bool = False
    screens: bool = False
    check: Callable[[Problem], None] = _any_problem


STRATEGIES: dict[str, Strategy] = declared(__name__, __path__, "STRATEGY", Strategy)


def strategy(name: str) -> Strategy:
    """Return the strategy called `name`. Raises: ConfigError that lists the known ones."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise ConfigError(f"sweep.strategy: unknown strategy {name!r}; known are {', '.join(STRATEGIES)}") from None
