# SPDX-License-Identifier: MIT
"""Suppression against a plain second version, with boxes whose overlaps keep clear of the threshold's rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.detection.decode import Candidates
from mpnet.detection.nms import GREEDY_BETA, NmsOptions, suppress
from mpnet.errors import ConfigError, DataError
from tests.detection.detection_oracle import overlap
from tests.detection.detection_oracle import suppress as plain

KINDS = ("default", "greedynms", "diounms")


def candidates(per_image) -> Candidates:
    """Make candidates. per_image: for each image [(category, score, (cx, cy, w, h))] in grid order."""
    rows = [sorted(image, key=lambda row: (row[0], -row[1])) for image in per_image]
    flat = [row for image in rows for row in image]
    offsets = np.cumsum([0] + [len(image) for image in rows]).astype(np.int64)
    return Candidates(
        offsets,
        np.array([r[0] for r in flat], np.int32),
        np.array([r[1] for r in flat], np.float32),
        np.array([r[2] for r in flat], np.float32).reshape(-1, 4),
    )


# Coarse grids: scores tie often, boxes touch, coincide and contain each other.
scores = st.integers(1, 20).map(lambda n: float(np.float32(n / 20)))
sides = st.integers(0, 8).map(lambda n: n / 16)
centres = st.integers(0, 16).map(lambda n: n / 16)
boxes = st.tuples(centres, centres, sides, sides)
images = st.lists(st.tuples(st.integers(0, 2), scores, boxes), max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(images, images), min_size=1, max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from([0.0, 0.2137, 0.4519, 0.7071, 1.0]),
    st.sampled_from([0.6, 1.0]),
)
def test_equals_the_plain_version(pair, kind, threshold, beta):
    exponent = GREEDY_BETA if kind == "greedynms" else beta
    everything = [first + second for first, second in pair]
    for rows in everything:  # only overlaps well away from the threshold have one right answer in float32
        for i, a in enumerate(rows):
            for b in rows[:i]:
                if a[0] == b[0]:
                    value = overlap(a[2], b[2], kind, exponent)
                    if value != threshold and abs(value - threshold) < 1e-5:
                        return
                    if value == threshold and threshold not in (0.0, 1.0):
                        return
    sizes = np.array([[64, 32]] * len(pair), np.float32)
    detections = suppress(
        [candidates([p[0] for p in pair]), candidates([p[1] for p in pair])], sizes, NmsOptions(kind, threshold, beta)
    )
    for image, rows in enumerate(everything):
        survivors = plain(rows, kind, threshold, exponent)
        mine = detections.image_index == image
        assert detections.category[mine].tolist() == [row[0] for row in survivors]
        assert detections.score[mine].tolist() == [row[1] for row in survivors]
        expected = [[(x - w / 2) * 64, (y - h / 2) * 32, w * 64, h * 32] for _, _, (x, y, w, h) in survivors]
        assert detections.box[mine].tolist() == expected  # exact: all numbers are sixteenths


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [5, 6, 7, 16, 17, 33, 250])
def test_many_boxes_of_one_class(kind: str, count: int) -> None:
    """Counts around the blocks in which boxes are compared; seed 17, random floats clear of the threshold."""
    random = np.random.RandomState(17)
    rows = [
        (0, float(np.float32(score)), tuple(np.float32(box).tolist()))
        for score, box in zip(
            random.rand(count), np.concatenate([random.rand(count, 2), 0.3 * random.rand(count, 2)], axis=1), strict=True
        )
    ]
    detections = suppress([candidates([rows, rows[:3]])], np.array([[1, 1]] * 2, np.float32), NmsOptions(kind, 0.3))
    survivors = plain(rows, kind, 0.3, GREEDY_BETA)
    assert detections.score[detections.image_index == 0].tolist() == [row[1] for row in survivors]
    assert detections.box[detections.image_index == 0][:, 2:].tolist() == [list(row[2][2:]) for row in survivors]


def test_greedynms_ignores_beta_and_diounms_uses_it() -> None:
    # IoU 1/3; d2 = 0.04, c2 = 0.36 + 0.16: (1/13)^0.6 = 0.2147, (1/13)^3 = 0.0005
    pair = candidates([[(0, 0.9, (0.4, 0.5, 0.4, 0.4)), (0, 0.8, (0.6, 0.5, 0.4, 0.4))]])
    size = np.array([[10, 10]], np.float32)
    for kind, beta, count in (
        ("greedynms", 3.0, 2),
        ("greedynms", 0.6, 2),
        ("diounms", 3.0, 1),
        ("diounms", 0.6, 2),
        ("default", 3.0, 1),
    ):
        assert len(suppress([pair], size, NmsOptions(kind, 0.2, beta))) == count, (kind, beta)


def test_classes_do_not_suppress_each_other() -> None:
    box = (0.5, 0.5, 0.2, 0.2)
    detections = suppress([candidates([[(0, 0.9, box), (1, 0.8, box), (1, 0.7, box)]])], np.array([[10, 10]], np.float32))
    assert detections.category.tolist() == [0, 1]


def test_equal_scores_keep_the_first_head() -> None:
    first, second = candidates([[(0, 0.5, (0.5, 0.5, 0.2, 0.2))]]), candidates([[(0, 0.5, (0.5, 0.5, 0.25, 0.25))]])
    size = np.array([[16, 16]], np.float32)
    assert suppress([first, second], size).box[0, 2] == np.float32(0.2) * 16
    assert suppress([second, first], size).box[0, 2] == 4.0


def test_no_candidates() -> None:
    detections = suppress([candidates([[], []])], np.array([[10, 10]] * 2, np.float32))
    assert (len(detections), detections.image_count, detections.offsets.tolist()) == (0, 2, [0, 0, 0])


def test_wrong_arguments() -> None:
    one_image, two_images = candidates([[]]), candidates([[], []])
    with pytest.raises(DataError, match="different sets of images"):
        suppress([one_image, two_images], np.zeros((1, 2), np.float32))
    with pytest.raises(DataError, match="different sets of images"):
        suppress([one_image], np.zeros((2, 2), np.float32))
    with pytest.raises(ConfigError, match="1 to 16 heads"):
        suppress([], np.zeros((1, 2), np.float32))
    with pytest.raises(ConfigError, match="nms_kind"):
        NmsOptions("soft")
    with pytest.raises(ConfigError, match="outside"):
        NmsOptions(threshold=float("nan"))
    with pytest.raises(ConfigError, match="beta"):
        NmsOptions(beta=0)
