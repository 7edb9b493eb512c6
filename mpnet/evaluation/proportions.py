# SPDX-License-Identifier: MIT
"""Shares of images: is the difference of two runs on the same images real, and how sure is one share?

Of n images, `lost` are right in the first run and wrong in the second, `gained` the other way round; all else is equal.
The difference of the two shares is (gained - lost) / n, and only these pairs say anything about it (McNemar).

Interval of the difference: Tango's score interval, all d for which |gained - lost - n d| <= z sqrt(n (2 q + d (1 - d))), q
being the maximum likelihood estimate of the share of lost images under the difference d (Tango, Statistics in Medicine 17,
1998, 891-908). It does not collapse where nothing differs: n images cannot show a difference much below 4 / n.
Test: exact binomial and mid-p (Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13, 2013, 91).
Interval of one share: Wilson's score interval (Journal of the American Statistical Association 22, 1927, 209-212).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError

METHOD = "Tango's score method for paired shares of images (agreement: Wilson's)"
Counts = NDArray[np.int64] | int
Z95 = 1.959963984540054
"""The normal distribution's 97.5 % point."""
_HALVINGS = 60  # of the interval [-1, 1]: to the last bit of a float64


def paired_interval(
    lost: Counts, gained: Counts, images: Counts, z: float = Z95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of gained / n - lost / n, in percent points: (low, high), each of the counts' shape.

    z: the normal distribution's point, of a 95 % interval if none is given.

    Raises: DataError for counts that cannot be.
    """
    b, c, n = (np.asarray(count, dtype=np.float64) for count in (gained, lost, images))
    if (np.minimum(b, c) < 0).any() or (b + c > n).any() or (n < 1).any():
        raise DataError("pairs that differ are 0 to as many as there are images, and there is at least one image")
    low, high = _end(b, c, n, z), _end(b, c, n, -z)
    return 100 * low, 100 * high


def _end(b: NDArray[np.float64], c: NDArray[np.float64], n: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    """Return the difference whose score is z; the score falls as the difference rises."""
    low, high = np.full(b.shape, -1.0), np.full(b.shape, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _score(b, c, n, middle) > z
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)


def _score(
    b: NDArray[np.float64], c: NDArray[np.float64], n: NDArray[np.float64], d: NDArray[np.float64]
) -> NDArray[np.float64]:
    # q solves 2 n q^2 + B q + C = 0.
    half = -b - c + (2 * n - b + c) * d
    q = (np.sqrt(np.maximum(half * half + 8 * n * c * d * (1 - d), 0)) - half) / (4 * n)
    spread = n * (2 * q + d * (1 - d))
    distance = b - c - n * d
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distance == 0, 0.0, distance / np.sqrt(np.maximum(spread, 0)))


def share_interval(count: int, images: int) -> tuple[float, float]:
    """Return the 95 % interval of count / images, in percent. Raises: DataError for counts that cannot be."""
    if not 0 <= count <= images or images < 1:
        raise DataError(f"{count} of {images} images is no share")
    p, z2 = count / images, Z95 * Z95 / images
    middle = (p + z2 / 2) / (1 + z2)
    half = math.sqrt(p * (1 - p) * z2 + z2 * z2 / 4) / (1 + z2)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def mcnemar(lost: int, gained: int) -> tuple[float, float]:
    """Return (exact, mid-p) two-sided p-values for "both runs are right equally often"; 1 where nothing differs."""
    count, fewer = lost + gained, min(lost, gained)
    if count == 0:
        return 1.0, 1.0
    ways = sum_of_ways = 1  # of `count` throws of a coin to show heads i times, and up to i times
    for i in range(fewer):
        ways = ways * (count - i) // (i + 1)
        sum_of_ways += ways
    exact, point = min(1.0, 2 * sum_of_ways / 2**count), ways / 2**count
    return exact, min(1.0, exact - point if 2 * fewer < count else 1 - point)
