# SPDX-License-Identifier: MIT
"""Objects that the baseline finds and a configuration does not, and how surely a configuration finds each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.errors import ConfigError
from mpnet.evaluation.agreement import BASELINE_SCORE, inside_images
from mpnet.evaluation.match import Truths, best_overlap, match
from mpnet.messages import shown

Scores = NDArray[np.float64]
IOU = 0.5
NEAR = 0.2
"""Least IoU of a detection with an object near which it is."""
EDGE = 0.02
"""Share of an image's side within which a box that ends there is at the edge."""
LOST, MOVED, DOUBLED, KEPT = "lost", "moved", "doubled", "kept"


@dataclass(frozen=True, eq=False)
class Finds:
    """What a configuration makes of objects, float64 (objects,) each, scores from 0 to 1.

    score: of the detection that finds each at IoU 0.5, 0 for none, as evaluation matches them.
    second: the best score of another detection of its class at IoU 0.5 that finds no object.
    near: the best score of a detection of its class at IoU 0.2 that finds no object.
    """

    score: Scores
    second: Scores
    near: Scores


@dataclass(frozen=True)
class LostObject:
    """An object that becomes worse. index: among all objects. position: of its image in the data set.

    number: from 1, of the objects of its image. kind: LOST, MOVED, DOUBLED or, where it was asked for all the same, KEPT.
    box: x, y, width, height in pixels. before, after: score of the baseline and of the configuration; of a doubled one those of
    the second detection. beside: the configuration's score at IoU 0.2, as `Finds.near`.
    """

    index: int
    position: int
    number: int
    kind: str
    category: int
    box: tuple[float, float, float, float]
    area: float
    at_edge: bool
    before: float
    after: float
    beside: float

    def value(self, finds: Finds, at: int) -> float:
        """Return what raising layers should raise: the score, of a doubled one what the second detection lacks.

        at: its place in `finds`.
        """
        return 1.0 - float(finds.second[at]) if self.kind == DOUBLED else float(finds.score[at])

    def is_back(self, finds: Finds, at: int) -> bool:
        """Return whether it is found as the baseline finds it."""
        sure = finds.score[at] >= np.float32(BASELINE_SCORE)
        return bool(sure and (self.kind != DOUBLED or finds.second[at] < np.float32(BASELINE_SCORE)))


def reference_objects(dataset: Dataset, baseline: Detections) -> Truths:
    """Return the labelled objects, and on images without labels what the baseline detects with a score of 0.25 or more."""
    first = dataset.labelled_count
    inside = inside_images(baseline, dataset.sizes)
    sure = inside.select((inside.score >= np.float32(BASELINE_SCORE)) & (inside.image_index >= first)).clipped(dataset.sizes)
    box = np.concatenate([dataset.box, sure.box.astype(np.float64)])
    return Truths.of(
        dataset.sizes,
        len(dataset.categories),
        np.concatenate([dataset.image_index, sure.image_index]),
        np.concatenate([dataset.category, sure.category]),
        box,
        np.concatenate([dataset.area, np.prod(box[len(dataset.box) :, 2:], axis=1)]),
        np.concatenate([dataset.crowd, np.zeros(len(sure), np.bool_)]),
    )


def find(detections: Detections, truths: Truths) -> Finds:
    """Return how surely detections find the objects, in the order of `truths`."""
    score, second, near = (np.zeros(len(truths.box)) for _ in range(3))
    matches = match(detections, truths, thresholds=np.array([IOU]))
    hit = matches.truth >= 0
    score[matches.truth[hit]] = matches.score[hit]
    free = np.ones(len(detections), np.bool_)
    free[matches.detection[hit]] = False
    for values, least in ((second, IOU), (near, NEAR)):
        best = best_overlap(detections, truths, least)
        other = free & (best >= 0)
        np.maximum.at(values, best[other], detections.score[other])
    return Finds(score, second, near)


def lost_objects(truths: Truths, before: Finds, after: Finds) -> list[LostObject]:
    """List what the baseline finds and the configuration does not, or twice; those whose score fell most first."""
    sure = np.float32(BASELINE_SCORE)
    counted = (truths.crowd == 0) & (before.score >= sure)
    doubled = counted & (after.score >= sure) & (after.second >= sure) & (before.second < sure)
    objects = [object_at(int(i), truths, before, after) for i in np.flatnonzero(counted & (after.score < sure) | doubled)]
    return sorted(objects, key=lambda one: (-abs(one.before - one.after), one.index))


def object_at(index: int, truths: Truths, before: Finds, after: Finds) -> LostObject:
    """Return the object at an index of `truths`, and what became of it."""
    sure, source = np.float32(BASELINE_SCORE), truths.source
    position, category = divmod(int(np.searchsorted(truths.cell_offsets, index, side="right") - 1), truths.category_count)
    x, y, width, height = (float(v) for v in truths.box[index])
    if after.score[index] < sure:
        kind = MOVED if after.near[index] >= sure else LOST
    else:
        kind = DOUBLED if after.second[index] >= sure > before.second[index] else KEPT
    across, down = (float(v) for v in truths.sizes[position])
    at_edge = x <= EDGE * across or y <= EDGE * down or x + width >= (1 - EDGE) * across or y + height >= (1 - EDGE) * down
    scores = [(f.second if kind == DOUBLED else f.score)[index] for f in (before, after)]
    first, last = _between(truths, position)
    # The order of files, not that of classes.
    number = 1 + int((source[first:last] < source[index]).sum())
    box, area = (x, y, width, height), float(truths.area[index])
    beside = float(after.near[index])
    return LostObject(index, position, number, kind, category, box, area, at_edge, float(scores[0]), float(scores[1]), beside)


def object_named(name: str, truths: Truths, dataset: Dataset, before: Finds, after: Finds) -> LostObject:
    """Find the object that IMAGE:N names. Raises: ConfigError where there is none."""
    image, colon, text = name.rpartition(":")
    paths = [Path(record.path) for record in dataset.images]
    positions = [i for i, path in enumerate(paths) if image in (path.name, path.stem, str(path))]
    if not colon or not text.isdecimal() or len(text) > 6:
        raise ConfigError(f"--object {shown(name)}: write IMAGE:N, such as street.jpg:3")
    if len(positions) != 1:
        some = "several images are" if positions else "no image of the data set is"
        raise ConfigError(f"--object {shown(name)}: {some} called so; `mpnet explain` without --object lists what is lost")
    first, last = _between(truths, positions[0])
    order = first + np.argsort(truths.source[first:last], kind="stable")
    if not 1 <= int(text) <= len(order):
        raise ConfigError(f"--object {shown(name)}: {paths[positions[0]].name} has {len(order)} objects")
    chosen = object_at(int(order[int(text) - 1]), truths, before, after)
    if before.score[chosen.index] < np.float32(BASELINE_SCORE):
        raise ConfigError(
            f"--object {shown(name)}: the baseline does not find it either (score {before.score[chosen.index]:.2f}, needed are "
            f"{BASELINE_SCORE}); choose one of those that `mpnet explain` lists"
        )
    return chosen


def of_image(truths: Truths, position: int, objects: Sequence[LostObject]) -> tuple[Truths, list[int]]:
    """Return the objects of one image, and the place of some of them among these."""
    first, _ = _between(truths, position)
    return truths.between(position, position + 1), [one.index - first for one in objects]


def _between(truths: Truths, position: int) -> tuple[int, int]:
    cells = truths.cell_offsets[[position * truths.category_count, (position + 1) * truths.category_count]]
    return int(cells[0]), int(cells[1])
