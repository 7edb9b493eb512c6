# SPDX-License-Identifier: MIT
"""Two greedy walks, each from one corner of the space to the other, ranked by harm per MAC.

Harm is the quality lost by a lower precision, set against the multiply-accumulates (and bits) that it saves. The walk
down lowers the cheapest harm first; the walk up starts with everything low and reverts the worst harm first. All that
is tried on the way counts for the front.
"""

from __future__ import annotations

import math

from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy


def greedy(problem: Problem) -> Walk:
    """The walk down and the walk up, for every option set."""
    for options in range(len(problem.space.option_sets)):
        yield from _walk(problem, options, down=True)
        yield from _walk(problem, options, down=False)


def _walk(problem: Problem, options: int, down: bool) -> Walk:
    """From all high, lower what harms least per MAC until nothing can be lowered; or from all low, raise what harms
    most until everything is high.
    """
    start = problem.space.highest() if down else problem.space.lowest()
    current = Assignment(start, options)
    results = yield Batch([current])
    while moves := _moves(problem, current.key, down):
        results = yield Batch([Assignment(key, options) for key, _ in moves])
        quality = problem.quality_in(results, current)

        def harm_per_mac(move: tuple[str, float], before: float = quality, results: Results = results) -> float:
            key, saving = move
            after = problem.quality_in(results, Assignment(key, options))
            # From one that failed, up: the most accurate neighbour is best, whatever it saves.
            return after if before == -math.inf else (before - after) / saving

        # Going up, saving is negative and so is the harm of a good step: the quotient is the harm that it takes back.
        choose = min if down else max
        best = choose(moves, key=harm_per_mac)
        if down and harm_per_mac(best) == math.inf:
            return  # all neighbours failed
        current = Assignment(best[0], options)


def _moves(problem: Problem, key: str, down: bool) -> list[tuple[str, float]]:
    """Neighbours in the direction of the walk, with what each saves."""
    moves = []
    for number, variable in enumerate(problem.space.variables):
        for code in variable.codes:
            saving = problem.saving(key, number, code)
            if (saving > 0) if down else (saving < 0):
                moves.append((problem.space.changed(key, number, code), saving))
    return moves


STRATEGY = Strategy(greedy)
