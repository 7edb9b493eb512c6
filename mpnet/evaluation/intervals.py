# SPDX-License-Identifier: MIT
"""95 % intervals of measures over images, from values on resampled images. docs/decisions/0007 says how they were chosen.

A measure such as AP is no mean over images, so its variance is taken from images left out (jackknife) and from images
drawn again (bootstrap). The bootstrap loses the classes that only one or two images have and is too sure; the jackknife
counts their loss in full. A value takes the jackknife's variance, a difference, in which much of that loss cancels, the mean
of both. Half the width is t times its root, t of Student's distribution with the degrees of freedom that the influence
of single images leaves: few when two or three images decide (Satterthwaite, Biometrics Bulletin 2, 1946, 110).

What was not seen may still happen: two runs that differ on none of n images may differ on 3 in n of all others (rule of
three; Hanley and Lippman-Hand, JAMA 249, 1983, 1743). A difference is widened by what these could do, a variance of so few
degrees of freedom, 2, that with nothing else the interval is +-3 / n of the spread that images bring to the measure itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mpnet.quantization.elementary import cos, power, sin

Floats = NDArray[np.float64]

METHOD = "Student's t, bootstrap and jackknife over images"
MOST_GROUPS = 200
"""Of images that the jackknife leaves out: single images up to so many, else every 200th together."""
_ANGLES = np.linspace(0.0, np.pi / 2, 2001)
_NEARLY_NORMAL = 200.0


@lru_cache(maxsize=1024)
def t_quantile(degrees: float, tail: float) -> float:
    """Return the point that Student's t exceeds with probability `tail` (up to 0.5), within 0.1 %; degrees from 1 on.

    With t = sqrt(degrees) / tan(a) the density of a is sin(a) ** (degrees - 1), which is summed. Of many degrees it is the
    normal distribution's point and the first term of Cornish and Fisher's series.
    """
    if degrees > _NEARLY_NORMAL:
        z = NormalDist().inv_cdf(1 - tail)
        return z + (z**3 + z) / (4 * degrees)
    freedom = max(degrees, 1.0)
    density = power(sin(_ANGLES), np.asarray(freedom - 1))
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(tail, below / (2 * below[-1]), _ANGLES))
    return math.sqrt(freedom) * float(cos(np.asarray(angle)) / sin(np.asarray(angle)))


_TAIL = 0.025
"""Above an interval of 95 %, and below it."""
_UNSEEN_DEGREES = 2
UNSEEN = (3 / t_quantile(_UNSEEN_DEGREES, _TAIL)) ** 2
"""Of the measure's own variance, and of that one in n: t times the root is 3 / n of the spread between images."""


def left_out(images: int) -> NDArray[np.int32]:
    """Return int32 (groups, images): how often each image counts when one group is left out."""
    groups = min(images, MOST_GROUPS)
    kept: NDArray[np.bool_] = np.arange(images)[None, :] % groups != np.arange(groups)[:, None]
    return kept.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Resampled:
    """One number of a run, percent, on images drawn again (draws, ...) and with groups left out (groups, ...).

    It is NaN where the images have no truths. Differences of two runs on the same images are `second - first`. images: how
    many.
    """

    drawn: Floats
    left: Floats
    images: int

    def __sub__(self, other: Resampled) -> Resampled:
        return Resampled(self.drawn - other.drawn, self.left - other.left, self.images)

    def bias(self, value: float) -> float:
        """Return how much larger the measure comes out on resampled images than on the images themselves."""
        present = self.drawn[~np.isnan(self.drawn)]
        return float(present.mean() - value) if present.size else 0.0

    def left_out_variance(self) -> float:
        """Return the jackknife's variance; NaN where there are fewer than two groups with truths."""
        left = self.left[~np.isnan(self.left)]
        return (left.size - 1) / left.size * float(((left - left.mean()) ** 2).sum()) if left.size > 1 else float("nan")

    def variance(self) -> float:
        """Return the mean of the bootstrap's and the jackknife's variance; NaN where one of them cannot be had."""
        drawn = self.drawn[~np.isnan(self.drawn)]
        return (float(drawn.var(ddof=1)) + self.left_out_variance()) / 2 if drawn.size > 1 else float("nan")

    def degrees(self) -> float:
        """Return the degrees of freedom: 2 g / (kurtosis - 1) of g groups' influences, at most g - 1."""
        left = self.left[~np.isnan(self.left)]
        squares = (left - left.mean()) ** 2
        total = float(squares.sum())
        if total == 0:
            return float(left.size - 1)
        kurtosis = left.size * float((squares**2).sum()) / total**2
        return min(2 * left.size / max(kurtosis - 1, 1e-9), left.size - 1.0)

    def skewness(self) -> float:
        """Return the skewness of the estimate: of the images' influences, over the root of their number; from -1 to 1.

        Positive where few images lower the measure by much.
        """
        left = self.left[~np.isnan(self.left)]
        change = left - left.mean()  # without a harmful image the measure is higher
        total = float((change**2).sum())
        return float((change**3).sum()) / total**1.5 if total else 0.0


def _widened(resampled: Resampled, variance: float, measure_variance: float) -> tuple[float, float]:
    """Return (t, variance of what was not seen) beside `variance`, that of what was. measure_variance: the measure's own."""
    unseen = UNSEEN * measure_variance / resampled.images
    total = variance + unseen
    parts = variance**2 / resampled.degrees() + unseen**2 / _UNSEEN_DEGREES  # Satterthwaite
    return t_quantile(max(2.0, total**2 / parts) if parts else math.inf, _TAIL), unseen


def value_interval(value: float, resampled: Resampled, measure_variance: float = 0.0) -> tuple[float, float]:
    """Return the interval of a measure from 0 to 100, its bias taken off: AP of few images comes out too high.

    The variance grows with what is missing from 100, as a share's does in Wilson's interval: where little is missing,
    more may be than less. own: variance of the measure that images which were not seen may change so much, see the module.
    """
    variance = resampled.left_out_variance()
    if np.isnan(variance):
        return 0.0, 100.0
    t, unseen = _widened(resampled, variance, measure_variance)
    missing = max(100 - value + resampled.bias(value), 0.0)
    half = t * float(np.sqrt(variance))
    growth = half**2 / max(missing, half) if half else 0.0
    middle, root = 100 - missing - growth / 2, float(np.sqrt(growth * missing + growth**2 / 4 + t**2 * unseen))
    return max(0.0, middle - root), min(100.0, middle + root)


def agreement_interval(value: float, agreeing: Resampled, baseline: Resampled | None) -> tuple[float, float]:
    """Return the interval of agreement with a baseline, which has no second run to pair with.

    baseline: the measure itself of that run, of which images that were not seen may change so much. It may be of fewer images,
    those with labels; None: of none.

    """
    return value_interval(value, agreeing, own_variance(agreeing, baseline))


SPREAD = 20.0
"""Points by which images are taken to differ in AP where no labels say it: 16, 19 and 10 were measured (docs/sweeps.md)."""


def own_variance(agreeing: Resampled, baseline: Resampled | None) -> float:
    """Return the variance of a baseline's AP, had it the images that agreement is measured on."""
    known = float("nan") if baseline is None else baseline.variance()
    if baseline is None or np.isnan(known):
        return SPREAD**2 / agreeing.images
    return known if baseline.images == agreeing.images else known * baseline.images / agreeing.images


def difference_interval(difference: float, first: Resampled, second: Resampled, most: float = 100.0) -> tuple[float, float]:
    """Return the interval of a paired difference second - first of a measure that can differ by `most` (percent)."""
    between, measure_variance = second - first, (first.variance() + second.variance()) / 2
    variance = between.variance()
    if np.isnan(variance) or np.isnan(measure_variance):
        return -most, most
    t, unseen = _widened(between, variance, measure_variance)
    half = t * float(np.sqrt(variance + unseen))
    return max(-most, difference - half), min(most, difference + half)
