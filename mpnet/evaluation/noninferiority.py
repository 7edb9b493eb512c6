# SPDX-License-Identifier: MIT
"""Is a loss shown to be below a margin? One-sided intervals of losses, at any error probability.

A difference that cannot be told from none shows nothing: with few images no loss can be. Non-inferiority asks the other
way round: the upper end of a one-sided interval of the loss has to be below a margin that somebody named (Piaggio and others,
JAMA 308, 2012, 2594). What is known of a loss is kept (`Loss`), so that the ends can be asked for at any error probability.

The variance is that of `intervals`: bootstrap and jackknife over images. Few images bring most of a loss, and Student's t is
too sure of a small one; Hall's transformation takes the skewness off. Where one or a few images bring all of a loss, that
transformation leaves what it was made for, and its end runs away; there the loss counts as so many equal events, whose
number has Poisson's limit, and the nearer of both ends holds. To the variance comes what was not seen: of images like
none of n there may be -ln(p) in n others with probability p (3 in n with 5 %, the rule of three), each of which changes the
measure by as much as images differ anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, Mapping, Sequence

import numpy as np

from mpnet.evaluation.intervals import SPREAD, Resampled, own_variance, t_quantile
from mpnet.evaluation.proportions import paired_interval

ERROR = 0.05
"""The probability, at most, with which a loss is shown to be below a margin that is not."""
MOST_IMAGES = 100_000
"""More than this is nothing to advise anybody to collect."""
State = Literal["met", "not met", "unclear"]
_SYMMETRIC = 1e-6
"""Skewness below which nothing is taken off."""
POOLED = "_pooled"
"""Behind the name of a measure: the same with the objects of all classes in one list."""


@dataclass(frozen=True)
class Loss:
    """The loss of one measure on some images, percent points, with its uncertainty; positive is worse.

    loss:     the estimate; of agreement what is missing from 100, its bias taken off.
    variance: of the estimate. spread: points by which single images differ in the measure.
    skewness: of the estimate, positive where few images bring most of the loss.
    share:    whether it is what is missing from 100, so that it cannot be negative.
    pairs:    of images that are right in both runs or in one alone: (lost, gained); then nothing else counts.
    """

    images: int
    loss: float
    variance: float = 0.0
    spread: float = 0.0
    skewness: float = 0.0
    share: bool = False
    pairs: tuple[int, int] | None = None

    def bounds(self, error: float = ERROR) -> tuple[float, float]:
        """Return (least, most): the loss is above `most` with probability `error` at most, and below `least` with no more."""
        if self.pairs is not None:
            low, high = paired_interval(*self.pairs, self.images, z=NormalDist().inv_cdf(1 - error))
            return -float(high), -float(low)
        if self.images < 2 or not math.isfinite(self.variance):
            return (0.0 if self.share else -100.0), 100.0
        unseen = (-math.log(error) / t_quantile(2, error) * self.spread / self.images) ** 2
        both = self.variance + unseen
        parts = self.variance**2 / (self.images - 1) + unseen**2 / 2  # Satterthwaite
        t = t_quantile(both**2 / parts if parts else math.inf, error)
        skewness = self.skewness * (self.variance / both) ** 1.5 if both else 0.0
        least, most = (self.loss - math.sqrt(both) * _untransformed(end, skewness) for end in (t, -t))
        return max(0.0 if self.share else -100.0, least), min(100.0, most)

    @property
    def standard_error(self) -> float:
        """Return the standard error of the estimate, in percent points; of images that were not seen it knows nothing."""
        if self.pairs is not None:
            return self.bounds(1 - NormalDist().cdf(1))[1] - self.loss
        return math.sqrt(self.variance)

    def half_width(self, error: float = ERROR) -> float:
        """Return half of what lies between the ends of `bounds`."""
        least, most = self.bounds(error)
        return (most - least) / 2

    def state(self, margin: float, error: float = ERROR) -> State:
        """Return whether the loss is shown to be at most the margin (met), more than it (not met), or neither."""
        least, most = self.bounds(error)
        return "met" if most <= margin else "not met" if least > margin else "unclear"

    def images_to_tell(self, margin: float, error: float = ERROR) -> int | None:
        """Estimate how many images would tell, if the loss stays what it is; None where it is more than MOST_IMAGES."""
        if self.images < 2 or self.with_images(MOST_IMAGES).state(margin, error) == "unclear":
            return None
        enough, few = MOST_IMAGES, self.images - 1
        while enough - few > 1:
            middle = (enough + few) // 2
            enough, few = (enough, middle) if self.with_images(middle).state(margin, error) == "unclear" else (middle, few)
        return enough

    def with_images(self, images: int) -> Loss:
        """Return what so many images would say if the loss stays what it is: the variance goes with one over the images."""
        factor = images / self.images
        pairs = None if self.pairs is None else (round(self.pairs[0] * factor), round(self.pairs[1] * factor))
        variance, skewness = self.variance / factor, self.skewness / math.sqrt(factor)
        return replace(self, images=images, variance=variance, skewness=skewness, pairs=pairs)

    def as_json(self) -> list[float]:
        """Return eight numbers, for stores."""
        pairs = self.pairs or (-1, -1)
        return [self.images, self.loss, self.variance, self.spread, self.skewness, float(self.share), *pairs]

    @staticmethod
    def from_json(values: Sequence[float]) -> Loss:
        """Return the loss that `as_json` wrote."""
        images, loss, variance, spread, skewness, share, lost, gained = values
        pairs = None if lost < 0 else (int(lost), int(gained))
        return Loss(int(images), loss, variance, spread, skewness, bool(share), pairs)


def _untransformed(t: float, skewness: float) -> float:
    """Return the studentised value whose transformation is t.

    Hall's cubic makes the studentised mean of skewed values nearly normal and is monotonous (Hall, Journal of the Royal
    Statistical Society B 54, 1992, 221). It drops terms of skewness * t to the third: where that is near 1 the end of a loss
    runs away, to 7 standard errors of 1 image in 79, and the limit of so few events is taken (see `_most_of_events`).
    """
    if abs(skewness) < _SYMMETRIC:
        return t
    end = float((np.cbrt(1 + skewness * (t - skewness / 6)) - 1) * 3 / skewness)
    return max(end, -_most_of_events(-t, skewness)) if t < 0 < skewness else end


def _most_of_events(t: float, skewness: float) -> float:
    """Return by how many standard errors the expected number of events may be above the number that was seen.

    The sum of k equal events has the skewness 1 / sqrt(k). The limit is Poisson's, half a quantile of chi-square with
    2 (k + 1) degrees, by Wilson and Hilferty's cube (PNAS 17, 1931, 684), with Student's t in place of the normal quantile.
    """
    events = skewness**-2
    degrees = 2 * (events + 1)
    limit = degrees / 2 * (1 - 2 / (9 * degrees) + t * math.sqrt(2 / (9 * degrees))) ** 3
    return (limit - events) * skewness


Losses = Mapping[str, Loss]
"""By measure: accuracy, agreement, and agreement of the POOLED classes. A measure that nothing can be said of is missing."""


def agreement_loss(value: float, agreeing: Resampled, baseline: Resampled | None) -> Loss | None:
    """Return the loss of agreement from its value in percent (-1: nothing to agree with) on resampled images.

    baseline: accuracy of the run that it agrees with, on the labelled images; None: there are none.
    """
    variance = agreeing.left_out_variance()
    if value < 0 or math.isnan(variance):
        return None
    missing = max(100 - value + agreeing.bias(value), 0.0)
    spread = _spread(own_variance(agreeing, baseline), agreeing)
    return Loss(agreeing.images, missing, variance, spread, agreeing.skewness(), share=True)


def accuracy_loss(difference: float, first: Resampled, second: Resampled) -> Loss | None:
    """Return the loss of a paired difference second - first, in percent points."""
    between, measure_variance = second - first, (first.variance() + second.variance()) / 2
    variance = between.variance()
    if math.isnan(variance) or math.isnan(measure_variance):
        return None
    return Loss(first.images, -difference, variance, _spread(measure_variance, first), between.skewness())


def _spread(measure_variance: float, resampled: Resampled) -> float:
    """Return the points by which images differ, at least SPREAD: a network that finds nothing hardly varies."""
    return max(SPREAD, math.sqrt(measure_variance * resampled.images))
