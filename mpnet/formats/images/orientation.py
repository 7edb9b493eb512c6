# SPDX-License-Identifier: MIT
"""The orientation that EXIF gives an image: cameras store what the sensor saw and say how to turn it."""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Iterable

import numpy as np
from numpy.typing import NDArray

from mpnet.formats.images.jpeg_segments import START_OF_SCAN, iterate_segments

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord

_TAG, _SHORT, _MAX_ENTRIES, _MAX_PARTS = 0x0112, 3, 512, 4096
_APP1 = 0xE1


def is_turned(orientation: str | None, data_format: str) -> bool:
    """Return whether images are turned: as `data.orientation` says, None: as the program does whose format the labels have.

    Ultralytics reads images with OpenCV, which turns them; Darknet's own decoder, and Pillow as torchvision's CocoDetection and
    ImageFolder open it, do not.
    """
    return data_format == "ultralytics" if orientation is None else orientation == "exif"


def find_orientation(data: bytes) -> int:
    """Return the EXIF orientation of a JPEG, PNG or WebP file, from 1 (as stored) to 8; 1 where there is none."""
    try:
        if data[:2] == b"\xff\xd8":
            exif = _find_in_jpeg(data)
        elif data[:8] == b"\x89PNG\r\n\x1a\n":
            exif = _find_chunk(data, 8, b"eXIf", is_png=True)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            exif = _find_chunk(data, 12, b"EXIF", is_png=False)
        else:
            return 1
        return _read_tag(exif.removeprefix(b"Exif\0\0"))
    except (struct.error, IndexError, KeyError):
        return 1


def _find_in_jpeg(data: bytes) -> bytes:
    for segment in islice(iterate_segments(data), _MAX_PARTS):
        body = data[segment.start : segment.end]
        if segment.marker == _APP1 and body.startswith(b"Exif\0\0"):
            return body
        if segment.marker == START_OF_SCAN:
            break
    return b""


def _find_chunk(data: bytes, offset: int, kind: bytes, is_png: bool) -> bytes:
    for _ in range(_MAX_PARTS):
        head = data[offset : offset + 8]
        name, length = (head[4:], int.from_bytes(head[:4], "big")) if is_png else (head[:4], int.from_bytes(head[4:], "little"))
        if len(head) < 8:
            break
        if name == kind:
            return data[offset + 8 : offset + 8 + length]
        offset += length + (12 if is_png else 8 + length % 2)
    return b""


def _read_tag(exif: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}[exif[:4]]
    [start] = struct.unpack_from(order + "I", exif, 4)
    [count] = struct.unpack_from(order + "H", exif, start)
    for index in range(min(count, _MAX_ENTRIES)):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * index)
        if tag == _TAG:
            return value if kind == _SHORT and 1 <= value <= 8 else 1
    return 1


def turn(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return the upright image of a stored one, (height, width, channels)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def describe_orientations(records: Iterable[ImageRecord], are_turned: bool) -> str:
    """Return a line on images that EXIF turns and what becomes of them; '' where there are none."""
    orientations = [record.exif_orientation for record in records]
    return describe_count(sum(orientation != 1 for orientation in orientations), len(orientations), are_turned)


def describe_count(count: int, image_count: int, are_turned: bool, switch: str = "data.orientation: ") -> str:
    """Return that line. count: images that EXIF turns. switch: what the user writes before `exif` or `stored`."""
    if not count:
        return ""
    if are_turned:
        return f"{count} of {image_count} images are turned upright by EXIF, as Ultralytics does; {switch}stored leaves them"
    return (
        f"{count} of {image_count} images would be turned by EXIF and are taken as they are stored, as Darknet does; labels by "
        f"Ultralytics and most tools count on upright images, which {switch}exif gives"
    )
