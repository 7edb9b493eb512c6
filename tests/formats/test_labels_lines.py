# SPDX-License-Identifier: MIT
"""Label lines beside the plain one: what each training program of the YOLO family writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.formats.labels.lines import LabelKinds, parse_labels
from mpnet.formats.labels.listed import read_listed
from mpnet.formats.labels.yolo import read_yolo
from tests.formats.test_labels_yolo import write_images

BOX = (0.5, 0.5, 0.25, 0.5)
CORNERS = "0.375 0.25 0.625 0.25 0.625 0.75 0.375 0.75"


@pytest.mark.parametrize(
    ("line", "kind", "note"),
    [
        ("2 0.5 0.5 0.25 0.5", "box", None),
        ("2.0 0.5 0.5 0.25 0.5", "box", None),
        ("2.000000 0.5 0.5 0.25 0.5", "box", None),
        ("2 0.5 0.5 0.25 0.5 0.87", "confidence", "1 of 1 labels have a sixth column (a confidence), which is not used"),
        (f"2 {CORNERS}", "polygon", "1 of 1 labels are polygons; the box around each is taken"),
        (f"2 {CORNERS} 0.375 0.5", "polygon", "1 of 1 labels are polygons; the box around each is taken"),
        ("2 0.375 0.5 0.5 0.25 0.625 0.75", "polygon", "1 of 1 labels are polygons; the box around each is taken"),
        (
            "2 0.5 0.5 0.25 0.5 0.5 0.5 2 0.4 0.4 1 0 0 0",
            "keypoints",
            "1 of 1 labels have keypoints behind their box, which are not used",
        ),
    ],
)
def test_every_kind_of_line_gives_the_box(line: str, kind: str, note: str | None) -> None:
    kinds = LabelKinds()
    assert parse_labels(line, "l.txt", 3, kinds) == [(2, BOX)]
    assert dict(kinds.counts) == {kind: 1}
    assert kinds.notes() == (() if note is None else (note,))


def test_a_polygon_along_the_edges_of_the_image_is_no_box_with_keypoints() -> None:
    assert parse_labels("0 0 0 1 0 1 1 0 1 0 0", "l.txt", 1) == [(0, (0.5, 0.5, 1, 1))]


def test_a_data_set_that_names_its_keypoints_is_believed(tmp_path: Path) -> None:
    """Two numbers a point outside of the box: only `kpt_shape` tells it from a polygon."""
    write_images(tmp_path / "images" / "val", ["a.png"])
    (tmp_path / "labels" / "val").mkdir(parents=True)
    (tmp_path / "labels" / "val" / "a.txt").write_text("0 0.5 0.5 0.25 0.5 0.1 0.1 0.9 0.9\n")
    listed = tmp_path / "data.yaml"
    listed.write_text("path: .\nval: images/val\nnames: [person]\nkpt_shape: [2, 2]\n")
    assert read_listed(listed).box.tolist() == [[15, 5, 10, 10]]
    listed.write_text("path: .\nval: images/val\nnames: [person]\n")
    assert read_listed(listed).box[0].tolist() == pytest.approx([4, 2, 32, 16], abs=1e-9)  # sums of tenths are rounded


def test_objects_that_are_labelled_twice_count_once(tmp_path: Path) -> None:
    write_images(tmp_path / "images", ["a.png"])
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("0 0.5 0.5 0.5 1\n1 0.5 0.5 0.5 1\n0 0.5 0.5 0.5 1\n0 0.5 0.5 0.5 0.5\n")
    dataset = read_yolo(tmp_path / "images", tmp_path / "labels", ("cat", "dog"))
    assert dataset.category.tolist() == [0, 1, 0]
    assert dataset.notes == (
        "the same class and box is labelled twice in an image 1 times (of 4 objects) and counts once, for example in 'a.png'",
    )


def test_a_data_set_without_objects_says_so(tmp_path: Path) -> None:
    write_images(tmp_path / "images", ["a.png"])
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("")
    dataset = read_yolo(tmp_path / "images", tmp_path / "labels", ("cat",))
    assert dataset.notes == (
        "no image has a labelled object, so nothing can be found or missed: agreement is measured, accuracy is not",
    )
