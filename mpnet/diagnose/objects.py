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
NEAR_IOU = 0.2
"""Least IoU of a detection with an object near which it is."""
EDGE = 0.02
"""Share of an image's side within which a box that ends there is at the edge."""
LOST, MOVED, DOUBLED, KEPT = "lost", "moved", "doubled", "kept"


@dataclass(frozen=True, eq=False)
class Finds:
    """The scores that a configuration gives to objects, float64 (objects,) each, from 0 to 1.

    score: of the detection that finds each at IoU 0.5, 0 for none, as evaluation matches them.
    second_score: the best score of another detection of its class at IoU 0.5 that finds no object.
    near_score: the best score of a detection of its class at IoU 0.2 that finds no object.
    """

    score: Scores
    second_score: Scores
    near_score: Scores


@dataclass(frozen=True)
class LostObject:
    """An object that becomes worse. index: among all objects. position: of its image in the data set.

    number: from 1, of the objects of its image. kind: LOST, MOVED, DOUBLED or, where it was asked for all the same, KEPT.
    box: x, y, width, height in pixels. baseline_score, score: of the baseline and of the configuration; of a doubled one those
    of the second detection. near_score: the configuration's score at IoU 0.2, as in `Finds`.
    """

    index: int
    position: int
    number: int
    kind: str
    category: int
    box: tuple[float, float, float, float]
    area: float
    at_edge: bool
    baseline_score: float
    score: float
    near_score: float

    def value(self, finds: Finds, finds_index: int) -> float:
        """Return what raising layers should raise: the score, of a doubled one what the second detection lacks.

        finds_index: its index in the arrays of `finds`.
        """
        return 1.0 - float(finds.second_score[finds_index]) if self.kind == DOUBLED else float(finds.score[finds_index])

    def is_back(self, finds: Finds, finds_index: int) -> bool:
        """Return whether it is found as the baseline finds it."""
        sure = finds.score[finds_index] >= np.float32(BASELINE_SCORE)
        return bool(sure and (self.kind != DOUBLED or finds.second_score[finds_index] < np.float32(BASELINE_SCORE)))


def collect_reference_objects(dataset: Dataset, baseline: Detections) -> Truths:
    """Return the labelled objects, and on images without labels what the baseline detects with a score of 0.25 or more."""
    labelled_count = dataset.labelled_count
    detections = inside_images(baseline, dataset.sizes)
    is_sure = (detections.score >= np.float32(BASELINE_SCORE)) & (detections.image_index >= labelled_count)
    sure = detections.select(is_sure).clipped(dataset.sizes)
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
    scores, second_scores, near_scores = (np.zeros(len(truths.box)) for _ in range(3))
    matches = match(detections, truths, thresholds=np.array([IOU]))
    is_match = matches.truth >= 0
    scores[matches.truth[is_match]] = matches.score[is_match]
    is_unmatched = np.ones(len(detections), np.bool_)
    is_unmatched[matches.detection[is_match]] = False
    for values, least_iou in ((second_scores, IOU), (near_scores, NEAR_IOU)):
        object_indices = best_overlap(detections, truths, least_iou)
        is_duplicate = is_unmatched & (object_indices >= 0)
        np.maximum.at(values, object_indices[is_duplicate], detections.score[is_duplicate])
    return Finds(scores, second_scores, near_scores)


def find_lost_objects(truths: Truths, baseline_finds: Finds, finds: Finds) -> list[LostObject]:
    """List what the baseline finds and the configuration does not, or twice; those whose score fell most first."""
    sure = np.float32(BASELINE_SCORE)
    is_found = (truths.crowd == 0) & (baseline_finds.score >= sure)
    is_doubled = is_found & (finds.score >= sure) & (finds.second_score >= sure) & (baseline_finds.second_score < sure)
    indices = np.flatnonzero(is_found & (finds.score < sure) | is_doubled)
    objects = [describe_object(int(index), truths, baseline_finds, finds) for index in indices]
    return sorted(objects, key=lambda lost_object: (-abs(lost_object.baseline_score - lost_object.score), lost_object.index))


def describe_object(index: int, truths: Truths, baseline_finds: Finds, finds: Finds) -> LostObject:
    """Return the object at an index of `truths`, and what became of it."""
    sure, source = np.float32(BASELINE_SCORE), truths.source
    position, category = divmod(int(np.searchsorted(truths.cell_offsets, index, side="right") - 1), truths.category_count)
    x, y, width, height = (float(v) for v in truths.box[index])
    if finds.score[index] < sure:
        kind = MOVED if finds.near_score[index] >= sure else LOST
    else:
        kind = DOUBLED if finds.second_score[index] >= sure > baseline_finds.second_score[index] else KEPT
    image_width, image_height = (float(v) for v in truths.sizes[position])
    at_edge = (
        x <= EDGE * image_width
        or y <= EDGE * image_height
        or x + width >= (1 - EDGE) * image_width
        or y + height >= (1 - EDGE) * image_height
    )
    scores = [(f.second_score if kind == DOUBLED else f.score)[index] for f in (baseline_finds, finds)]
    start, end = _index_range(truths, position)
    # The order of files, not that of classes.
    number = 1 + int((source[start:end] < source[index]).sum())
    box, area = (x, y, width, height), float(truths.area[index])
    baseline_score, score, near_score = float(scores[0]), float(scores[1]), float(finds.near_score[index])
    return LostObject(index, position, number, kind, category, box, area, at_edge, baseline_score, score, near_score)


def find_named_object(name: str, truths: Truths, dataset: Dataset, baseline_finds: Finds, finds: Finds) -> LostObject:
    """Find the object that IMAGE:N names. Raises: ConfigError where there is none."""
    image, colon, text = name.rpartition(":")
    paths = [Path(record.path) for record in dataset.images]
    positions = [i for i, path in enumerate(paths) if image in (path.name, path.stem, str(path))]
    if not colon or not text.isdecimal() or len(text) > 6:
        raise ConfigError(f"--object {shown(name)}: write IMAGE:N, such as street.jpg:3")
    if len(positions) != 1:
        some = "several images are" if positions else "no image of the data set is"
        raise ConfigError(f"--object {shown(name)}: {some} called so; `mpnet explain` without --object lists what is lost")
    start, end = _index_range(truths, positions[0])
    order = start + np.argsort(truths.source[start:end], kind="stable")
    if not 1 <= int(text) <= len(order):
        raise ConfigError(f"--object {shown(name)}: {paths[positions[0]].name} has {len(order)} objects")
    named_object = describe_object(int(order[int(text) - 1]), truths, baseline_finds, finds)
    score = baseline_finds.score[named_object.index]
    if score < np.float32(BASELINE_SCORE):
        raise ConfigError(
            f"--object {shown(name)}: the baseline does not find it either (score {score:.2f}, needed are "
            f"{BASELINE_SCORE}); choose one of those that `mpnet explain` lists"
        )
    return named_object


def select_image(truths: Truths, position: int, objects: Sequence[LostObject]) -> tuple[Truths, list[int]]:
    """Return the objects of one image, and the place of some of them among these."""
    start, _ = _index_range(truths, position)
    return truths.between(position, position + 1), [lost_object.index - start for lost_object in objects]


def _index_range(truths: Truths, position: int) -> tuple[int, int]:
    cells = truths.cell_offsets[[position * truths.category_count, (position + 1) * truths.category_count]]
    return int(cells[0]), int(cells[1])
