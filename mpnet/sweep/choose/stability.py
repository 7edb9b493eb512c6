# SPDX-License-Identifier: MIT
"""The stability of a choice on other images: the front, its layers and the picks on images drawn again.

Single precision strings are often luck of the images; what nearly all draws agree on is what may be concluded. Agreement of the
configurations that were judged is known on the same draws of all images for each of them, so nothing runs again.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.sweep.problem.front import knee, non_dominated
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import FrontShare, LayerShare, Stability
from mpnet.sweep.store import Trial


def stability(
    problem: Problem,
    trials: Mapping[Assignment, Trial],
    draws: Mapping[Assignment, Sequence[float]],
    picks: Mapping[str, Assignment],
) -> Stability:
    """Count how often images that are drawn again lead to the same choice; one without draws where nothing was judged.

    draws: agreement of each judged configuration in percent, the same draws for all. The safe pick has no share of being picked
    repeat_counts: a test decides it and not the front.
    """
    baseline = Assignment(problem.baseline)
    candidates = [c for c, values in draws.items() if len(values) and c != baseline and c in trials]
    count = min((len(draws[c]) for c in candidates), default=0)
    if not count:
        return Stability()
    costs = np.array([problem.cost(trials[c]) for c in candidates])
    agreement = np.array([np.asarray(draws[c])[:count] for c in candidates])
    front_counts = np.zeros(len(candidates))
    repeat_counts = dict.fromkeys((name for name in picks if name != "safe"), 0)
    raised_counts = {name: np.zeros(len(problem.baseline)) for name in picks}
    free = [high != low for high, low in zip(problem.space.highest(), problem.space.lowest(), strict=True)]
    raised = np.array([[code == high for code, high in zip(c.key, problem.baseline, strict=True)] for c in candidates]) & free
    for values in agreement.T:
        front = non_dominated(np.stack([costs, -values], axis=1))
        front_counts[front] += 1
        for name, index in _picked(costs, values, front).items():
            repeat_counts[name] = repeat_counts.get(name, 0) + (candidates[index] == picks.get(name))
        for name, configuration in picks.items():
            affordable = np.flatnonzero(costs <= problem.cost(trials[configuration]))
            if len(affordable):
                raised_counts[name] += raised[affordable[np.argmax(values[affordable])]]
    percent = 100 / count
    options = [option_set.text for option_set in problem.space.option_sets]
    return Stability(
        draws=count,
        judged=len(candidates),
        front=tuple(
            FrontShare(configuration.key, options[configuration.options], float(share * percent))
            for configuration, share in zip(candidates, front_counts, strict=True)
        ),
        picks={name: float(repeat_counts[name] * percent) for name in picks if name != "safe"},
        layers={
            name: tuple(
                LayerShare(layer, float(share * percent))
                for layer, share in zip(problem.space.layers, shares, strict=False)
                if share
            )
            for name, shares in raised_counts.items()
        },
    )


def _picked(costs: NDArray[np.float64], values: NDArray[np.float64], front: NDArray[np.intp]) -> dict[str, int]:
    """Return the positions of what would be picked; front: of these values, cheapest first."""
    return {"balanced": int(front[knee(costs[front], values[front])]), "smallest": int(front[0])}
