# SPDX-License-Identifier: MIT
"""Darknet's .data and lists of images, Ultralytics' data.yaml: the same data set as folders of images and labels."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpnet.data.dataset import Dataset
from mpnet.errors import MpnetError
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.listed import describe_listed, read_listed
from mpnet.formats.labels.yolo import read_yolo
from tests.networks import NAMES, write_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write set/images/val and set/labels/val with five images, two of them in train as well."""
    folder = tmp_path / "set"
    folder.mkdir()
    write_images(folder)
    for kind in ("images", "labels"):
        (folder / kind).rename(folder / "moved")
        (folder / kind).mkdir()
        (folder / "moved").rename(folder / kind / "val")
        (folder / kind / "train").mkdir()
        for file in sorted((folder / kind / "val").iterdir())[:2]:
            shutil.copy(file, folder / kind / "train" / f"t{file.name}")
    (folder / "street.names").write_text("\n".join(NAMES))
    return tmp_path


@pytest.fixture
def plain(root: Path) -> Dataset:
    return read_yolo(root / "set" / "images" / "val", root / "set" / "labels" / "val", NAMES)


def images(root: Path, folder: str = "set/images/val") -> list[str]:
    return [f"{folder}/{file.name}" for file in sorted((root / "set" / "images" / "val").glob("*.png"))]


def test_darknets_data_file(root: Path, plain: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    # As Darknet's own: everything counts from the folder that it is started in, one above the file's.
    (root / "set" / "valid.txt").write_text("\n".join(images(root)) + "\n")
    (root / "set" / "street.data").write_text(
        "classes= 3\ntrain  = set/train.txt\nvalid  = set/valid.txt  # five\nnames = set/street.names\nbackup = backup\n"
    )
    dataset = read_listed(root / "set" / "street.data")
    assert dataset.digest == plain.digest
    assert dataset.notes == ()
    assert read_listed(root / "set" / "valid.txt", names=NAMES).digest == plain.digest
    assert read_listed(root / "set" / "street.data", limit=2).digest == plain.subset([0, 1]).digest
    # Names of the model go before the file's.
    assert read_listed(root / "set" / "street.data", names=("a", "b", "c")).names == ("a", "b", "c")
    (root / "set" / "train.txt").write_text("\n".join(images(root)[:3]))
    [note] = read_listed(root / "set" / "street.data").notes
    assert "3 of 5 images are in the training list as well" in note


def test_absolute_lists_and_labels_beside_images(root: Path, plain: Dataset) -> None:
    for file in (root / "set" / "labels" / "val").iterdir():
        shutil.move(file, root / "set" / "images" / "val" / file.name)
    (root / "valid.txt").write_text("\n".join(str(root / name) for name in images(root)))
    assert read_listed(root / "valid.txt", names=NAMES).digest == plain.digest


@pytest.mark.parametrize(
    "text",
    [
        "path: .\ntrain: images/train\nval: images/val\nnames: [circle, square, bar]\n",
        "path: ../datasets/set\ntrain: images/train\nval: images/val\nnc: 3\nnames:\n  0: circle\n  1: square\n  2: bar\n",
        "train: images/train\nval: [images/val]\ntest:\nnames: {0: circle, 1: square, 2: bar}\ndownload: |\n  a\n  script\n",
        "val: ../set/images/val\nnames: [circle, square, bar]\n",
        "test: valid.txt\nnames: [circle, square, bar]\n",
    ],
)
def test_ultralytics_data_yaml(root: Path, plain: Dataset, text: str) -> None:
    if "datasets" in text:
        (root / "datasets").mkdir()
        shutil.copytree(root / "set", root / "datasets" / "set")
    (root / "set" / "valid.txt").write_text("\n".join(images(root, "./images/val")))
    (root / "set" / "data.yaml").write_text(text)
    dataset = load_dataset("ultralytics", None, labels=root / "set" / "data.yaml")
    assert (dataset.digest, dataset.notes) == (plain.digest, ())


def test_accents_composed_or_apart_are_one_name(root: Path, plain: Dataset) -> None:
    for kind, suffix, name in (("images", "png", "sce\u0300ne-0"), ("labels", "txt", "sc\u00e8ne-0")):
        folder = root / "set" / kind / "val"
        (folder / f"scene-0.{suffix}").rename(folder / f"{name}.{suffix}")
    listed = [name.replace("sce\u0300ne", "sc\u00e8ne") for name in images(root, "images/val")]
    (root / "set" / "valid.txt").write_text("\n".join(sorted(listed, key=lambda name: name.replace("\u00e8", "e"))) + "\n")
    dataset = read_listed(root / "set" / "valid.txt", names=NAMES)
    assert (dataset.digest, dataset.notes) == (plain.digest, ())


def list_objects(dataset: Dataset) -> list[tuple[str, int, list[float]]]:
    """Return every object with its image's digest, in an order of their own."""
    rows = zip(dataset.image_index.tolist(), dataset.category.tolist(), dataset.box.tolist(), strict=True)
    return sorted((dataset.images[image].sha256, category, box) for image, category, box in rows)


def test_images_of_one_name_in_two_folders_have_labels_of_their_own(root: Path, plain: Dataset) -> None:
    for kind in ("images", "labels"):
        folder = root / "set" / kind / "val"
        for number, file in enumerate(sorted(folder.iterdir())):
            target = folder / f"{number % 2}" / f"{number // 2}{file.suffix}"
            target.parent.mkdir(exist_ok=True)
            file.rename(target)
    names = "names: [circle, square, bar]\n"
    for text in ("val: images/val", "val: [images/val/0, images/val/1]", "path: .\nval: ./images/val", "val: ../images/val"):
        (root / "set" / "data.yaml").write_text(f"{text}\n{names}")
        dataset = read_listed(root / "set" / "data.yaml")
        assert list_objects(dataset) == list_objects(plain)
        assert dataset.notes == ()


def test_companions_of_macos_are_no_images(root: Path, plain: Dataset) -> None:
    (root / "set" / "images" / "val" / "._scene-0.png").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    (root / "set" / "data.yaml").write_text("val: images/val\nnames: [circle, square, bar]\n")
    assert read_listed(root / "set" / "data.yaml").digest == plain.digest


def test_an_image_without_labels_is_empty_and_said(root: Path, plain: Dataset) -> None:
    (root / "set" / "labels" / "val" / "scene-0.txt").unlink()
    (root / "set" / "data.yaml").write_text("val: images/val\nnames: [circle, square, bar]\n")
    dataset = read_listed(root / "set" / "data.yaml")
    assert len(dataset.images) == 5
    assert 0 not in dataset.image_index
    assert dataset.notes == ("1 of 5 images have no label file and count as empty, for example 'scene-0.png'",)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from([".data", ".txt", ".yaml"]),
    text=st.one_of(
        st.text(max_size=80),
        st.builds(
            lambda key, sep, value: f"{key}{sep}{value}\nnames: [a]\n",
            st.sampled_from(["val", "path", "valid", "names", "train"]),
            st.sampled_from(["=", ": "]),
            st.text(max_size=300),
        ),
    ),
)
def test_whatever_stands_there_is_read_or_refused(tmp_path: Path, suffix: str, text: str) -> None:
    file = tmp_path / f"any{suffix}"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(MpnetError):
        describe_listed(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.data", "classes 3\n", "a.data:1: 'classes 3' is not of the form key = value"),
        ("a.data", "names = street.names\n", "names no `valid` list"),
        ("a.data", "valid = none.txt\n", "valid is 'none.txt', which is nowhere"),
        ("a.data", "valid = valid.txt\nnames = none.names\n", "names is 'none.names', which is nowhere"),
        ("a.yaml", "names: [a]\n", "names no images for validation"),
        ("a.yaml", "val: images/none\n", "val is 'images/none', which is nowhere"),
        ("a.yaml", "val: images/val\n", "names no classes"),
        ("a.yaml", "val: images/val\nnames: {0: a, 2: b}\n", "names has the indices"),
        ("a.yaml", "[1, 2]\n", "holds no `key: value` pairs"),
        ("a.txt", "set/images/val/scene-0.png\nreadme.md\n", "a.txt:2: 'readme.md' is no path of an image"),
        ("a.txt", "", "lists no images"),
        ("a.txt", "x.png\nx.png\n", "a.txt:2: 'x.png' is in line 1 already"),
        ("a.txt", "none/x.png\n", "x.png: cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(root: Path, name: str, text: str, message: str) -> None:
    (root / "set" / "valid.txt").write_text("\n".join(images(root)))
    (root / "set" / name).write_text(text)
    with pytest.raises(MpnetError) as excinfo:
        read_listed(root / "set" / name, names=NAMES if name == "a.txt" else None)
    assert message in str(excinfo.value)
    assert "\n" not in str(excinfo.value)
