# SPDX-License-Identifier: MIT
"""Images that EXIF turns: found in every kind of file, turned as OpenCV turns them, and only where it is asked for."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.detection.images import image
from mpnet.errors import DataError
from mpnet.formats.images.orientation import find_orientation, turn
from mpnet.formats.labels.dataset import load_dataset

UPRIGHT = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
# What a camera stores, by EXIF orientation, of an image that is upright.
STORE = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: x.transpose(1, 0, 2)[::-1],
    7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda x: x.transpose(1, 0, 2)[:, ::-1],
}


def exif(orientation: int, order: str = "<") -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    rows = [(0x010F, 2, 4, b"cam\0"), (0x0112, 3, 1, struct.pack(order + "HH", orientation, 0))]
    entries = b"".join(struct.pack(order + "HHI", tag, kind, count) + value for tag, kind, count, value in rows)
    return mark + struct.pack(order + "IH", 8, len(rows)) + entries + bytes(4)


def with_exif(suffix: str, pixels: np.ndarray, content: bytes) -> bytes:
    ok, encoded = cv2.imencode(suffix, np.ascontiguousarray(pixels[:, :, ::-1]), [cv2.IMWRITE_WEBP_QUALITY, 101])
    assert ok
    data = encoded.tobytes()
    if suffix == ".jpg":
        segment = b"Exif\0\0" + content
        return data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(segment)) + segment + data[2:]
    if suffix == ".png":
        chunk = b"eXIf" + content
        return data[:33] + struct.pack(">I", len(content)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:]
    height, width = pixels.shape[:2]
    extended = b"VP8X" + struct.pack("<I", 10) + bytes([8, 0, 0, 0])
    extended += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBP" + extended + data[12:] + b"EXIF" + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("orientation", STORE)
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_the_orientation_of_a_file_is_found(suffix: str, order: str, orientation: int) -> None:
    assert find_orientation(with_exif(suffix, UPRIGHT, exif(orientation, order))) == orientation


@pytest.mark.parametrize("orientation", STORE)
def test_images_are_turned_as_opencv_turns_them(orientation: int) -> None:
    data = with_exif(".jpg", UPRIGHT, exif(orientation))
    stored, turned = (
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | flag) for flag in (cv2.IMREAD_IGNORE_ORIENTATION, 0)
    )
    np.testing.assert_array_equal(turn(stored, orientation), turned)
    np.testing.assert_array_equal(turn(STORE[orientation](UPRIGHT), orientation), UPRIGHT)


@pytest.mark.parametrize(
    "content",
    [b"", b"II*\0", exif(0), exif(9), exif(6)[:-10], b"XX*\0" + exif(6)[4:], exif(6).replace(b"\x12\x01", b"\x13\x01")],
)
def test_no_or_damaged_exif_means_as_stored(content: bytes) -> None:
    for suffix in (".jpg", ".png", ".webp"):
        assert find_orientation(with_exif(suffix, UPRIGHT, content)) == 1
        assert find_orientation(with_exif(suffix, UPRIGHT, exif(6))[:40]) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images, one of them stored turned; an object in each."""
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    for number in range(5):
        orientation = 6 if number == 3 else 1
        content = with_exif(".png", STORE[orientation](UPRIGHT), exif(orientation))
        (tmp_path / "images" / f"{number}.png").write_bytes(content)
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.25 0.5 0.5 0.5\n")
    (tmp_path / "data.yaml").write_text("val: images\nnames: [thing]\n")
    return tmp_path


def test_turned_images_are_counted_and_ultralytics_are_turned(folder: Path) -> None:
    places = {"images": folder / "images", "labels": folder / "labels", "names": ["thing"]}
    stored = load_dataset("yolo", **places)
    assert stored.notes == (
        "1 of 5 images would be turned by EXIF and are taken as they are stored, as Darknet does; labels by Ultralytics and "
        "most tools count on upright images, which data.orientation: exif gives",
    )
    assert [(record.width, record.height) for record in stored.images][3] == (24, 40)
    for turned in (
        load_dataset("yolo", **places, orientation="exif"),
        load_dataset("ultralytics", None, labels=folder / "data.yaml"),
    ):
        assert turned.notes == (
            "1 of 5 images are turned upright by EXIF, as Ultralytics does; data.orientation: stored leaves them",
        )
        assert {(record.width, record.height) for record in turned.images} == {(40, 24)}
        assert turned.box.tolist() == [[0, 6, 20, 12]] * 5
        for record in turned.images:
            np.testing.assert_array_equal(image(record), UPRIGHT)
    as_stored = load_dataset("ultralytics", None, labels=folder / "data.yaml", orientation="stored")
    assert as_stored.digest == stored.digest != turned.digest


def test_the_identity_is_as_before_where_nothing_is_turned(folder: Path) -> None:
    places = {"images": folder / "images", "labels": folder / "labels", "names": ["thing"], "limit": 3}
    digests = {load_dataset("yolo", **places, orientation=orientation).digest for orientation in (None, "stored", "exif")}
    assert len(digests) == 1


@pytest.mark.parametrize(("size", "remedy"), [((40, 24), "exif"), ((24, 40), "stored")])
def test_coco_names_exif_where_it_explains_the_size(folder: Path, size: tuple[int, int], remedy: str) -> None:
    document = {
        "images": [{"id": 1, "file_name": "3.png", "width": size[0], "height": size[1]}],
        "categories": [{"id": 1, "name": "thing"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 10]}],
    }
    (folder / "coco.json").write_text(json.dumps(document))
    wrong = "stored" if remedy == "exif" else "exif"
    with pytest.raises(DataError, match=f"EXIF turns .*; set data.orientation: {remedy}"):
        load_dataset("coco", folder / "images", annotations=folder / "coco.json", orientation=wrong)
    dataset = load_dataset("coco", folder / "images", annotations=folder / "coco.json", orientation=remedy)
    assert (dataset.images[0].width, dataset.images[0].height) == size
