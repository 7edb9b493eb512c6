# SPDX-License-Identifier: MIT
"""Images: decoding, sizes from headers, and files that are none."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.errors import DataError
from mpnet.formats.images import read as images
from mpnet.formats.images.read import decode, header_size, probe, read_bytes

IMAGE = np.random.RandomState(0).randint(0, 256, (13, 22, 3), dtype=np.uint8)
FORMATS = (".jpg", ".png", ".bmp", ".webp", ".ppm")


def encoded(suffix: str) -> bytes:
    return cv2.imencode(suffix, IMAGE[:, :, ::-1])[1].tobytes()


ENCODED = {suffix: encoded(suffix) for suffix in FORMATS}


@pytest.mark.parametrize("suffix", FORMATS)
def test_header_size_equals_the_decoded_one(suffix: str) -> None:
    assert header_size(ENCODED[suffix]) == (22, 13)
    assert decode(ENCODED[suffix], "a").shape == (13, 22, 3)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm"])
def test_lossless_formats_come_back_as_rgb(suffix: str) -> None:
    np.testing.assert_array_equal(decode(ENCODED[suffix], "a"), IMAGE)


def test_gray_and_transparent_images_become_rgb() -> None:
    gray = cv2.imencode(".png", IMAGE[:, :, 0])[1].tobytes()
    np.testing.assert_array_equal(decode(gray, "a"), np.repeat(IMAGE[:, :, :1], 3, axis=2))
    alpha = cv2.imencode(".png", np.dstack([IMAGE[:, :, ::-1], np.full((13, 22), 9, np.uint8)]))[1].tobytes()
    np.testing.assert_array_equal(decode(alpha, "a"), IMAGE)


def test_exif_rotation_is_ignored() -> None:
    jpeg = ENCODED[".jpg"]
    tiff = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)  # orientation 6: a quarter turn
    body = b"Exif\0\0" + tiff
    rotated = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]
    assert header_size(rotated) == (22, 13)
    np.testing.assert_array_equal(decode(rotated, "a"), decode(jpeg, "a"))


def test_probe_gives_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(ENCODED[".png"])
    info = probe(path, 7)
    assert (info.width, info.height) == (22, 13)
    assert info.sha256 == hashlib.sha256(ENCODED[".png"]).hexdigest()
    np.testing.assert_array_equal(decode(read_bytes(path), path), IMAGE)


def png_of(width: int, height: int) -> bytes:
    """Return a valid PNG header that promises an image of this size, without pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (60_000, 60_000), (2**31 - 1, 2**31 - 1), (70_000, 1)])
def test_sizes_are_refused_before_decoding(width: int, height: int, monkeypatch) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DataError, match=rf"^a\.png: {width} x {height} pixels are outside"):
        decode(png_of(width, height), "a.png")


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\xff\xd8", b"\xff\xd8\xff\xe0\0\x01" + b"\0" * 20, b"BM", b"P6\n", b"RIFF"],
    ids=["text", "jpeg-start", "jpeg-length", "bmp-start", "ppm-start", "riff"],
)
def test_files_that_are_no_images(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.jpg: is not a readable image"):
        decode(read_bytes(path), path)


def test_images_of_iphones_are_named_whatever_they_are_called(tmp_path: Path) -> None:
    path = tmp_path / "IMG_0001.jpg"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + b"\0" * 100)
    with pytest.raises(
        DataError, match=r"IMG_0001\.jpg: is a HEIC image, as iPhones write them, .*; convert it to JPEG or PNG"
    ):
        decode(read_bytes(path), path)


def test_corrupt_content_behind_a_good_header() -> None:
    with pytest.raises(DataError, match=r"a\.png: the image is corrupt"):
        decode(png_of(22, 13), "a.png")


def test_missing_empty_folder_and_oversized_files(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(tmp_path / "none.jpg")
    with pytest.raises(DataError, match="is a folder"):
        read_bytes(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes("a\0b.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(DataError, match="is not a regular file; name an image file"):
        read_bytes(tmp_path / "pipe.jpg")
    (tmp_path / "empty.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_bytes(tmp_path / "empty.jpg")
    monkeypatch.setattr(images, "MAX_FILE_BYTES", 10)
    (tmp_path / "big.jpg").write_bytes(b"x" * 11)
    with pytest.raises(DataError, match="is larger than 10 B; this is no image file"):
        read_bytes(tmp_path / "big.jpg")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.data())
def test_mutated_images_decode_or_give_one_clear_line(suffix: str, data) -> None:
    content = bytearray(ENCODED[suffix])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content) - 1, 80)))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    check(bytes(content))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"BM", b"RIFFabcdWEBPVP8 ", b"P6 "]), st.binary())
def test_arbitrary_bytes_give_one_clear_line(start: bytes, content: bytes) -> None:
    check(start + content)


def check(content: bytes) -> None:
    message, image = "", None
    try:
        image = decode(content, "some/file.jpg")
    except DataError as error:
        message = str(error)
    if image is None:
        assert message.startswith("some/file.jpg: ")
        assert len(message.splitlines()) == 1
    else:
        assert image.dtype == np.uint8
        assert image.shape == (*header_size(content)[::-1], 3)
