# SPDX-License-Identifier: MIT
"""Detections against truths, as COCO matches them. The work is done in csrc/detect/match.c.

What matching finds is kept per detection and image, so that averages, per-class tables and bootstrap draws over
images need no second matching.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections, rows_of
from mpnet.errors import DataError
from mpnet.kernels import matching

# The ten IoU thresholds of COCO, 0.5 to 0.95, with the rounding of pycocotools.
COCO_THRESHOLDS: NDArray[np.float64] = np.linspace(0.5, 0.95, 10)
MAX_DETECTIONS = 100
# Square pixels.
AREA_RANGES: dict[str, tuple[float, float]] = {
    "all": (0.0, 1e10),
    "small": (0.0, 1024.0),
    "medium": (1024.0, 9216.0),
    "large": (9216.0, 1e10),
}


@dataclass(frozen=True, eq=False)
class Truths:
    """Truths of a set of images, by image, then category (their order within both stays).

    cell_offsets: int64 (images * categories + 1,); box: float64 (n, 4) x, y, width, height; area: float64 (n,);
    crowd: uint8 (n,); source: int64 (n,), which box of the dataset each one is; sizes: float32 (images, 2), width and
    height of the images. unlabelled: images behind these of which nothing is known; what is found in them does not count.
    """

    image_count: int
    category_count: int
    cell_offsets: NDArray[np.int64]
    box: NDArray[np.float64]
    area: NDArray[np.float64]
    crowd: NDArray[np.uint8]
    source: NDArray[np.int64]
    sizes: NDArray[np.float32]
    unlabelled: int = 0

    @staticmethod
    def of(
        sizes: NDArray[np.float32],
        category_count: int,
        image_index: NDArray[np.int32],
        category: NDArray[np.int32],
        box: NDArray[Any],
        area: NDArray[Any] | None = None,
        crowd: NDArray[Any] | None = None,
    ) -> Truths:
        """Order truths given in any order; area is width * height and nothing is a crowd unless given."""
        images = len(sizes)
        cell = image_index.astype(np.int64) * category_count + category
        order = np.argsort(cell, kind="stable")
        boxes = np.ascontiguousarray(box[order], dtype=np.float64).reshape(-1, 4)
        areas = boxes[:, 2] * boxes[:, 3] if area is None else area[order]
        crowds = np.zeros(len(order)) if crowd is None else crowd[order]
        counts = np.bincount(cell, minlength=images * category_count)
        return Truths(
            images,
            category_count,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]),
            boxes,
            np.ascontiguousarray(areas, dtype=np.float64),
            np.ascontiguousarray(crowds, dtype=np.uint8),
            order.astype(np.int64),
            np.ascontiguousarray(sizes, dtype=np.float32),
        )

    @staticmethod
    def of_dataset(dataset: Dataset) -> Truths:
        """Take the boxes of a dataset's labelled images."""
        truths = Truths.of(
            dataset.sizes[: dataset.labelled_count],
            len(dataset.categories),
            dataset.image_index,
            dataset.category,
            dataset.box,
            dataset.area,
            dataset.crowd,
        )
        return replace(truths, unlabelled=dataset.unlabelled)

    def of_labelled(self, detections: Detections) -> Detections:
        """Return the detections of the images that have truths.

        detections: of these images, or of all, unlabelled ones included.
        """
        if not self.unlabelled or detections.image_count != self.image_count + self.unlabelled:
            return detections
        return detections.of_images(np.arange(self.image_count))

    def in_order(self, order: NDArray[np.intp]) -> Truths:
        """Return the truths with image order[i] as image i."""
        cells = np.arange(self.image_count * self.category_count).reshape(self.image_count, self.category_count)[order]
        offsets, chosen = rows_of(self.cell_offsets, cells.reshape(-1))
        return self._chosen(chosen, offsets, np.ascontiguousarray(self.sizes[order]))

    def between(self, first: int, last: int) -> Truths:
        """Return the truths of the images first .. last - 1, which become images 0, 1, ..."""
        cells = self.cell_offsets[first * self.category_count : last * self.category_count + 1]
        start, end = int(cells[0]), int(cells[-1])
        return self._chosen(slice(start, end), cells - start, self.sizes[first:last])

    def without_crowds(self) -> Truths:
        """Return the truths that are not crowds."""
        if not self.crowd.any():
            return self
        keep = self.crowd == 0
        kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep)])
        return self._chosen(keep, kept[self.cell_offsets], self.sizes)

    def _chosen(self, chosen: Any, offsets: NDArray[np.int64], sizes: NDArray[np.float32]) -> Truths:
        """Return some of the truths, by an index of their arrays, with their `cell_offsets`, in images of these sizes."""
        box, area, crowd, source = self.box[chosen], self.area[chosen], self.crowd[chosen], self.source[chosen]
        return Truths(len(sizes), self.category_count, offsets, box, area, crowd, source, sizes)

    def counted(self, area: str = "all") -> NDArray[np.int32]:
        """Return int32 (images, categories): truths that must be found, which are no crowds and inside the area range."""
        return self._all_counted if area == "all" else self._count(area)

    @cached_property
    def fullest_cell(self) -> int:
        """Return the most truths of one image and category."""
        return int(np.diff(self.cell_offsets).max(initial=0))

    @cached_property
    def _all_counted(self) -> NDArray[np.int32]:
        return self._count("all")

    def _count(self, area: str) -> NDArray[np.int32]:
        low, high = AREA_RANGES[area]
        counts = (self.crowd == 0) & (self.area >= low) & (self.area <= high)
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])[self.cell_offsets]
        return np.diff(sums).astype(np.int32).reshape(self.image_count, self.category_count)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The matches of detections, as far as averages ask; by category, then falling score, then image.

    start:     int64 (categories + 1,): category c owns entries start[c] .. start[c + 1] - 1.
    image:     int32 (n,). score: float32 (n,).
    rank:      int32 (n,), position within its image and category.
    matched, ignored: uint16 (n,), bit t for IoU threshold t. An ignored one is neither right nor wrong.
    positives: int32 (images, categories), truths to be found.
    """

    thresholds: NDArray[np.float64]
    start: NDArray[np.int64]
    image: NDArray[np.int32]
    score: NDArray[np.float32]
    rank: NDArray[np.int32]
    matched: NDArray[np.uint16]
    ignored: NDArray[np.uint16]
    positives: NDArray[np.int32]

    def average_precision(
        self, weight: NDArray[np.int32] | None = None, max_rank: int = MAX_DETECTIONS, given: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the 101-point average precision and final recall, both float64 (categories, thresholds), fractions.

        weight: int32 (images,), how often each image counts: 0 and 1 for a part of the images, counts for a bootstrap
        draw; int32 (draws, images) gives results (draws, categories, thresholds). None: every image once.
        given: int32 (categories,), truths of no image here that are found before every detection.
        A category without truths has -1.
        """
        images, categories = self.positives.shape
        shape = (categories, len(self.thresholds))
        draws = 1
        if weight is not None:
            if weight.shape[-1:] != (images,) or weight.ndim > 2 or (weight < 0).any():
                raise DataError(f"weights of shape {weight.shape} do not say how often each of {images} images counts")
            weight = np.ascontiguousarray(weight, dtype=np.int32)
            shape = weight.shape[:-1] + shape
            draws = len(weight) if weight.ndim == 2 else 1
        precision, recall = np.empty(shape), np.empty(shape)
        truths = self.positives.sum(axis=0) if weight is None else weight @ self.positives
        if given is not None:
            given = np.ascontiguousarray(given, dtype=np.int32)
            truths = truths + given
        fullest, most = int(np.diff(self.start).max(initial=0)), int(truths.max(initial=0))
        scratch = np.empty(24 * fullest + most + 32, dtype=np.uint8)
        counts, matches = (images, categories, len(self.thresholds)), (self.matched, self.ignored, self.rank, self.image)
        wanted, results = (self.positives, given, draws, weight, max_rank), (precision, recall)
        matching.average_precision(*counts, self.start, *matches, *wanted, scratch, *results)
        return precision, recall

    def precision_area(self, weight: NDArray[np.int32] | None = None, max_rank: int = MAX_DETECTIONS) -> NDArray[np.float64]:
        """Return the area under the precision-recall curve of the first category, the mean of the thresholds, as a fraction.

        Every truth counts alike. Of the 101 recall points of `average_precision` the last is reached by no run that misses one
        of a thousand truths, and costs one of a hundred.
        weight: as there, int32 (draws, images), None: every image once. Result: float64 (draws,); NaN without truths.
        """
        images = len(self.positives)
        counts = np.ones((1, images), np.int32) if weight is None else weight
        truths = (counts @ self.positives[:, 0]).astype(np.float64)
        kept = slice(int(self.start[0]), int(self.start[1]))
        matched, ignored, image = self.matched[kept], self.ignored[kept], self.image[kept]
        ranked = self.rank[kept] < max_rank
        areas = np.zeros(len(counts))
        for bit in range(len(self.thresholds)):
            right = (matched >> bit & 1 == 1) & ranked
            last = int(np.flatnonzero(right).max(initial=-1)) + 1  # what is wrong after it changes nothing
            counted = np.flatnonzero((right | (ignored >> bit & 1 == 0) & ranked)[:last])
            times, hit = counts[:, image[counted]], right[counted]
            found = np.cumsum(times * hit, axis=1)
            precision = found / np.maximum(np.cumsum(times, axis=1), 1)
            beyond = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            areas += (beyond * (times * hit)).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(truths > 0, areas / (truths * len(self.thresholds)), np.nan)

    def pooled(self) -> Outcomes:
        """Return the outcomes of all classes in one list, each right or wrong as it was within its own class."""
        order = np.argsort(-self.score, kind="stable")
        return Outcomes(
            self.thresholds,
            np.array([0, len(order)]),
            self.image[order],
            self.score[order],
            self.rank[order],
            self.matched[order],
            self.ignored[order],
            self.positives.sum(axis=1, keepdims=True, dtype=np.int32),
        )


@dataclass(frozen=True, eq=False)
class Matches(Outcomes):
    """The same with which detection was matched to which truth.

    detection: int64 (n,), index in the Detections.
    truth:     int32 (n,), index in Truths of the match at the first threshold, or -1.
    """

    detection: NDArray[np.int64]
    truth: NDArray[np.int32]


def match(
    detections: Detections, truths: Truths, area: str = "all", thresholds: NDArray[np.float64] = COCO_THRESHOLDS
) -> Matches:
    """Match the detections of all images, each truth at most once per threshold, best scores first.

    Boxes are cut at the image's edges first, as `Detections.clipped` does.
    Raises: DataError when image counts differ or a class index is beyond the truths' categories.
    """
    detections = truths.of_labelled(detections)
    check_images(detections, truths)
    cuts = np.ascontiguousarray(thresholds, dtype=np.float64)
    rank, matched, ignored, truth = find_matches(detections, truths, area, cuts)
    order, start = by_category(truths.category_count, detections.category, detections.score)
    return Matches(
        cuts,
        start,
        detections.image_index[order],
        detections.score[order],
        rank[order],
        matched[order],
        ignored[order],
        truths.counted(area),
        order,
        truth[order],
    )


def find_matches(
    detections: Detections, truths: Truths, area: str = "all", thresholds: NDArray[np.float64] = COCO_THRESHOLDS
) -> tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.uint16], NDArray[np.int32]]:
    """Return (rank, matched, ignored, truth) of each detection, as `Matches` has them, in the detections' order.

    detections: of the truths' images, or of several runs over them, one after the other.
    """
    count = len(detections)
    runs = detections.image_count // max(1, truths.image_count)
    low, high = AREA_RANGES[area]
    matched, ignored = np.empty(count, np.uint16), np.empty(count, np.uint16)
    rank, truth = np.empty(count, np.int32), np.empty(count, np.int32)
    scratch = np.empty((truths.fullest_cell + 1, 2), dtype=np.float64)
    given = (detections.offsets, np.ascontiguousarray(detections.category), np.ascontiguousarray(detections.box))
    known = (truths.sizes, truths.cell_offsets, truths.box, truths.area, truths.crowd)
    limits, results = (low, high, thresholds, len(thresholds), MAX_DETECTIONS), (matched, ignored, rank, truth)
    counts = (runs, truths.image_count, truths.category_count)
    matching.match_coco(*counts, *given, *known, *limits, scratch, *results)
    return rank, matched, ignored, truth


def by_category(
    categories: int, category: NDArray[np.int32], score: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order by category, then falling score, equal scores as they come.

    Return the order and where each category begins in it.
    """
    count = len(score)
    category, score = np.ascontiguousarray(category), np.ascontiguousarray(score)
    order, start = np.empty(count, np.int64), np.empty(categories + 1, np.int64)
    work = np.empty((count + 1, 4), dtype=np.int64)
    matching.order_by_category(categories, count, category, score, work, order, start)
    return order, start


def best_overlap(detections: Detections, truths: Truths, minimum: float) -> NDArray[np.int32]:
    """Return int32 (n,): per detection the truth of its image and category with the highest IoU > minimum, or -1.

    A truth can be the best one of several detections.
    """
    check_images(detections, truths)
    result = np.empty(len(detections), np.int32)
    given = (detections.offsets, np.ascontiguousarray(detections.category), np.ascontiguousarray(detections.box))
    counts, known = (truths.image_count, truths.category_count), (truths.cell_offsets, truths.box)
    matching.best_overlap(*counts, *given, *known, minimum, result)
    return result


def check_images(detections: Detections, truths: Truths) -> None:
    """Raise DataError unless detections and truths are of one set of images and classes."""
    if detections.image_count != truths.image_count:
        raise DataError(f"detections are of {detections.image_count} images, truths of {truths.image_count}")
    highest = int(detections.category.max(initial=-1))
    if highest >= truths.category_count:
        raise DataError(f"a detection has class index {highest}, but the data set has {truths.category_count} classes")
