# SPDX-License-Identifier: MIT
"""Images of one class each, good and hostile."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.data.classifications import Classifications, best_classes
from mpnet.data.dataset import Dataset
from mpnet.errors import DataError, FormatError, MpnetError, NonFiniteError
from mpnet.formats.documents.predictions import predictions_json, read_predictions
from mpnet.formats.labels import classes as labels_class
from mpnet.formats.labels.classes import read_imagefolder, read_list

NAMES = ("cat", "dog", "great white shark")


def write_image(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ok, data = cv2.imencode(".png", np.full((20, 40, 3), value, np.uint8))
    assert ok
    path.write_bytes(data.tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(["cat/b.png", "cat/a.png", "cat/c.PNG", "dog/z.png", ".hidden/x.png"]):
        write_image(tmp_path / "val" / name, number)
    (tmp_path / "val" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "val" / "readme.md").write_text("no folder")
    return tmp_path / "val"


def list_labels(dataset: Dataset) -> list[tuple[str, str]]:
    return [
        (Path(image.path).name, dataset.names[label])
        for image, label in zip(dataset.images, dataset.labels.tolist(), strict=True)
    ]


def test_a_folder_per_class_comes_in_turns(folder: Path) -> None:
    dataset = read_imagefolder(folder, NAMES)
    assert list_labels(dataset) == [("a.png", "cat"), ("z.png", "dog"), ("b.png", "cat"), ("c.PNG", "cat")]
    assert [image.id for image in dataset.images] == [1, 2, 3, 4]
    assert dataset.notes == ("1 of 3 classes have no image, for example 'great white shark'",)
    assert dataset.box.tolist() == [[0, 0, 40, 20]] * 4
    assert list_labels(read_imagefolder(folder, NAMES, limit=2)) == list_labels(dataset)[:2]


def test_folders_that_are_no_classes(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'dog' is not among the 1 names of the classes \('cat', \.\.\.\)"):
        read_imagefolder(folder, ("cat",))
    with pytest.raises(DataError, match="two classes are called 'cat'"):
        read_imagefolder(folder, ("cat", "dog", "cat"))
    with pytest.raises(DataError, match="folder of classes cannot be read"):
        read_imagefolder(tmp_path / "none", NAMES)
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match="its folders hold no images"):
        read_imagefolder(tmp_path / "empty", NAMES)
    with pytest.raises(DataError, match="holds 0 folders"):
        read_imagefolder(tmp_path / "empty" / "cat", NAMES)


def test_a_list_names_classes_in_four_ways(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "val.txt"
    write_image(folder / "my images" / "sea 7.png")
    listed.write_bytes("\ufeffcat/a.png 1\r\n\ncat/b.png\tdog\nmy images/sea 7.png great white shark\ncat/c.PNG\n".encode())
    dataset = read_list(listed, folder, NAMES)
    assert list_labels(dataset) == [("a.png", "dog"), ("b.png", "dog"), ("sea 7.png", "great white shark"), ("c.PNG", "cat")]
    assert len(read_list(listed, folder, NAMES, limit=3).images) == 3
    listed.write_text("cat/a.png\n")
    assert list_labels(read_list(listed, folder, ("a", "cat/a"))) == [("a.png", "cat/a")]
    listed.write_text(f"{folder}/dog/z.png\n")
    assert list_labels(read_list(listed, Path("/elsewhere"), NAMES)) == [("z.png", "dog")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat/a.png 3", "class '3' is not an index from 0 to 2"),
        ("cat/a.png 99999999999999999999", "class '99999999999999999999'"),
        ("z.png", "'z.png' names no class"),
        ("cat/dog.png", "holds the names of several classes ('cat', 'dog')"),
        ("cat/b.png 0", "'cat/b.png' is in line 1 already"),
        ("cat/\x1b[2J.png 0", "is no path of an image"),
        ("cat/\0.png 0", "is no path of an image"),
    ],
)
def test_a_bad_line_is_named(folder: Path, tmp_path: Path, line: str, message: str) -> None:
    listed = tmp_path / "val.txt"
    listed.write_text(f"cat/b.png 1\n{line}\n")
    with pytest.raises(FormatError) as excinfo:
        read_list(listed, folder, NAMES)
    assert str(excinfo.value).startswith(f"{listed}:2: ")
    assert message in str(excinfo.value)
    assert "\n" not in str(excinfo.value)


def test_lists_that_are_none(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "val.txt"
    for content, message in (
        (b"", "lists no images"),
        (b"cat/a.png 0\n\xff\n", r"val\.txt:2: not UTF-8"),
        (b"cat/none.png 0", "cannot be read"),
    ):
        listed.write_bytes(content)
        with pytest.raises(MpnetError, match=message):
            read_list(listed, folder, NAMES)
    monkeypatch.setattr(labels_class, "MAX_LIST_BYTES", 4)
    with pytest.raises(DataError, match="is larger than 4 B"):
        read_list(listed, folder, NAMES)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30))
def test_any_line_gives_a_class_or_one_clear_line(line: str) -> None:
    text = line.replace("\n", " ").strip() or "x"
    try:
        path, label = labels_class._entry(text, {name: i for i, name in enumerate(NAMES)}, "l.txt:1")
    except FormatError as error:
        assert str(error).startswith("l.txt:1: ")
        assert len(str(error).splitlines()) == 1
    else:
        assert text.startswith(path)
        assert 0 <= label < 3


def test_classifications_survive_their_file_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    dataset = read_imagefolder(folder, NAMES)
    scores = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    scores[0] = 0.1  # equal scores by rising class
    classifications = best_classes(scores)
    assert classifications.category[0].tolist() == [0, 1, 2]
    path = tmp_path / "predictions.json"
    path.write_bytes(predictions_json(classifications, dataset))
    back = read_predictions(path, dataset)
    assert np.array_equal(back.category, classifications.category)
    assert np.array_equal(back.score, classifications.score)


@pytest.mark.parametrize(
    ("original", "replacement", "message"),
    [
        ('"image_id":2', '"image_id":7', r"\[1\]: image_id 7 where the data set has 2"),
        ('"category_ids":[', '"category_ids":[9,', "'category_ids' must be a list of 3"),
        ('"category_ids":[1,2,3]', '"category_ids":[1,9,3]', "category id 9 is not in the data set"),
        ('"scores":[1,', '"scores":["x",', "scores"),
        ('"scores":[1,', '"scores":[1e39,', "holds one beyond"),
        ('"scores"', '"score"', "'scores' must be a list of 3, not None"),
        ("[\n", "[[],\n", "are a list of 4, not 5"),
        ('"scores":[1,0,0]', '"scores":[0,0,1]', "run again"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, original: str, replacement: str, message: str) -> None:
    dataset = read_imagefolder(folder, NAMES)
    text = predictions_json(best_classes(np.eye(4, 3, dtype=np.float32)), dataset).decode()
    path = tmp_path / "predictions.json"
    path.write_text(text.replace(original, replacement, 1))
    with pytest.raises(FormatError, match=message) as excinfo:
        read_predictions(path, dataset)
    assert len(str(excinfo.value).splitlines()) == 1


def test_classifications_are_checked() -> None:
    for category, score in (
        ([[0, 3, 1]], [[3, 2, 1]]),
        ([[0, 0, 1]], [[3, 2, 1]]),
        ([[0, 1, 2]], [[1, 2, 3]]),
        ([[0, 1]], [[2, 1]]),
        ([[0, 1, 2]], [[np.nan, 2, 1]]),
    ):
        with pytest.raises(DataError):
            Classifications.of(category, score, 3)
    with pytest.raises(NonFiniteError, match="not finite"):
        best_classes(np.full((1, 3), np.inf, np.float32))
