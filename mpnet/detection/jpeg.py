# SPDX-License-Identifier: MIT
"""JPEG -> RGB to the same pixels on every machine, whatever libjpeg it has. The work is done in csrc/image/."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels import images

MAX_PIXELS = 1 << 25
"""Larger images are left to other decoders: a progressive one would need more than 300 MB here."""


def decode_jpeg(data: bytes, width: int, height: int) -> NDArray[np.uint8] | None:
    """Return the image in a JPEG file's bytes, uint8 (height, width, 3), or None when this decoder declines.

    It takes baseline and progressive files of 8 bits with one or three components, and declines all others, damaged
    files, and those whose header has another size. EXIF rotation is ignored. Pixels equal those of the reference
    programs' decoder (stb_image) bit for bit. Safe to use from several threads.
    """
    if not data.startswith(b"\xff\xd8") or not 0 < width * height <= MAX_PIXELS:
        return None
    size_bytes = images.jpeg_scratch_bytes(data, width, height)
    if size_bytes == 0:
        return None
    scratch = np.empty((size_bytes + 7) // 8, dtype=np.uint64)
    image = np.empty((height, width, 3), dtype=np.uint8)
    return image if images.decode_jpeg(data, width, height, scratch, image) else None


def is_damaged(data: bytes, width: int, height: int) -> bool:
    """Return whether a file begins as one that `decode_jpeg` takes; what it declines all the same is damaged."""
    return 0 < width * height <= MAX_PIXELS and images.jpeg_scratch_bytes(data, width, height) > 0
