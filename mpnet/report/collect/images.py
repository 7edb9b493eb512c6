# SPDX-License-Identifier: MIT
"""Images for reports: objects that one run lost, and whole images as truth, baseline and other run see them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.diagnose.objects import NEAR_IOU
from mpnet.errors import DataError
from mpnet.evaluation.agreement import BASELINE_SCORE
from mpnet.formats.files.atomic import write_bytes
from mpnet.report.collect.detection_pairs import overlap
from mpnet.report.collect.draw import DrawnBox, draw_labels, side_by_side
from mpnet.report.data.differences import Change, ImageScore, ImageTriple, ObjectChange

LoadImage = Callable[[ImageRecord], NDArray[np.uint8]]
CROP_SIDE = 400
CAPTIONS = ("baseline", "this configuration")
GAP = 4
"""Pixels between both sides."""
TRIPLE_WIDTH = 480
CLASS_SIDE = 224
"""Of the longer side of what is shown; pixels of smaller images are enlarged, not smoothed."""
_QUALITY = 82


@dataclass(frozen=True, eq=False)
class Gallery:
    """A gallery of what two runs made of the images of a data set. load: record -> uint8 (h, w, 3) RGB."""

    dataset: Dataset
    baseline: Detections
    other: Detections
    load: LoadImage

    def changes(self, changes: Sequence[Any], limit: int, captions: bool = False) -> tuple[Change, ...]:
        """Return the changes, the first `limit` with images: baseline left, other run right, the object in the middle.

        captions: whether the images say which side is which.
        Raises: DataError when an image is gone or broken.
        """
        positions = {record.path: position for position, record in enumerate(self.dataset.images)}
        by_image: dict[str, list[int]] = {}
        for number, change in enumerate(changes[:limit]):
            by_image.setdefault(change.image, []).append(number)
        illustrated = list(changes)
        for path, numbers in by_image.items():
            image = self.load(self.dataset.images[positions[path]])
            for number in numbers:
                illustrated[number] = replace(
                    changes[number], jpeg=self._crop(image, positions[path], changes[number], captions)
                )
        return tuple(illustrated)

    def worst(self, scores: Sequence[ImageScore], limit: int) -> tuple[ImageTriple, ...]:
        """Return the first `limit` images, each three times; images in which nothing differs are left out."""
        triples = []
        for score in scores[:limit]:
            if score.lost + score.gained == 0 and score.doubts < 1e-6:
                break
            record = self.dataset.images[score.position]
            image = self.load(record)
            caption = f"{score.lost} lost or moved, {score.gained} gained"
            if score.doubts >= 0.005:
                caption += f"; detections that only one of the two runs has: their scores add up to {score.doubts:.2f}"
            views = [
                _shrunk(image, labels, TRIPLE_WIDTH)
                for labels in (
                    self._truths(score.position),
                    self._predicted(self.baseline, score.position),
                    self._predicted(self.other, score.position),
                )
            ]
            triples.append(ImageTriple(Path(record.path).name, caption, *map(jpeg, views)))
        return tuple(triples)

    def _crop(self, image: NDArray[np.uint8], position: int, change: ObjectChange, captions: bool) -> bytes:
        x0, y0, x1, y1 = change.box
        radius = max(x1 - x0, y1 - y0, 24.0) * 0.75
        middle_x, middle_y = (x0 + x1) / 2, (y0 + y1) / 2
        height, width = image.shape[:2]
        left, right = int(max(0, middle_x - radius)), int(min(width, middle_x + radius))
        top, bottom = int(max(0, middle_y - radius)), int(min(height, middle_y + radius))
        if right <= left or bottom <= top:
            left, top, right, bottom = 0, 0, width, height
        region = image[top:bottom, left:right]
        truth = np.array([x0, y0, x1 - x0, y1 - y0])
        views = []
        for predictions in (self.baseline, self.other):
            # Whatever else is in the image would only hide the object in question.
            predicted = self._predicted(predictions, position)
            labels = [label for label in predicted if overlap(np.array(label.box), truth) > NEAR_IOU]
            views.append(_shrunk(region, labels, CROP_SIDE, change, (left, top)))
        views[1] = np.pad(views[1][:, GAP:], ((0, 0), (GAP, 0), (0, 0)), constant_values=255)
        return jpeg(side_by_side(views, CAPTIONS) if captions else np.hstack(views))

    def _truths(self, position: int) -> list[DrawnBox]:
        rows = np.flatnonzero(self.dataset.image_index == position)
        return [
            DrawnBox(
                _four(self.dataset.box[row]),
                int(self.dataset.category[row]),
                self.dataset.names[int(self.dataset.category[row])],
            )
            for row in rows
        ]

    def _predicted(self, predictions: Detections, position: int) -> list[DrawnBox]:
        start, end = int(predictions.offsets[position]), int(predictions.offsets[position + 1])
        rows = [row for row in range(start, end) if predictions.score[row] >= np.float32(BASELINE_SCORE)]
        rows.sort(key=lambda row: -float(predictions.score[row]))
        return [
            DrawnBox(
                _four(predictions.box[row]),
                int(predictions.category[row]),
                f"{self.dataset.names[int(predictions.category[row])]} {predictions.score[row]:.2f}",
            )
            for row in rows
        ]


@dataclass(frozen=True, eq=False)
class ClassGallery:
    """A gallery of images of a data set. load: record -> uint8 (h, w, 3) RGB."""

    dataset: Dataset
    baseline: Classifications
    other: Classifications
    load: LoadImage

    def changes(self, changes: Sequence[Change], limit: int, captions: bool = False) -> tuple[Change, ...]:
        """Return the changes, the first `limit` with their image. Raises: DataError when an image is gone or broken."""
        records = {record.path: record for record in self.dataset.images}
        return (*(replace(change, jpeg=self._draw(records[change.image])) for change in changes[:limit]), *changes[limit:])

    def worst(self, scores: Sequence[ImageScore], limit: int) -> tuple[ImageTriple, ...]:
        """Return nothing: a classifier's image has one truth, and the changes show it."""
        return ()

    def _draw(self, record: ImageRecord) -> bytes:
        image = self.load(record)
        height, width = image.shape[:2]
        factor = CLASS_SIDE / max(height, width)
        size = (max(1, round(width * factor)), max(1, round(height * factor)))
        method = cv2.INTER_AREA if factor < 1 else cv2.INTER_NEAREST
        return jpeg(np.asarray(cv2.resize(image, size, interpolation=method), dtype=np.uint8))


def write_changes(changes: Sequence[Change], folder: Path) -> list[str]:
    """Write each change's image as folder/NNN-kind-class.jpg; return the names, '' for one without an image."""
    names = []
    for number, change in enumerate(changes, 1):
        name = f"{number:03d}-{change.kind}-{safe_name(change.name)}.jpg" if change.jpeg is not None else ""
        if change.jpeg is not None:
            write_bytes(folder / name, change.jpeg)
        names.append(name)
    return names


def safe_name(text: str) -> str:
    """Return a part of a file name made from a class name, whatever that contains."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("._")[:40] or "object"


def jpeg(image: NDArray[np.uint8]) -> bytes:
    """Encode an RGB image as JPEG."""
    is_encoded, data = cv2.imencode(".jpg", np.ascontiguousarray(image[:, :, ::-1]), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not is_encoded:
        raise DataError(f"an image of shape {image.shape} cannot be written as JPEG; check the data set")
    return bytes(data.tobytes())


def _four(box: NDArray[np.floating]) -> tuple[float, float, float, float]:
    x, y, width, height = (float(v) for v in box)
    return x, y, width, height


def _shrunk(
    image: NDArray[np.uint8],
    labels: Sequence[DrawnBox],
    width: int,
    change: ObjectChange | None = None,
    origin: tuple[int, int] = (0, 0),
) -> NDArray[np.uint8]:
    """Resize first and draw then, so that lines and letters stay sharp. origin: of `image` in the whole one."""
    factor = width / image.shape[1]
    size = (width, max(1, round(image.shape[0] * factor)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
    scaled = []
    for label in labels:
        x, y, box_width, box_height = label.box
        box = ((x - origin[0]) * factor, (y - origin[1]) * factor, box_width * factor, box_height * factor)
        scaled.append(replace(label, box=box))
    truth = None if change is None else [(change.box[i] - origin[i % 2]) * factor for i in range(4)]
    # Both sides of a change share the width that the page shows: letters halve.
    return draw_labels(np.asarray(resized, dtype=np.uint8), scaled, truth, min_scale=0.35 if change is None else 0.7)
