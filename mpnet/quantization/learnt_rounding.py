"""Rounding that learns from data: codes that make a layer's output, not its weights, as good as they can be.

For a filter with weights w and codes q the mean squared error of its output over calibration pictures is e' C e, with
e = w - scale * q and C the covariance of what the filter reads (a constant part of the error is bias correction's). Codes are
found by coordinate descent: one after the other takes the best value given all others, which at first are not rounded; then
again, until nothing changes. No labels, no gradients, no chance.

Equal bits on every CPU without a prescribed order of sums: what is summed are products of whole numbers, and no such sum
reaches 2^53, so that float64 holds it exactly whoever adds it, a BLAS as well. Everything else is one operation per element,
or sums one after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError
from mpnet.quantization.groups import group_steps, largest_multiplier
from mpnet.quantization.weights import WeightScheme, quantize_weights, weight_scales

Reals = NDArray[np.float64]

VERSION = 1
"""Raised when any code changes that this module gives."""
INPUT_STEPS = 2047
"""Inputs are whole numbers up to this magnitude: 2^31 products of two may be summed."""
WEIGHT_UNIT = 1024.0
"""Parts of a step in which the error of a weight is counted."""
_ERROR_BITS = 19
"""Of an error: weights lie within 1 / 0.3 of the largest code, which is below 2^6 (mpnet.quantization.weights)."""
DAMPING = 0.01
"""Added to every variance, as a share of the mean one: what pictures hardly excite is rounded to nearest."""
MOST_INPUTS = 8192
"""Filters that read more are rounded to nearest: the covariance would not fit memory."""
SWEEPS = 8
_BLOCK = 64
_ROWS = 1 << 14


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

    def observe(self, batch: NDArray[np.float32]) -> None:
        """Take in (n, h, w, c) activations, of at most 2^31 positions altogether."""
        size, stride, padding, dilation = self._geometry
        groups, depth = self._sums.shape
        n, height, width, channels = batch.shape
        padded = np.zeros((n, height + 2 * padding, width + 2 * padding, channels))
        padded[:, padding : padding + height, padding : padding + width] = np.rint(batch / self._step)
        reach = dilation * (size - 1) + 1
        windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
        windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]  # (n, h, w, c, ky, kx): as weights lie
        for image in windows:
            step = max(1, _ROWS // image.shape[1])
            for start in range(0, image.shape[0], step):
                rows = image[start : start + step].reshape(-1, groups, depth)
                rows = np.ascontiguousarray(rows.transpose(1, 0, 2))
                self._products += rows.transpose(0, 2, 1) @ rows
                self._sums += rows.sum(axis=1)
                self._count += rows.shape[1]

    def covariance(self) -> Reals:
        """(groups, depth, depth) whole numbers in the order of weights, scaled for `descend`.

        Raises: DataError when nothing was observed.
        """
        if not self._count:
            raise DataError("the calibration set is empty; give it at least one picture")
        centred = self._products - self._sums[:, :, None] * self._sums[:, None, :] / self._count
        variances = np.einsum("gii->gi", centred)  # a view
        depth = variances.shape[1]
        variances += DAMPING * (np.add.accumulate(variances, axis=1)[:, -1:] / depth)
        largest = np.maximum(variances.max(axis=1), 1.0)
        bits = 53 - _ERROR_BITS - depth.bit_length()
        whole = np.rint(centred * (2.0**bits / largest)[:, None, None])
        variances = np.einsum("gii->gi", whole)
        np.maximum(variances, 1.0, out=variances)
        return np.asarray(whole)


def learn_codes(
    weights: NDArray[np.float32], covariance: Reals | None, scheme: WeightScheme
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(codes, scales) of a layer's weights, as quantize_weights gives them.

    weights:    (out, in / groups, size, size), finite.
    covariance: of what its filters read, see InputProducts; None: rounded to nearest.
    scheme:     bits, and how steps are found: one per channel, or per group.
    """
    nearest = WeightScheme(scheme.granularity, scheme.method, "half_to_even", scheme.bits)
    if covariance is None:
        return quantize_weights(weights, nearest)
    rows = np.asarray(weights, np.float32).reshape(len(weights), -1)
    scales, multipliers, unit = weight_scales(rows, nearest), np.ones_like(rows), WEIGHT_UNIT
    if scheme.in_groups(weights.shape[1]):
        # As fine for the largest steps, so that no error has more bits.
        (scales, multipliers), unit = group_steps(weights, nearest), WEIGHT_UNIT / largest_multiplier(scheme.bits)
    steps = (rows / scales[:, None]).astype(np.float64)
    groups = len(covariance)
    filters = len(rows) // groups
    codes = [
        descend(steps[own], covariance[group], scheme.largest, multipliers[own].astype(np.float64), unit)
        for group in range(groups) for own in [slice(group * filters, (group + 1) * filters)]
    ]
    return np.concatenate(codes).astype(np.int8).reshape(weights.shape), scales


def descend(
    steps: Reals, covariance: Reals, largest: int, multipliers: Reals | None = None, unit: float = WEIGHT_UNIT
) -> Reals:
    """Codes of filters, times their multipliers.

    steps: (filters, depth), weights in steps of their scale. covariance: (depth, depth), as `InputProducts` gives it.
    largest: magnitude of a code. multipliers: of each weight's step, None: 1. unit: parts of a step that errors count.
    """
    wanted = np.rint(steps * unit)
    parts = np.full_like(wanted, unit) if multipliers is None else multipliers * unit
    error = np.zeros_like(wanted)
    pull = np.zeros_like(wanted)  # error @ covariance, kept up to date
    variances = np.diag(covariance)
    for _ in range(SWEEPS):
        changed = False
        for start in range(0, wanted.shape[1], _BLOCK):
            block = slice(start, start + _BLOCK)
            before, near, inside = error[:, block].copy(), pull[:, block].copy(), covariance[block, block]
            for j in range(near.shape[1]):
                at = start + j
                best = (wanted[:, at] - error[:, at]) + near[:, j] / variances[at]
                codes = np.minimum(np.maximum(np.rint(best / parts[:, at]), -largest), largest)
                moved = (wanted[:, at] - codes * parts[:, at]) - error[:, at]
                if moved.any():
                    error[:, at] += moved
                    near += moved[:, None] * inside[j]
            step = error[:, block] - before
            if step.any():
                changed = True
                pull += step @ covariance[block]
        if not changed:
            break
    return np.asarray((wanted - error) / unit)
