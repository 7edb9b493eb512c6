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
    """R, upper triangular, of whole numbers, with R' R about covariance * 4^h for some whole h.

    covariance: (depth, depth) as `InputProducts.covariance` gives it, in any order. It may fail to be positive by what it was
    rounded: no pivot is below 1, and no column of R becomes longer than in a true factor, which also bounds all sums.
    """
    depth, bits = len(covariance), int(covariance.max() - 1).bit_length()
    # Values of R have no more bits than the covariance, so their products with errors may be added as well, and their squares.
    unit = 4.0 ** min(bits // 2, (51 - bits) // 2)
    rest, factor = covariance * unit, np.zeros_like(covariance)
    left = np.diag(rest).copy()  # what of each column's squared length the rows so far have left
    for start in range(0, depth, BLOCK):
        end = min(start + BLOCK, depth)
        rows = rest[start:end, start:]
        for k in range(end - start):
            at = start + k
            pivot = np.sqrt(np.maximum(rows[k, k], unit))
            reach = np.floor(np.sqrt(left[at:]))
            row = np.minimum(np.maximum(np.rint(rows[k, k:] / pivot), -reach), reach)
            left[at:] -= row * row
            rows[k + 1 :, k:] -= row[1 : end - at, None] * row
            factor[at, at:] = row
            factor[at, at] = np.rint(pivot)
        across = factor[start:end, end:]
        rest[end:, end:] -= across.T @ across
    return factor


def search(wanted: Reals, parts: Reals, factor: Reals, largest: int, beams: int) -> Reals:
    """Errors, wanted - codes * parts, of the codes that the search ends with.

    wanted: (depth, filters), whole numbers: weights in parts of a step, in the order of the factor.
    parts: the same shape, of a code.
    factor: of `triangular_factor`. largest: magnitude of a code. beams: ways that are kept, from 1.
    """
    piece = max(1, _STATE // (len(wanted) * beams))
    starts = range(0, wanted.shape[1], piece)
    return np.concatenate(
        [
            _searched(wanted[:, start : start + piece], parts[:, start : start + piece], factor, largest, beams)
            for start in starts
        ],
        axis=1,
    )


def _searched(wanted: Reals, parts: Reals, factor: Reals, largest: int, beams: int) -> Reals:
    depth, filters = wanted.shape
    pull = np.zeros((depth, filters, 1))  # factor @ errors of what was chosen, for each way
    cost = np.zeros((filters, 1))
    blocks: list[tuple[slice, Reals, _Indices]] = []
    for end in range(depth, 0, -BLOCK):
        start = max(end - BLOCK, 0)
        near = pull[start:end]
        errors: list[Reals] = []
        parents: list[_Indices] = []
        for at in range(end - 1, start - 1, -1):
            rate, goal, part = factor[at, at], wanted[at, :, None], parts[at, :, None]
            codes, cost, parent = _extended(goal + near[at - start] / rate, part, rate, cost, largest, beams)
            error = goal - codes * part
            near = _of(near[: at - start], parent) + factor[start:at, at, None, None] * error
            errors.append(error)
            parents.append(parent)
        chosen = np.empty((end - start, *cost.shape))
        way = np.broadcast_to(np.arange(cost.shape[1]), cost.shape)
        for position, (error, parent) in enumerate(zip(reversed(errors), reversed(parents), strict=True)):
            chosen[position] = _along(error, way)
            way = _along(parent, way)
        blocks.append((slice(start, end), chosen, way))
        moved = factor[:start, start:end] @ chosen.reshape(end - start, -1)
        pull = _of(pull[:start], way) + moved.reshape(start, *cost.shape)
    best_errors = np.empty((depth, filters))
    best = np.argmin(cost, axis=1)[:, None]
    for block, chosen, way in reversed(blocks):
        best_errors[block] = np.take_along_axis(chosen, best[None], 2)[:, :, 0]
        best = _along(way, best)
    return best_errors


def _extended(
    wanted: Reals, part: Reals, rate: np.float64, cost: Reals, largest: int, beams: int
) -> tuple[Reals, Reals, _Indices]:
    """(codes, cost, parent) of the best ways with one code more: the nearest, or the one on the other side of what is wanted.

    wanted, cost: (filters, ways). parent: the way that each is made of.
    """
    ways = cost.shape[1]
    ratio = wanted / part
    near = np.minimum(np.maximum(np.rint(ratio), -largest), largest)
    if beams == 1:
        return near, cost, np.zeros(cost.shape, np.intp)
    far = np.minimum(np.maximum(np.where(ratio >= near, near + 1, near - 1), -largest), largest)
    codes = np.concatenate([near, far], axis=1)
    off = (np.tile(wanted, 2) - codes * part) * rate
    total = np.tile(cost, 2) + off * off
    total[:, ways:][far == near] = np.inf
    kept = np.argsort(total, axis=1, kind="stable")[:, :beams]
    return np.take_along_axis(codes, kept, 1), np.take_along_axis(total, kept, 1), kept % ways


def _along(values: NDArray[_Any], way: _Indices) -> NDArray[_Any]:
    """values (filters, ways) of each way."""
    return values if values.shape[1] == 1 == way.shape[1] else np.take_along_axis(values, way, 1)


def _of(values: Reals, parent: _Indices) -> Reals:
    """values (n, filters, ways) of each way's parent."""
    count, filters, ways = values.shape
    if ways == 1 == parent.shape[1]:
        return values
    sources = parent + np.arange(filters)[:, None] * ways
    taken: Reals = np.take(values.reshape(count, filters * ways), sources.ravel(), axis=1)
    return taken.reshape(count, *parent.shape)
