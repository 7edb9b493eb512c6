# SPDX-License-Identifier: MIT
"""Files as people have them, from public reports of wrong numbers; they are not part of the project."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mpnet.detection.images import FlawedImage, image, read_image
from mpnet.detection.jpeg import Flaw
from mpnet.errors import DataError, FormatError
from mpnet.formats.cfg.read import read_cfg, read_cfg_bytes
from mpnet.formats.images.read import probe
from mpnet.formats.labels.coco import read_coco
from mpnet.formats.labels.lines import LabelKinds, parse_labels
from mpnet.formats.labels.yolo import read_names
from mpnet.formats.weights import read_weights
from mpnet.importing import Choices, import_model


@pytest.mark.parametrize("kind", ["poly", "obb", "pose", "mix", "conf6", "floatcls"])
def test_label_files_of_every_kind_give_the_boxes_of_plain_ones(wild: Path, kind: str) -> None:
    plain = (wild / "labels" / "conf6.txt").read_text()
    expected = [tuple(map(float, line.split()[:5])) for line in plain.splitlines()]
    labels = parse_labels((wild / "labels" / f"{kind}.txt").read_text(), kind, 60, LabelKinds())
    for (index, box), (expected_index, *expected_box) in zip(labels, expected, strict=True):
        assert index == expected_index
        assert box == pytest.approx(expected_box, abs=1e-5)  # polygons were written with six digits


def test_twice_labelled_lines_and_every_line_again(wild: Path) -> None:
    lines = (wild / "labels" / "dups.txt").read_text().split("\n")
    assert len(parse_labels("\n".join(lines), "dups.txt", 60)) == len([line for line in lines if line.strip()])


@pytest.mark.parametrize("file", ["alpha", "roboflow", "usedcats"])
def test_categories_in_any_order_and_number_are_those_of_their_names(wild: Path, shared_data: Path, file: str) -> None:
    """Class by class the boxes of the original file: categories by alphabet, one more with id 0, only the used ones."""
    names = read_names(shared_data / "yolo-fastest" / "coco.names")
    images = shared_data / "coco" / "images"
    original = read_coco(shared_data / "coco" / "instances_dev.json", images, names=names)
    mapped = read_coco(wild / "coco" / f"{file}.json", images, names=names)
    position = {image.id: index for index, image in enumerate(original.images)}

    def objects(dataset, index_of):
        rows = zip(dataset.image_index.tolist(), dataset.category.tolist(), dataset.box.tolist(), strict=True)
        return sorted((dataset.images[image].id, category, box) for image, category, box in rows if index_of(image))

    present = {image.id for image in mapped.images}
    expected = objects(original, lambda image: original.images[image].id in present)
    assert objects(mapped, lambda image: True) == expected
    assert len(expected) > 60
    assert position.keys() >= present
    assert any("spells otherwise" in note and "as motorbike" in note for note in mapped.notes) or file == "usedcats"


def test_one_name_that_no_class_has_is_refused_where_the_order_differs(wild: Path, shared_data: Path, tmp_path: Path) -> None:
    names = read_names(shared_data / "yolo-fastest" / "coco.names")
    document = json.loads((wild / "coco" / "alpha.json").read_text())
    used_ids = {annotation["category_id"] for annotation in document["annotations"]}
    renamed = [category for category in document["categories"] if category["id"] in used_ids][:2]
    for number, category in enumerate(renamed):
        category["name"] = f"Ding {number}"
    (tmp_path / "alpha.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"class 'Ding 0' \(and 1 more\).*is none of the network's 80"):
        read_coco(tmp_path / "alpha.json", shared_data / "coco" / "images", names=names)


@pytest.mark.parametrize(("file", "reason"), [("w_html", "is a web page"), ("w_lfs", "is a Git LFS pointer")])
def test_weights_that_are_something_else_are_named(wild: Path, shared_data: Path, file: str, reason: str) -> None:
    network = read_cfg(shared_data / "yolo-fastest" / "yolo-fastest-1.1.cfg")
    with pytest.raises(FormatError, match=f"{file}.weights: {reason} in place of the file"):
        read_weights(wild / "cfg" / f"{file}.weights", network)


@pytest.mark.parametrize("file", ["bom.cfg", "utf16.cfg"])
def test_networks_from_editors_of_windows_are_read(wild: Path, file: str) -> None:
    network = read_cfg(wild / "cfg" / file)
    assert len(network.convolutions) > 0
    assert read_cfg_bytes(wild / "cfg" / file).startswith(b"[net]")


def test_a_network_whose_scores_are_rounded_to_zero_is_named(wild: Path) -> None:
    """ONNX Runtime finds 0 objects in all images with this file, whose scores reach 0.23 before they are rounded."""
    pytest.importorskip("onnx")
    notes = import_model(wild / "onnx" / "v8_bq.onnx").notes
    assert any("steps of 1.88" in note and "what is below 0.94 is 0 there" in note for note in notes)


def test_a_detector_in_float16_is_decoded_as_that_in_float32(wild: Path) -> None:
    pytest.importorskip("onnx")
    network = import_model(wild / "onnx" / "v8_half.onnx").network
    assert [head.decoder for head in network.yolos] == ["yolov8"] * 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", ["ssd_f32.tflite", "ssd_i8.tflite"])
def test_an_ssd_without_its_priors_is_taken_by_the_heads_that_the_refusal_names(wild: Path, file: str) -> None:
    """The file gives raw boxes and scores: only who trained it knows the priors."""
    pytest.importorskip("ai_edge_litert")
    heads = [[f"functional_1/{kind}{level}_1/convolution1" for kind in ("box", "cls")] for level in (0, 1)]
    names = ", ".join(f"{name} ({side}x{side}x24)" for pair, side in zip(heads, (12, 6), strict=True) for name in pair)
    with pytest.raises(
        FormatError, match=re.escape(f"name the head tensors with --heads and their --decoder. What enters it: {names}")
    ):
        import_model(wild / "onnx" / file)
    sizes = ",".join(["24,24", "32,16", "16,32", "40,40", "48,24", "24,48"])
    choices = Choices(tuple(map(tuple, heads)), "ssd", (("softmax", "0"), ("yx", "1")), (sizes, sizes))
    imported = import_model(wild / "onnx" / file, choices)
    assert [(head.decoder, head.classes, len(head.anchors)) for head in imported.network.yolos] == [("ssd", 4, 6)] * 2  # type: ignore[attr-defined]


def test_a_camera_jpeg_without_its_end_marker_has_the_pixels_of_the_whole_one(wild: Path, tmp_path: Path) -> None:
    content = (wild / "images" / "noeoi.jpg").read_bytes()
    (tmp_path / "whole.jpg").write_bytes(content + b"\xff\xd9")
    flawed: list[FlawedImage] = []
    np.testing.assert_array_equal(
        read_image(wild / "images" / "noeoi.jpg", flawed.append), read_image(tmp_path / "whole.jpg", flawed.append)
    )
    assert [image.flaw for image in flawed] == [Flaw.NO_END]


@pytest.mark.parametrize("file", ["exif6.jpg", "exif6.png"])
def test_a_photograph_stored_turned_is_recognised(wild: Path, file: str) -> None:
    record = probe(wild / "images" / file, 1, is_turned=True)
    assert (record.width, record.height, record.orientation) == (960, 540, 6)
    assert image(record).shape == (540, 960, 3)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("w333.cfg", "w333.cfg:1: .*width=333 is no multiple of 32: set width=320 or width=352"),
        ("nomask.cfg", r"nomask.cfg:116: \[yolo\] has no mask, so all its 6 anchors count"),
        ("upkey.cfg", r"upkey.cfg:29: unknown key 'Filters' in \[convolutional\] is ignored; did you mean 'filters'\?"),
    ],
)
def test_the_cause_of_an_error_in_a_network_is_named(wild: Path, file: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_cfg(wild / "cfg" / file)
