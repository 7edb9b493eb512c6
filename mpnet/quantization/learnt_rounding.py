# SPDX-License-Identifier: MIT
"""Rounding that learns from data: codes that make a layer's output, not its weights, as good as they can be.

For a filter with weights w and codes q the mean squared error of its output over calibration images is e' C e, with
e = w - scale * q and C the covariance of what the filter reads (a constant part of the error is bias correction's). Codes are
found by a beam search (mpnet.quantization.code_search) and by coordinate descent from there: one after the other takes the best
value given all others, again until nothing changes. A descent from weights that are not rounded yet is tried as well, and what
errs less stays. The filter's scale is found by the same error. No labels, no gradients, no chance.

Equal bits on every CPU without a prescribed order of sums: what is summed are products of whole numbers, and no such sum
reaches 2^53, so that float64 holds it exactly whoever adds it, a BLAS as well. Everything else is one operation per element,
or sums one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError
from mpnet.quantization.code_search import BLOCK, search, triangular_factor
from mpnet.quantization.weights import WeightScheme, group_steps, largest_multiplier, quantize_weights, weight_scales

Reals = NDArray[np.float64]

VERSION = 4
"""Raised when any code changes that this module gives."""
INPUT_STEPS = 2047
"""Inputs are whole numbers up to this magnitude: 2^31 products of two may be summed, or of fewer with weights."""
WEIGHT_UNIT = 1024.0
"""Parts of a step in which the error of a weight is counted."""
_FINE_BITS = 6
"""Of codes of which a step has all these parts; with more bits it has fewer, so that no error has more bits."""
_ERROR_BITS = 19
"""Of an error: weights lie within 1 / 0.3 of the largest code, which is below 2^6 (mpnet.quantization.weights)."""
DAMPING = 0.01
"""Added to every variance, as a share of the mean one: what images hardly excite is rounded to nearest."""
SCARCE_DAMPING = 0.3
"""The same where positions are fewer than LEAST_POSITIONS says. At 1.2 to 2.3 positions for each input errors on other images
are 0.79 to 0.87 of those with 0.01 (0.1: 0.85 to 0.92; 1: 0.76 and more)."""
MOST_INPUTS = 8192
"""Filters that read more are rounded to nearest: the covariance would not fit memory."""
SWEEPS = 8
BEAMS = 8
"""Ways to choose codes that a search keeps; 16 take twice the time for 2 % less error."""
MOST_THOROUGH = 1152
"""Filters that read more are searched for with one way, and without a second descent: time, for which they gain little."""
LEAST_POSITIONS = 2.5
"""Positions for each input of a filter from which on codes are searched for. With fewer a search learns the images by heart:
at 1.2 the error is 0.6 of descent's on them and 1.5 on others, at 2.3 it gains nothing on others, at 6 it is 0.9, at 10 0.7."""
SHARES = tuple(np.float32(share) / np.float32(100) for share in (100, 130, 120, 110, 90, 80, 70, 60))
"""Of the scale with which the weights' squared error is least: those that are tried; of equals the first is taken."""
_LEAST_SHARE = np.float32(0.3)
"""Of the scale that clips no weight: no smaller one is tried, so that no error has more bits."""
_ROWS = 1 << 14


def is_scarce(positions: int, inputs: int) -> bool:
    """Return whether there are too few positions for filters of so many inputs to trust what was learnt from them."""
    return positions < LEAST_POSITIONS * inputs


class InputProducts:
    """Sums over positions of the products of all pairs of a filter's inputs, and of the inputs.

    largest: magnitude of the values that will be shown. The other arguments: the convolution's.
    """

    def __init__(
        self, channels: int, largest: float, *, size: int, stride: int, padding: int, dilation: int, groups: int
    ) -> None:
        self._geometry = size, stride, padding, dilation
        self._step = np.float32(largest / INPUT_STEPS if largest > 0 else 1.0)
        depth = channels // groups * size * size
        self._products = np.zeros((groups, depth, depth))
        self._sums = np.zeros((groups, depth))
        self._count = 0
        self.positions = 0
        """That were shown, each once."""

    def observe(self, batch: NDArray[np.float32], weights: Reals | None = None) -> None:
        """Take in (n, h, w, c) activations, of at most 2^31 positions altogether.

        weights: (n, h, w), whole numbers, how often each of the filter's positions counts; None: once.
        """
        size, stride, padding, dilation = self._geometry
        groups, depth = self._sums.shape
        n, height, width, channels = batch.shape
        padded = np.zeros((n, height + 2 * padding, width + 2 * padding, channels))
        padded[:, padding : padding + height, padding : padding + width] = np.rint(batch / self._step)
        reach = dilation * (size - 1) + 1
        windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
        windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]  # (n, h, w, c, ky, kx): as weights lie
        for number, image in enumerate(windows):
            step = max(1, _ROWS // image.shape[1])
            for start in range(0, image.shape[0], step):
                rows = image[start : start + step].reshape(-1, groups, depth)
                rows = np.ascontiguousarray(rows.transpose(1, 0, 2))
                counted = rows if weights is None else rows * weights[number, start : start + step].reshape(-1, 1)
                self._products += rows.transpose(0, 2, 1) @ counted
                self._sums += counted.sum(axis=1)
                self.positions += rows.shape[1]
                self._count += rows.shape[1] if weights is None else int(weights[number, start : start + step].sum())

    def covariance(self) -> Reals:
        """Return the covariance (groups, depth, depth) in whole numbers, in the order of weights, scaled for `descend`.

        Raises: DataError when nothing was observed.
        """
        if not self._count:
            raise DataError("the calibration set is empty; give it at least one image")
        centred = self._products - self._sums[:, :, None] * self._sums[:, None, :] / self._count
        variances = np.einsum("gii->gi", centred)  # a view
        depth = variances.shape[1]
        damping = SCARCE_DAMPING if is_scarce(self.positions, depth) else DAMPING
        variances += damping * (np.add.accumulate(variances, axis=1)[:, -1:] / depth)
        largest = np.maximum(variances.max(axis=1), 1.0)
        bits = 53 - _ERROR_BITS - depth.bit_length()
        covariance = np.rint(centred * (2.0**bits / largest)[:, None, None])
        variances = np.einsum("gii->gi", covariance)
        np.maximum(variances, 1.0, out=variances)
        return np.asarray(covariance)


def learn_codes(
    weights: NDArray[np.float32], covariance: Reals | None, scheme: WeightScheme, positions: int | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (codes, scales) of a layer's weights, as quantize_weights gives them.

    weights:    (out, in / groups, size, size), finite.
    covariance: of what its filters read, see InputProducts; None: rounded to nearest.
    scheme:     bits, and how steps are found: one per channel, or per group. With method mse the scale is the one of those
                tried with the least error of the output; with others it is the method's own.
    positions:  that the covariance is of; None: as many as anyone wants.
    """
    nearest = WeightScheme(scheme.granularity, scheme.method, "half_to_even", scheme.bits)
    if covariance is None:
        return quantize_weights(weights, nearest)
    rows = np.asarray(weights, np.float32).reshape(len(weights), -1)
    scales, multipliers = weight_scales(rows, nearest), np.ones_like(rows)
    unit = WEIGHT_UNIT / (1 << max(0, scheme.bits - _FINE_BITS))
    if scheme.in_groups(weights.shape[1]):
        # As fine for the largest steps, so that no error has more bits.
        (scales, multipliers), unit = group_steps(weights, nearest), WEIGHT_UNIT / largest_multiplier(scheme.bits)
    groups = len(covariance)
    filters = len(rows) // groups
    searches = positions is None or not is_scarce(positions, rows.shape[1])
    codes = np.empty(rows.shape)
    for group in range(groups):
        group_filters = slice(group * filters, (group + 1) * filters)
        layer = _Filters(
            rows[group_filters],
            multipliers[group_filters].astype(np.float64),
            covariance[group],
            scheme.largest,
            unit,
            searches,
        )
        if scheme.method == "mse":
            codes[group_filters], scales[group_filters] = layer.adapted(scales[group_filters])
        else:
            codes[group_filters] = layer.learnt(scales[group_filters]).codes
    return codes.astype(np.int8).reshape(weights.shape), scales


@dataclass(frozen=True, eq=False)
class Descent:
    """Codes of filters, times their multipliers; error and pull (error @ covariance) of each weight, in parts of a step."""

    codes: Reals
    error: Reals
    pull: Reals

    @cached_property
    def harm(self) -> Reals:
        """Return the squared error of each filter's output, in parts of its step and but for a factor that all have."""
        return _dot(self.error, self.pull)


@dataclass(frozen=True, eq=False)
class _Filters:
    """Filters that read the same.

    rows, multipliers: (filters, depth). unit: parts of a step that errors count. searches: for codes, else there is descent
    alone.
    """

    rows: NDArray[np.float32]
    multipliers: Reals
    covariance: Reals
    largest: int
    unit: float
    searches: bool

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """Return the inputs in the order of the search: those that vary most last."""
        return np.argsort(np.diag(self.covariance), kind="stable")

    @cached_property
    def _factor(self) -> Reals:
        return triangular_factor(self.covariance[np.ix_(self._order, self._order)])

    def learnt(self, scales: NDArray[np.float32]) -> Descent:
        """Return the better of the descents from codes that were searched for and from weights that are not rounded."""
        if not self.searches:
            return self._descended(scales, SWEEPS)
        if self.rows.shape[1] > MOST_THOROUGH:
            return self.searched(scales, 1, SWEEPS)
        searched, plain = self.searched(scales, BEAMS, SWEEPS), self._descended(scales, SWEEPS)
        worse = (plain.harm < searched.harm)[:, None]
        return Descent(
            np.where(worse, plain.codes, searched.codes),
            np.where(worse, plain.error, searched.error),
            np.where(worse, plain.pull, searched.pull),
        )

    def searched(self, scales: NDArray[np.float32], beams: int, sweeps: int) -> Descent:
        """Run a search and so many sweeps of descent after it."""
        weights, step_parts = np.rint(self._steps(scales) * self.unit), self.multipliers * self.unit
        error = np.empty_like(weights)
        error[:, self._order] = search(weights.T[self._order], step_parts.T[self._order], self._factor, self.largest, beams).T
        return self._descended(scales, sweeps, error)

    def _descended(self, scales: NDArray[np.float32], sweeps: int, error: Reals | None = None) -> Descent:
        return descend(self._steps(scales), self.covariance, self.largest, self.multipliers, self.unit, sweeps, error)

    def _steps(self, scales: NDArray[np.float32]) -> Reals:
        return (self.rows / scales[:, None]).astype(np.float64)

    def adapted(self, scales: NDArray[np.float32]) -> tuple[Reals, NDArray[np.float32]]:
        """Return (codes, scales): the best of SHARES by a search of one way or one sweep of descent.

        Then come codes for it, the best scale for these codes, and codes for that, if they are better.

        """
        finest = np.abs(self.rows / self.multipliers.astype(np.float32)).max(axis=1) / np.float32(self.largest)
        best, least = scales, np.full(len(scales), np.inf)
        for share in SHARES:
            candidate = self._bounded(scales * share, finest)
            descent = self.searched(candidate, 1, 0) if self.searches else self._descended(candidate, 1)
            best, least = _better((best, least), (candidate, self._harm(candidate, descent)))
        first = self.learnt(best)
        # The scale that the codes want: 1 + (codes . pull) / (codes . codes @ covariance) of the one that they have.
        curvature = _dot(first.codes, first.codes @ self.covariance)
        change = np.where(curvature > 0, _dot(first.codes, first.pull) / self.unit / np.maximum(curvature, 1.0), 0.0)
        fitted = self._bounded((best * (1 + change)).astype(np.float32), finest)
        second = self.learnt(fitted)
        improved = self._harm(fitted, second) < self._harm(best, first)
        return np.where(improved[:, None], second.codes, first.codes), np.where(improved, fitted, best)

    def _bounded(self, scales: NDArray[np.float32], finest: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.maximum(np.maximum(scales, finest * _LEAST_SHARE), np.float32(2.0**-100))

    def _harm(self, scales: NDArray[np.float32], descent: Descent) -> Reals:
        """Return the squared error of each filter's output, but for a factor that all have."""
        real = scales.astype(np.float64)
        return np.asarray(descent.harm * (real * real))


def _better(
    current: tuple[NDArray[np.float32], Reals], candidate: tuple[NDArray[np.float32], Reals]
) -> tuple[NDArray[np.float32], Reals]:
    """Return the scale of each filter that does less harm, and the harm."""
    better = candidate[1] < current[1]
    return np.where(better, candidate[0], current[0]), np.where(better, candidate[1], current[1])


def _dot(a: Reals, b: Reals) -> Reals:
    """Return the dot product of each row, added one after the other: these sums are not of whole numbers below 2^53."""
    return np.asarray(np.add.accumulate(a * b, axis=1)[:, -1])


def descend(
    steps: Reals,
    covariance: Reals,
    largest: int,
    multipliers: Reals | None = None,
    unit: float = WEIGHT_UNIT,
    sweeps: int = SWEEPS,
    error: Reals | None = None,
) -> Descent:
    """Return the codes of filters by coordinate descent.

    steps: (filters, depth), weights in steps of their scale. covariance: (depth, depth), as `InputProducts` gives it.
    largest: magnitude of a code. multipliers: of each weight's step, None: 1. unit: parts of a step that errors count.
    sweeps: over all weights, at most. error: (filters, depth), of the codes to begin from; None: nothing is rounded yet.
    """
    # Filters side by side, since all take a step at once.
    weights = np.ascontiguousarray(np.rint(steps * unit).T)
    step_parts = np.full_like(weights, unit) if multipliers is None else np.ascontiguousarray((multipliers * unit).T)
    errors = np.zeros_like(weights) if error is None else np.array(error.T, order="C")
    pull = np.zeros_like(weights) if error is None else covariance @ errors  # kept up to date
    variances = np.diag(covariance)
    for _ in range(sweeps):
        has_changed = False
        for start in range(0, len(weights), BLOCK):
            block = slice(start, start + BLOCK)
            earlier_errors, block_pull, block_covariance = errors[block].copy(), pull[block].copy(), covariance[block, block]
            for j in range(len(block_pull)):
                row = start + j
                best = (weights[row] - errors[row]) + block_pull[j] / variances[row]
                codes = np.minimum(np.maximum(np.rint(best / step_parts[row]), -largest), largest)
                change = (weights[row] - codes * step_parts[row]) - errors[row]
                if change.any():
                    errors[row] += change
                    block_pull[j + 1 :] += block_covariance[j, j + 1 :, None] * change
            step = errors[block] - earlier_errors
            if step.any():
                has_changed = True
                pull += covariance[:, block] @ step
        if not has_changed:
            break
    return Descent(((weights - errors) / unit).T, errors.T, pull.T)
