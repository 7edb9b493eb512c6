# SPDX-License-Identifier: MIT
"""`mpnet tune`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of
from tests.networks import write_images


def test_nothing_to_win_back_is_said_and_nothing_written(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "others").mkdir()
    write_images(tmp_path / "others", 12, seed=9)
    arguments = ("tune", experiment, "--unlabelled", "others/images", "-o", "tuned.yaml", "--stages", "channels")
    fp32 = ("--set", "precision.default=fp32")
    process = mpnet(*arguments, *fp32)
    assert process.returncode == 0
    assert "7 images tuned, 5 others judged" in process.stdout
    assert "nothing to win back" in process.stdout
    document = document_of(mpnet(*arguments, *fp32, "--json"))
    assert (document["kept"], document["agreement_before"]) == (False, 100.0)
    assert document["files"] == {"experiment": None, "weights": None, "record": None}
    assert document["weights"] == document["parent"]
    assert not list(tmp_path.glob("tuned.*"))


def test_places_and_images_are_checked_in_one_line(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "file").write_text("x")
    for target, images, message in (
        ("file/tuned.yaml", "images", "error: file/tuned.yaml: cannot be written: "),
        ("tuned.yaml", "images", "error: images: 5 of its 5 images are among those that "),
        ("tuned.yaml", "nowhere", "error: nowhere: is no folder of images "),
        ("experiment.yaml", "images", "error: experiment.yaml: is there already, and nothing is overwritten"),
    ):
        process = mpnet("tune", experiment, "--unlabelled", images, "-o", target)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1), message
        assert process.stderr.startswith(message)


@pytest.mark.slow
def test_what_a_sweep_recommends_is_tuned_as_it_is(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "others").mkdir()
    write_images(tmp_path / "others", 12, seed=9)
    space = "precisions: [fp32, int8], space: {layers: {heads: fp32}}"
    sweep = f"sweep={{strategy: one_at_a_time, {space}, constraints: {{agreement_AP_drop: 60}}}}"
    found = document_of(mpnet("sweep", experiment, "--set", sweep, "--store", "s.sqlite", "--workers", "1", "--json"))
    arguments = ("--unlabelled", "others/images", "-o", "tuned.yaml", "--stages", "channels", "--json")
    document = document_of(mpnet("tune", "s.sqlite:recommended", *arguments))
    assert document["precision"] == found["best"]["precision"]
    assert set(document["precision"]) == {"f", "q"}
