# SPDX-License-Identifier: MIT
"""COCO ground truth and results, good and hostile."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.detection.images import image
from mpnet.errors import ConfigError, DataError, FormatError, MpnetError
from mpnet.formats.documents.detections import detections_json, read_detections
from mpnet.formats.labels.coco import read_coco
from mpnet.formats.labels.dataset import load_dataset
from tests.formats.test_labels_yolo import write_images

VALID_DOCUMENT: dict[str, Any] = {
    "images": [
        {"id": 9, "file_name": "b.png", "width": 40, "height": 20},
        {"id": 4, "file_name": "sub/a.png", "width": 40, "height": 20},
    ],
    "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4.5], "area": 9.5, "iscrowd": 0},
        {"id": 2, "image_id": 4, "category_id": 7, "bbox": [0, 0, 10, 10], "iscrowd": 1},
        {"id": 3, "image_id": 9, "category_id": 7, "bbox": [5, 5, 0, 5], "area": 0},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("coco")
    write_images(path, ["b.png"])
    write_images(path / "sub", ["a.png"])
    return path


def read_document(folder: Path, document: Any, **options: Any) -> Dataset:
    path = folder / "instances.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return read_coco(path, folder, **options)


def test_reads_images_by_id_and_keeps_category_ids(folder: Path) -> None:
    dataset = read_document(folder, VALID_DOCUMENT)
    assert [(image.id, Path(image.path).name) for image in dataset.images] == [(4, "a.png"), (9, "b.png")]
    assert [(category.id, category.name) for category in dataset.categories] == [(3, "cat"), (7, "dog")]
    assert dataset.image_index.tolist() == [0, 1, 1]
    assert dataset.category.tolist() == [1, 0, 1]
    assert dataset.box.tolist() == [[0, 0, 10, 10], [1, 2, 3, 4.5], [5, 5, 0, 5]]
    assert dataset.area.tolist() == [100, 9.5, 0]
    assert dataset.crowd.tolist() == [True, False, False]


def test_limit_takes_the_first_ids(folder: Path) -> None:
    dataset = read_document(folder, VALID_DOCUMENT, limit=1)
    assert [image.id for image in dataset.images] == [4]
    assert dataset.box.tolist() == [[0, 0, 10, 10]]


def test_categories_follow_the_names_of_the_network(folder: Path) -> None:
    assert [c.id for c in read_document(folder, VALID_DOCUMENT, names=("dog", "cat")).categories] == [7, 3]
    # Other spellings: as many, so by rising id.
    assert [c.id for c in read_document(folder, VALID_DOCUMENT, names=("Katze", "Hund")).categories] == [3, 7]
    with pytest.raises(DataError, match="2 categories, but the network names 3"):
        read_document(folder, VALID_DOCUMENT, names=("a", "b", "c"))


def change_document(path: str, value: Any) -> dict[str, Any]:
    """Return VALID_DOCUMENT with the value at a path changed, for example 'images.0.id'."""
    document = copy.deepcopy(VALID_DOCUMENT)
    *way, last_step = path.split(".")
    container: Any = document
    for step in way:
        container = container[int(step) if step.isdigit() else step]
    container[int(last_step) if last_step.isdigit() else last_step] = value
    return document


INVALID_VALUES = [
    ("images", {}, "list 'images'"),
    ("images", [], "lists no images"),
    ("images.0", 3, r"images\[0\] must be an object"),
    ("images.1.id", 9, r"images\[1\]: id 9 was used before"),
    ("images.0.id", "9", r"images\[0\]: 'id' must be an integer"),
    ("images.0.id", True, "must be an integer"),
    ("images.0.id", 2**70, "must be an integer"),
    ("images.0.file_name", None, "'file_name' must be text"),
    ("images.0.file_name", "", "'file_name' must be text"),
    ("images.0.file_name", "/etc/passwd", "leaves the images folder"),
    ("images.0.file_name", "x/../../b.png", "leaves the images folder"),
    ("images.0.file_name", "a\nb\ud800.png", r"a\\nb\\ud800.png': missing, but listed"),
    ("images.0.file_name", "none.png", "missing, but listed"),
    ("images.0.width", 41, "is 40 x 20 pixels, but .* says 41 x 20"),
    ("categories", [], "has 0 categories"),
    ("categories.1.id", 7, r"categories\[1\]: id 7 was used before"),
    ("categories.0.name", 5, "'name' must be text"),
    ("annotations.2.id", 1, r"annotations\[2\]: id 1 was used before"),
    ("annotations.0.image_id", 5, "image_id 5 is not among the images"),
    ("annotations.0.category_id", 5, "category_id 5 is not among the categories"),
    ("annotations.0.bbox", [1, 2, 3], r"must be \[x, y, width, height\]"),
    ("annotations.0.bbox", [1, 2, "3", 4], "must be a number"),
    ("annotations.0.bbox", [True, 2, 3, 4], "must be a number"),
    ("annotations.0.bbox", [1, 2, -3, 4], "negative width or height"),
    ("annotations.0.bbox", [1, 2, 1e300, 4], "beyond any image"),
    ("annotations.0.bbox", [1, 2, 10**400, 4], "not finite"),
    ("annotations.0.area", -1, "'area' is negative"),
    ("annotations.0.area", "big", "'area' must be a number"),
    ("annotations.0.iscrowd", 2, "'iscrowd' must be 0 or 1"),
    ("annotations.0.iscrowd", [], "'iscrowd' must be 0 or 1"),
]


@pytest.mark.parametrize(("path", "value", "message"), INVALID_VALUES)
def test_a_bad_record_is_named(folder: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises((FormatError, DataError), match=message) as excinfo:
        read_document(folder, change_document(path, value))
    assert "\n" not in str(excinfo.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "instances.json:1: not valid JSON"),
        (b'{"images": [\n1,]}', "instances.json:2: not valid JSON"),
        (b"\xff\xff", "byte 0 is not UTF-8"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"1" * 10_000, "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
def test_files_that_are_no_annotations(folder: Path, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as excinfo:
        read_document(folder, content)
    assert "\n" not in str(excinfo.value)


def test_missing_and_oversized_files(folder: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_coco(folder / "none.json", folder)
    monkeypatch.setattr("mpnet.formats.documents.json_text.MAX_JSON_BYTES", 10)
    with pytest.raises(DataError, match="is larger than 10 B"):
        read_document(folder, VALID_DOCUMENT)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
VALUE_PATHS = [
    "images",
    "categories",
    "annotations",
    "images.0",
    "categories.1",
    "annotations.2",
    *(f"images.0.{key}" for key in VALID_DOCUMENT["images"][0]),
    *(f"categories.0.{key}" for key in VALID_DOCUMENT["categories"][0]),
    *(f"annotations.0.{key}" for key in VALID_DOCUMENT["annotations"][0]),
    "annotations.0.bbox.2",
]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(VALUE_PATHS), json_values)
def test_mutated_annotations_load_or_give_one_clear_line(folder: Path, path: str, value: Any) -> None:
    check(folder, json.dumps(change_document(path, value)).encode())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=60), json_values.map(lambda value: json.dumps(value).encode())))
def test_arbitrary_bytes_give_one_clear_line(folder: Path, content: bytes) -> None:
    check(folder, content)


def check(folder: Path, content: bytes) -> None:
    message, dataset = "", None
    try:
        dataset = read_document(folder, content)
    except MpnetError as error:
        message = str(error)
    if dataset is None:
        assert len(message.splitlines()) == 1
        assert len(message) < 600
    else:
        assert len(dataset.box) == len(json.loads(content)["annotations"])


def test_results_come_back_exactly_and_are_the_same_bytes_each_time(folder: Path) -> None:
    dataset = read_document(folder, VALID_DOCUMENT)
    random = np.random.RandomState(0)
    detections = Detections.of(
        2,
        random.randint(0, 2, 50),
        random.randint(0, 2, 50),
        random.rand(50),
        random.uniform(-5, 30, (50, 4)) * [1, 1, 0.5, 0.5] + [0, 0, 3, 3],
    )
    text = detections_json(detections, dataset)
    assert text == detections_json(detections, dataset)
    (folder / "found.json").write_bytes(text)
    back = read_detections(folder / "found.json", dataset)
    clipped = detections.clipped(dataset.sizes)
    for name in ("image_index", "category", "score", "box"):
        np.testing.assert_array_equal(getattr(back, name), getattr(clipped, name))
    assert set(json.loads(text)[0]) == {"image_id", "category_id", "bbox", "score"}
    assert {row["image_id"] for row in json.loads(text)} == {4, 9}


def test_no_results(folder: Path) -> None:
    dataset = read_document(folder, VALID_DOCUMENT)
    (folder / "found.json").write_bytes(detections_json(Detections.of(2, [], [], [], []), dataset))
    assert len(read_detections(folder / "found.json", dataset)) == 0


DETECTION = {"image_id": 4, "category_id": 3, "bbox": [0, 0, 1, 1], "score": 1}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "a list of detections"),
        ([3], r"\[0\]: a detection is an object"),
        ([DETECTION, DETECTION | {"image_id": 5}], r"\[1\]: image_id 5 is not in the data set"),
        ([DETECTION | {"category_id": 5}], r"\[0\]: category_id 5 is not in the data set"),
        ([DETECTION | {"bbox": [0, 0, 1]}], r"\[0\]: 'bbox'"),
        ([DETECTION | {"score": None}], r"\[0\]: 'score' must be a number"),
        ([DETECTION | {"score": 1e300}], "beyond any probability"),
    ],
)
def test_bad_results_are_named(folder: Path, document: Any, message: str) -> None:
    dataset = read_document(folder, VALID_DOCUMENT)
    (folder / "found.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match=message):
        read_detections(folder / "found.json", dataset)


def test_load_dataset_by_settings(folder: Path) -> None:
    read_document(folder, VALID_DOCUMENT)
    dataset = load_dataset("coco", folder, annotations=folder / "instances.json", names=("cat", "dog"))
    assert [image(record).shape for record in dataset.images] == [(20, 40, 3), (20, 40, 3)]
    write_images(folder, ["b.png"], width=41)
    with pytest.raises(DataError, match="changed since"):
        image(dataset.images[1])
    write_images(folder, ["b.png"])
    for arguments, message in (
        ({"format": "voc"}, "unknown format 'voc'"),
        ({"format": "coco"}, "data.annotations"),
        ({"format": "yolo"}, "data.labels"),
        ({"format": "coco", "limit": 0}, "data.limit"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset(images=folder, **arguments)
