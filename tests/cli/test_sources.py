# SPDX-License-Identifier: MIT
"""One way to name a configuration for all commands: EXPERIMENT.yaml, RUN, STORE[:KEY], a folder's latest, NET.cfg."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest

from mpnet.formats.documents.experiment import read_experiment
from tests.cli.conftest import Mpnet, document_of

SWEEP = (
    "--set",
    "name=swept",
    "--set",
    "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0}",
    "--set",
    "quantization.weights=per_tensor",
    "--workers",
    "1",
    "-q",
    "--json",
)
KEY = "ffqffffffffff"


@pytest.fixture
def store(mpnet: Mpnet, experiment: Path) -> Path:
    """Return the store of a sweep, in its default place."""
    return Path(document_of(mpnet("sweep", experiment, *SWEEP))["store"])


@pytest.mark.slow
def test_every_command_takes_a_sweeps_configuration(mpnet: Mpnet, experiment: Path, store: Path) -> None:
    source = f"{store}:{KEY}"
    run = document_of(mpnet("run", source, "-q", "--json"))
    assert run["precision"]["key"] == KEY
    # Beside the sweep, and the same trial as an experiment file that says all of it.
    assert Path(run["folder"]).parent == store.parent
    described_run = document_of(
        mpnet(
            "run",
            experiment,
            "-q",
            "--json",
            "--set",
            "quantization.weights=per_tensor",
            "--set",
            "precision={default: fp32, layers: {4: int8}}",
        )
    )
    assert (described_run["id"], described_run["digests"]) == (run["id"], run["digests"])
    assert document_of(mpnet("show", source, "--json"))["precision_key"] == KEY
    assert document_of(mpnet("analyze", source, "--images", 1, "-q", "--json"))["precision_key"] == KEY
    bench_document = document_of(mpnet("bench", source, "--repeats", 3, "-q", "--json"))
    assert [case["precision"] for case in bench_document["cases"]][:2] == [KEY, "fp32"]
    detect_document = document_of(mpnet("detect", source, "images/scene-0.png", "--conf", "0.05", "--json"))
    assert (detect_document["precision"], detect_document["protocol"]["confidence"], detect_document["protocol"]["nms"]) == (
        KEY,
        0.05,
        0.45,
    )
    # As the run has it, whose detections begin above the same score.
    assert len(detect_document["files"][0]["detections"]) > 0
    second_run = document_of(mpnet("run", run["folder"], "-q", "--json"))
    assert (second_run["id"], second_run["reused"]) == (run["id"], True)


@pytest.mark.slow
def test_a_folder_stands_for_its_latest_sweep(mpnet: Mpnet, experiment: Path, store: Path) -> None:
    folder = store.parent
    assert (folder / "latest.sqlite").resolve() == store.resolve()
    assert mpnet("export", f"{folder}:{KEY}", "--to", "cfg").stdout == mpnet("export", f"{store}:{KEY}", "--to", "cfg").stdout
    assert document_of(mpnet("sweep", "--status", folder, "--json"))["store"] == str(store)
    assert mpnet("report", folder, "-o", "page.html", "--no-compute", "-q").returncode == 0
    # A page is about the configuration that is named.
    page = mpnet("report", f"{folder}:{KEY}", "-o", "named.html", "--no-compute", "-q", "--json")
    named_page = mpnet("report", store, "--choose", KEY, "-o", "asked.html", "--no-compute", "-q", "--json")
    assert document_of(page)["summary"] == document_of(named_page)["summary"]
    assert (folder.parent.parent / "named.html").read_bytes() == (folder.parent.parent / "asked.html").read_bytes()
    # Other data, another store: the later one is meant.
    later_store = Path(document_of(mpnet("sweep", experiment, *SWEEP, "--set", "data.limit=4"))["store"])
    assert later_store.parent == folder
    assert later_store != store
    assert document_of(mpnet("sweep", "--status", folder, "--json"))["store"] == str(later_store)
    (folder / "latest.sqlite").unlink()
    refused = mpnet("sweep", "--status", folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "holds 2 sweeps" in refused.stderr


@pytest.mark.slow
def test_precisions_go_back_into_an_experiment_file(mpnet: Mpnet, experiment: Path, store: Path) -> None:
    for key in (KEY, "fqqqqqqqqfqqf", "q" * 13):
        document = document_of(mpnet("run", experiment, "--set", f"precision={_section(mpnet, store, key)}", "-q", "--json"))
        assert document["precision"]["key"] == key


def _section(mpnet: Mpnet, store: Path, key: str) -> str:
    if key == KEY:
        yaml_text = mpnet("export", f"{store}:{key}", "--to", "yaml").stdout
    else:
        folder = store.parent.parent.parent
        edited = folder / "edited.cfg"
        assert mpnet("export", f"{store}:{KEY}", "-o", edited).returncode == 0
        (folder / "edited.weights").write_bytes((folder / "net.weights").read_bytes())
        experiment_path = folder / "made.yaml"
        experiment_path.write_text(
            f"name: made\nmodel: {{cfg: net.cfg, weights: net.weights}}\nprecision: {{layers: {_layers(key)}}}\n"
        )
        yaml_text = mpnet("export", experiment_path, "--to", "yaml").stdout
    path = store.with_name("section.yaml")
    path.write_text("name: x\nmodel: {cfg: a, weights: b}\n" + yaml_text)
    section = read_experiment(path).precision
    layers = ", ".join(f'"{selector}": {precision}' for selector, precision in section.layers)
    return f"{{default: {section.default}, layers: {{{layers}}}}}"


def _layers(key: str) -> str:
    numbers = (0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 18, 21, 22)
    return "{" + ", ".join(f"{n}: {'int8' if code == 'q' else 'fp32'}" for n, code in zip(numbers, key, strict=True)) + "}"


def test_a_suffix_says_what_to_write(mpnet: Mpnet, experiment: Path) -> None:
    assert mpnet("export", experiment, "-o", "out.yaml").returncode == 0
    assert (experiment.parent / "out.yaml").read_text() == f"precision:  # {'q' * 13}\n  default: int8\n"
    assert mpnet("export", experiment, "-o", "out.cfg").returncode == 0
    assert (experiment.parent / "out.cfg").read_bytes() == mpnet("export", experiment, "--to", "cfg").stdout.encode()
    for arguments in (("-o", "out.bin"), ()):
        process = mpnet("export", experiment, *arguments)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1)
        assert "--to" in process.stderr
    assert not (experiment.parent / "out.bin").exists()


def test_an_experiment_file_is_enough_to_detect(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("detect", experiment, "--conf", "0.1", "--json"))
    assert document["precision"] == "q" * 13
    assert [Path(file["path"]).name for file in document["files"]] == [f"scene-{n}.png" for n in range(5)]
    model = ("--cfg", "net.cfg", "--weights", "net.weights", "--names", "net.names", "--default", "int8", "--conf", "0.1")
    by_options = document_of(mpnet("detect", *model, "images", "--json"))
    assert [file["detections"] for file in document["files"]] == [file["detections"] for file in by_options["files"]]
    other_way = document_of(mpnet("detect", experiment, "--dialect", "alexeyab", "--layer", "first=fp16", "--json"))
    assert (other_way["protocol"]["dialect"], other_way["precision"]) == ("alexeyab", "h" + "q" * 12)
    # Quantised as the experiment says, calibrated ranges included.
    calibrated = experiment.parent / "calibrated.yaml"
    calibrated.write_text(experiment.read_text() + "quantization: {activations: calibrated}\n")
    calibrated_document = document_of(mpnet("detect", calibrated, "--conf", "0.1", "--json"))
    assert calibrated_document["files"][0]["detections"] != document["files"][0]["detections"]


def test_two_precisions_side_by_side(mpnet: Mpnet, experiment: Path) -> None:
    arguments = ("detect", experiment, "images/scene-0.png", "--conf", "0.1", "--out", "found", "--json")
    [file] = document_of(mpnet(*arguments, "--beside", "fp32"))["files"]
    alone = document_of(mpnet("detect", "net.cfg", "images/scene-0.png", "--names", "net.names", "--conf", "0.1", "--json"))
    assert file["beside"] == {"precision": "fp32", "detections": alone["files"][0]["detections"]}
    assert file["beside"]["detections"] != file["detections"]
    drawing = cv2.imread(str(experiment.parent / "found" / "scene-0.png"))
    assert drawing.shape[1] == 2 * file["width"]
    assert drawing.shape[0] > file["height"]
    by_key = document_of(mpnet(*arguments, "--force", "--beside", "f" * 13))["files"][0]["beside"]
    assert by_key["detections"] == file["beside"]["detections"]
    for key in ("fp12", "f" * 12):
        process = mpnet("detect", experiment, "images/scene-0.png", "--beside", key)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "net.cfg"), "key 'data' is missing"),
        (("detect", "images/scene-0.png"), "no network is named"),
        (("detect", "net.cfg"), "nothing to look at"),
        (("detect", "net.cfg", "empty"), "error: empty: holds no images or videos (known suffixes: .jpg, "),
        (("bench", "none.sqlite:safe"), "none.sqlite:safe"),
        (("show", "runs/none"), "holds no result"),
        (("show", "images:safe"), "images: holds no sweep, so 'safe' names nothing"),
    ],
)
def test_what_names_nothing_is_one_line(mpnet: Mpnet, experiment: Path, arguments: tuple[str, ...], message: str) -> None:
    (experiment.parent / "empty").mkdir()
    process = mpnet(*arguments)
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1)
    assert message in process.stderr
