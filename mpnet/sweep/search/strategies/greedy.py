# SPDX-License-Identifier: MIT
"""Two greedy walks, each from one corner of the space to the other, ranked by harm per MAC.

Harm is the quality lost by a lower precision, set against the multiply-accumulates (and bits) that it saves. The walk
down lowers the cheapest harm first; the walk up starts with everything low and reverts the worst harm first. All that
is tried on the way counts for the front.

A step of one layer costs a trial for each that could be next, so a deep network would take thousands. Of more than `ALONE`
moves a step makes a share together, those that harm least (or take back most). Where the group harms more than its layers did
alone, it is halved.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy

ALONE = 16
"""Up to so many moves a step is one layer."""
GROUP = 8
"""Of more moves one in so many is made at once."""


def greedy(problem: Problem) -> Walk:
    """Walk down and up, for every option set."""
    for options in range(len(problem.space.option_sets)):
        yield from _walk(problem, options, down=True)
        yield from _walk(problem, options, down=False)


def _walk(problem: Problem, options: int, down: bool) -> Walk:
    """Walk from all high, lowering what harms least per MAC until nothing can be lowered.

    Or walk from all low, raising what harms most until everything is high.
    """
    start = problem.space.highest() if down else problem.space.lowest()
    current = Assignment(start, options)
    stage = f"a step {'down from all high' if down else 'up from all low'}"
    results = yield Batch([current], stage=stage)
    while moves := _moves(problem, current.key, down):
        results = yield Batch([Assignment(move.key, options) for move in moves], stage=stage)
        quality = problem.quality_in(results, current)

        def harm_per_mac(move: _Move, before: float = quality, results: Results = results) -> float:
            after = problem.quality_in(results, Assignment(move.key, options))
            # From one that failed, up: the most accurate neighbour is best, whatever it saves.
            return after if before == -math.inf else (before - after) / move.saving

        # Going up, saving is negative and so is the harm of a good step: the quotient is the harm that it takes back.
        order = sorted(moves, key=lambda move: harm_per_mac(move) if down else -harm_per_mac(move))
        if down and harm_per_mac(order[0]) == math.inf:
            return  # all neighbours failed
        group = _one_of_each_variable(order)[: max(1, len(moves) // GROUP) if len(moves) > ALONE else 1]
        while len(group) > 1:
            together = Assignment(_moved(problem, current.key, group), options)
            results = yield Batch([together], stage=stage)
            alone = sum(quality - problem.quality_in(results, Assignment(move.key, options)) for move in group)
            harm = quality - problem.quality_in(results, together)
            if together in results and (not down or harm <= max(0.0, alone)):
                break
            group = group[: len(group) // 2]
        current = Assignment(_moved(problem, current.key, group), options)


class _Move(NamedTuple):
    """A change of one variable. key: with that change alone. saving: bits of weights, weighed by MACs."""

    variable: int
    code: str
    key: str
    saving: float


def _moves(problem: Problem, key: str, down: bool) -> list[_Move]:
    """Return the neighbours in the direction of the walk."""
    moves = []
    for number, variable in enumerate(problem.space.variables):
        for code in variable.codes:
            saving = problem.saving(key, number, code)
            if (saving > 0) if down else (saving < 0):
                moves.append(_Move(number, code, problem.space.changed(key, number, code), saving))
    return moves


def _one_of_each_variable(moves: Sequence[_Move]) -> list[_Move]:
    """Return the first move of each variable."""
    first: dict[int, _Move] = {}
    for move in moves:
        first.setdefault(move.variable, move)
    return list(first.values())


def _moved(problem: Problem, key: str, moves: Sequence[_Move]) -> str:
    """Return the key with all of the moves made."""
    for move in moves:
        key = problem.space.changed(key, move.variable, move.code)
    return key


STRATEGY = Strategy(greedy)
