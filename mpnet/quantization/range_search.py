# SPDX-License-Identifier: MIT
"""Clipping that loses least: by squared error, or by KL divergence between the values and their codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import PrecisionError
from mpnet.quantization.elementary import log
from mpnet.quantization.histogram import HALF_BINS, GrowingHistogram
from mpnet.quantization.scheme import ActivationScheme, fake_quantize_activation, range_to_params

# Each end is tried at 100 %, 99 %, ... 10 % of its extreme.
_SHARES = np.arange(100, 9, -1) / 100.0
# Entropy looks at 1024 bins of magnitude and tries every eighth of them from 128 up.
_ENTROPY_BINS = 1024
_ENTROPY_FIRST = 128
_ENTROPY_STEP = 8


def mse_range(histogram: GrowingHistogram, scheme: ActivationScheme) -> tuple[float, float]:
    """Return the range whose codes have the least squared error over the histogram.

    Both ends shrink together first, then each in turn while that helps; of equals the wider one stays.
    """
    centres, counts = histogram.filled()
    low, high = min(histogram.minimum, 0.0), max(histogram.maximum, 0.0)
    best = (1.0, 1.0)
    least = _squared_error(centres, counts, low, high, scheme)

    def try_shares(candidates: list[tuple[float, float]]) -> bool:
        nonlocal best, least
        before = best
        for share in candidates:
            error = _squared_error(centres, counts, low * share[0], high * share[1], scheme)
            if error < least:
                best, least = share, error
        return best != before

    try_shares([(s, s) for s in _SHARES.tolist()])
    while low < 0 < high:
        changed = try_shares([(best[0], s) for s in _SHARES.tolist()])
        changed |= try_shares([(s, best[1]) for s in _SHARES.tolist()])
        if not changed:
            break
    return low * best[0], high * best[1]


def _squared_error(
    centres: NDArray[np.float64], counts: NDArray[np.int64], low: float, high: float, scheme: ActivationScheme
) -> float:
    """Sum over the bins; infinite for ranges that the scheme refuses."""
    try:
        params = range_to_params(low, high, scheme)
    except PrecisionError:
        return float("inf")
    error = fake_quantize_activation(centres.astype(np.float32), params).astype(np.float64) - centres
    # accumulate adds one after the other, where sum() may add in an order that depends on the CPU.
    return float(np.add.accumulate(error * error * counts)[-1])


def entropy_range(histogram: GrowingHistogram, scheme: ActivationScheme) -> tuple[float, float]:
    """Return the range [max(min, -t), min(max, t)] whose t has the least KL divergence.

    For each t, P is the histogram of magnitudes below t with everything beyond added to its last bin, and Q the same
    bins without that, merged into as many levels as the scheme has codes for magnitudes, then spread evenly over the
    bins that hold something. Magnitudes have 127 levels where codes are symmetric or the values lie on both sides
    alike, up to 255 where they lie on one side.
    """
    fine = histogram.magnitudes()
    if not fine.any() or histogram.exponent is None:
        return histogram.minimum, histogram.maximum
    extreme = max(-histogram.minimum, histogram.maximum)
    # Bins that end at the extreme, not at the next power of two: the candidates then are shares of the extreme.
    used = min(HALF_BINS, int(np.ceil(extreme / histogram.width)))
    bins = min(_ENTROPY_BINS, used)
    counts = np.zeros(bins, np.int64)
    np.add.at(counts, np.arange(used) * bins // used, fine[:used])
    best, least = bins, np.inf
    for size in [*range(bins, _ENTROPY_FIRST - 1, -_ENTROPY_STEP)]:
        reach = extreme * size / bins
        share = 1.0
        if not scheme.is_symmetric:
            inside = min(-min(histogram.minimum, 0.0), reach) + min(max(histogram.maximum, 0.0), reach)
            share = 2.0 * reach / inside
        divergence = _divergence(counts, size, round(127.5 * share) if share > 1.0 else 127)
        if divergence < least:
            best, least = size, divergence
    reach = extreme * best / bins
    return max(histogram.minimum, -reach), min(histogram.maximum, reach)


def _divergence(counts: NDArray[np.int64], size: int, levels: int) -> float:
    """Return KL(P || Q) for the first `size` bins merged into `levels`."""
    inside = counts[:size].astype(np.float64)
    p = inside.copy()
    p[-1] += counts[size:].sum()
    if p.sum() == 0 or inside.sum() == 0:
        return float("inf")
    level = np.arange(size) * levels // size if size > levels else np.arange(size)
    holds = p > 0
    sums = np.bincount(level, weights=inside)
    filled = np.bincount(level, weights=holds.astype(np.float64))
    q = np.where(holds, (sums / np.maximum(filled, 1.0))[level], 0.0)
    p /= p.sum()
    q /= q.sum()
    # A bin that P fills and Q leaves empty would cost infinity; a count far below one stands for it.
    q = np.where(holds & (q == 0), 1e-9, q)
    return float((p[holds] * log(p[holds] / q[holds])).sum())
