# SPDX-License-Identifier: MIT
"""The JPEG decoder: the reference decoder's pixels, OpenCV's but for roundings, and no harm from damaged files."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpnet.detection.images import read_image
from mpnet.detection.jpeg import Flaw, decode_jpeg
from mpnet.detection.preprocess import preprocess
from mpnet.formats.images.read import header_size

SAMPLINGS = {
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


def scene(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return a smooth coloured image with an edge and a little noise, RGB."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    base = np.stack([120 + 90 * np.sin(x / 9), 130 + 80 * np.cos(y / 7), 110 + 60 * np.sin((x + y) / 11)], axis=2)
    base[height // 3 :, width // 2 :] += 60
    noise = np.random.default_rng(seed).normal(0, 3, base.shape)
    return np.clip(base + noise, 0, 255).astype(np.uint8)


def encode(image: NDArray[np.uint8], **options: int) -> bytes:
    """Return JPEG bytes of an RGB or grey image; options by the ends of OpenCV's names."""
    flags = [value for name, setting in options.items() for value in (getattr(cv2, f"IMWRITE_JPEG_{name}"), setting)]
    succeeded, data = cv2.imencode(".jpg", image[:, :, ::-1] if image.ndim == 3 else image, flags)
    assert succeeded
    return bytes(data.tobytes())


def opencv(data: bytes) -> NDArray[np.int64]:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1].astype(np.int64)


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("size", [(64, 48), (61, 47), (17, 1), (1, 9), (8, 8), (33, 130)])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_pixels_are_opencvs_but_for_roundings(sampling: str, size: tuple[int, int], progressive: int) -> None:
    data = encode(scene(*size), QUALITY=92, SAMPLING_FACTOR=SAMPLINGS[sampling], PROGRESSIVE=progressive)
    image = decode_jpeg(data, *size)
    assert image is not None
    difference = np.abs(image - opencv(data))
    # One step in luma and one in each chroma, whose largest coefficient is 1.772. libjpeg interpolates 4:1:1, 4:4:0 and
    # very narrow chroma in other ways, so there only the mean is close.
    has_same_upsampling = sampling in ("444", "422", "420") and size[0] > 4
    assert difference.mean() < (0.35 if has_same_upsampling else 3.0)
    if has_same_upsampling:
        inner = difference[:, :-2] if sampling != "444" else difference
        assert inner.max() <= 4


@pytest.mark.parametrize("interval", [1, 3, 7])
@pytest.mark.parametrize("progressive", [0, 1])
def test_restart_markers_change_nothing(interval: int, progressive: int) -> None:
    image = scene(90, 70)
    plain = decode_jpeg(encode(image, PROGRESSIVE=progressive), 90, 70)
    marked = encode(image, PROGRESSIVE=progressive, RST_INTERVAL=interval)
    assert b"\xff\xd1" in marked
    decoded = decode_jpeg(marked, 90, 70)
    assert decoded is not None
    assert plain is not None
    np.testing.assert_array_equal(decoded, plain)


def test_progressive_and_baseline_hold_the_same_pixels() -> None:
    image = scene(100, 80)
    first, second = (decode_jpeg(encode(image, PROGRESSIVE=flag, QUALITY=80), 100, 80) for flag in (0, 1))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first, second)


def test_grey_images_become_three_equal_channels() -> None:
    grey = scene(50, 40)[:, :, 0]
    image = decode_jpeg(encode(np.ascontiguousarray(grey)), 50, 40)
    assert image is not None
    assert (image == image[:, :, :1]).all()
    assert np.abs(image[:, :, 0].astype(int) - grey).mean() < 3


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xd9", b"\x89PNG\r\n\x1a\n" + b"\0" * 50])
def test_what_is_no_jpeg_is_declined(data: bytes) -> None:
    assert decode_jpeg(data, 8, 8) is None


def test_another_size_than_the_headers_is_declined() -> None:
    assert decode_jpeg(encode(scene(40, 30)), 40, 31) is None


def test_every_truncation_is_declined() -> None:
    data = encode(scene(40, 30))
    assert [length for length in range(0, len(data) - 2, 7) if decode_jpeg(data[:length], 40, 30) is not None] == []


def decoded(data: bytes, width: int, height: int) -> tuple[list[list[list[int]]] | None, list[Flaw]]:
    """Return the pixels of a file, None when it is declined, and the flaws that are remarked on."""
    flaws: list[Flaw] = []
    image = decode_jpeg(data, width, height, flaws.append)
    return None if image is None else image.tolist(), flaws


KINDS = {
    "baseline": {},
    "progressive": {"PROGRESSIVE": 1},
    "restarts": {"RST_INTERVAL": 2},
    "progressive-restarts": {"PROGRESSIVE": 1, "RST_INTERVAL": 2},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [b"", b"\xff", b"\xff\xff\xff", bytes(64), b"no marker"])
def test_a_missing_end_marker_takes_nothing_from_the_pixels(kind: str, end: bytes) -> None:
    data = encode(scene(40, 30), **KINDS[kind])
    pixels, flaws = decoded(data[:-2] + end, 40, 30)
    assert pixels == decoded(data, 40, 30)[0]
    assert Flaw.NO_END in flaws
    assert (Flaw.EXTRA_BYTES in flaws) <= (len(end) > 3)


def test_a_progressive_file_that_ends_behind_a_scan_lacks_the_others() -> None:
    data = encode(scene(40, 30), PROGRESSIVE=1)
    scans = [match.start() for match in re.finditer(rb"\xff[\xc4\xda]", data)]
    assert len(scans) > 10
    assert [decoded(data[:at], 40, 30) for at in scans] == [(None, [])] * len(scans)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_behind_the_end_marker_are_no_flaw(kind: str) -> None:
    data = encode(scene(40, 30), **KINDS[kind])
    assert decoded(data + b"extra" * 100 + data, 40, 30) == decoded(data, 40, 30)
    assert decoded(data, 40, 30)[1] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [b"\0", b"between", b"\xff\0\xff\0", bytes(300)])
def test_bytes_before_any_marker_are_skipped(kind: str, extra: bytes) -> None:
    """In each place where libjpeg warns of `extraneous bytes before marker` and goes on, OpenCV too."""
    data = encode(scene(40, 30), **KINDS[kind])
    places = [match.start() for match in re.finditer(rb"\xff[\xc0-\xfe]", data)][1:]
    whole, _ = decoded(data, 40, 30)
    for at in places:
        assert decoded(data[:at] + extra + data[at:], 40, 30) == (whole, [Flaw.EXTRA_BYTES])
        assert header_size(data[:at] + extra + data[at:]) == (40, 30)
        assert decoded(data[:at] + b"\xff" * 5 + data[at:], 40, 30) == (whole, [])  # fill bytes are as they may be


def test_bytes_before_a_restart_with_a_wrong_number_mean_that_blocks_are_lost() -> None:
    data = encode(scene(40, 30), RST_INTERVAL=1)
    at = data.index(b"\xff\xd2")
    assert decoded(data[:at] + bytes(20) + b"\xff\xd3" + data[at + 2 :], 40, 30) == (None, [])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_files_are_decoded_or_declined(data: st.DataObject) -> None:
    options = {"PROGRESSIVE": data.draw(st.integers(0, 1)), "RST_INTERVAL": data.draw(st.integers(0, 2))}
    raw = bytearray(encode(scene(40, 30), **options))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(2, len(raw) - 1))] = data.draw(st.integers(0, 255))
    image = decode_jpeg(bytes(raw), 40, 30)
    assert image is None or image.shape == (30, 40, 3)


@pytest.mark.parametrize(
    ("file", "golden"),
    [
        ("aix2022/images/CAPP_testset_close_10000.jpg", "golden_yolov3-tiny-aix2022.npz"),
        ("coco/images/000000000139.jpg", "golden_yolo-fastest-1.1.npz"),
    ],
)
def test_network_inputs_equal_the_reference_programs_bit_for_bit(shared_data: Path, file: str, golden: str) -> None:
    expected = np.load(shared_data / "golden" / golden)["input"].transpose(1, 2, 0)
    network_input, _ = preprocess(read_image(shared_data / file), 320, 320)
    np.testing.assert_array_equal(network_input[0], expected)
