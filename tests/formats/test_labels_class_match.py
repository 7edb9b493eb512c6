# SPDX-License-Identifier: MIT
"""Classes of a data set and of a network: names decide, and what is not plain is said or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpnet.errors import DataError
from mpnet.formats.labels.class_match import find_class, match_classes
from mpnet.formats.labels.coco import read_coco
from mpnet.formats.labels.listed import read_listed
from tests.formats.test_labels_yolo import write_images

NETWORK = ("person", "bicycle", "car", "motorbike", "traffic light")


def match(labels: list[str], classes: tuple[str, ...] = NETWORK, counts: list[int] | None = None):
    return match_classes(labels, classes, counts or [1] * len(labels), "x.json")


def test_equal_names_match_in_any_order_without_a_word() -> None:
    result = match(["car", "traffic light", "person", "motorbike", "bicycle"])
    assert (result.class_indices, result.notes) == ((2, 4, 0, 3, 1), ())


def test_spellings_and_synonyms_match_and_are_said() -> None:
    result = match(["Car", "traffic-light", "person", "motorcycle", "Bicycle"])
    assert result.class_indices == (2, 4, 0, 3, 1)
    assert result.notes == (
        "classes that the data set spells otherwise than the network: Car as car, traffic-light as traffic light, "
        "Bicycle as bicycle, motorcycle as motorbike",
    )


def test_classes_without_labels_and_labels_without_objects_are_no_contradiction() -> None:
    assert match(["car", "person"]).class_indices == (2, 0)
    result = match(["everything", "car", "person"], counts=[0, 3, 4])
    assert result.class_indices == (None, 2, 0)
    assert result.notes == ("1 class that the network does not have is left out (0 objects): 'everything'",)


def test_labels_beside_a_network_that_has_all_its_classes_are_left_out() -> None:
    result = match(["dog", "person", "cat"], ("person",), [2, 5, 3])
    assert result.class_indices == (None, 0, None)
    assert result.notes == ("2 classes that the network does not have are left out (5 objects): 'dog', 'cat'",)


def test_position_decides_only_where_no_name_contradicts_it() -> None:
    result = match(["person", "bicycle", "auto", "moped", "traffic light"])
    assert result.class_indices == (0, 1, 2, 3, 4)
    assert result.notes == (
        "classes whose names differ are matched by their order: 'auto' as 'car', 'moped' as 'motorbike'; "
        "check data set and model.names",
    )
    with pytest.raises(DataError, match=r"x\.json: class 'auto' \(and 1 more\), with 2 objects, is none of the network's 5"):
        match(["bicycle", "person", "auto", "moped", "traffic light"])
    matched = match(["bicycle", "person", "auto", "motorbike", "traffic light"])
    assert matched.class_indices == (1, 0, 2, 3, 4)
    assert "'auto' as 'car'" in matched.notes[0]


def test_names_that_have_nothing_in_common_go_by_order_aloud_or_not_at_all() -> None:
    result = match(["Katze", "Hund"], ("cat", "dog"))
    assert result.class_indices == (0, 1)
    assert "'Katze' as 'cat', 'Hund' as 'dog'" in result.notes[0]
    with pytest.raises(DataError, match="has 2 categories, but the network names 5 classes, and no name is in both"):
        match(["Katze", "Hund"])


def test_a_name_that_two_classes_could_mean_means_none() -> None:
    assert find_class("TV", ("tvmonitor", "cat")) == 0
    assert find_class("sofa", ("couch", "Sofa!", "cat")) == 1
    assert find_class("plane", ("aeroplane", "airplane")) is None
    assert find_class("dog", ("cat",)) is None


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    write_images(tmp_path, ["a.png"])
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 20}],
        "categories": [{"id": 0, "name": "objects"}, {"id": 1, "name": "Car"}, {"id": 2, "name": "person"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},
            {"id": 2, "image_id": 1, "category_id": 2, "bbox": [5, 5, 5, 5]},
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(document))
    return tmp_path


def test_coco_categories_take_the_networks_order_and_it_lacks_none(coco: Path) -> None:
    dataset = read_coco(coco / "instances.json", coco, names=("person", "bicycle", "car"))
    assert [(category.id, category.name) for category in dataset.categories] == [(2, "person"), (3, "bicycle"), (1, "Car")]
    assert dataset.category.tolist() == [2, 0]
    assert dataset.notes[0] == "classes that the data set spells otherwise than the network: Car as car"


def test_a_data_yaml_numbers_classes_as_it_names_them(tmp_path: Path) -> None:
    write_images(tmp_path / "images" / "val", ["a.png"])
    (tmp_path / "labels" / "val").mkdir(parents=True)
    (tmp_path / "labels" / "val" / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.25 0.5\n")
    (tmp_path / "data.yaml").write_text("val: images/val\nnames: [car, person]\n")
    dataset = read_listed(tmp_path / "data.yaml", names=("person", "bicycle", "car"))
    assert dataset.names == ("person", "bicycle", "car")
    assert dataset.category.tolist() == [2, 0]
