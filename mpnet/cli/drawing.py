# SPDX-License-Identifier: MIT
"""Images for `mpnet detect` with what was found in them drawn, by OpenCV."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.api.network import Box, Label
from mpnet.cli.side_by_side import View
from mpnet.errors import DataError
from mpnet.formats.files.atomic import write_bytes
from mpnet.model.plan_key import short_key
from mpnet.report.collect.draw import DrawnBox, draw_labels, side_by_side

JPEG_QUALITY = 92


def write_drawn(target: Path, image: NDArray[np.uint8], views: list[View]) -> None:
    """Write a copy of the image with boxes, or with its best class. Raises: DataError, StoreError."""
    options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if target.suffix == ".jpg" else []
    done, data = cv2.imencode(target.suffix, drawn(image, views)[:, :, ::-1], options)
    if not done:
        raise DataError(f"{target}: the image cannot be encoded as {target.suffix}")
    write_bytes(target, data.tobytes())


def drawn(image: NDArray[np.uint8], views: list[View]) -> NDArray[np.uint8]:
    """Draw what one configuration finds on a copy; of two side by side, the one that was put beside left, with captions."""
    copies = [draw_labels(image, _labels(image, view)) for view in views]
    if len(views) == 1:
        return copies[0]
    return side_by_side(copies[::-1], [short_key(view.caption) for view in views[::-1]])


def _labels(image: NDArray[np.uint8], view: View) -> list[DrawnBox]:
    boxes = [
        DrawnBox((one.x, one.y, one.width, one.height), one.category, f"{one.name} {100 * one.score:.0f}%")
        for one in view.predictions
        if isinstance(one, Box)
    ]
    height, width = image.shape[:2]
    return boxes + [
        DrawnBox((0, 0, width, height), one.category, f"{one.name} {one.score:.2f}")
        for one in view.predictions[:1]
        if isinstance(one, Label)
    ]
