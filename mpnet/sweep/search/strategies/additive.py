# SPDX-License-Identifier: MIT
"""The quick first answer: assume that the harms of single layers add up, predict the front, verify what was predicted.

Sensitivities do not really add up, which is why everything predicted is then measured, and why the front of an
exhaustive sweep can be better.
"""

from __future__ import annotations

import numpy as np

from mpnet.sweep.problem.front import Points, non_dominated
from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy
from mpnet.sweep.search.strategies.one_at_a_time import only_lowered

MAX_VERIFIED = 256
ALONE_STAGE, PREDICTED_STAGE = "each layer alone", "the predicted front"
_MAX_PARTIAL = 20_000  # points of a partial front; beyond, evenly thinned along the cost


def additive(problem: Problem) -> Walk:
    """Walk one variable at a time from the baseline, then the predicted front.

    Of this at most 256 configurations, or as many as the budget of trials leaves, from one end of the front to the other.
    """
    for options in range(len(problem.space.option_sets)):
        results = yield Batch(only_lowered(problem, options), stage=ALONE_STAGE)
        room = MAX_VERIFIED
        if problem.trials is not None:
            room = min(room, (options + 1) * problem.trials // len(problem.space.option_sets) - len(results))
        if room > 0:
            predicted = predicted_front(problem, options, results, room)
            yield Batch([Assignment(key, options) for key in predicted], stage=PREDICTED_STAGE)


def predicted_front(problem: Problem, options: int, results: Results, limit: int = MAX_VERIFIED) -> list[str]:
    """Return the keys of the front of the additive model, cheapest first; exact for that model unless thinned to `limit`.

    results: holds the baseline and each single change of it; what failed is part of no front.
    """
    space, top = problem.space, problem.space.highest()
    base = results.get(Assignment(top, options))
    if base is None:
        return []
    # One row per partial assignment: (harm, cost saved, negated). Variables are joined one after the other, and what
    # is dominated goes at once: harms and costs add up, so it could never come back.
    front: Points = np.zeros((1, 2))
    picks = [""]
    for number, variable in enumerate(space.variables):
        single = {code: results.get(Assignment(space.changed(top, number, code), options)) for code in variable.codes}
        trials = {code: trial for code, trial in single.items() if trial is not None}
        steps = np.array(
            [(problem.quality(base) - problem.quality(t), problem.cost(t) - problem.cost(base)) for t in trials.values()]
        )
        joined = (front[:, None, :] + steps[None, :, :]).reshape(-1, 2)
        names = [pick + code for pick in picks for code in trials]
        keep = _thinned(non_dominated(joined), joined, _MAX_PARTIAL)
        front, picks = joined[keep], [names[i] for i in keep]
    front_indices = _thinned(np.argsort(front[:, 1], kind="stable"), front, limit)
    return [space.key_of(picks[i]) for i in front_indices]


def _thinned(indices: np.ndarray, points: Points, limit: int) -> list[int]:
    """Return at most `limit` of the indices, evenly along their order, both ends kept."""
    distinct: dict[tuple[float, float], int] = {}
    for index in indices:
        distinct.setdefault((float(points[index, 0]), float(points[index, 1])), int(index))
    remaining = list(distinct.values())
    if len(remaining) <= limit:
        return remaining
    return [remaining[i] for i in np.linspace(0, len(remaining) - 1, limit).round().astype(int)]


STRATEGY = Strategy(additive)
