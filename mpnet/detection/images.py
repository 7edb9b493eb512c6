# SPDX-License-Identifier: MIT
"""Image files -> RGB arrays, by mpnet's own JPEG decoder where it can, else by OpenCV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.jpeg import Flaw, decode_jpeg, is_damaged
from mpnet.errors import DataError
from mpnet.formats.images.frames import read_frame
from mpnet.formats.images.orientation import turn
from mpnet.formats.images.read import decode_walked, read_bytes, walked

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord


class FlawedImage(NamedTuple):
    """An image file that is read although it has a flaw."""

    path: str
    flaw: Flaw


Remark = Callable[[FlawedImage], object]


def read_image(path: Path | str, remark: Remark | None = None, orientation: int = 1) -> NDArray[np.uint8]:
    """Return the image in a file, uint8 (height, width, 3), RGB, turned by an EXIF orientation, 1: as it is stored.

    JPEGs are decoded by mpnet itself, to the same pixels everywhere; all else, and what its decoder declines, by OpenCV.
    remark: called with each flaw of a JPEG of which an image was made all the same.
    Raises: DataError with the path.
    """
    data, width, height = walked(read_bytes(path), path)

    def note_flaw(flaw: Flaw) -> None:
        if remark is not None:
            remark(FlawedImage(str(path), flaw))

    pixels = decode_jpeg(data, width, height, note_flaw)
    if pixels is None:
        pixels = decode_walked(data, width, height, path)
        if data.startswith(b"\xff\xd8") and is_damaged(data, width, height):
            note_flaw(Flaw.GUESSED)
    return pixels if orientation == 1 else turn(pixels, orientation)


def image(record: ImageRecord, remark: Remark | None = None) -> NDArray[np.uint8]:
    """Return one image or frame of a video, uint8 (height, width, 3), RGB.

    Raises: DataError when it is broken or has changed its size.
    """
    pixels = read_frame(record.path)
    if pixels is None:
        pixels = read_image(record.path, remark, record.orientation)
    if pixels.shape[:2] != (record.height, record.width):
        raise DataError(f"{record.path!r}: changed since it was listed; start again")
    return pixels
