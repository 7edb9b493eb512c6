# SPDX-License-Identifier: MIT
"""Images that promise more than they hold, or ask for more work than an image needs, are refused before any decoder."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.detection import images as decoding
from mpnet.detection.images import read_image
from mpnet.errors import DataError
from mpnet.formats.images import read as images

IMAGE = np.random.RandomState(0).randint(0, 256, (13, 22, 3), dtype=np.uint8)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def jpeg_of_scans(width: int, height: int, scans: int) -> bytes:
    """Return a progressive grey JPEG of empty scans: DC codes of one bit, then AC scans whose runs of end-of-band cover all."""
    blocks = -(-width // 8) * -(-height // 8)
    data = b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64)
    data += segment(0xC2, struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0")
    data += segment(0xC4, b"\0" + bytes([1] + [0] * 15) + b"\0")  # DC: the code 0 means no difference
    data += segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\xe0")  # AC: 0 and 14 bits: so many empty blocks
    data += segment(0xDA, b"\1\1\0\0\0\0") + b"\0" * -(-blocks // 8)
    runs = -(-blocks // 16384)
    bits = "0" * (15 * runs)
    bits += "1" * (-len(bits) % 8)
    empty = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return data + (segment(0xDA, b"\1\1\0\1\x3f\1") + empty) * (scans - 1) + b"\xff\xd9"


def png_head(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


WEBP = cv2.imencode(".webp", IMAGE)[1].tobytes()
BMP = cv2.imencode(".bmp", IMAGE)[1].tobytes()
REFUSED = {
    "png-chunk-of-4-gb": (png_head(52, 40) + b"\xff\xff\xff\xffIDAT", "says 4294967295 bytes, 0 are left"),
    "png-without-pixels": (
        png_head(10_000, 10_000) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""),
        "10000 x 10000 pixels cannot be in 8 bytes of data",
    ),
    "png-of-many-chunks": (png_head(1, 1) + chunk(b"tEXt", b"") * 100_001, "more than 100000 chunks"),
    "jpeg-of-2000-scans": (jpeg_of_scans(9_000, 9_000, 2_000), "more than 14 scans over 81 M pixels"),
    "jpeg-of-many-segments": (
        b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 9, 9, 1) + b"\1\x11\0") + segment(0xFE, b"") * 100_001,
        "more than 100000 segments",
    ),
    "webp-cut": (WEBP[:-9], "shorter than its header says"),
    "webp-chunk-of-4-gb": (WEBP[:16] + b"\xff\xff\xff\xff" + WEBP[20:], "says 4294967295 bytes"),
    "bmp-without-pixels": (BMP[:18] + struct.pack("<ii", 9_000, 9_000) + BMP[26:], "9000 x 9000 pixels cannot be in"),
    "bmp-other-header": (BMP[:14] + b"\x29" + BMP[15:], "none of a BMP"),
    "ppm-without-pixels": (b"P6\n9000 9000\n255\n", "9000 x 9000 pixels cannot be in 17 bytes"),
    "pgm-without-pixels": (b"P2\n9000 9000\n255\n1 2", "9000 x 9000 pixels cannot be in 20 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_hold_is_refused_before_it_is_decoded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, reason = REFUSED[name]
    path = tmp_path / "image"
    path.write_bytes(content)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded by OpenCV"))
    monkeypatch.setattr(decoding, "decode_jpeg", lambda *_: pytest.fail("decoded by mpnet"))
    with pytest.raises(DataError, match=f"the image is corrupt: .*{reason}.*; restore or remove it"):
        read_image(path)


def test_scans_that_an_image_may_have_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg_of_scans(64, 64, 90))
    assert read_image(path).shape == (64, 64, 3)


def test_only_what_makes_pixels_goes_to_a_decoder(tmp_path: Path) -> None:
    """A text or profile of kilobytes may unpack to gigabytes; an animation's frames are not the image."""
    content = cv2.imencode(".png", IMAGE[:, :, ::-1])[1].tobytes()
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20))) + chunk(b"acTL", struct.pack(">II", 1 << 30, 0))
    path = tmp_path / "a.png"
    path.write_bytes(content[:33] + bomb * 50 + content[33:])
    assert images.walked(path.read_bytes(), path) == (content, 22, 13)
    np.testing.assert_array_equal(read_image(path), IMAGE)
