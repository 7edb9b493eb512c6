# SPDX-License-Identifier: MIT
"""Codes by a beam search along the triangular factor of a covariance, for coordinate descent to begin from.

The codes q of a filter with least (w - q)' C (w - q) are the point of a lattice nearest to w. With C = R' R, R upper
triangular, this error is a sum of one square for each input, of which the last hangs on the last code alone, the one before on
two, and so on. So codes are chosen from the last to the first, the inputs that vary most before all others: each takes up the
errors of those chosen before it, and those without a turn are as good as not rounded. Of the ways to have chosen that far the
best few are kept. One way is known as Babai's nearest plane (and, in other words, as GPTQ), more as K-best.

Equal bits on every CPU: R is of whole numbers, and so are errors; no sum of products reaches 2^53, whoever adds it.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
_Indices = NDArray[np.intp]
_Any = TypeVar("_Any", np.float64, np.intp)

BLOCK = 64
"""Rows of a matrix that are dealt with one by one; what they do to all others is one product of matrices."""
_STATE = 1 << 23
"""Values that a search holds at a time; filters are searched in as many pieces as that takes."""


def triangular_factor(covariance: Reals) -> Reals:
    """Return R, upper triangular, of whole numbers, with R' R about covariance * 4^h for some whole h.

    covariance: (depth, depth) as `InputProducts.covariance` gives it, in any order. It may fail to be positive by what it was
    rounded: no pivot is below 1, and no column of R becomes longer than in a true factor, which also bounds all sums.
    """
    depth, bits = len(covariance), int(covariance.max() - 1).bit_length()
    # Values of R have no more bits than the covariance, so their products with errors may be added as well, and their squares.
    unit = 4.0 ** min(bits // 2, (51 - bits) // 2)
    remainder, factor = covariance * unit, np.zeros_like(covariance)
    unexplained = np.diag(remainder).copy()  # what of each column's squared length the rows so far have left
    for start in range(0, depth, BLOCK):
        end = min(start + BLOCK, depth)
        rows = remainder[start:end, start:]
        for k in range(end - start):
            column = start + k
            pivot = np.sqrt(np.maximum(rows[k, k], unit))
            reach = np.floor(np.sqrt(unexplained[column:]))
            row = np.minimum(np.maximum(np.rint(rows[k, k:] / pivot), -reach), reach)
            unexplained[column:] -= row * row
            rows[k + 1 :, k:] -= row[1 : end - column, None] * row
            factor[column, column:] = row
            factor[column, column] = np.rint(pivot)
        trailing = factor[start:end, end:]
        remainder[end:, end:] -= trailing.T @ trailing
    return factor


def search(weights: Reals, steps: Reals, factor: Reals, largest: int, beams: int) -> Reals:
    """Return the errors, wanted - codes * parts, of the codes that the search ends with.

    weights: (depth, filters), whole numbers: weights in parts of a step, in the order of the factor.
    steps: the same shape, of a code.
    factor: of `triangular_factor`. largest: magnitude of a code. beams: ways that are kept, from 1.
    """
    piece = max(1, _STATE // (len(weights) * beams))
    starts = range(0, weights.shape[1], piece)
    return np.concatenate(
        [
            _search_filters(weights[:, start : start + piece], steps[:, start : start + piece], factor, largest, beams)
            for start in starts
        ],
        axis=1,
    )


def _search_filters(weights: Reals, steps: Reals, factor: Reals, largest: int, beams: int) -> Reals:
    depth, filters = weights.shape
    pull = np.zeros((depth, filters, 1))  # factor @ errors of what was chosen, for each way
    cost = np.zeros((filters, 1))
    blocks: list[tuple[slice, Reals, _Indices]] = []
    for end in range(depth, 0, -BLOCK):
        start = max(end - BLOCK, 0)
        block_pull = pull[start:end]
        errors: list[Reals] = []
        parents: list[_Indices] = []
        for column in range(end - 1, start - 1, -1):
            rate, goal, step = factor[column, column], weights[column, :, None], steps[column, :, None]
            codes, cost, parent = _extend_ways(goal + block_pull[column - start] / rate, step, rate, cost, largest, beams)
            error = goal - codes * step
            block_pull = (
                _values_of_parents(block_pull[: column - start], parent) + factor[start:column, column, None, None] * error
            )
            errors.append(error)
            parents.append(parent)
        chosen_errors = np.empty((end - start, *cost.shape))
        way = np.broadcast_to(np.arange(cost.shape[1]), cost.shape)
        for position, (error, parent) in enumerate(zip(reversed(errors), reversed(parents), strict=True)):
            chosen_errors[position] = _values_of_ways(error, way)
            way = _values_of_ways(parent, way)
        blocks.append((slice(start, end), chosen_errors, way))
        block_change = factor[:start, start:end] @ chosen_errors.reshape(end - start, -1)
        pull = _values_of_parents(pull[:start], way) + block_change.reshape(start, *cost.shape)
    best_errors = np.empty((depth, filters))
    best = np.argmin(cost, axis=1)[:, None]
    for block, chosen_errors, way in reversed(blocks):
        best_errors[block] = np.take_along_axis(chosen_errors, best[None], 2)[:, :, 0]
        best = _values_of_ways(way, best)
    return best_errors


def _extend_ways(
    goal: Reals, step: Reals, rate: np.float64, cost: Reals, largest: int, beams: int
) -> tuple[Reals, Reals, _Indices]:
    """Return (codes, cost, parent) of the best ways with one code more: the nearest, or that on the target's other side.

    wanted, cost: (filters, ways). parent: the way that each is made of.
    """
    ways = cost.shape[1]
    ratio = goal / step
    nearest = np.minimum(np.maximum(np.rint(ratio), -largest), largest)
    if beams == 1:
        return nearest, cost, np.zeros(cost.shape, np.intp)
    farther = np.minimum(np.maximum(np.where(ratio >= nearest, nearest + 1, nearest - 1), -largest), largest)
    codes = np.concatenate([nearest, farther], axis=1)
    error = (np.tile(goal, 2) - codes * step) * rate
    total = np.tile(cost, 2) + error * error
    total[:, ways:][farther == nearest] = np.inf
    best = np.argsort(total, axis=1, kind="stable")[:, :beams]
    return np.take_along_axis(codes, best, 1), np.take_along_axis(total, best, 1), best % ways


def _values_of_ways(values: NDArray[_Any], way: _Indices) -> NDArray[_Any]:
    """Return the values (filters, ways) of each way."""
    return values if values.shape[1] == 1 == way.shape[1] else np.take_along_axis(values, way, 1)


def _values_of_parents(values: Reals, parent: _Indices) -> Reals:
    """Return the values (n, filters, ways) of each way's parent."""
    count, filters, ways = values.shape
    if ways == 1 == parent.shape[1]:
        return values
    sources = parent + np.arange(filters)[:, None] * ways
    values_taken: Reals = np.take(values.reshape(count, filters * ways), sources.ravel(), axis=1)
    return values_taken.reshape(count, *parent.shape)
