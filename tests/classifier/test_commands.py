# SPDX-License-Identifier: MIT
"""Every command on a trained classifier, as a user would call it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from mpnet.sweep.store import TrialStore
from tests.classifier.conftest import FOLDER
from tests.cli.conftest import Mpnet, document_of, mpnet

__all__ = ["mpnet"]
NET = ("--cfg", FOLDER / "shapes.cfg", "--weights", FOLDER / "shapes.weights", "--names", FOLDER / "shapes.names")


@pytest.fixture
def file(shapes: Path, tmp_path: Path) -> Path:
    """Return the experiment, with results in a folder of the test's own."""
    text = (shapes / "shapes.yaml").read_text(encoding="utf-8").replace("val/", f"{shapes}/val/")
    path = tmp_path / "shapes.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_run_compare_and_report(mpnet: Mpnet, file: Path) -> None:
    run = document_of(mpnet("run", file, "--json"))
    assert run["metrics"]["top1"] > 80
    assert run["metrics"]["top5"] >= run["metrics"]["top1"]
    assert 80 < run["agreement"]["top1"] < 100
    assert (run["protocol"]["task"], run["protocol"]["resize"]) == ("classification", "crop")
    assert sum(row["truths"] for row in run["per_class"]) == run["protocol"]["images"]
    folder = Path(run["folder"])
    assert {path.name for path in folder.iterdir()} == {"result.json", "predictions.json"}
    assert document_of(mpnet("run", file, "--json"))["reused"]

    baseline = folder.parent / run["agreement"]["baseline"]
    comparison = document_of(mpnet("compare", baseline, folder, "--images", "lost", "--json"))
    compared_run, images = comparison["runs"][1], run["protocol"]["images"]
    lost_images = [change for change in compared_run["changes"] if change["kind"] == "lost"]
    gained_images = [change for change in compared_run["changes"] if change["kind"] == "gained"]
    assert compared_run["differences"]["top1"] == pytest.approx(100 * (len(gained_images) - len(lost_images)) / images)
    assert compared_run["agreement"]["top1"] == run["agreement"]["top1"]
    interval = compared_run["intervals"]["top1"]
    assert interval["low"] <= compared_run["differences"]["top1"] <= interval["high"]
    assert all(change["baseline_class"] == change["class"] != change["other_class"] for change in lost_images)
    assert all(change["other_class"] == change["class"] != change["baseline_class"] for change in gained_images)
    assert {(file.parent / change["file"]).read_bytes()[:2] for change in lost_images + gained_images} == {b"\xff\xd8"}
    text = mpnet("compare", baseline, folder).stdout
    assert f"{len(lost_images)} images lost, {len(gained_images)} gained" in text
    assert "McNemar's test: mid-p" in text

    page = document_of(mpnet("report", folder, "-o", "page.html", "--json"))
    assert "top-1" in page["summary"][1]
    assert "% of the images" in page["summary"][1]
    html = file.with_name("page.html").read_text(encoding="utf-8")
    assert "McNemar" in html
    assert all(f"→ {change['other_class']}" in html for change in lost_images)


@pytest.mark.slow
def test_every_trial_of_a_sweep_is_what_a_run_gives_and_a_second_sweep_computes_nothing(mpnet: Mpnet, file: Path) -> None:
    small_space = ("--set", "sweep.space.tied=[[1..6], [7..13]]", "--set", "sweep.strategy=exhaustive", "--workers", 1)
    swept = document_of(mpnet("sweep", file, *small_space, "--json"))
    assert (swept["space"], swept["computed"]) == (8, 8)
    assert swept["objectives"] == ["agreement_top1", "bit_operations"]
    assert set(swept["picks"]) <= {"safe", "balanced", "smallest"}
    assert document_of(mpnet("sweep", file, *small_space, "--json"))["computed"] == 0
    with TrialStore.read(swept["store"]) as store:
        trials = {trial.key: trial.values for trial in store.trials(1)}
        digests = {key: store.trial_digest(1, key) for key in trials}
    for key in random.Random(1).sample(sorted(trials), 2):
        layers = {index: {"f": "fp32", "q": "int8"}[code] for index, code in enumerate(key)}
        run = document_of(mpnet("run", file, "--json", "--set", f"precision.layers={json.dumps(layers)}"))
        assert (run["precision"]["key"], run["digests"]["trial"]) == (key, digests[key])
        assert run["metrics"] == {name: trials[key][name] for name in ("top1", "top5")}
        assert run["agreement"]["top1"] == trials[key]["agreement_top1"]
        assert run["cost"]["bit_operations"] == trials[key]["bit_operations"]
    page = document_of(mpnet("report", swept["store"], "-o", "sweep.html", "--json"))
    assert page["missing"] == []
    compared = document_of(mpnet("compare", f"{swept['store']}:baseline", f"{swept['store']}:smallest", "--json"))
    assert compared["runs"][1]["metrics"]["top1"] == trials[compared["runs"][1]["precision"]]["top1"]


def test_analyze_and_detect(mpnet: Mpnet, file: Path, shapes: Path) -> None:
    analysis = document_of(mpnet("analyze", file, "--images", 4, "--json"))
    assert len(analysis["head_sqnr_db"]) == 1
    image = sorted((shapes / "val" / "star").iterdir())[0]
    document = document_of(mpnet("detect", *NET, image, "--out", "drawn", "--json"))
    classes = document["files"][0]["classes"]
    assert len(classes) == 5
    assert [c["score"] for c in classes] == sorted((c["score"] for c in classes), reverse=True)
    assert 0 < sum(c["score"] for c in classes) <= 1 + 1e-5
    assert Path(file.parent / "drawn" / image.name).is_file()
    lines = mpnet("detect", *NET, image).stdout.splitlines()
    assert lines[0] == f"{image}: {classes[0]['name']}"
    assert lines[1] == f"  {classes[0]['score']:.3f}  {classes[0]['name']}"


def test_what_does_not_fit_is_said_in_one_line(mpnet: Mpnet, file: Path, shapes: Path) -> None:
    for arguments, message in (
        (("run", file, "--set", "data={format: yolo, images: val, labels: val}"), "is a classifier; use imagefolder or list"),
        (("sweep", file, "--set", "sweep.objectives=[AP, bit_operations]"), "AP is not measured of a classifier"),
        (("sweep", file, "--set", "sweep.constraints.ap_drop=1"), "AP is not measured of a classifier"),
        (("run", file, "--set", f"data.images={shapes}"), "'val' is not among the 10 names of the classes"),
    ):
        answer = mpnet(*arguments)
        assert answer.returncode == 2
        assert message in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1
