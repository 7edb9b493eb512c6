# SPDX-License-Identifier: MIT
"""JPEG -> RGB to the same pixels on every machine, whatever libjpeg it has. The work is done in csrc/image/."""

from __future__ import annotations

from enum import Enum
from typing import Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels import images

MAX_PIXELS = 1 << 25
"""Larger images are left to other decoders: a progressive one would need more than 300 MB here."""


class Flaw(Enum):
    """Flaws of a JPEG file of which an image is made all the same: what is said of one image, and of several."""

    GUESSED = (
        "a damaged JPEG, decoded by OpenCV, which guesses what is missing; restore it",
        "damaged JPEGs were decoded by OpenCV, which guesses what is missing",
    )
    NO_END = (
        "a JPEG without its end marker; its pixels are all there",
        "JPEGs lack their end marker; their pixels are all there",
    )
    EXTRA_BYTES = (
        "a JPEG with bytes that belong to none of its parts, which are skipped; check that the image is whole",
        "JPEGs hold bytes that belong to none of their parts, which are skipped; check that the images are whole",
    )


def decode_jpeg(
    data: bytes, width: int, height: int, remark: Callable[[Flaw], object] | None = None
) -> NDArray[np.uint8] | None:
    """Return the image in a JPEG file's bytes, uint8 (height, width, 3), or None when this decoder declines.

    It takes baseline and progressive files of 8 bits with one or three components, and declines all others, damaged
    files, and those whose header has another size. EXIF rotation is ignored. Pixels equal those of the reference
    programs' decoder (stb_image) bit for bit. Safe to use from several threads.
    remark: called with each flaw of a file that is taken.
    """
    if not data.startswith(b"\xff\xd8") or not 0 < width * height <= MAX_PIXELS:
        return None
    size_bytes = images.jpeg_scratch_bytes(data, width, height)
    if size_bytes == 0:
        return None
    scratch = np.empty((size_bytes + 7) // 8, dtype=np.uint64)
    image = np.empty((height, width, 3), dtype=np.uint8)
    flaws = images.decode_jpeg(data, width, height, scratch, image)
    if flaws is None:
        return None
    for bit, flaw in ((images.NO_END, Flaw.NO_END), (images.EXTRA_BYTES, Flaw.EXTRA_BYTES)):
        if flaws & bit and remark is not None:
            remark(flaw)
    return image


def is_damaged(data: bytes, width: int, height: int) -> bool:
    """Return whether a file begins as one that `decode_jpeg` takes; what it declines all the same is damaged."""
    return 0 < width * height <= MAX_PIXELS and images.jpeg_scratch_bytes(data, width, height) > 0
