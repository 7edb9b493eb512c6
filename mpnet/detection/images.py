# SPDX-License-Identifier: MIT
"""Image files -> RGB arrays, by mpnet's own JPEG decoder where it can, else by OpenCV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.jpeg import decode_jpeg, is_damaged
from mpnet.errors import DataError
from mpnet.formats.images.frames import read_frame
from mpnet.formats.images.orientation import turn
from mpnet.formats.images.read import decode_walked, read_bytes, walked

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord


Remark = Callable[[str], object]


def read_image(path: Path | str, repaired: Remark | None = None, orientation: int = 1) -> NDArray[np.uint8]:
    """Return the image in a file, uint8 (height, width, 3), RGB, turned by an EXIF orientation, 1: as it is stored.

    JPEGs are decoded by mpnet itself, to the same pixels everywhere; all else, and what its decoder declines, by OpenCV.
    repaired: called with the path of a damaged JPEG of which OpenCV made an image all the same, parts of it guessed.
    Raises: DataError with the path.
    """
    data, width, height = walked(read_bytes(path), path)
    pixels = decode_jpeg(data, width, height)
    if pixels is None:
        pixels = decode_walked(data, width, height, path)
        if repaired is not None and data.startswith(b"\xff\xd8") and is_damaged(data, width, height):
            repaired(str(path))
    return pixels if orientation == 1 else turn(pixels, orientation)


def image(record: ImageRecord, repaired: Remark | None = None) -> NDArray[np.uint8]:
    """Return one image or frame of a video, uint8 (height, width, 3), RGB.

    Raises: DataError when it is broken or has changed its size.
    """
    pixels = read_frame(record.path)
    if pixels is None:
        pixels = read_image(record.path, repaired, record.orientation)
    if pixels.shape[:2] != (record.height, record.width):
        raise DataError(f"{record.path!r}: changed since it was listed; start again")
    return pixels
