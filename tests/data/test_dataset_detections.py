# SPDX-License-Identifier: MIT
"""The frozen types of data sets and detections: order, checks, digest, parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.errors import DataError

IMAGES = [ImageRecord(i, f"{i}.jpg", 100, 50, str(i) * 8) for i in (1, 5, 8)]
CATEGORIES = [Category(1, "a"), Category(2, "b")]
ROWS = [(2, 0, [1, 2, 3, 4], 12.0, False), (0, 1, [5, 6, 7, 8], 50.0, True), (2, 1, [0, 0, 1, 1], 1.0, False)]


def dataset() -> Dataset:
    return Dataset.of(IMAGES, CATEGORIES, ROWS)


def test_rows_are_ordered_by_image() -> None:
    data = dataset()
    assert data.image_index.tolist() == [0, 2, 2]
    assert data.area.tolist() == [50, 12, 1]
    assert data.names == ("a", "b")
    assert data.sizes.tolist() == [[100, 50]] * 3
    with pytest.raises(ValueError, match="read-only"):
        data.box[0, 0] = 9


def test_the_digest_is_of_images_and_labels_and_not_of_places() -> None:
    digest = dataset().digest
    assert digest == "87de1c37188e8892370cbc46436d30eddb6952748dbb7d5d2c7a20d510b7ac0e"
    assert Dataset.of([replace(image, path="elsewhere") for image in IMAGES], CATEGORIES, ROWS).digest == digest
    changed_datasets = [
        Dataset.of([replace(IMAGES[0], sha256="0"), *IMAGES[1:]], CATEGORIES, ROWS),
        Dataset.of([replace(IMAGES[0], width=101), *IMAGES[1:]], CATEGORIES, ROWS),
        Dataset.of(IMAGES, [Category(1, "a"), Category(2, "c")], ROWS),
        Dataset.of(IMAGES, CATEGORIES, ROWS[:2]),
        Dataset.of(IMAGES, CATEGORIES, [*ROWS[:2], (2, 1, [0, 0, 1, np.nextafter(1.0, 2)], 1.0, False)]),
        Dataset.of(IMAGES, CATEGORIES, [*ROWS[:2], (2, 1, [0, 0, 1, 1], 1.0, True)]),
    ]
    assert len({digest, *(changed_dataset.digest for changed_dataset in changed_datasets)}) == 7


def test_subsets_renumber_images() -> None:
    subset = dataset().subset([2, 1])
    assert [image.id for image in subset.images] == [5, 8]
    assert subset.image_index.tolist() == [1, 1]
    assert subset.category.tolist() == [0, 1]
    for positions in ([0, 0], [3], [-1]):
        with pytest.raises(DataError, match="0 to 2"):
            dataset().subset(positions)


def test_data_sets_that_make_no_sense() -> None:
    with pytest.raises(DataError, match="rising id"):
        Dataset.of([IMAGES[1], IMAGES[0]], CATEGORIES, [])
    with pytest.raises(DataError, match="category ids"):
        Dataset.of(IMAGES, [CATEGORIES[0]] * 2, [])
    with pytest.raises(DataError, match="by image"):
        Dataset.of(IMAGES, CATEGORIES, [(3, 0, [0, 0, 1, 1], 1.0, False)])
    with pytest.raises(DataError, match="categories"):
        Dataset.of(IMAGES, CATEGORIES, [(0, 2, [0, 0, 1, 1], 1.0, False)])


def test_detections_are_ordered_and_ties_stay() -> None:
    detections = Detections.of(3, [1, 0, 1, 1, 1], [0, 1, 1, 0, 0], [0.5, 0.1, 0.9, 0.7, 0.5], np.arange(20).reshape(5, 4))
    assert detections.image_index.tolist() == [0, 1, 1, 1, 1]
    assert detections.category.tolist() == [1, 0, 0, 0, 1]
    assert detections.box[:, 0].tolist() == [4, 12, 0, 16, 8]
    assert detections.offsets.tolist() == [0, 1, 5, 5]


@pytest.mark.parametrize(
    ("index", "category", "score", "box"),
    [
        ([3], [0], [0.5], [[0, 0, 1, 1]]),
        ([-1], [0], [0.5], [[0, 0, 1, 1]]),
        ([0], [-1], [0.5], [[0, 0, 1, 1]]),
        ([0], [0], [np.nan], [[0, 0, 1, 1]]),
        ([0], [0], [0.5], [[0, 0, 1, np.inf]]),
        ([0], [0, 1], [0.5], [[0, 0, 1, 1]]),
        ([0], [0], [0.5], [[0, 0, 1]]),
    ],
)
def test_detections_that_make_no_sense(index, category, score, box) -> None:
    with pytest.raises(DataError, match="detections"):
        Detections.of(3, index, category, score, box)


def test_clipping_cuts_at_the_edges_and_keeps_other_bits() -> None:
    box = [[-5, -5, 10, 10], [95, 45, 10, 10], [0.1, 0.2, 0.3, 0.7], [200, 10, 5, 5], [-20, 10, 5, 5], [-1, -1, 300, 300]]
    clipped = Detections.of(1, [0] * 6, [0] * 6, np.linspace(1, 0.5, 6), box).clipped(np.array([[100, 50]], np.float32))
    assert clipped.box[[0, 1, 3, 4, 5]].tolist() == [
        [0, 0, 5, 5],
        [95, 45, 5, 5],
        [100, 10, 0, 5],
        [0, 10, 0, 5],
        [0, 0, 100, 50],
    ]
    assert clipped.box[2].tolist() == np.array(box[2], np.float32).tolist()
    assert not np.signbit(clipped.box).any()


def test_parts_of_detections() -> None:
    detections = Detections.of(4, [0, 1, 3, 3], [0, 0, 0, 0], [0.9, 0.8, 0.7, 0.6], np.zeros((4, 4)))
    subset = detections.of_images(np.array([1, 3]))
    assert (subset.image_count, subset.image_index.tolist()) == (2, [0, 1, 1])
    assert detections.select(detections.score > 0.75).score.tolist() == [np.float32(0.9), np.float32(0.8)]
