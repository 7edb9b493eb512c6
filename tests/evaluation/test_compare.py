# SPDX-License-Identifier: MIT
"""The paired bootstrap: its exact parts, and whether its intervals cover the truth as often as they claim."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.config.measures import measure
from mpnet.data.detections import Detections
from mpnet.errors import ConfigError, DataError
from mpnet.evaluation.compare import Differences, Interval, bootstrap, compare, draw_images, found_objects, verdict
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator, CocoResult
from tests.evaluation.evaluation_cases import random_dataset, random_detections


def results(seed: int = 0) -> tuple[CocoResult, CocoResult]:
    dataset = random_dataset(seed, images=30)
    evaluator = CocoEvaluator(dataset)
    return (
        evaluator.evaluate(random_detections(dataset, 1, noise=0.05)),
        evaluator.evaluate(random_detections(dataset, 1, noise=0.25)),
    )


def paired_bootstrap(baseline: CocoResult, candidate: CocoResult, draws: int, seed: int = 0) -> Differences:
    weight = draw_images(len(baseline.matches.positives), draws, seed)
    return compare(baseline, bootstrap(baseline, weight), candidate, bootstrap(candidate, weight))


def test_draws_take_as_many_images_as_there_are_and_depend_on_the_seed_alone() -> None:
    weight = draw_images(7, draws=200, seed=3)
    assert weight.shape == (200, 7)
    assert (weight.sum(axis=1) == 7).all()
    np.testing.assert_array_equal(weight, draw_images(7, draws=200, seed=3))
    assert (weight != draw_images(7, draws=200, seed=4)).any()
    assert draw_images(5, draws=100, seed=0)[0].tolist() == [1, 0, 0, 3, 1]  # frozen: one interval per seed, for ever


def test_a_run_differs_from_itself_by_nothing_but_other_images_might_show() -> None:
    result, _ = results()
    comparison = paired_bootstrap(result, result, draws=100)
    for interval in comparison.metrics.values():
        assert (interval.difference, interval.noise) == (0.0, True)
        assert 0 < interval.high == -interval.low < 3


@pytest.mark.parametrize(
    ("name", "interval", "expected"),
    [
        ("AP", Interval(-0.2, -0.6, 0.2), "noise"),
        ("AP", Interval(-0.9, -1.4, -0.4), "loss"),
        ("AP", Interval(0.9, 0.4, 1.4), "gain"),
        ("weight_bytes", Interval(0.9, 0.4, 1.4), "loss"),
        ("agreement_AP", Interval(-2.0, -3.0, -1.0), None),
        ("agreement_top1", Interval(0.0, -1.0, 0.0), None),
        ("head_sqnr_db", Interval(-1.0, -2.0, -0.5), None),
    ],
)
def test_what_cannot_exceed_the_baselines_value_has_no_verdict(name: str, interval: Interval, expected: str | None) -> None:
    assert verdict(measure(name), interval) == expected


def test_a_clear_difference_is_real_and_the_interval_holds_it() -> None:
    better, worse = results()
    interval = paired_bootstrap(better, worse, draws=500).metrics["AP"]
    assert interval.difference == worse.summary["AP"] - better.summary["AP"] < -5
    assert interval.low < interval.difference < interval.high < 0
    assert not interval.noise
    assert paired_bootstrap(worse, better, draws=500).metrics["AP"].low == pytest.approx(-interval.high, abs=1e-9)


def test_draws_are_the_metric_of_the_drawn_images() -> None:
    baseline, _ = results()
    weight = draw_images(30, draws=300, seed=1)
    draws = bootstrap(baseline, weight)
    for row in (0, 251, 299):
        precision, recall = baseline.matches.average_precision(weight[row])
        present = precision[:, 0] > -1
        assert draws.summary["AP"].drawn[row] == pytest.approx(100 * precision[present].mean(), abs=1e-10)
        assert draws.summary["AR100"].drawn[row] == pytest.approx(100 * recall[present].mean(), abs=1e-10)
        assert np.isnan(draws.per_class["AP50"].drawn[row]).tolist() == (~present).tolist()


def test_per_class_has_none_where_fewer_than_two_images_have_truths() -> None:
    better, worse = results()
    comparison = paired_bootstrap(better, worse, draws=100)
    images = (better.matches.positives > 0).sum(axis=0)
    assert [interval is None for interval in comparison.per_class["AP"]] == [n < 2 for n in images]
    first_class = comparison.per_class["AP50"][0]
    assert isinstance(first_class, Interval)
    assert first_class.difference == worse.per_class()[0]["AP50"] - better.per_class()[0]["AP50"]


# The simulated world: images with two objects; both runs find most of them, with boxes that are off by a random
# vector (largely the same for both, as for two precisions of one network; larger in hard images), and invent some.
OBJECTS = np.array([[30.0, 30.0, 40.0, 40.0], [110.0, 30.0, 40.0, 40.0]])
OFF_A, OFF_B = 0.10, 0.13  # standard deviation of the offset, in box widths


def simulated(random: np.random.RandomState, images: int) -> tuple[CocoResult, CocoResult]:
    index = np.repeat(np.arange(images), 2)
    box = np.tile(OBJECTS, (images, 1))
    categories = np.zeros(len(index), np.int32)
    sizes = np.full((images, 2), 210, np.float32)
    evaluator = CocoEvaluator(Truths.of(sizes, 1, index.astype(np.int32), categories, box))
    hard = np.exp(np.repeat(random.normal(0, 0.3, images), 2))
    shared, score = random.normal(0, 1, (len(index), 2)), random.rand(len(index))
    invented_in, invented_score = random.randint(0, images, images), random.rand(images) * 0.8
    pair = []
    for offset_scale in (OFF_A, OFF_B):
        offset = 0.8 * shared + 0.6 * random.normal(0, 1, shared.shape)
        detected_box = box.copy()
        detected_box[:, :2] += offset * (offset_scale * hard * 40)[:, None]
        is_found = random.rand(len(index)) < 0.9
        image_indices = np.concatenate([index[is_found], invented_in])
        scores = np.concatenate([score[is_found], invented_score])
        boxes = np.concatenate([detected_box[is_found], np.tile([[0.0, 150.0, 20.0, 20.0]], (images, 1))])
        run = Detections.of(images, image_indices, np.zeros(len(image_indices)), scores, boxes)
        pair.append(evaluator.evaluate(run, sizes=False))
    return pair[0], pair[1]


@pytest.mark.slow
def test_intervals_cover_the_true_difference_in_about_95_percent() -> None:
    """500 data sets of 80 images, seed 2024. The share of covering intervals has a standard deviation of
    sqrt(0.95 * 0.05 / 500) = 1 percent; the stated bounds are 92 and 98, three of them to either side."""
    random = np.random.RandomState(2024)
    a, b = simulated(random, 100_000)
    truth = b.summary["AP"] - a.summary["AP"]
    assert -11 < truth < -6
    covered = 0
    for repetition in range(500):
        a, b = simulated(random, 80)
        interval = paired_bootstrap(a, b, draws=250, seed=repetition).metrics["AP"]
        covered += interval.low <= truth <= interval.high
    assert 0.92 <= covered / 500 <= 0.98


def test_found_objects() -> None:
    sizes = np.array([[100, 100]] * 2, np.float32)
    box = np.array([[0, 0, 20, 20], [50, 50, 20, 20], [0, 0, 20, 20], [70, 70, 20, 20]], float)
    truths = Truths.of(sizes, 2, np.array([0, 0, 1, 1], np.int32), np.array([1, 0, 0, 0], np.int32), box)
    baseline = Detections.of(2, [0, 0, 1], [1, 0, 0], [0.9, 0.5, 0.2], box[:3])  # the third is not sure enough
    candidate = Detections.of(2, [0, 1, 1], [0, 0, 0], [0.9, 0.8, 0.7], box[[1, 3, 3]])
    assert found_objects(baseline, truths).tolist() == [1, 0, -1, -1]  # detections by image, then class
    assert found_objects(candidate, truths).tolist() == [-1, 0, -1, 1]


def test_wrong_arguments() -> None:
    better, worse = results(0)
    elsewhere, _ = results(1)
    with pytest.raises(DataError, match="different data sets"):
        paired_bootstrap(better, elsewhere, draws=100)
    with pytest.raises(ConfigError, match="99 draws"):
        paired_bootstrap(better, worse, draws=99)
    with pytest.raises(DataError, match="at least one image"):
        draw_images(0)
    first, second = (bootstrap(r, draw_images(30, 100, seed)) for seed, r in enumerate((better, worse)))
    with pytest.raises(DataError, match="drawn differently"):
        compare(better, first, worse, second)
