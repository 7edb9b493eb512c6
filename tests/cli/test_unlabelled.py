# SPDX-License-Identifier: MIT
"""Images without labels: agreement is measured on them as well, AP is not, and alone they are enough for all but AP."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.detection.images import image
from mpnet.formats.images.unlabelled import read_unlabelled
from tests.cli.conftest import Mpnet, document_of
from tests.networks import write_images

SWEEP = ("--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0}", "--workers", "1")


@pytest.fixture
def frames(experiment: Path) -> Path:
    """Write six further images beside the experiment."""
    (experiment.parent / "other").mkdir()
    write_images(experiment.parent / "other", 6, seed=9)
    return experiment.parent / "other" / "images"


def video(path: Path, count: int = 7) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (64, 48))
    for number in range(count):
        writer.write(np.full((48, 64, 3), 30 * number, np.uint8))
    writer.release()
    return path


def test_ap_is_of_labelled_images_and_agreement_of_all(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    arguments = ("run", experiment, "--set", "precision.default=int8", "--json")
    alone = document_of(mpnet(*arguments))
    with_frames = document_of(mpnet(*arguments, "--unlabelled", frames))
    assert with_frames["metrics"] == alone["metrics"]
    assert with_frames["per_class"] == alone["per_class"]
    assert with_frames["protocol"]["images"] == alone["protocol"]["images"] + 6
    assert with_frames["protocol"]["unlabelled"] == 6
    assert "unlabelled" not in alone["protocol"]
    assert with_frames["digests"]["data"] != alone["digests"]["data"]
    assert with_frames["agreement"]["head_sqnr_db"] != alone["agreement"]["head_sqnr_db"]
    assert len(json.loads((Path(with_frames["folder"]) / "detections.json").read_text())) > len(
        json.loads((Path(alone["folder"]) / "detections.json").read_text())
    )


@pytest.mark.slow
def test_without_any_labels_everything_but_ap_works(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    data = ("--set", f"data={{unlabelled: {frames}}}")
    run = document_of(mpnet("run", experiment, "--set", "precision.default=int8", *data, "--json"))
    assert run["metrics"]["AP"] == -1
    assert run["agreement"]["AP"] >= 0
    assert run["protocol"]["unlabelled"] == 6
    baseline = document_of(mpnet("run", experiment, "--set", "precision.default=fp32", *data, "--json"))
    compared = document_of(mpnet("compare", baseline["folder"], run["folder"], "--json"))
    assert [*compared["runs"][1]["metrics"]]
    assert compared["runs"][0]["id"] == baseline["id"]
    swept = document_of(mpnet("sweep", experiment, *data, *SWEEP, "--json"))
    assert all(row["metrics"]["agreement_AP"] >= 0 and row["metrics"]["AP"] == -1 for row in swept["front"])
    assert mpnet("analyze", experiment, *data, "--json").returncode == 0
    page = mpnet("report", run["folder"], baseline["folder"], "-o", experiment.parent / "page.html")
    assert page.returncode == 0, page.stderr


@pytest.mark.slow
def test_compare_and_report_take_runs_to_further_images(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    runs, wider = [], []
    for precision in ("fp32", "int8"):
        arguments = ("run", experiment, "--set", f"precision.default={precision}")
        runs.append(document_of(mpnet(*arguments, "--json"))["folder"])
        wider.append(document_of(mpnet(*arguments, "--unlabelled", frames, "--json"))["folder"])
    compared = document_of(mpnet("compare", *runs, "--unlabelled", frames, "--json"))
    direct = document_of(mpnet("compare", *wider, "--json"))
    alone = document_of(mpnet("compare", *runs, "--json"))
    for compared_run, direct_run in zip(compared["runs"], direct["runs"], strict=True):
        assert compared_run["id"] == direct_run["id"]
        for row in (compared_run, direct_run):
            del row["folder"], row["latency"]
            (row["agreement"] or {}).pop("head_sqnr_db", None)  # of tensors, which a run of its own does not compare
        assert compared_run == direct_run
    assert compared["runs"][1]["differences"]["agreement_AP"] != alone["runs"][1]["differences"]["agreement_AP"]
    page = experiment.parent / "page.html"
    pages = [
        document_of(mpnet("report", *sources, "-o", page, "--json"))
        for sources in ((*runs, "--unlabelled", frames), wider, runs)
    ]
    # The last sentence is of times.
    assert pages[0]["summary"][:2] == pages[1]["summary"][:2] != pages[2]["summary"][:2]
    assert pages[0]["missing"] == []
    (experiment.parent / "labels" / "scene-0.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    refused = mpnet("compare", *runs, "--unlabelled", frames)
    assert refused.returncode == 2
    assert "have changed since this was measured" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("option", ["precision.default=int4", "quantization.activations.ranges=calibrated"])
def test_further_images_do_not_calibrate(mpnet: Mpnet, experiment: Path, frames: Path, option: str) -> None:
    """Calibration images are drawn from those that a run was measured with; runs that name these themselves are the same."""
    named = ("--unlabelled", frames, "--set", f"data.calibration.images={experiment.parent / 'images'}")
    runs, wider = [], []
    for setting in ("precision.default=fp32", option):
        arguments = ("run", experiment, "--set", setting, "--json")
        runs.append(document_of(mpnet(*arguments))["folder"])
        wider.append(document_of(mpnet(*arguments, *named))["folder"])
    compared = document_of(mpnet("compare", *runs, "--unlabelled", frames, "--json"))
    direct = document_of(mpnet("compare", *wider, "--json"))
    for key in ("metrics", "differences"):
        assert compared["runs"][1][key] == direct["runs"][1][key]
    assert compared["runs"][1]["agreement"]["AP"] == direct["runs"][1]["agreement"]["AP"]


@pytest.mark.slow
def test_a_sweep_measures_as_a_run_does(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    swept = document_of(mpnet("sweep", experiment, "--unlabelled", frames, *SWEEP, "--json"))
    key = next(row["precision"] for row in swept["front"] if not row["baseline"])
    store = swept["store"]
    run = document_of(mpnet("run", f"{store}:{key}", "--json"))
    row = next(row for row in swept["front"] if row["precision"] == key)
    assert run["protocol"]["unlabelled"] == 6
    assert run["digests"]["trial"] == row["trial"]
    assert {name: run["agreement"][name] for name in ("AP", "AP95")} == {
        name: row["metrics"][f"agreement_{name}"] for name in ("AP", "AP95")
    }
    assert run["metrics"]["AP"] == row["metrics"]["AP"]


@pytest.mark.slow
def test_of_one_image_nothing_is_said_about_others(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    for image_path in sorted(frames.iterdir())[1:]:
        image_path.unlink()
    for name, data in (("labelled", "data.limit=1"), ("bare", f"data={{unlabelled: {frames}}}")):
        arguments = ("sweep", experiment, *SWEEP, "--set", data, "--set", f"name={name}")
        sweep_document = document_of(mpnet(*arguments, "--json"))
        assert sweep_document["images"] == 1
        assert sweep_document["stability"] == {}
        printed = mpnet(*arguments).stdout
        page = experiment.parent / "page.html"
        assert mpnet("report", sweep_document["store"], "-o", page).returncode == 0
        for text in (printed, page.read_text(encoding="utf-8")):
            assert "1 images" not in text
            assert "all 1 image" not in text
            assert "(+0.00 to +0.00)" not in text
            assert "100.00 to" not in text
            assert "unknown, of too few images" in text or (name == "bare" and text is printed)


def test_an_exact_front_of_ap_is_refused(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    sweep = "sweep={strategy: exact_front, precisions: [fp32, int8], objectives: [AP, weight_bytes]}"
    refused = mpnet("sweep", experiment, "--unlabelled", frames, "--set", sweep)
    assert refused.returncode == 2
    assert "use agreement_AP in sweep.objectives" in refused.stderr


def test_lists_and_videos(tmp_path: Path, frames: Path) -> None:
    text = tmp_path / "frames.txt"
    names = sorted(file.name for file in frames.iterdir())[1:3]
    text.write_text("".join(f"other/images/{name}\n" for name in names))
    assert [Path(record.path).name for record in read_unlabelled(text)] == names
    records = read_unlabelled(video(tmp_path / "clip.avi"))
    assert len(records) == 7
    assert len({record.sha256 for record in records}) == 7
    levels = {n: int(image(records[n]).mean()) for n in (5, 0, 6, 3)}  # in any order
    assert all(abs(level - 30 * n) < 4 for n, level in levels.items())


def test_images_that_are_labelled_already_count_once(mpnet: Mpnet, experiment: Path) -> None:
    shutil.copytree(experiment.parent / "images", experiment.parent / "again")
    run = document_of(mpnet("run", experiment, "--unlabelled", experiment.parent / "again", "--json"))
    assert "unlabelled" not in run["protocol"]
    assert any("count once" in line for line in run["notes"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty", None, "holds no images"),
        ("missing", "", "is no folder of images"),
        ("none.txt", b"\n", "holds no images"),
        ("bad.txt", b"\xff\xfe\xff", "is not UTF-8 text"),
        ("lost.txt", b"nowhere.png\n", "nowhere.png"),
        ("clip.mp4", b"not a video", "is not a video"),
    ],
)
def test_what_holds_no_images_ends_in_one_line(
    mpnet: Mpnet, experiment: Path, name: str, content: bytes | None, message: str
) -> None:
    path = experiment.parent / name
    if content is None:
        path.mkdir()
    elif content:
        path.write_bytes(content)
    for command in ("run", "sweep"):
        refused = mpnet(command, experiment, "--unlabelled", path, *(SWEEP if command == "sweep" else ()))
        assert refused.returncode == 2
        assert message in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert not list((experiment.parent / "runs").glob("*/*"))


def test_init_writes_the_key(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    folder = experiment.parent
    for images, name in ((("--images", "images"), "both"), ((), "alone")):
        arguments = ("--cfg", "net.cfg", "--weights", "net.weights", "--names", "net.names", "--unlabelled", "other/images")
        document = document_of(mpnet("init", *arguments, *images, "-o", f"{name}.yaml", "--json", cwd=folder))
        assert document["unlabelled"] == 6
        assert ("agreement_AP, AP, bit_operations" in (folder / f"{name}.yaml").read_text()) == bool(images)
        run = document_of(mpnet("run", f"{name}.yaml", "--json", cwd=folder))
        assert run["protocol"]["unlabelled"] == 6
    assert mpnet("init", "--cfg", "net.cfg", cwd=folder).returncode == 2


def test_a_format_is_still_needed_for_labelled_images(mpnet: Mpnet, experiment: Path, frames: Path) -> None:
    refused = mpnet("run", experiment, "--set", f"data={{images: images, unlabelled: {frames}}}")
    assert refused.returncode == 2
    assert "'data.format' is missing" in refused.stderr.replace("key ", "")


def test_a_stranger_with_images_alone_is_told_what_to_do_and_what_it_loses(
    mpnet: Mpnet, experiment: Path, frames: Path
) -> None:
    shutil.copytree(frames, experiment.parent / "own" / "bare")
    files = ("--cfg", "net.cfg", "--weights", "net.weights", "-o", "mine.yaml")
    refused = mpnet("init", *files, "--images", "own/bare")
    assert refused.stderr.endswith("images without labels: --unlabelled own/bare\n")
    assert mpnet("init", *files, "--unlabelled", "own/bare").returncode == 0
    assert "such as agreement_AP_drop: 1 (points)" in (experiment.parent / "mine.yaml").read_text(encoding="utf-8")
    swept = mpnet("sweep", "mine.yaml", *SWEEP, "--no-time")
    assert swept.returncode == 0, swept.stderr
    assert "What you could take; agreement AP on 6 images" in swept.stdout
    assert "not measured" not in swept.stdout
    assert mpnet("report", "runs/mine/latest.sqlite", "-o", "mine.html", "-q").returncode == 0
    assert "loss not measured" not in (experiment.parent / "mine.html").read_text(encoding="utf-8")
