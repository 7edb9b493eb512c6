# SPDX-License-Identifier: MIT
"""Images for reports of classifiers: those whose class one run lost or gained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

import cv2
import numpy as np

from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.report.images import LoadImage, jpeg
from mpnet.report.model import Change, Image
from mpnet.report.paired import ImageScore

SIDE = 224
"""Of the longer side of what is shown; pixels of smaller images are enlarged, not smoothed."""


@dataclass(frozen=True, eq=False)
class ClassGallery:
    """Draws images of a data set. load: record -> uint8 (h, w, 3) RGB."""

    dataset: Dataset
    baseline: Classifications
    other: Classifications
    load: LoadImage

    def changes(self, changes: Sequence[Change], limit: int) -> tuple[Change, ...]:
        """The first `limit` changes with their images. Raises: DataError when an image is gone or broken."""
        records = {record.path: record for record in self.dataset.images}
        return (*(replace(change, jpeg=self._drawn(records[change.image])) for change in changes[:limit]), *changes[limit:])

    def worst(self, scores: Sequence[ImageScore], limit: int) -> tuple[Image, ...]:
        """Nothing: a classifier's image has one truth, and the changes show it."""
        return ()

    def _drawn(self, record: ImageRecord) -> bytes:
        image = self.load(record)
        height, width = image.shape[:2]
        factor = SIDE / max(height, width)
        size = (max(1, round(width * factor)), max(1, round(height * factor)))
        method = cv2.INTER_AREA if factor < 1 else cv2.INTER_NEAREST
        return jpeg(np.asarray(cv2.resize(image, size, interpolation=method), dtype=np.uint8))
