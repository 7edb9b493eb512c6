# SPDX-License-Identifier: MIT
"""Is a difference real? Paired resampling of images, and the objects that one run finds and the other does not.

A draw takes as many images as there are, with replacement, for both runs alike; the metric is computed anew from the
stored matches, and again with images left out. `intervals` makes an interval of both. It tells how far the result
depends on which images happen to be in the data set, and nothing about other kinds of images.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import Measure
from mpnet.data.detections import Detections
from mpnet.errors import ConfigError, DataError
from mpnet.evaluation.intervals import Resampled, difference_interval, left_out
from mpnet.evaluation.match import Truths, match
from mpnet.evaluation.metrics import AT_50, AT_75, PERCENT, CocoResult

DRAWS = 500
"""Enough for a variance: it is known to 6 %, the width of an interval to 3 %."""
MIN_DRAWS, MAX_DRAWS = 100, 1_000_000
# Draws computed in one call: bounds the memory for large sets of categories.
_BLOCK = 250


@dataclass(frozen=True)
class Interval:
    """A paired difference (other - baseline) and its 95 % interval, in the measure's unit: percent points for metrics."""

    difference: float
    low: float
    high: float

    @property
    def noise(self) -> bool:
        """Return whether zero lies in the interval: the difference may be chance."""
        return self.low <= 0 <= self.high

    @property
    def tells(self) -> bool:
        """Return whether it says anything of other images: one image, or none that differs, leaves every loss possible."""
        return self.low > -100


Verdict = Literal["loss", "gain", "noise"]


def verdict(measured: Measure, interval: Interval) -> Verdict | None:
    """Judge a paired difference from the baseline.

    Return None for a measure that cannot exceed what the baseline has (`Measure.judged`), of which only the interval means
    something.
    """
    if not measured.judged:
        return None
    return "noise" if interval.noise else "loss" if interval.difference * measured.sense > 0 else "gain"


@dataclass(frozen=True, eq=False)
class Draws:
    """AP, AP50, AP75 and AR100 of one run on resampled images.

    `summary` is (draws,), `per_class` (draws, categories), NaN where a draw has no truth of a class.
    """

    weight_digest: str
    summary: dict[str, Resampled]
    per_class: dict[str, Resampled]


@dataclass(frozen=True)
class Differences:
    """Paired differences of a run from the baseline.

    metrics: AP, AP50, AP75, AR100; per_class: the same names, one interval per category, None where fewer than two
    images have truths of it: one image says nothing about others.
    """

    metrics: dict[str, Interval]
    per_class: dict[str, tuple[Interval | None, ...]]


def draw_images(image_count: int, draws: int = DRAWS, seed: int = 0) -> NDArray[np.int32]:
    """Return int32 (draws, images): how often each image is in each draw.

    The same on every machine and NumPy version.

    Raises: ConfigError for less than 100 or more than a million draws; DataError without images.
    """
    if not MIN_DRAWS <= draws <= MAX_DRAWS:
        raise ConfigError(f"bootstrap: {draws} draws; {MIN_DRAWS} to {MAX_DRAWS} are possible")
    if image_count < 1:
        raise DataError("a bootstrap needs at least one image")
    generator = np.random.RandomState(seed)  # its stream is frozen, unlike that of default_rng
    chosen = generator.randint(0, image_count, size=(draws, image_count))
    cell = chosen + np.arange(draws)[:, None] * image_count
    return np.bincount(cell.ravel(), minlength=draws * image_count).reshape(draws, image_count).astype(np.int32)


def bootstrap(result: CocoResult, weight: NDArray[np.int32]) -> Draws:
    """Compute the metrics of a run for every draw (`draw_images`) and with images left out.

    This is done once per run, for any number of comparisons.
    """
    images = weight.shape[1]
    drawn, left = (_resampled(result, counts) for counts in (weight, left_out(images)))
    return Draws(
        hashlib.sha256(weight.tobytes()).hexdigest(),
        {name: Resampled(_mean_of_present(drawn[name]), _mean_of_present(left[name]), images) for name in drawn},
        {name: Resampled(drawn[name], left[name], images) for name in drawn},
    )


def _resampled(result: CocoResult, weight: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
    """Return percent, float64 (rows of the weight, categories), by name."""
    blocks = [_draw_block(result, weight[first : first + _BLOCK]) for first in range(0, len(weight), _BLOCK)]
    return {name: PERCENT * np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _draw_block(result: CocoResult, weight: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
    precision, recall = result.matches.average_precision(weight)
    absent = precision[:, :, 0] < 0
    values = {
        "AP": precision.mean(axis=2),
        "AP50": precision[:, :, AT_50],
        "AP75": precision[:, :, AT_75],
        "AR100": recall.mean(axis=2),
    }
    return {name: np.where(absent, np.nan, value) for name, value in values.items()}


def _mean_of_present(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the categories that a draw has truths of; NaN when it has none."""
    present = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(present, values, 0).sum(axis=1) / present.sum(axis=1), dtype=np.float64)


def compare(
    baseline: CocoResult, baseline_draws: Draws, other: CocoResult, other_draws: Draws, *, per_class: bool = True
) -> Differences:
    """Compute the differences other - baseline of AP, AP50, AP75 and AR100, overall and (unless told not to) per class.

    Both runs must be of one data set and drawn with the same weights (`draw_images`). Raises: DataError otherwise.
    """
    if not np.array_equal(baseline.matches.positives, other.matches.positives):
        raise DataError("the two runs are of different data sets; compare runs of the same images and labels")
    if baseline_draws.weight_digest != other_draws.weight_digest:
        raise DataError("the two runs were drawn differently; use the same weights for both")
    metrics = {
        name: _interval(baseline.summary[name], other.summary[name], drawn, other_draws.summary[name])
        for name, drawn in baseline_draws.summary.items()
    }
    if not per_class:
        return Differences(metrics, {})
    several = (baseline.matches.positives > 0).sum(axis=0) > 1
    tables = [result.per_class() for result in (baseline, other)]
    classes = {
        name: tuple(
            _interval(before[name], after[name], _of_class(drawn, c), _of_class(other_draws.per_class[name], c))
            if several[c]
            else None
            for c, (before, after) in enumerate(zip(*tables, strict=True))
        )
        for name, drawn in baseline_draws.per_class.items()
    }
    return Differences(metrics, classes)


def _of_class(resampled: Resampled, category: int) -> Resampled:
    return Resampled(resampled.drawn[:, category], resampled.left[:, category], resampled.images)


def _interval(before: float, after: float, first: Resampled, second: Resampled) -> Interval:
    if before <= -1:
        return Interval(0.0, 0.0, 0.0)
    return Interval(after - before, *difference_interval(after - before, first, second))


def found_objects(detections: Detections, truths: Truths, score: float = 0.25) -> NDArray[np.int64]:
    """Return int64 (boxes of the data set,): the detection (index) that finds each box at IoU 0.5, or -1.

    Only detections with at least this score count; each finds one box, best scores first.
    """
    positions = np.flatnonzero(detections.score >= np.float32(score))
    sure = detections.select(detections.score >= np.float32(score))
    matches = match(sure, truths, thresholds=np.array([0.5]))
    hit = matches.truth >= 0
    finders = np.full(len(truths.source), -1, dtype=np.int64)
    finders[truths.source[matches.truth[hit]]] = positions[matches.detection[hit]]
    return finders
