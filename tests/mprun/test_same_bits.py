# SPDX-License-Identifier: MIT
"""mprun gives what mpnet gives, byte for byte: tensors of random configurations, and boxes of images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import cv2
import pytest

from mpnet.api import load_network
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import weights_content
from mpnet.kernels.isa import usable_levels
from mpnet.model.weights import random_weights
from tests.detection.test_decoders import FORMS, head_cfg
from tests.engine.family import family_cfg
from tests.mprun import cases
from tests.mprun.conftest import Program, mpnet
from tests.networks import write_network

CONFIGURATIONS = 30


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write bundles of all four networks; with weights packed for the best level but one, so that both ways of starting are
    used."""
    folder = tmp_path_factory.mktemp("bundles")
    cases.write(folder, CONFIGURATIONS, usable_levels()[1:2])
    return folder


@pytest.mark.parametrize("level", usable_levels())
def test_tensors_of_random_configurations_equal_a_sessions(bundles: Path, heads: Path, level: str) -> None:
    for threads in ("1", "3") if level == usable_levels()[0] else ("1",):
        subprocess.run([str(heads), level, threads, str(bundles / "list.txt")], check=True)
        assert cases.compare(bundles) == []


def _export(source: Path, bundle: Path) -> Path:
    mpnet("export", source, "--to", "bundle", "-o", bundle, "--names", source.with_suffix(".names"), "--no-profile")
    return bundle


def _detect(cfg: Path, *words: object) -> str:
    return mpnet("detect", "--cfg", cfg, "--weights", cfg.with_suffix(".weights"), "--names", cfg.with_suffix(".names"), *words)


@pytest.mark.parametrize(
    "options", [(), ("--resize", "letterbox", "--confidence", "0.03", "--nms", "0.6"), ("--resize", "letterbox_opencv")]
)
def test_the_document_is_that_of_mpnet_detect(
    mprun: Program, mixed_cfg: Path, images: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    bundle = _export(mixed_cfg, tmp_path / "net.mpnet")
    expected = json.loads(_detect(mixed_cfg, images, "--json", *options))
    document = json.loads(mprun(bundle, images, "--json", *options).stdout)
    assert sum(len(file["detections"]) for file in document["files"]) > 2
    assert document == expected


@pytest.mark.parametrize("kind", ["region", "gaussian", "detection", "left top", "background", "plain classes", "flat"])
def test_boxes_of_every_kind_of_head(mprun: Program, kind: str, images: Path, tmp_path: Path) -> None:
    variants = {
        "left top": ("gaussian", "[Gaussian_yolo]\n", "[Gaussian_yolo]\nyolo_point=left_top\nscale_x_y=1.1\n"),
        "background": ("region", "softmax=1", "softmax=1\nbackground=1"),
        "plain classes": ("region", "softmax=1", "softmax=0"),
        # Without a connected layer before it the tensor lies in another order.
        "flat": ("detection", "[connected]\noutput=48\n", "[convolutional]\nfilters=8\nstride=2\nsize=3\n"),
    }
    name, original, replacement = variants.get(kind, (kind, "", ""))
    text = family_cfg(name).replace(original, replacement, 1)
    assert replacement in text
    write_network(tmp_path, seed=2, text=text)
    (tmp_path / "net.names").write_text("a\nb\n", encoding="utf-8")
    bundle = _export(tmp_path / "net.cfg", tmp_path / "net.mpnet")
    expected = json.loads(_detect(tmp_path / "net.cfg", images, "--json", "--confidence", "0.01"))
    document = json.loads(mprun(bundle, images, "--json", "--confidence", "0.01").stdout)
    assert sum(len(file["detections"]) for file in document["files"]) > 0
    assert document == expected


@pytest.mark.parametrize("level", usable_levels())
@pytest.mark.parametrize("decoder", [*FORMS, "none"])
def test_boxes_of_imported_heads(mprun: Program, decoder: str, level: str, images: Path, tmp_path: Path) -> None:
    channels, keys = (7, "decoder=none") if decoder == "none" else FORMS[decoder][:2]
    write_network(tmp_path, seed=2, text=head_cfg(channels, keys))
    (tmp_path / "net.names").write_text("a\nb\nc\n", encoding="utf-8")
    bundle = _export(tmp_path / "net.cfg", tmp_path / "net.mpnet")
    words = images, "--json", "--confidence", "0.01"
    document = json.loads(mprun(bundle, *words, "--isa", level).stdout)
    assert document == json.loads(_detect(tmp_path / "net.cfg", *words))
    assert (sum(len(file["detections"]) for file in document["files"]) > 5) == (decoder != "none")


def test_boxes_of_a_tree_of_classes(mprun: Program, images: Path, tmp_path: Path) -> None:
    """YOLO9000's: probabilities multiply on the way to the root; with and without a map."""
    (tmp_path / "tree").write_text("x -1\ny -1\nz 0\nu 0\nv 1\n", encoding="utf-8")
    (tmp_path / "map").write_text("2\n4\n1\n", encoding="utf-8")
    for keys, classes in (("tree=tree\n", 5), ("tree=tree\nmap=map\n", 3)):
        text = family_cfg("region").replace("filters=14", "filters=20").replace("classes=2", f"classes=5\n{keys}")
        (tmp_path / "net.cfg").write_text(text, encoding="utf-8")
        network = read_cfg(tmp_path / "net.cfg")
        (tmp_path / "net.weights").write_bytes(weights_content(random_weights(network, 1), network))
        (tmp_path / "net.names").write_text("\n".join("abcde"[:classes]) + "\n", encoding="utf-8")
        bundle = _export(tmp_path / "net.cfg", tmp_path / "net.mpnet")
        expected = json.loads(_detect(tmp_path / "net.cfg", images, "--json", "--confidence", "0.01"))
        document = json.loads(mprun(bundle, images, "--json", "--confidence", "0.01").stdout)
        assert sum(len(file["detections"]) for file in document["files"]) > 0
        assert document == expected


def test_the_text_is_that_of_mpnet_detect(mprun: Program, mixed_cfg: Path, images: Path, tmp_path: Path) -> None:
    assert mprun(_export(mixed_cfg, tmp_path / "net.mpnet"), images).stdout == _detect(mixed_cfg, images)


def test_evaluation_writes_the_file_of_a_run(mprun: Program, jpeg_experiment: Path, tmp_path: Path) -> None:
    run = Path(json.loads(mpnet("run", jpeg_experiment, "--json"))["folder"])
    mpnet("export", run, "--to", "bundle", "-o", tmp_path / "net.mpnet", "--no-profile")
    mprun(tmp_path / "net.mpnet", "--evaluate", jpeg_experiment.parent / "images", "-o", tmp_path / "detections.json")
    assert (tmp_path / "detections.json").read_bytes() == (run / "detections.json").read_bytes()
    assert len(json.loads((run / "detections.json").read_text(encoding="utf-8"))) > 5


def test_classes_have_the_ids_of_a_coco_data_set(mprun: Program, jpeg_experiment: Path, tmp_path: Path) -> None:
    """Which are any numbers; those of images are 1, 2, ... in order, unless a list says otherwise."""
    folder = jpeg_experiment.parent
    names = (folder / "net.names").read_text(encoding="utf-8").split()
    images = sorted((folder / "images").glob("*.jpg"))
    (folder / "instances.json").write_text(
        json.dumps(
            {
                "images": [
                    {
                        "id": 1 + n,
                        "file_name": path.name,
                        "width": cv2.imread(str(path)).shape[1],
                        "height": cv2.imread(str(path)).shape[0],
                    }
                    for n, path in enumerate(images)
                ],
                "categories": [{"id": 90 - 7 * n, "name": name} for n, name in enumerate(names)],
                "annotations": [],
            }
        ),
        encoding="utf-8",
    )
    data = "data={format: coco, images: images, annotations: instances.json}"
    run = Path(json.loads(mpnet("run", jpeg_experiment, "--set", data, "--json"))["folder"])
    mpnet("export", run, "--to", "bundle", "-o", tmp_path / "net.mpnet", "--no-profile")
    mprun(tmp_path / "net.mpnet", "--evaluate", folder / "images", "-o", tmp_path / "detections.json")
    assert (tmp_path / "detections.json").read_bytes() == (run / "detections.json").read_bytes()


def test_a_library_call_gives_the_boxes_of_a_network(
    mprun: Program, mixed_cfg: Path, images: Path, tmp_path: Path, repository: Path
) -> None:
    """The example of docs/mprun.md, as it stands there."""
    page = (repository / "docs" / "mprun.md").read_text(encoding="utf-8")
    source = tmp_path / "example.c"
    source.write_text(page.split("```c\n")[1].split("```")[0], encoding="utf-8")
    mprun.compile(source, tmp_path / "example")
    _export(mixed_cfg, tmp_path / "net.mpnet")
    image = images / "scene-0.jpg"
    printed = subprocess.run(
        [str(tmp_path / "example"), str(tmp_path / "net.mpnet"), str(image)], check=True, capture_output=True, text=True
    ).stdout
    network = load_network(mixed_cfg, mixed_cfg.with_suffix(".weights"), mixed_cfg.with_suffix(".names"))
    boxes = network.detect(image)
    assert boxes
    assert printed == "".join(
        f"{box.name} {box.score:.3f} {box.x:.1f} {box.y:.1f} {box.width:.1f} {box.height:.1f}\n" for box in boxes
    )
