# SPDX-License-Identifier: MIT
"""The best classes of a set of images as arrays: what classifiers hand to evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError, NonFiniteError

KEPT = 5
"""How many classes of an image are kept: as many as any measure asks for."""


@dataclass(frozen=True, eq=False)
class Classifications:
    """The best classes of each image, best first; equal scores by rising class index.

    category: int32 (images, k), k = KEPT or all classes of a network with fewer. score: float32 (images, k), finite.
    """

    category: NDArray[np.int32]
    score: NDArray[np.float32]

    @staticmethod
    def of(category: Any, score: Any, classes: int) -> Classifications:
        """Check arrays of one row per image.

        Raises: DataError for shapes that differ, classes out of range or repeated, scores that are not finite or rise.
        """
        categories, scores = np.asarray(category, dtype=np.int32), np.asarray(score, dtype=np.float32)
        if categories.ndim != 2 or categories.shape != scores.shape or categories.shape[1] != min(KEPT, classes):
            raise DataError(
                f"classifications of {classes} classes need {min(KEPT, classes)} classes and scores per image, "
                f"not {categories.shape} and {scores.shape}"
            )
        if categories.size and (categories.min() < 0 or categories.max() >= classes):
            raise DataError(f"classifications name class {categories.min()} to {categories.max()} of {classes}")
        if not np.isfinite(scores).all() or (np.diff(scores, axis=1) > 0).any():
            raise DataError("classifications hold a score that is not finite or higher than the one before it")
        if (np.diff(np.sort(categories, axis=1), axis=1) == 0).any():
            raise DataError("classifications name a class of an image twice")
        return Classifications(categories, scores)

    def __len__(self) -> int:
        return len(self.category)

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that the arrays take."""
        return self.category.nbytes + self.score.nbytes

    @property
    def best(self) -> NDArray[np.int32]:
        """Return int32 (images,): the best class of each image."""
        return self.category[:, 0]

    def of_images(self, positions: NDArray[np.intp]) -> Classifications:
        """Return the classifications of the images at some positions, which become images 0, 1, ... as in `Dataset.subset`."""
        return Classifications(self.category[positions], self.score[positions])


def class_scores(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32 (n, h * w * c) from a classifier's last tensor (n, h, w, c): Darknet counts classes channel by channel."""
    return np.ascontiguousarray(tensor.transpose(0, 3, 1, 2)).reshape(len(tensor), -1)


def best_classes(scores: NDArray[np.float32]) -> Classifications:
    """Pick the best classes from all scores, float32 (images, classes). Raises: NonFiniteError."""
    if not np.isfinite(scores).all():
        raise NonFiniteError("a class score is not finite")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :KEPT]
    return Classifications(order.astype(np.int32), np.take_along_axis(scores, order, axis=1))


def join_images(parts: Sequence[Classifications]) -> Classifications:
    """Return classifications of consecutive groups of images as those of all of them."""
    return Classifications(np.concatenate([part.category for part in parts]), np.concatenate([part.score for part in parts]))
