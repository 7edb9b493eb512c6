# SPDX-License-Identifier: MIT
"""Detections of a set of images as arrays: what detection hands to evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes with class and score, by image, then class, then falling score. Make one with `Detections.of`.

    image_count: how many images were looked at, detections or not.
    image_index: int32 (n,), position in the dataset.
    category:    int32 (n,), class index.
    score:       float32 (n,), finite.
    box:         float32 (n, 4), x, y, width, height in pixels of the image; may reach beyond it.
    """

    image_count: int
    image_index: NDArray[np.int32]
    category: NDArray[np.int32]
    score: NDArray[np.float32]
    box: NDArray[np.float32]

    @staticmethod
    def of(image_count: int, image_index: Any, category: Any, score: Any, box: Any) -> Detections:
        """Check and order arrays of any order; equal scores keep theirs.

        Raises: DataError for shapes that do not fit, indices out of range and values that are not finite.
        """
        index = np.asarray(image_index, dtype=np.int32).reshape(-1)
        count = len(index)
        try:
            classes = np.asarray(category, dtype=np.int32).reshape(count)
            scores = np.asarray(score, dtype=np.float32).reshape(count)
            boxes = np.asarray(box, dtype=np.float32).reshape(count, 4)
        except ValueError as error:
            raise DataError(f"detections need one category, score and box per image index: {error}") from None
        if count and (index.min() < 0 or index.max() >= image_count):
            raise DataError(f"detections name image {index.max()} of {image_count}")
        if count and classes.min() < 0:
            raise DataError(f"detections name class {classes.min()}")
        if not (np.isfinite(scores).all() and np.isfinite(boxes).all()):
            raise DataError("detections hold a score or box that is not finite")
        order = np.lexsort((-scores, classes, index))  # stable
        return Detections(image_count, index[order], classes[order], scores[order], boxes[order])

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Return int64 (image_count + 1,): image i owns detections offsets[i] .. offsets[i + 1] - 1."""
        return np.searchsorted(self.image_index, np.arange(self.image_count + 1)).astype(np.int64)

    def clipped(self, sizes: NDArray[np.float32]) -> Detections:
        """Return the detections with boxes cut at the image's edges.

        sizes: float32 (image_count, 2), width and height.

        Computed on the corners in float32; a box wholly outside keeps a width or height of 0.
        """
        limit = sizes[self.image_index]
        low = np.minimum(np.maximum(self.box[:, :2], np.float32(0)), limit)
        high = np.minimum(np.maximum(self.box[:, :2] + self.box[:, 2:], np.float32(0)), limit)
        is_uncut = (self.box[:, :2] == low) & (self.box[:, :2] + self.box[:, 2:] == high)
        # Where nothing is cut the width stays as it was: right - left would round it once more.
        # Adding 0 turns -0 into 0, which minimum and maximum do not promise.
        box = np.concatenate([low, np.where(is_uncut, self.box[:, 2:], high - low)], axis=1) + np.float32(0)
        return replace(self, box=box)

    def select(self, keep: NDArray[np.bool_]) -> Detections:
        """Return the detections where the mask (n,) is true, in the same order."""
        return Detections(self.image_count, self.image_index[keep], self.category[keep], self.score[keep], self.box[keep])

    def of_images(self, positions: NDArray[np.int64]) -> Detections:
        """Return the detections of the images at rising positions, which become images 0, 1, ... as in `Dataset.subset`."""
        new_index = np.full(self.image_count, -1, dtype=np.int32)
        new_index[positions] = np.arange(len(positions), dtype=np.int32)
        selected = self.select(new_index[self.image_index] >= 0)
        return replace(selected, image_count=len(positions), image_index=new_index[selected.image_index])


def rows_of(offsets: NDArray[np.int64], groups: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (offsets, rows) of some groups in this order; in the arrays group g owns rows offsets[g] .. offsets[g + 1] - 1."""
    counts = np.diff(offsets)[groups]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return ends, np.repeat(offsets[:-1][groups] - ends[:-1], counts) + np.arange(ends[-1])
