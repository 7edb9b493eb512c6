# SPDX-License-Identifier: MIT
"""A made-up detector on as many labelled images as wanted, and runs that differ from it in known ways.

Pools of real images are small: a class that stands in one of them is what that image says, for ever. Here classes are as
rare as in real data sets (the k-th has a share of 1 / (k + 2)), an image is easy or hard as a whole and about few classes, and
objects lie in a grid in which boxes of one never overlap another's. Five runs beside the first:

every:    scores and boxes of all detections change, one in a hundred is lost
slightly: the same, much less
images: 3 % of the images lose 3 in 10 of their detections, and overlap
classes:  1 in 10 classes loses overlap
hardly:   as little as fp16 changes
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections

Floats = NDArray[np.float64]
_GRID, _CELL, _SIDE = 10, 100, 60


def _logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _corner(cells: NDArray[np.int64]) -> Floats:
    """Upper left corners (n, 2) of the objects in grid cells."""
    return np.stack([cells % _GRID, cells // _GRID], axis=1) * float(_CELL) + (_CELL - _SIDE) / 2


def make_synthetic_data(classes: int, images: int, seed: int) -> tuple[Dataset, list[tuple[str, Detections]]]:
    """(labels, name and detections of each run, the baseline's first). The same for the same seed."""
    random = np.random.RandomState(seed)
    share = 1 / (np.arange(classes) + 2.0)
    share /= share.sum()
    skill = random.beta(3, 2, classes)
    skill = np.log(skill / (1 - skill))
    truths, detection_rows = [], []  # (image, class, corner), and those with quality and overlap
    for image in range(images):
        kinds = random.choice(classes, size=random.randint(1, 5), p=share)
        objects = min(60, 1 + random.geometric(1 / 7))
        corner = _corner(random.permutation(_GRID**2))
        kind = random.choice(kinds, size=objects)
        quality = skill[kind] + random.normal(0, 0.8) + random.normal(0, 1, objects)
        overlap = np.clip(0.55 + 0.1 * quality + random.normal(0, 0.1, objects), 0.05, 0.97)
        objects_of_image = np.column_stack([np.full(objects, image), kind, corner[:objects]])
        truths.append(objects_of_image)
        is_detected = quality > -0.8
        detection_rows.append(
            np.column_stack([objects_of_image, quality + random.normal(0, 0.7, objects), overlap])[is_detected]
        )
        false = min(_GRID**2 - objects, random.poisson(12))
        kind = np.where(random.rand(false) < 0.5, random.choice(kinds, false), random.choice(classes, false, p=share))
        detection_rows.append(
            np.column_stack(
                [
                    np.full(false, image),
                    kind,
                    corner[objects : objects + false],
                    random.normal(-2.2, 1, false),
                    np.full(false, 0.9),
                ]
            )
        )
    label, detection = np.concatenate(truths), np.concatenate(detection_rows)
    count, size = len(label), float(_GRID * _CELL)
    dataset = Dataset(
        tuple(ImageRecord(i, "", int(size), int(size), "") for i in range(images)),
        tuple(Category(c, str(c)) for c in range(classes)),
        label[:, 0].astype(np.int32),
        label[:, 1].astype(np.int32),
        np.column_stack([label[:, 2:], np.full((count, 2), _SIDE)]),
        np.full(count, float(_SIDE**2)),
        np.zeros(count, bool),
    )
    return dataset, _runs(detection, images, classes, random)


def _runs(detection: Floats, images: int, classes: int, random: np.random.RandomState) -> list[tuple[str, Detections]]:
    image, kind = detection[:, 0].astype(np.int32), detection[:, 1].astype(np.int32)
    quality, overlap = detection[:, 4], detection[:, 5]

    def run(quality: Floats, overlap: Floats, is_lost: NDArray[np.bool_]) -> Detections:
        overlap = np.clip(overlap, 0.05, 0.98)
        box = np.column_stack([detection[:, 2:4], np.full((len(detection), 2), float(_SIDE))])
        box[:, 0] += _SIDE * (1 - overlap) / (1 + overlap)  # two equal boxes, one beside the other, overlap so far
        return Detections.of(images, image[~is_lost], kind[~is_lost], _logistic(quality)[~is_lost], box[~is_lost])

    a, b, chance = random.normal(size=len(image)), random.normal(size=len(image)), random.rand(len(image))
    rare_image, rare_class = (random.rand(images) < 0.03)[image], (random.rand(classes) < 0.1)[kind]
    no_losses = np.zeros(len(image), bool)
    return [
        ("base", run(quality, overlap, no_losses)),
        ("every", run(quality - 0.05 + 0.15 * a, overlap - 0.004 + 0.02 * b, chance < 0.01)),
        ("slightly", run(quality + 0.05 * a, overlap - 0.001 + 0.005 * b, chance < 0.002)),
        ("pictures", run(quality, overlap - 0.08 * rare_image, rare_image & (chance < 0.3))),
        ("classes", run(quality, overlap - 0.05 * rare_class, no_losses)),
        ("hardly", run(quality + 0.003 * a, overlap + 0.0004 * b, no_losses)),
    ]
