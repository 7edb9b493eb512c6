# SPDX-License-Identifier: MIT
"""The generator: the same pixels everywhere, sound boxes, splits that share no scene."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.demo.dataset import write_dataset
from mpnet.demo.raster import ONE, TURN, cosine, coverage, fill, sine
from mpnet.demo.scenes import CLASSES, MAX_OBJECTS, SIZE, SPLIT_LIMIT, SPLITS, scene
from mpnet.demo.stream import Stream

# SHA-256 of pixels, then of labels as little-endian int32 rows (class, x0, y0, x1, y1).
DIGESTS = {
    ("train", 0): ("2a65a0ced9b823b9d0a03cb4d2158d82", "4b27b70e8a9b52ef5f50667d8418210a"),
    ("train", 1): ("2b610aa873b82e8e5e377bc13cae4252", "14c06587611920927efd2fd04bd9bbd4"),
    ("train", 7999): ("32b89fcbbe321f49927b8a112e096ce1", "08f15695de1da0611ee86fb8d4191489"),
    ("val", 0): ("cd7d6272b557368c367d6932449fc358", "83a942286503ecf63d9274dd68c912fa"),
    ("val", 1): ("29fde176e03f07ea3431f9ccb2941835", "f25d47db5095b4b4b6617a71a1d70d53"),
    ("val", 2): ("87488b49d7ad6f1b3336456643069d75", "2bf2513aa5f3143dc7f95442cba80e93"),
    ("val", 299): ("74f14e868968eb7448320442fb26ccca", "8995230da56287a4458b71adedf97cba"),
}


def _digests(split: str, index: int) -> tuple[str, str]:
    image, boxes = scene(split, index)
    rows = np.array([(b.label, b.x0, b.y0, b.x1, b.y1) for b in boxes], dtype="<i4")
    return hashlib.sha256(image.tobytes()).hexdigest()[:32], hashlib.sha256(rows.tobytes()).hexdigest()[:32]


@pytest.mark.parametrize(("split", "index"), list(DIGESTS))
def test_pixels_and_labels_have_the_recorded_digests(split: str, index: int) -> None:
    assert _digests(split, index) == DIGESTS[split, index]


def test_scene_has_rgb_bytes_of_the_input_size() -> None:
    image, _ = scene("val", 0)
    assert (image.shape, image.dtype) == ((SIZE, SIZE, 3), np.dtype(np.uint8))


def test_boxes_lie_in_the_image_and_have_known_classes() -> None:
    labels = set()
    for index in range(40):
        _, boxes = scene("val", index)
        assert len(boxes) <= MAX_OBJECTS
        for box in boxes:
            assert 0 <= box.x0 < box.x1 <= SIZE
            assert 0 <= box.y0 < box.y1 <= SIZE
            # Half the image, and one pixel for edges that fall inside pixels.
            assert max(box.width, box.height) <= SIZE // 2 + 1
            labels.add(box.label)
    assert labels == set(range(len(CLASSES)))


def test_split_seeds_are_disjoint() -> None:
    starts = sorted(SPLITS.values())
    assert all(b - a >= SPLIT_LIMIT for a, b in pairwise(starts))
    train = {scene("train", k)[0].tobytes() for k in range(5)}
    assert train.isdisjoint({scene("val", k)[0].tobytes() for k in range(5)})


def test_unknown_split_and_index_are_named() -> None:
    with pytest.raises(ValueError, match="unknown split 'test'; use one of train, val"):
        scene("test", 0)
    with pytest.raises(ValueError, match="scene index -1"):
        scene("val", -1)


def test_written_dataset_is_the_generated_one(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, "val", 3)
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*.*")) == [
        "classes.names",
        *(f"images/{k:05d}.png" for k in range(3)),
        *(f"labels/{k:05d}.txt" for k in range(3)),
    ]
    assert (root / "classes.names").read_text().split() == list(CLASSES)
    for index in range(3):
        image, boxes = scene("val", index)
        written_image = cv2.imread(str(root / "images" / f"{index:05d}.png"))[:, :, ::-1]
        assert np.array_equal(written_image, image)
        lines = (root / "labels" / f"{index:05d}.txt").read_text().splitlines()
        assert len(lines) == len(boxes)
        for line, box in zip(lines, boxes, strict=True):
            label, *coordinates = line.split()
            cx, cy, w, h = (float(value) * SIZE for value in coordinates)
            # Nine decimals of a fraction of 224 pixels: exact to 2e-7 pixels, far below the half pixel of centres.
            corners = [round(v, 5) for v in (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)]
            assert (int(label), *corners) == (box.label, box.x0, box.y0, box.x1, box.y1)


def test_stream_is_splitmix64_in_scalars_and_arrays() -> None:
    scalar_stream, array_stream = Stream(7), Stream(7)
    assert [scalar_stream.word() for _ in range(5)] == array_stream.words(5).tolist()
    assert scalar_stream.word() == array_stream.word()


def test_sine_table_is_rounded_sine() -> None:
    exact = np.sin(2 * np.pi * np.arange(TURN) / TURN) * ONE
    assert [sine(k) for k in range(TURN)] == np.rint(exact).astype(int).tolist()
    assert cosine(0) == ONE


def test_square_covers_its_pixels() -> None:
    square = [(64, 64), (192, 64), (192, 128), (64, 128)]  # pixels 1 and 2 of row 1
    cover = coverage(fill([square], 3, 4))
    assert cover.tolist() == [[0, 0, 0, 0], [0, 16, 16, 0], [0, 0, 0, 0]]


def test_hole_and_half_pixel() -> None:
    outer = [(0, 0), (256, 0), (256, 256), (0, 256)]
    hole = [(64, 64), (160, 64), (160, 128), (64, 128)]  # one and a half pixels
    assert coverage(fill([outer, hole], 4, 4))[1].tolist() == [16, 0, 8, 16]
