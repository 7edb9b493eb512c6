# SPDX-License-Identifier: MIT
"""One-sided intervals of losses: how wide, and how often they are right."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mpnet.evaluation.compare import draw_images
from mpnet.evaluation.intervals import Resampled, left_out
from mpnet.evaluation.noninferiority import ERROR, Loss, accuracy_loss, agreement_loss


def resampled(values: np.ndarray) -> Resampled:
    weight, jackknife_weight = draw_images(len(values)), left_out(len(values))
    with np.errstate(invalid="ignore"):  # of one image nothing is left
        return Resampled(
            weight @ values / weight.sum(axis=1), jackknife_weight @ values / jackknife_weight.sum(axis=1), len(values)
        )


def test_the_upper_end_is_above_the_loss_as_often_as_it_says() -> None:
    """A twentieth of the images loses 40 points: fewer than one in 20 intervals of 60 images is below the truth, 2."""
    random = np.random.default_rng(5)
    miss_count = 0
    for _ in range(400):
        values = np.where(random.random(60) < 0.05, 60.0, 100.0)
        loss = agreement_loss(float(values.mean()), resampled(values), None)
        assert loss is not None
        miss_count += loss.bounds()[1] < 2
    assert miss_count <= ERROR * 400


def test_the_upper_end_of_a_skewed_loss_is_the_farther_one() -> None:
    """Two of 40 images bring the loss: others of their kind may be more, but hardly fewer."""
    values = np.full(40, 100.0)
    values[[3, 7]] = 60.0
    loss = agreement_loss(98.0, resampled(values), None)
    assert loss is not None
    lower, upper = loss.bounds()
    assert upper - loss.loss > 1.5 * (loss.loss - lower) > 0
    even = replace(loss, skewness=0.0).bounds()
    assert even[1] - loss.loss == pytest.approx(loss.loss - even[0]) or even[0] == 0


@pytest.mark.parametrize("images", [20, 79, 290])
def test_a_loss_that_one_image_brings_ends_where_one_event_does(images: int) -> None:
    """The exact limits of one in 20, 79 and 290 images are 21.6, 5.9 and 1.63 %; Hall's were 37.7, 9.2 and 2.5."""
    exact = {20: 21.6, 79: 5.9, 290: 1.63}[images]
    loss = Loss(images, 100 / images, (100 / images) ** 2, spread=20.0, skewness=1 - 1 / images, share=True)
    assert loss.bounds()[1] > 0.98 * exact  # Wilson and Hilferty, and a skewness of a little less than 1
    assert loss.bounds()[1] < 1.1 * exact
    ends = [loss.bounds(error)[1] for error in (0.2, 0.1, 0.05, 0.01, 0.001)]
    assert ends == sorted(ends)


def test_where_nothing_differs_the_end_is_that_of_the_rule_of_three() -> None:
    unchanged = resampled(np.full(50, 100.0))
    loss = agreement_loss(100.0, unchanged, None)
    assert loss is not None
    assert loss.bounds()[1] == pytest.approx(20 * 3 / 50, rel=0.01)  # images are taken to differ by 20 points
    assert loss.bounds(0.001)[1] > 2 * loss.bounds()[1]
    assert loss.bounds()[0] == 0


def test_nothing_to_agree_with_shows_nothing() -> None:
    assert agreement_loss(-1.0, resampled(np.full(50, np.nan)), None) is None
    assert agreement_loss(100.0, resampled(np.full(1, 100.0)), None) is None


def test_states_and_how_many_images_would_tell() -> None:
    loss = Loss(100, 2.0, 1.0, 0.0, share=True)
    lower, upper = loss.bounds()
    assert loss.state(upper) == "met"
    assert loss.state(lower - 0.01) == "not met"
    assert loss.state((lower + upper) / 2) == "unclear"
    required_images = loss.images_to_tell(3.0)
    assert required_images is not None
    assert loss.with_images(required_images).state(3.0) == "met"
    assert loss.with_images(required_images - 1).state(3.0) == "unclear"
    assert loss.images_to_tell(2.001) is None


def test_a_paired_loss_is_symmetric() -> None:
    random = np.random.default_rng(1)
    baseline = resampled(random.normal(50, 20, 80))
    loss = accuracy_loss(-1.0, baseline, Resampled(baseline.drawn - 1, baseline.left - 1, baseline.images))
    assert loss is not None
    lower, upper = loss.bounds()
    assert (lower + upper) / 2 == pytest.approx(1.0)


def test_shares_of_images() -> None:
    loss = Loss(200, 1.0, pairs=(3, 1))
    lower, upper = loss.bounds()
    assert lower < 1.0 < upper < 4
    assert Loss(200, 0.0, pairs=(0, 0)).bounds()[1] == pytest.approx(1.33, abs=0.05)  # z ** 2 / n


@pytest.mark.parametrize("loss", [Loss(100, 2.0, 1.0, 5.0, 0.3, share=True), Loss(200, 1.0, pairs=(3, 1))])
def test_stores_keep_it(loss: Loss) -> None:
    assert Loss.from_json(json.loads(json.dumps(loss.as_json()))) == loss


def test_a_baseline_that_finds_nothing_shows_nothing() -> None:
    """Its accuracy is 0 on every image; two images that agree are still only two."""
    loss = agreement_loss(100.0, resampled(np.full(2, 100.0)), resampled(np.zeros(2)))
    assert loss is not None
    assert loss.state(10.0) == "unclear"
