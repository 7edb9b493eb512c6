# SPDX-License-Identifier: MIT
"""`mpnet run` and `mpnet compare` on a tiny network: results, reuse, agreement, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from mpnet import __version__
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.trial.result import read_result
from tests.cli.conftest import Mpnet, document_of
from tests.formats.test_images_orientation import STORE, exif, with_exif


def folders(experiment: Path) -> list[str]:
    """Return everything in the folder of results but the link to the latest, hidden things too."""
    return sorted(path.name for path in (experiment.parent / "runs" / "tiny").iterdir() if path.name != "latest")


def test_a_run_stores_what_it_prints(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--json"))
    result_document = json.loads((Path(document["folder"]) / "result.json").read_text(encoding="utf-8"))
    assert {
        key: value for key, value in document.items() if key not in ("folder", "reused", "operating_point")
    } == result_document
    assert result_document["id"] == Path(document["folder"]).name == result_document["digests"]["trial"][:16]
    assert result_document["versions"]["mpnet"] == __version__
    assert result_document["precision"]["key"] == "q" * 13
    assert [layer["precision"] for layer in result_document["precision"]["layers"]].count("int8") == 13
    assert (result_document["protocol"]["images"], result_document["protocol"]["resize"]) == (5, "stretch")
    assert len(result_document["per_class"]) == 3
    assert sum(row["truths"] for row in result_document["per_class"]) == result_document["protocol"]["boxes"]
    assert result_document["cost"]["int8_macs"] == result_document["cost"]["macs"]
    assert all(-1 <= value <= 100 for value in result_document["metrics"].values())
    assert result_document["latency"]["threads"] == 1
    assert set(result_document["agreement"]) == {"baseline", "AP", "AP75", "AP95", "head_sqnr_db"}


@pytest.mark.parametrize(
    "precision", [pytest.param(p, marks=pytest.mark.slow if p.is_narrow else ()) for p in PRECISIONS.values()], ids=str
)
def test_every_precision_can_be_asked_for(mpnet: Mpnet, experiment: Path, precision: Precision) -> None:
    document = document_of(mpnet("run", experiment, "--json", "--set", f"precision.default={precision}"))
    assert document["precision"]["key"] == precision.code * 13
    weighted = [layer for layer in document["precision"]["layers"] if layer["parameters"]]
    assert [layer["precision"] for layer in weighted] == [precision.name] * 13
    assert document["agreement"] is None or document["agreement"]["AP"] >= 0
    network_document = document_of(mpnet("show", experiment.parent / "net.cfg", "--json", "--default", precision))
    assert network_document["precision_key"] == document["precision"]["key"]
    assert network_document["totals"]["weight_bytes"] == document["cost"]["weight_bytes"]


def test_detections_are_coco_results_inside_the_images(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--json"))
    detections = json.loads((Path(document["folder"]) / "detections.json").read_text(encoding="utf-8"))
    assert detections
    for detection in detections:
        x, y, width, height = detection["bbox"]
        assert x >= 0
        assert y >= 0
        assert width >= 0
        assert height >= 0
        assert detection["score"] > 0.05


def test_the_baseline_runs_along_and_is_stored(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--json"))
    baseline = read_result(experiment.parent / "runs" / "tiny" / document["agreement"]["baseline"])
    assert baseline.document["precision"]["key"] == "f" * 13
    assert baseline.document["agreement"] is None
    assert len(folders(experiment)) == 2


def test_a_finished_trial_is_not_computed_again(mpnet: Mpnet, experiment: Path) -> None:
    first = document_of(mpnet("run", experiment, "--json"))
    second = mpnet("run", experiment, "--json")
    assert "finished before" in second.stderr
    # A busy machine's milliseconds are measured again.
    assert document_of(second) == {**first, "reused": True, "latency": document_of(second)["latency"]}
    forced = document_of(mpnet("run", experiment, "--json", "--force"))
    assert (forced["reused"], forced["metrics"], forced["digests"]) == (False, first["metrics"], first["digests"])
    assert len(folders(experiment)) == 2


def test_an_experiments_folder_stands_for_its_latest_result(mpnet: Mpnet, experiment: Path) -> None:
    folder = experiment.parent / "runs" / "tiny"
    first = document_of(mpnet("run", experiment, "--json"))
    assert read_result(folder).id == first["id"]
    second = document_of(mpnet("run", experiment, "--json", "--set", "precision.layers.first=fp16"))
    assert read_result(folder).id == second["id"]
    document_of(mpnet("run", experiment, "--json"))
    assert read_result(folder).id == first["id"]


@pytest.mark.parametrize(
    "override",
    [
        "detection.nms=0.5",
        "detection.confidence=0.06",
        "detection.resize=letterbox",
        "precision.layers.first=fp16",
        "quantization.weights=per_tensor",
        "quantization.layers.heads={activations: {mode: symmetric}}",
        "data.limit=4",
        "detection.max_detections=3",
        "model.batch_norm=alexeyab",
    ],
)
def test_whatever_decides_the_result_changes_the_identity(mpnet: Mpnet, experiment: Path, override: str) -> None:
    plain = document_of(mpnet("run", experiment, "--json", "--no-baseline"))
    changed_run = document_of(mpnet("run", experiment, "--json", "--no-baseline", "--set", override))
    assert plain["id"] != changed_run["id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--set", "runtime.batch=2"], ["--threads", "2"], ["--isa", "scalar"], ["--set", "name=other"]]
)
def test_what_decides_nothing_changes_nothing(mpnet: Mpnet, experiment: Path, arguments: list[str]) -> None:
    plain = document_of(mpnet("run", experiment, "--json", "--force"))
    detections = (Path(plain["folder"]) / "detections.json").read_bytes()
    changed_run = document_of(mpnet("run", experiment, "--json", "--force", *arguments))
    assert (changed_run["id"], changed_run["metrics"], changed_run["agreement"]) == (
        plain["id"],
        plain["metrics"],
        plain["agreement"],
    )
    assert (Path(changed_run["folder"]) / "detections.json").read_bytes() == detections


def test_no_more_detections_than_asked_for(mpnet: Mpnet, experiment: Path) -> None:
    everything = document_of(mpnet("run", experiment, "--json", "--no-baseline"))
    best = document_of(mpnet("run", experiment, "--json", "--no-baseline", "--set", "detection.max_detections=3"))

    def per_image(document: dict[str, str]) -> dict[int, list[float]]:
        scores_of: dict[int, list[float]] = {}
        for detection in json.loads((Path(document["folder"]) / "detections.json").read_text(encoding="utf-8")):
            scores_of.setdefault(detection["image_id"], []).append(detection["score"])
        return scores_of

    expected = {image: sorted(scores, reverse=True)[:3] for image, scores in per_image(everything).items()}
    assert {image: sorted(scores, reverse=True) for image, scores in per_image(best).items()} == expected


def test_the_table_is_plain_text_when_piped(mpnet: Mpnet, experiment: Path) -> None:
    result = mpnet("run", experiment)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    for word in ("baseline", "this run", "darknet_mAP50", "agreement AP95", "peak activations", "runs/tiny/"):
        assert word in result.stdout


def test_compare_prints_differences_to_the_first(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "--json"))
    folder = experiment.parent / "runs" / "tiny"
    result = mpnet("compare", folder / run["agreement"]["baseline"], folder / run["id"])
    assert result.returncode == 0
    assert run["id"][:8] in result.stdout


def test_compare_refuses_runs_on_other_data(mpnet: Mpnet, experiment: Path) -> None:
    first = document_of(mpnet("run", experiment, "--json"))
    second = document_of(mpnet("run", experiment, "--json", "--set", "data.limit=3"))
    result = mpnet("compare", first["folder"], second["folder"])
    assert result.returncode == 2
    assert "other data" in result.stderr


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "net.weights").write_bytes(b"\x00" * 7), "net.weights: "),
        (lambda f: (f / "net.cfg").write_text("[net]\nwidth=64\nheight=64\n[convolutional]\nint_8=1\n"), "net.cfg:"),
        (lambda f: (f / "net.names").write_text("one\n"), "net.names: holds 1 names"),
        (lambda f: (f / "labels" / "scene-1.txt").write_text("9 0.5 0.5 0.1 0.1\n"), "scene-1.txt:1"),
        (lambda f: (f / "runs").write_text("a file in the way"), "runs"),
    ],
)
def test_bad_files_end_in_one_line_and_leave_nothing(mpnet: Mpnet, experiment: Path, break_it: object, message: str) -> None:
    assert callable(break_it)
    break_it(experiment.parent)
    assert_refused(mpnet("run", experiment, "--json"), message)
    assert not (experiment.parent / "runs").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 200])
def test_broken_images_end_in_one_line(mpnet_program: Mpnet, experiment: Path, length: int) -> None:
    """In a process of its own: decoders would print remarks of their own, which `mpnet` turns off at its start."""
    image = experiment.parent / "images" / "scene-2.png"
    image.write_bytes(image.read_bytes()[:length] or b"no image")
    assert_refused(mpnet_program("run", experiment, "--json"), "scene-2.png: ")
    assert not (experiment.parent / "runs").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(0, 200), (300, 400)])
def test_all_broken_images_are_named_before_the_run(mpnet_program: Mpnet, experiment: Path, pieces: tuple[int, int]) -> None:
    for name, length in zip(("scene-1.png", "scene-3.png"), pieces, strict=True):
        image = experiment.parent / "images" / name
        image.write_bytes(image.read_bytes()[:length] or b"no image")
    refused = mpnet_program("run", experiment, "--json")
    assert_refused(refused, "2 of 5 images cannot be used: ")
    assert [n for n in range(5) if f"scene-{n}.png: " in refused.stderr] == [1, 3]
    assert not (experiment.parent / "runs").is_dir()


def test_an_output_that_cannot_be_written_is_found_before_the_run(
    mpnet: Mpnet, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (experiment.parent / "runs").write_text("a file")
    monkeypatch.setattr("mpnet.trial.comparison.run_all", lambda *_: pytest.fail("it ran"))
    assert_refused(mpnet("run", experiment, "--json"), "cannot be written")


def assert_refused(result: subprocess.CompletedProcess[str], message: str) -> None:
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("override", ["runtime.isa=sse9", "precision.layers.conv-99=int8", "precision.layers.yolo-1=int8"])
def test_impossible_requests_end_in_one_line(mpnet: Mpnet, experiment: Path, override: str) -> None:
    result = mpnet("run", experiment, "--set", override)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_no_result(mpnet: Mpnet, experiment: Path) -> None:
    if not os.access("/dev/full", os.W_OK) or sys.platform != "linux":
        pytest.skip("no way here to limit what may be written")
    # A file size limit is what a full disk looks like to one process; Python ignores its signal by default.
    command = f"ulimit -f 1; exec {sys.executable} -m mpnet run {experiment} --json"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=experiment.parent)
    assert (result.returncode, result.stdout) == (2, "")
    assert "cannot be written" in result.stderr
    assert folders(experiment) == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_half_written(experiment: Path, number: int, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, str(experiment)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert folders(experiment) == []


# The real command, made to wait between the two files of a result so that the signal surely falls there.
SLOW_RUN = """
import sys, time
from mpnet.cli import main
from mpnet.formats.files import atomic
original = atomic._write
def slow(path, data):
    original(path, data)
    print("writing", flush=True)
    time.sleep(30)
atomic._write = slow
main.main(["run", sys.argv[1], "--quiet"])
"""


@pytest.mark.slow
def test_killed_runs_can_be_run_again(mpnet: Mpnet, experiment: Path) -> None:
    command = [sys.executable, "-c", SLOW_RUN, str(experiment)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert all(name.startswith(".") for name in folders(experiment))
    assert document_of(mpnet("run", experiment, "--json"))["reused"] is False


@pytest.mark.slow
def test_two_processes_may_finish_the_same_trial(experiment: Path) -> None:
    command = [sys.executable, "-m", "mpnet", "run", str(experiment), "--json", "--force"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert len([name for name in folders(experiment) if not name.startswith(".")]) == 2


def test_a_run_counts_errors_at_the_threshold_in_use_and_stores_nothing_of_it(mpnet: Mpnet, experiment: Path) -> None:
    first = document_of(mpnet("run", experiment, "--json"))
    point = document_of(mpnet("run", experiment, "--set", "detection.deployed=0.3", "--json"))["operating_point"]
    assert (point["score"], point["chosen_by"]) == (0.3, "as asked for")
    assert point["run"]["missed"] <= point["objects"]
    assert first["operating_point"]["chosen_by"] == "the best F1 of the baseline"
    assert len(folders(experiment)) == 2  # the configuration and its baseline: a threshold makes no other result
    printed = mpnet("run", experiment, "--set", "detection.deployed=0.3", "-q").stdout
    assert "objects missed" in printed
    assert "at score 0.300 (as asked for), IoU 0.5" in printed
    refused = mpnet("run", experiment, "--set", "detection.deployed=3")
    assert refused.returncode == 2
    assert "detection.deployed" in refused.stderr


def test_compare_counts_errors_at_the_threshold_that_is_named(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "--json"))
    baseline = Path(run["folder"]).parent / run["agreement"]["baseline"]
    compared = document_of(mpnet("compare", baseline, run["folder"], "--score", 0.2, "--json"))
    assert compared["runs"][0]["operating_point"] is None
    point = compared["runs"][1]["operating_point"]
    assert point["score"] == 0.2
    assert {row["name"] for row in point["per_class"]} == {row["name"] for row in run["per_class"]}
    assert mpnet("compare", baseline, run["folder"], "--score", 2).returncode == 2


@pytest.mark.slow
def test_the_threshold_to_deploy_with_travels_only_where_it_is_asked_for(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "--json"))["folder"]
    folder = experiment.parent
    for suffix in ("mpnet", "cfg", "yaml"):
        for name, options in (("plain", ()), ("number", ("--score", "0.25"))):
            process = mpnet("export", run, "-o", f"{name}.{suffix}", *options)
            assert process.returncode == 0, process.stderr
        plain, number = ((folder / f"{name}.{suffix}").read_bytes() for name in ("plain", "number"))
        assert plain != number
        assert b"0.25" not in plain or suffix == "mpnet"
        assert {"mpnet": b'"operating_point": {"score": 0.25}', "cfg": b"deploy with: 0.25", "yaml": b"deployed: 0.25"}[
            suffix
        ] in number
    for text, source in (("often", run), ("1.5", run), ("recall", experiment)):
        refused = mpnet("export", source, "-o", "other.cfg", "--score", text)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert text in refused.stderr
    assert not (folder / "other.cfg").exists()


def test_images_that_exif_turns_give_the_figures_of_upright_ones(mpnet: Mpnet, experiment: Path) -> None:
    """Every second image is stored turned, with the tag that says so; a result reopens as it was measured."""
    upright = document_of(mpnet("run", experiment, "--json"))
    for path in sorted((experiment.parent / "images").iterdir())[::2]:
        pixels = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        path.write_bytes(with_exif(".png", STORE[6](pixels), exif(6)))
    stored = document_of(mpnet("run", experiment, "--json"))
    turned = document_of(mpnet("run", experiment, "--json", "--set", "data.orientation=exif"))
    assert any("3 of 5 images would be turned by EXIF" in note for note in stored["notes"])
    assert any("3 of 5 images are turned upright by EXIF" in note for note in turned["notes"])
    assert turned["metrics"] == upright["metrics"] != stored["metrics"]
    assert turned["protocol"] == {**upright["protocol"], "orientation": "exif"}
    assert len({document["digests"]["trial"] for document in (upright, stored, turned)}) == 3
    again = mpnet("run", f"runs/tiny/{turned['id']}", "--json")
    assert document_of(again)["digests"] == turned["digests"]


def test_a_budget_that_is_not_shown_ends_with_4(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--require-shown", "100 agreement", "--json"))
    assert document["shown_budget"]["shown"] is True
    process = mpnet("run", experiment, "--require-shown", "0.001 agreement")
    assert process.returncode == 4
    assert "On 5 images it is not shown to keep 0.001 agreement." in process.stdout
    refused = mpnet("run", experiment, "--require-shown", "1 furlong")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
