# SPDX-License-Identifier: MIT
"""Intervals from resampled values: against closed forms where the measure is a mean, and where nothing can be said."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.evaluation.compare import draw_images
from mpnet.evaluation.intervals import Resampled, difference_interval, left_out, t_quantile, value_interval


def mean_of(x: np.ndarray, draws: int = 20_000) -> Resampled:
    draws_of_mean, jackknife = (w @ x / w.sum(axis=1) for w in (draw_images(len(x), draws), left_out(len(x))))
    return Resampled(draws_of_mean, jackknife, len(x))


@pytest.mark.parametrize(
    ("degrees", "tail", "point"),  # from printed tables
    [
        *((1, 0.05, 6.3138), (2, 0.05, 2.9200), (10, 0.05, 1.8125), (10, 0.001, 4.1437), (2, 0.0005, 31.599)),
        *((2, 0.025, 4.3027), (7, 0.025, 2.3646), (40, 0.025, 2.0211), (120, 0.025, 1.9799), (200, 0.025, 1.9719)),
        *((201, 0.025, 1.9719), (1000, 0.0005, 3.3003), (np.inf, 0.05, 1.6449)),
    ],
)
def test_points_of_student(degrees: float, tail: float, point: float) -> None:
    assert t_quantile(degrees, tail) == pytest.approx(point, rel=1e-4)


@pytest.mark.parametrize("images", [50, 150])
def test_of_a_mean_they_are_students_interval(images: int) -> None:
    """Uniform values have kurtosis 1.8, so the degrees of freedom are n - 1. The ends are where the distance is t times
    an error that grows as what is missing from 100. Tolerance: 20,000 draws know the mean to 0.7 % of its error."""
    x = 60 + 20 * np.random.RandomState(3).uniform(-1, 1, images)
    half_width = t_quantile(images - 1, 0.025) * x.std(ddof=1) / np.sqrt(images)
    for end in value_interval(float(x.mean()), mean_of(x)):
        assert abs(end - x.mean()) == pytest.approx(half_width * np.sqrt((100 - end) / (100 - x.mean())), rel=0.03)


def test_where_little_is_missing_more_may_be() -> None:
    """One of fifty values is 90, all others 100: no symmetric interval, which would be cut at 100."""
    low, high = value_interval(99.8, mean_of(np.array([100.0] * 49 + [90.0])))
    assert 99.8 - low > 1.5 * (high - 99.8)


def test_more_images_than_groups() -> None:
    weight = left_out(1000)
    assert weight.shape == (200, 1000)
    assert (weight.sum(axis=1) == 995).all()
    assert (weight.sum(axis=0) == 199).all()
    x = 50 + np.random.RandomState(4).normal(0, 10, 1000)
    low, high = value_interval(float(x.mean()), mean_of(x, 2000))
    assert (high - low) / 2 == pytest.approx(1.97 * x.std() / np.sqrt(1000), rel=0.1)


def test_one_decisive_image_widens() -> None:
    """Equal variances; in one set a single image of fifty makes all of it: its kurtosis is 48 + 1 / 49."""
    even, single = np.where(np.arange(50) % 2, 1.0, -1.0), np.zeros(50)
    single[0] += even.std() / np.sqrt((1 / 50) * (49 / 50))
    no_change = mean_of(np.zeros(50))
    widths = [np.subtract(*difference_interval(0.0, no_change, mean_of(x))[::-1]) for x in (even, single)]
    t = [t_quantile(degrees, 0.025) for degrees in (49, 100 / (47 + 1 / 49))]
    assert widths[1] / widths[0] == pytest.approx(t[1] / t[0], rel=0.02)  # but for the widening, an own variance of so little


@pytest.mark.parametrize("images", [50, 1000])
def test_of_runs_that_differ_nowhere_three_more_images_may(images: int) -> None:
    """The rule of three: +-3 / n of an image's spread, as the interval of the measure itself has it."""
    run = mean_of(np.random.RandomState(5).uniform(20, 80, images), 2000)
    low, high = difference_interval(0.0, run, run)
    assert high == -low == pytest.approx(3 / images * np.sqrt(images * run.variance()), rel=1e-9)


def test_what_was_not_seen_counts_less_the_more_was_seen() -> None:
    """Satterthwaite's sum: nothing but what was not seen at one end, Student's interval of what was seen at the other."""
    random = np.random.RandomState(6)
    baseline, change = mean_of(random.uniform(20, 80, 50)), random.uniform(-1, 1, 50)

    def compute_half_width(scale: float) -> float:
        candidate = Resampled(baseline.drawn + scale * mean_of(change).drawn, baseline.left + scale * mean_of(change).left, 50)
        low, high = difference_interval(0.0, baseline, candidate)
        return (high - low) / 2

    nothing = 3 * np.sqrt(baseline.variance() / 50)
    assert compute_half_width(0) == pytest.approx(nothing)
    assert compute_half_width(1e-3) == pytest.approx(nothing, rel=1e-3)
    student = t_quantile(49, 0.025) * np.sqrt(mean_of(change).variance())
    assert compute_half_width(100) == pytest.approx(100 * student, rel=0.03)


def test_a_difference_that_one_image_makes_is_less_sure_the_larger_it_is() -> None:
    baseline = mean_of(np.random.RandomState(7).uniform(20, 80, 50))
    single = mean_of(np.eye(50)[0] * 20)
    half_widths = [
        difference_interval(0.0, baseline, Resampled(baseline.drawn + k * single.drawn, baseline.left + k * single.left, 50))[1]
        for k in (0, 1, 2)
    ]
    assert half_widths == sorted(half_widths)


def test_nothing_is_claimed_of_one_image_and_nothing_beyond_what_can_be() -> None:
    single_image = Resampled(np.full(100, 70.0), np.array([np.nan]), 1)  # without it there is none
    assert value_interval(70.0, single_image) == (0.0, 100.0)
    assert difference_interval(0.0, single_image, single_image) == (-100.0, 100.0)
    assert value_interval(100.0, mean_of(np.full(32, 100.0)))[1] == 100.0
    assert value_interval(99.0, mean_of(np.array([100.0] * 9 + [90.0])), measure_variance=400.0)[1] == 100.0
