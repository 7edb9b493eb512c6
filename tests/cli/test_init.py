# SPDX-License-Identifier: MIT
"""`mpnet init`: a file that runs as it is, from whatever a user has."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import cv2
import pytest

from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.target_file import bundled_target, target_names
from tests.cli.conftest import Mpnet, document_of
from tests.networks import NAMES

MODEL = ("--cfg", "net.cfg", "--weights", "net.weights")


@pytest.fixture
def user_folder(experiment: Path) -> Path:
    """Write a network and images in several forms, in the folder of the tiny experiment."""
    folder = experiment.parent
    images = sorted((folder / "images").iterdir())
    (folder / "valid.txt").write_text("".join(f"images/{file.name}\n" for file in images))
    (folder / "street.data").write_text("classes = 3\nvalid = valid.txt\nnames = net.names\n")
    (folder / "data.yaml").write_text("path: .\nval: images\nnames: [circle, square, bar]\n")
    listed, annotations = [], []
    for number, file in enumerate(images, 1):
        height, width = cv2.imread(str(file)).shape[:2]
        listed.append({"id": number, "file_name": file.name, "width": width, "height": height})
        for line in (folder / "labels" / f"{file.stem}.txt").read_text().splitlines():
            kind, cx, cy, w, h = map(float, line.split())
            box = [(cx - w / 2) * width, (cy - h / 2) * height, w * width, h * height]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(kind) + 1,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    (folder / "instances.json").write_text(
        json.dumps(
            {
                "images": listed,
                "annotations": annotations,
                "categories": [{"id": i + 1, "name": n} for i, n in enumerate(NAMES)],
            }
        )
    )
    return folder


def test_label_files_without_any_object_make_no_objective(user_folder: Path, mpnet: Mpnet) -> None:
    for labels in (user_folder / "labels").iterdir():
        labels.write_text("")
    process = mpnet("init", *MODEL, "--names", "net.names", "--images", "images", "-o", "new.yaml", cwd=user_folder)
    assert "no image has a labelled object" in process.stderr
    assert "  objectives: [agreement_AP, bit_operations]\n" in (user_folder / "new.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "images",
    [
        ("--images", "images", "--names", "net.names"),
        ("--images", "images", "--labels", "labels", "--names", "net.names"),
        ("--images", "street.data"),
        ("--images", "valid.txt", "--names", "net.names"),
        ("--images", "data.yaml"),
        ("--images", "images", "--annotations", "instances.json"),
    ],
)
def test_what_it_writes_runs(mpnet: Mpnet, user_folder: Path, images: tuple[str, ...]) -> None:
    document = document_of(mpnet("init", *MODEL, *images, "-o", "made/street.yaml", "--json"))
    assert document == {"experiment": "made/street.yaml", "images": 5, "boxes": 9, "classes": list(NAMES), "warnings": []}
    text = (user_folder / "made" / "street.yaml").read_text()
    assert text.count("#") > 8
    experiment = read_experiment(user_folder / "made" / "street.yaml")
    assert (experiment.name, experiment.precision.default, experiment.sweep is not None) == ("street", "int8", True)
    run = document_of(mpnet("run", "made/street.yaml", "-q", "--json"))
    assert run["precision"]["key"] == "qqqqqqqqqhqqh"
    assert run["protocol"]["images"] == 5
    # The same images and labels, however they are named; only coordinates of JSON are in pixels.
    plain = document_of(mpnet("run", "experiment.yaml", "-q", "--json", "--set", "precision.layers={heads: fp16}"))
    assert run["metrics"]["AP50"] == pytest.approx(plain["metrics"]["AP50"], abs=0.01)
    if "instances.json" not in images:
        assert run["digests"]["data"] == plain["digests"]["data"]
    # A result finds its images again.
    compared = document_of(mpnet("compare", run["folder"], run["folder"], "--draws", 100, "-q", "--json"))
    assert compared["missing"] in (None, "")


@pytest.mark.parametrize("name", ["my net.yaml", "x;$(touch y).yaml", "two\nlines: 1.yaml"])
def test_commands_for_any_file_name_are_one_word_to_a_shell(name: str, mpnet: Mpnet, user_folder: Path) -> None:
    process = mpnet("init", *MODEL, "--images", "street.data", "-o", name)
    assert shlex.split(process.stdout.split(" Next: ")[1]) == ["mpnet", "run", name]
    lines = (user_folder / name).read_text(encoding="utf-8").splitlines()
    shown = name.replace("\n", r"\n")
    for command in ("run", "sweep"):
        [line] = [line for line in lines if line.startswith(f"#   mpnet {command} ")]
        assert shlex.split(line.removeprefix("#").split("     ")[0]) == ["mpnet", command, shown]
    assert mpnet("show", name).returncode == 0


@pytest.mark.slow
def test_a_sweep_of_what_it_writes(mpnet: Mpnet, user_folder: Path) -> None:
    process = mpnet("init", *MODEL, "--images", "street.data")
    assert process.stdout == "net.yaml: 5 images, 9 labelled objects, 3 classes. Next: mpnet run net.yaml\n"
    document = document_of(mpnet("sweep", "net.yaml", "--workers", 1, "-q", "--json"))
    assert (document["strategy"], document["holdout"]) == ("auto", {"selecting": 2, "held_out": 3})
    detect_document = document_of(mpnet("detect", "net.yaml", "images/scene-0.png", "--conf", "0.1", "--json"))
    assert {box["name"] for box in detect_document["files"][0]["detections"]} <= set(NAMES)
    # Without images those of the data set are looked at, whoever names them.
    own_images = document_of(mpnet("detect", "net.yaml", "--json"))
    assert [Path(file["path"]).name for file in own_images["files"]] == [f"scene-{n}.png" for n in range(5)]


@pytest.mark.parametrize("name", target_names())
def test_a_target_decides_how_the_file_quantises(mpnet: Mpnet, user_folder: Path, name: str) -> None:
    assert mpnet("init", *MODEL, "--images", "street.data", "--target", name).returncode == 0
    experiment, target = read_experiment(user_folder / "net.yaml"), bundled_target(name)
    assert experiment.sweep is not None
    assert (experiment.sweep.precisions, experiment.sweep.space.target) == (target.precisions, name)
    assert ("It runs fp16 as fp32" in (user_folder / "net.yaml").read_text()) is name.startswith("onnxruntime")
    options = experiment.quantization.options
    assert options.overlaid(target.quantization) == options
    # Single keys of what it wrote can be set.
    process = mpnet("show", "net.yaml", "--set", "quantization.activations.mode=symmetric", "--json")
    assert process.returncode == 0, process.stderr


def test_the_network_is_named_once(mpnet: Mpnet, user_folder: Path) -> None:
    by_option = mpnet("init", *MODEL, "--images", "street.data", "-o", "a.yaml")
    by_argument = mpnet("init", "net.cfg", "--images", "street.data", "-o", "b.yaml")
    assert (by_option.returncode, by_argument.returncode) == (0, 0), by_argument.stderr
    assert (user_folder / "b.yaml").read_text() == (user_folder / "a.yaml").read_text().replace("a.yaml", "b.yaml").replace(
        "name: a", "name: b"
    )
    both = mpnet("init", "net.cfg", "--cfg", "other.cfg", "--images", "street.data")
    assert (both.returncode, both.stderr) == (2, "error: net.cfg and --cfg other.cfg are two networks; name one\n")
    without = mpnet("init", "--images", "street.data")
    assert without.returncode == 2
    assert without.stderr.startswith("error: name a network: `mpnet init net.cfg --images val/images`, or for a model")


def test_a_target_file_of_ones_own(mpnet: Mpnet, user_folder: Path) -> None:
    (user_folder / "chips").mkdir()
    (user_folder / "chips" / "mine.yaml").write_text(
        "what: mine\nprecisions: [int16, int8]\nquantization: {activations: {ranges: calibrated}}\nlayers: {first: [int16]}\n"
        "on_cpu: [upsample]\n"
    )
    process = mpnet("init", *MODEL, "--images", "street.data", "--target", "chips/mine.yaml", cwd=user_folder)
    assert process.returncode == 0, process.stderr
    text = (user_folder / "net.yaml").read_text()
    assert "The CPU runs upsample-1 (upsample) there." in text
    assert "space: {target: chips/mine.yaml}" in text
    experiment = read_experiment(user_folder / "net.yaml")
    assert experiment.sweep is not None
    assert experiment.sweep.precisions == ("int16", "int8")
    # The path counts from the experiment file.
    assert experiment.sweep.space.target == str(user_folder / "chips" / "mine.yaml")
    shown = mpnet("targets", "chips/mine.yaml", cwd=user_folder)
    assert shown.stdout.startswith("chips/mine.yaml: mine\n  precisions: int16, int8\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "none.yaml: cannot be read"),
        ("what: a\nprecisions: [int7]\n", "none.yaml:2: precisions is 'int7'; did you mean"),
        ("what: a\nprecisions: int8\nexport: onnx/qqq\n", "none.yaml: export is onnx/qqq: --flavour 'qqq': unknown; known are"),
    ],
)
def test_a_bad_target_file_is_one_line(mpnet: Mpnet, user_folder: Path, content: str | None, message: str) -> None:
    if content is not None:
        (user_folder / "none.yaml").write_text(content)
    refused = mpnet("init", *MODEL, "--images", "street.data", "--target", "none.yaml", cwd=user_folder)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert message in refused.stderr
    assert not (user_folder / "net.yaml").exists()


def test_files_that_are_there_stay(mpnet: Mpnet, user_folder: Path) -> None:
    (user_folder / "net.yaml").write_text("mine")
    refused = mpnet("init", *MODEL, "--images", "street.data")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: net.yaml: exists already; name another file with -o, or replace it with --force\n",
    )
    assert (user_folder / "net.yaml").read_text() == "mine"
    assert mpnet("init", *MODEL, "--images", "street.data", "--force").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images", "none"), "none: no such folder"),
        (("--images", "images", "--labels", "none"), "none: the folder of labels cannot be read"),
        (("--images", "runs"), "runs: holds no image that mpnet reads"),
        (("--images", "net.names"), "net.names: no such folder"),
        (("--images", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_line(mpnet: Mpnet, user_folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (user_folder / "runs").mkdir()
    refused = mpnet("init", *MODEL, *arguments, "--names", "net.names")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert message in refused.stderr
    assert not (user_folder / "net.yaml").exists()


def test_images_with_capital_suffixes_have_labels(mpnet: Mpnet, user_folder: Path) -> None:
    for number, file in enumerate(sorted((user_folder / "images").iterdir())):
        file.rename(file.with_suffix((".PNG", ".Png")[number % 2]))
    process = mpnet("init", *MODEL, "--names", "net.names", "--images", "images", "-o", "capital.yaml", cwd=user_folder)
    assert process.returncode == 0, process.stderr
    assert "labelled objects" in process.stderr + process.stdout


def test_images_of_a_kind_that_is_not_read_are_named(mpnet: Mpnet, user_folder: Path) -> None:
    (user_folder / "scans").mkdir()
    for number in range(3):
        (user_folder / "scans" / f"{number}.TIF").write_bytes(b"II*")
    refused = mpnet("init", *MODEL, "--names", "net.names", "--images", "scans", "-o", "scans.yaml", cwd=user_folder)
    assert refused.returncode == 2
    assert "holds no image that mpnet reads" in refused.stderr
    assert "but 3 .tif files" in refused.stderr


def test_a_network_that_says_letterbox_is_fitted_so_everywhere(mpnet: Mpnet, user_folder: Path) -> None:
    cfg = user_folder / "net.cfg"
    cfg.write_text(cfg.read_text().replace("[net]", "[net]\nletter_box=1", 1))
    process = mpnet("init", *MODEL, "--names", "net.names", "--images", "images", "-o", "letter.yaml", cwd=user_folder)
    assert process.returncode == 0, process.stderr
    experiment = read_experiment(user_folder / "letter.yaml")
    assert experiment.detection.resize == "letterbox"
    image = next(iter(sorted((user_folder / "images").iterdir())))
    by_default = mpnet("detect", *MODEL, image, "--json", cwd=user_folder)
    by_name = mpnet("detect", *MODEL, image, "--json", "--resize", "letterbox", cwd=user_folder)
    assert document_of(by_default)["protocol"]["resize"] == "letterbox"
    assert document_of(by_default)["protocol"] == document_of(by_name)["protocol"]


def test_comments_hold_no_figures_of_other_networks(mpnet: Mpnet, user_folder: Path) -> None:
    """Decimals in comments are examples of values; what was measured on other networks stands in the documents."""
    assert mpnet("init", *MODEL, "--names", "net.names", "--images", "images", "-o", "made.yaml").returncode == 0
    comments = "\n".join(re.findall(r"#.*", (user_folder / "made.yaml").read_text()))
    assert comments.count("\n") > 8
    assert set(re.findall(r"\d+\.\d+|\d+ %", comments)) <= {"0.6", "60 %"}
    assert not re.search(r"gain|detectors|on average", comments)
