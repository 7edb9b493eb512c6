# SPDX-License-Identifier: MIT
"""What of a choice survives other images: the front, its layers and the picks on images drawn again.

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
    known: Mapping[Assignment, Trial],
    drawn: Mapping[Assignment, Sequence[float]],
    picks: Mapping[str, Assignment],
) -> Stability:
    """Count how often images that are drawn again lead to the same choice; one without draws where nothing was judged.

    drawn: agreement of each judged configuration in percent, the same draws for all. The safe pick has no share of being picked
    again: a test decides it and not the front.
    """
    baseline = Assignment(problem.baseline)
    candidates = [c for c, values in drawn.items() if len(values) and c != baseline and c in known]
    count = min((len(drawn[c]) for c in candidates), default=0)
    if not count:
        return Stability()
    costs = np.array([problem.cost(known[c]) for c in candidates])
    agreement = np.array([np.asarray(drawn[c])[:count] for c in candidates])
    on_front = np.zeros(len(candidates))
    again = dict.fromkeys((name for name in picks if name != "safe"), 0)
    best = {name: np.zeros(len(problem.baseline)) for name in picks}
    free = [high != low for high, low in zip(problem.space.highest(), problem.space.lowest(), strict=True)]
    raised = np.array([[code == high for code, high in zip(c.key, problem.baseline, strict=True)] for c in candidates]) & free
    for values in agreement.T:
        front = non_dominated(np.stack([costs, -values], axis=1))
        on_front[front] += 1
        for name, index in _picked(costs, values, front).items():
            again[name] = again.get(name, 0) + (candidates[index] == picks.get(name))
        for name, configuration in picks.items():
            affordable = np.flatnonzero(costs <= problem.cost(known[configuration]))
            if len(affordable):
                best[name] += raised[affordable[np.argmax(values[affordable])]]
    percent = 100 / count
    options = [option_set.text for option_set in problem.space.option_sets]
    return Stability(
        draws=count,
        judged=len(candidates),
        front=tuple(
            FrontShare(configuration.key, options[configuration.options], float(share * percent))
            for configuration, share in zip(candidates, on_front, strict=True)
        ),
        picks={name: float(again[name] * percent) for name in picks if name != "safe"},
        layers={
            name: tuple(
                LayerShare(layer, float(share * percent))
                for layer, share in zip(problem.space.layers, shares, strict=False)
                if share
            )
            for name, shares in best.items()
        },
    )


def _picked(costs: NDArray[np.float64], values: NDArray[np.float64], front: NDArray[np.intp]) -> dict[str, int]:
    """Positions of what would be picked; front: of these values, cheapest first."""
    return {"balanced": int(front[knee(costs[front], values[front])]), "smallest": int(front[0])}
