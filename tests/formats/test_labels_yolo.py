# SPDX-License-Identifier: MIT
"""YOLO labels and class names, good and hostile."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.errors import DataError, FormatError, MpnetError
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.lines import parse_labels
from mpnet.formats.labels.yolo import read_names, read_yolo

NAMES = ("cat", "dog", "crème brûlée")


def write_images(folder: Path, names: list[str], width: int = 40, height: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        ok, data = cv2.imencode(".png", np.full((height, width, 3), number, np.uint8))
        assert ok
        (folder / name).write_bytes(data.tobytes())


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    write_images(tmp_path / "images", ["b.png", "a.png", "c.PNG"])
    (tmp_path / "images" / "notes.md").write_text("no image")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("1 0.5 0.5 0.5 1\n\n0 0.25 0.25 0.5 0.5\r\n")
    (tmp_path / "labels" / "b.txt").write_text("")
    return tmp_path / "images", tmp_path / "labels"


def test_reads_boxes_in_pixels(folders) -> None:
    dataset = read_yolo(*folders, NAMES)
    assert [Path(image.path).name for image in dataset.images] == ["a.png", "b.png", "c.PNG"]
    assert [image.id for image in dataset.images] == [1, 2, 3]
    assert {(image.width, image.height) for image in dataset.images} == {(40, 20)}
    assert [(category.id, category.name) for category in dataset.categories] == list(enumerate(NAMES, 1))
    assert dataset.image_index.tolist() == [0, 0]
    assert dataset.category.tolist() == [1, 0]
    assert dataset.box.tolist() == [[10, 0, 20, 20], [0, 0, 20, 10]]
    assert dataset.area.tolist() == [400, 200]
    assert not dataset.crowd.any()
    assert dataset.notes == ("1 of 3 images have no label file and count as empty, for example 'c.PNG'",)


def test_limit_takes_the_first_images(folders) -> None:
    dataset = read_yolo(*folders, NAMES, limit=2)
    assert len(dataset.images) == 2
    assert dataset.notes == ()


def test_labels_without_an_image_are_noted(folders) -> None:
    (folders[1] / "zebra.txt").write_text("0 0.5 0.5 1 1")
    (folders[1] / "classes.txt").write_text("cat")  # label tools leave it there
    assert read_yolo(*folders, NAMES).notes[1] == "1 label files belong to no image, for example 'zebra.txt'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 0.5", "4 values instead of 5"),
        ("0 0.1 0.2 0.3 0.4 0.5 0.6 0.7", "8 values are neither a box"),
        ("0 0.1 0.2 0.3 0.4 5 0.6", "polygon .* is not relative to the image"),
        ("3 0.5 0.5 0.5 0.5", "class '3' is not an index from 0 to 2"),
        ("-1 0.5 0.5 0.5 0.5", "class '-1'"),
        ("1.5 0.5 0.5 0.5 0.5", "class '1.5'"),
        ("3.0 0.5 0.5 0.5 0.5", "class '3.0'"),
        ("٣ 0.5 0.5 0.5 0.5", "class '٣'"),
        ("99999999999999999999 0.5 0.5 0.5 0.5", "class '99999999999999999999'"),
        ("0 0.5 x 0.5 0.5", "no number"),
        ("0 0.5 nan 0.5 0.5", "not finite"),
        ("0 0.5 0.5 inf 0.5", "not finite"),
        ("0 0.5 0.5 -0.5 0.5", "has no area; .* remove the line"),
        ("0 0.5 0.5 0 0.5", "has no area; .* remove the line"),
        ("0 320 240 100 80", "not relative to the image .* divide pixels by width and height"),
        ("0 -0.2 0.5 0.5 0.5", "has its centre outside of the image"),
        ("0 1.09 0.5 0.02 0.4", "has its centre outside of the image"),
        ("0 0.5 0.5 1.5 0.2", "is larger than its image"),
        ("0 0,5 0,5 0,1 0,2", "holds commas; .* decimals by a point"),
        ("0,0.5,0.5,0.1,0.2", "holds commas; values are separated by blanks"),
    ],
)
def test_a_bad_line_is_named(folders, line: str, message: str) -> None:
    (folders[1] / "b.txt").write_text(f"0 0.5 0.5 0.5 0.5\n{line}\n", encoding="utf-8")
    with pytest.raises(FormatError, match=rf"b\.txt:2: .*{message}") as excinfo:
        read_yolo(*folders, NAMES)
    assert "\n" not in str(excinfo.value)


def test_line_ends_of_every_system(folders) -> None:
    plain = read_yolo(*folders, NAMES)
    for end in ("\n", "\r\n", "\r"):
        (folders[1] / "a.txt").write_bytes(f"1 0.5 0.5 0.5 1 {end} {end}0 0.25 0.25 0.5 0.5{end}".encode())
        assert read_yolo(*folders, NAMES).digest == plain.digest


def test_companions_of_macos_are_no_images_and_no_labels(folders) -> None:
    plain = read_yolo(*folders, NAMES)
    for folder, name in zip(folders, ("._a.png", "._a.txt"), strict=True):
        (folder / name).write_bytes(b"\x00\x05\x16\x07Mac OS X")
    dataset = read_yolo(*folders, NAMES)
    assert (dataset.digest, dataset.notes) == (plain.digest, plain.notes)


def test_accents_composed_or_apart_are_one_name(folders) -> None:
    """Archives of macOS have an e and its accent as two characters where a label tool wrote one."""
    plain = read_yolo(*folders, NAMES)
    (folders[0] / "a.png").rename(folders[0] / "ae\u0301.png")
    (folders[1] / "a.txt").rename(folders[1] / "a\u00e9.txt")
    dataset = read_yolo(*folders, NAMES)
    assert (dataset.digest, dataset.notes) == (plain.digest, plain.notes)


def test_binary_and_oversized_labels(folders, monkeypatch) -> None:
    (folders[1] / "b.txt").write_bytes(b"0 0.5 0.5 0.5 0.5\n\xff\xfe\n")
    with pytest.raises(FormatError, match=r"b\.txt:2: not UTF-8"):
        read_yolo(*folders, NAMES)
    monkeypatch.setattr("mpnet.formats.labels.yolo.MAX_TEXT_BYTES", 10)
    with pytest.raises(DataError, match="is larger than 10 B; this is no text of labels or names"):
        read_yolo(*folders, NAMES)


def test_folders_that_do_not_fit(folders, tmp_path: Path) -> None:
    images, labels = folders
    with pytest.raises(DataError, match=r"folder of images cannot be read.*data\.images|data\.images"):
        read_yolo(tmp_path / "none", labels, NAMES)
    with pytest.raises(DataError, match="folder of labels cannot be read"):
        read_yolo(images, tmp_path / "none", NAMES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no images"):
        read_yolo(tmp_path / "empty", labels, NAMES)
    with pytest.raises(DataError, match="no label file has the name of an image"):
        read_yolo(images, tmp_path / "empty", NAMES)
    write_images(images, ["a.bmp"])
    with pytest.raises(DataError, match="same stem"):
        read_yolo(images, labels, NAMES)


@pytest.mark.parametrize(("count", "is_noted"), [(100, False), (101, True)])
def test_more_objects_than_measures_count_are_said(folders, count: int, is_noted: bool) -> None:
    lines = [f"0 {0.005 + column / 110:.6f} 0.5 0.004 0.5" for column in range(count)]
    (folders[1] / "b.txt").write_text("\n".join(lines))
    dataset = load_dataset("yolo", folders[0], labels=folders[1], names=NAMES)
    notes = [note for note in dataset.notes if "more than 100 objects of a class" in note]
    assert len(notes) == is_noted
    assert all(note.startswith("1 of 3 images") and note.endswith("for example in 'b.png'") for note in notes)


def test_a_broken_image_is_named(folders) -> None:
    (folders[0] / "b.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"b\.png: is not a readable image"):
        read_yolo(*folders, NAMES)


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "x.names"
    path.write_bytes("\ufeffcat\r\n dog \ncrème brûlée\n\n\n".encode())
    assert read_names(path) == NAMES
    for content, message in (
        (b"", "no class names"),
        (b"\n\n", "no class names"),
        (b"a\n\nb\n", "x.names:2: ''"),
        (b"a\nb\x00c\n", "x.names:2"),
        (b"a\n\xff\n", "x.names:2: not UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message):
            read_names(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_names(tmp_path / "none.names")


words = st.one_of(st.integers(-2, 5).map(str), st.floats().map(str), st.floats(0, 1).map(str), st.text(max_size=3))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(words, max_size=6).map(" ".join)).map("\n".join))
def test_any_text_gives_good_boxes_or_one_clear_line(text: str) -> None:
    message, rows = "", None
    try:
        rows = parse_labels(text, "l.txt", 3)
    except MpnetError as error:
        message = str(error)
    if rows is None:
        assert message.startswith("l.txt:")
        assert len(message.splitlines()) == 1
    else:
        assert len(rows) == sum(bool(line.split()) for line in text.split("\n"))
        assert all(0 <= index < 3 and w > 0 and h > 0 for index, (_, _, w, h) in rows)
