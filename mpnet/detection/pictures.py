"""Picture files -> RGB arrays, by mpnet's own JPEG decoder where it can, else by OpenCV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.jpeg import decode_jpeg
from mpnet.errors import DataError
from mpnet.formats.images import decode_walked, read_bytes, walked

if TYPE_CHECKING:
    from mpnet.spec.dataset import ImageRecord


def read_picture(path: Path | str) -> NDArray[np.uint8]:
    """The picture in a file, uint8 (height, width, 3), RGB; EXIF rotation is ignored, as Darknet does.

    JPEGs are decoded by mpnet itself, to the same pixels everywhere; all else, and what its decoder declines, by OpenCV.
    Raises: DataError with the path.
    """
    data, width, height = walked(read_bytes(path), path)
    pixels = decode_jpeg(data, width, height)
    return decode_walked(data, width, height, path) if pixels is None else pixels


def picture(record: ImageRecord) -> NDArray[np.uint8]:
    """One picture, uint8 (height, width, 3), RGB. Raises: DataError when it is broken or has changed its size."""
    pixels = read_picture(record.path)
    if pixels.shape[:2] != (record.height, record.width):
        raise DataError(f"{record.path!r}: changed since it was listed; start again")
    return pixels
