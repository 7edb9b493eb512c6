# SPDX-License-Identifier: MIT
"""Images: bytes -> RGB arrays. The size is read from the header and checked before anything is decoded."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError
from mpnet.formats.files.bounded import read_bounded
from mpnet.formats.files.foreign import foreign_content
from mpnet.formats.files.paths import COMPANION
from mpnet.formats.images.jpeg_segments import START_OF_SCAN, iterate_segments
from mpnet.formats.images.orientation import find_orientation
from mpnet.formats.images.walk import MAX_PARTS, walk
from mpnet.messages import all_at_once, named

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord

SUFFIXES: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm")
UNREAD_SUFFIXES: tuple[str, ...] = (".tif", ".tiff", ".gif", ".avif", ".heic", ".heif", ".jp2", ".jxl", ".dng", ".svg")
"""Images that people have and mpnet does not decode, for messages."""
MAX_FILE_BYTES = 256 * 1024 * 1024
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")
MAX_PIXELS = 100_000_000  # 300 MB decoded
MAX_SIDE = 65_500  # what JPEG can hold, roughly

# JPEG markers that start a frame and so carry the size: SOF0 to SOF15 without DHT, JPG and DAC.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def read_bytes(path: Path | str) -> bytes:
    """Read the bytes of an image file. Raises: DataError when it is missing, not a file, empty or too large."""
    data = read_bounded(path, MAX_FILE_BYTES, "image file", DataError)
    if not data:
        raise DataError(f"{named(path)}: is empty; restore or remove the image")
    return data


def is_image_name(name: str) -> bool:
    """Return whether a file is named as an image that mpnet decodes, and not as the companion of one."""
    return not name.startswith(COMPANION) and PurePath(name).suffix.lower() in SUFFIXES


def unread_kinds(folder: Path) -> str:
    """Return how many images of which kinds a folder holds that mpnet does not decode; '' where it has others or none."""
    suffixes = Counter(file.suffix.lower() for file in folder.iterdir())
    if any(suffix in suffixes for suffix in SUFFIXES):
        return ""
    return ", ".join(f"{suffixes[suffix]} {suffix} files" for suffix in UNREAD_SUFFIXES if suffixes[suffix])


def header_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height from a JPEG, PNG, BMP, WebP or PPM/PGM header; None when it is none of them or broken."""
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if data[:2] == b"BM":
            return _bmp_size(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:2] in (b"P2", b"P3", b"P5", b"P6"):
            return _pnm_size(data)
    except (struct.error, IndexError, ValueError):
        return None
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    for segment in islice(iterate_segments(data), MAX_PARTS):
        if segment.marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[segment.start + 1 : segment.start + 5])
            return width, height
        if segment.marker == START_OF_SCAN:
            break
    return None


def _bmp_size(data: bytes) -> tuple[int, int]:
    if struct.unpack("<I", data[14:18])[0] == 12:  # the oldest header: 16-bit sizes
        width, height = struct.unpack("<HH", data[18:22])
        return width, height
    width, height = struct.unpack("<ii", data[18:26])
    return width, abs(height)  # negative: stored from the top down


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack("<I", data[21:25])[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def _pnm_size(data: bytes) -> tuple[int, int]:
    words: list[bytes] = []
    for line in data[2:2048].split(b"\n"):
        words += line.split(b"#")[0].split()
        if len(words) >= 2:
            break
    if not (words[0].isdigit() and words[1].isdigit() and len(words[0]) < 10 and len(words[1]) < 10):
        raise ValueError("no sizes")
    return int(words[0]), int(words[1])


def checked_size(data: bytes, name: Path | str) -> tuple[int, int]:
    """Return the width and height from the header. Raises: DataError for other files and sizes outside the limits."""
    size = header_size(data)
    if size is None:
        foreign = foreign_content(data[:256])
        if data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS:
            foreign = "a HEIC image, as iPhones write them, whatever its name says; convert it to JPEG or PNG"
        reason = (
            f"is {foreign}" if foreign else "is not a readable image (known: JPEG, PNG, BMP, WebP, PPM); convert or remove it"
        )
        raise DataError(f"{named(name)}: {reason}")
    width, height = size
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise DataError(
            f"{named(name)}: {width} x {height} pixels are outside the limits (1 to {MAX_SIDE} a side, "
            f"{MAX_PIXELS} in all); scale the image"
        )
    return width, height


def walked(data: bytes, name: Path | str) -> tuple[bytes, int, int]:
    """Return the part of a file's bytes that makes pixels, with width and height, to be decoded with bounded memory and work.

    Raises: DataError as `checked_size`, and for parts that the file is too short for or that ask for too much work.
    """
    width, height = checked_size(data, name)
    try:
        return walk(data, width, height), width, height
    except (ValueError, struct.error, IndexError) as error:
        reason = str(error) if type(error) is ValueError else "is too short"
        raise DataError(f"{named(name)}: the image is corrupt: {reason}; restore or remove it") from None


def decode(data: bytes, name: Path | str) -> NDArray[np.uint8]:
    """Return RGB image, uint8 (height, width, 3), from the bytes of a file; as it is stored, whatever EXIF says.

    name: what messages call it. Raises: DataError for what is no image, corrupt, or outside the limits.
    """
    return decode_walked(*walked(data, name), name)


def decode_walked(data: bytes, width: int, height: int, name: Path | str) -> NDArray[np.uint8]:
    """Do what `decode` does for the bytes, width and height that `walked` gave."""
    import cv2  # JPEGs do without

    try:
        image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        image = None
    if image is None:
        raise DataError(f"{named(name)}: the image is corrupt and cannot be decoded; restore or remove it")
    if image.shape != (height, width, 3):
        raise DataError(
            f"{named(name)}: the header says {width} x {height}, the content is "
            f"{image.shape[1]} x {image.shape[0]}; restore or remove the image"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def probe_all(paths: Sequence[Path], is_turned: bool = False) -> list[ImageRecord]:
    """Probe each image, numbered from 1. is_turned: as `probe`. Raises: DataError that names all that cannot be used."""
    records, problems = [], [""] * len(paths)
    for number, path in enumerate(paths):
        try:
            records.append(probe(path, number + 1, is_turned))
        except DataError as error:
            problems[number] = str(error)
    if len(records) < len(paths):  # then look closer at the others, so that one message names them all
        for number, path in enumerate(paths):
            try:
                walked(read_bytes(path), path)
            except DataError as error:
                problems[number] = problems[number] or str(error)
        raise DataError(all_at_once([problem for problem in problems if problem], len(paths), "images"))
    return records


def probe(path: Path | str, identity: int, is_turned: bool = False) -> ImageRecord:
    """Return an image file as a record, without decoding it.

    is_turned: whether EXIF turns it. Raises: DataError as `read_bytes` and `checked_size`.
    """
    from mpnet.data.dataset import ImageRecord

    data = read_bytes(path)
    width, height = checked_size(data, path)
    orientation = find_orientation(data)
    if is_turned and orientation >= 5:
        width, height = height, width
    return ImageRecord(identity, str(path), width, height, hashlib.sha256(data).hexdigest(), orientation, is_turned)
