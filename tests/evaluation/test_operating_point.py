# SPDX-License-Identifier: MIT
"""The score threshold in use, and the kinds of errors, counted by hand and against what else counts them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.evaluation.compare import found_objects
from mpnet.evaluation.error_kinds import KINDS, RIGHT, Judged, judge
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator
from mpnet.evaluation.operating_point import BEST_F1, THRESHOLDS, OperatingPoint
from tests.evaluation.evaluation_cases import random_dataset, random_detections

IMAGES = tuple(ImageRecord(i + 1, f"{i}.png", 100, 100, f"{i:064d}") for i in range(2))
CLASSES = tuple(Category(i + 1, name) for i, name in enumerate(("circle", "square")))
BOX = (10.0, 10.0, 30.0, 30.0)
SHIFTED_BOX = (10.0, 10.0, 30.0, 14.0)
"""IoU 0.47 with BOX."""
DISTANT_BOX = (60.0, 60.0, 20.0, 20.0)


def judged_case() -> Judged:
    """Judge one image with a circle (BOX) and a square (DISTANT_BOX), another with two circles: every kind of error."""
    dataset = Dataset.of(
        IMAGES,
        CLASSES,
        [
            (0, 0, BOX, 900.0, False),
            (0, 1, DISTANT_BOX, 400.0, False),
            (1, 0, BOX, 900.0, False),
            (1, 1, DISTANT_BOX, 400.0, False),
        ],
    )
    detections = Detections.of(
        2,
        [0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 0],
        [0.9, 0.8, 0.7, 0.6, 0.9, 0.5, 0.4],
        [BOX, BOX, DISTANT_BOX, (85.0, 5.0, 9.0, 9.0), SHIFTED_BOX, SHIFTED_BOX, (0.0, 60.0, 20.0, 20.0)],
    )
    return judge(detections, Truths.of_dataset(dataset))


def test_every_kind_of_error_is_told_from_the_others() -> None:
    judged = judged_case()
    names = [KINDS[kind] if kind >= 0 else "right" for kind in judged.kind]
    assert names == ["right", "duplicate", "class", "background", "localisation", "background", "both"]
    assert judged.truth.tolist() == [0, -1, 1, -1, 2, -1, -1]
    assert judged.missed.tolist() == [False, False, False, True]


def test_errors_are_counted_from_a_score_on() -> None:
    judged = judged_case()
    assert dict(zip(KINDS, judged.counts(0.0).tolist(), strict=True)) == {
        "class": 1, "localisation": 1, "both": 1, "duplicate": 1, "background": 2, "missed": 1,
    }  # fmt: skip
    # From 0.75 on the square of the first image is neither found nor taken for another.
    assert judged.counts(0.75).tolist() == [0, 1, 0, 1, 0, 2]


def test_an_object_that_is_found_keeps_its_own_detection() -> None:
    """As in TIDE's program: an error on it is taken away, though it is the surer one. Two circles, the second is missed."""
    dataset = Dataset.of(IMAGES, CLASSES, [(0, 0, BOX, 900.0, False), (1, 0, BOX, 900.0, False)])
    detections = Detections.of(2, [0, 1, 0], [0, 0, 0], [0.9, 0.6, 0.3], [SHIFTED_BOX, DISTANT_BOX, BOX])
    gains = dict(zip(KINDS, judge(detections, Truths.of_dataset(dataset)).gains().tolist(), strict=True))
    assert gains["localisation"] == pytest.approx(100 * 51 / 101 * (1 / 2 - 1 / 3))


def test_repairing_what_is_wrong_gives_back_what_is_lost() -> None:
    judged = judged_case()
    gains = dict(zip(KINDS, judged.gains().tolist(), strict=True))
    # Circles: right, wrong ... of two objects: 50.5 of 101 points; the class error becomes a square, of which there are two.
    assert gains["class"] == pytest.approx(100 * 51 / 101 / 2)
    assert gains["localisation"] == pytest.approx(100 * 50 / 101 / 2)
    assert all(gain >= 0 for gain in gains.values())


@pytest.mark.parametrize("seed", range(4))
def test_what_is_right_is_what_coco_matches_and_its_ap50_is_cocos(seed: int) -> None:
    dataset = random_dataset(seed)
    detections = random_detections(dataset, seed + 9)
    truths = Truths.of_dataset(dataset)
    judged = judge(detections, truths)
    detection_of = found_objects(detections, truths, 0.0)
    assert np.count_nonzero(judged.kind == RIGHT) == np.count_nonzero(~dataset.crowd & (detection_of >= 0))
    every = np.ones(len(judged.kind), dtype=bool)
    average_precision = judged._average_precision(every, judged.kind == RIGHT, judged.detections.category)
    assert average_precision == pytest.approx(CocoEvaluator(dataset).evaluate(detections).summary["AP50"], abs=1e-9)
    assert (judged.gains() >= -1e-9).all()


def test_the_threshold_is_the_best_f1_of_the_baseline_and_the_same_run_differs_in_nothing() -> None:
    dataset = random_dataset(3)
    detections = random_detections(dataset, 4)
    point = OperatingPoint(dataset, detections)
    document = point.of(detections)
    assert document["chosen_by"] == BEST_F1

    def f1(score: float) -> float:
        side = OperatingPoint(dataset, detections, score).of()["baseline"]
        correct = document["objects"] - side["missed"]
        return float(2 * correct / (2 * correct + side["false_alarms"] + side["missed"]))

    assert f1(document["score"]) == max(map(f1, THRESHOLDS[::9]))
    assert document["baseline"] == document["run"]
    assert {name: row["difference"] for name, row in document["differences"].items()} == dict.fromkeys(document["run"], 0)
    assert document["same_recall"]["score"] >= document["score"]
    assert (document["confidence"]["mean"], document["confidence"]["below"]) == (0, 0)


def test_lower_scores_are_seen_and_a_lower_threshold_brings_the_recall_back() -> None:
    dataset = random_dataset(5, images=40)
    detections = random_detections(dataset, 6, noise=0.02)
    lower = Detections.of(
        detections.image_count, detections.image_index, detections.category, detections.score - np.float32(0.05), detections.box
    )
    document = OperatingPoint(dataset, detections, 0.5).of(lower)
    assert document["run"]["missed"] > document["baseline"]["missed"]
    assert document["differences"]["recall"]["high"] < 0 < document["differences"]["missed"]["low"]
    assert document["confidence"]["mean"] == pytest.approx(-0.05, abs=1e-3)
    same_recall = document["same_recall"]
    # Scores are multiples of 1/12, so that the baseline's detections from 0.5 on are the other's from 0.45 on.
    assert 0.36 < same_recall["score"] <= 0.45
    assert same_recall["run"] == same_recall["baseline"]
    assert same_recall["chosen_on"] + same_recall["judged_on"] == 40


def test_classes_add_up_to_all_and_intervals_hold_the_difference() -> None:
    dataset = random_dataset(7)
    document = OperatingPoint(dataset, random_detections(dataset, 8), 0.4).of(random_detections(dataset, 9))
    for side in ("baseline", "run"):
        for name in ("missed", "false_alarms"):
            assert sum(row[side][name] for row in document["per_class"]) == document[side][name]
    missed, recall = (document["differences"][name] for name in ("missed", "recall"))
    assert missed["difference"] == pytest.approx(document["run"]["missed"] - document["baseline"]["missed"])
    assert missed["high"] == pytest.approx(-recall["low"] * document["objects"] / 100)
    assert sum(row["truths"] for row in document["per_class"]) == document["objects"]
    for row in document["differences"].values():
        assert row["low"] - 1e-9 <= row["difference"] <= row["high"] < math.inf


def test_without_labels_only_the_scores_are_told() -> None:
    labelled = random_dataset(3)
    nobody = Dataset.of(labelled.images, labelled.categories, [])
    dataset = Dataset(
        nobody.images, nobody.categories, nobody.image_index, nobody.category, nobody.box, nobody.area, nobody.crowd,
        unlabelled=len(nobody.images),
    )  # fmt: skip
    detections = random_detections(labelled, 4)
    document = OperatingPoint(dataset, detections).of(detections)
    assert document["score"] == 0.25
    assert not {"baseline", "run", "same_recall"} & set(document)
    assert document["confidence"]["mean"] == 0
