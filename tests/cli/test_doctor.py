# SPDX-License-Identifier: MIT
"""`mpnet doctor` as a command: exit codes, one document, remedies that work when they are typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mpnet.diagnose.doctor import CHECKS
from mpnet.packages import program
from tests.cli.conftest import Mpnet, document_of
from tests.conftest import DemoModel
from tests.diagnose.patients import expect_bytes, write_changed, write_colour_classifier


def test_a_sound_network_exits_with_0_and_says_what_was_looked_at(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("doctor", experiment, "--count", 3, "--json"))
    assert (document["findings"], document["images"], document["labelled"]) == ([], 3, True)
    assert [check["kind"] for check in document["checks"]] == [check.name for check in CHECKS]
    process = mpnet("doctor", experiment, "--count", 3)
    assert (process.returncode, process.stdout.splitlines()[0]) == (0, "0 findings on 3 images")
    assert not (experiment.parent / "runs").exists()


def test_a_finding_exits_with_1_with_place_numbers_and_remedy(mpnet: Mpnet, tmp_path: Path) -> None:
    write_colour_classifier(tmp_path, is_bgr=True)
    process = mpnet("doctor", "net.cfg", "images", "--names", "net.names", "-q")
    assert process.returncode == 1
    assert process.stdout.splitlines()[:3] == ["1 finding on 15 images", "", "input: net.cfg"]
    assert process.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.cfg"], "net.cfg: name images to examine it on, as in `"),
        (["experiment.yaml", "images"], "experiment.yaml: names its images itself; leave images out"),
        (["net.cfg", "images", "--set", "data.limit=1"], "--set changes an experiment file"),
        (["net.cfg", "nowhere"], "nowhere: no such folder"),
        (["net.onnx", "images"], "net.onnx: "),
    ],
)
def test_what_cannot_be_examined_is_one_line(arguments: list[str], message: str, mpnet: Mpnet, experiment: Path) -> None:
    process = mpnet("doctor", *arguments, cwd=experiment.parent)
    assert process.returncode == 2
    assert message in process.stderr
    assert process.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_remedy_for_wrong_values_mends_them(mpnet: Mpnet, demo_model: DemoModel, tmp_path: Path) -> None:
    write_changed(demo_model, tmp_path, expect_bytes)
    process = mpnet("doctor", "net.cfg", "images", "--names", "net.names", "--count", 12, "--json")
    [finding] = json.loads(process.stdout)["findings"]
    for command in finding["remedy"].split(" && "):
        name, *arguments = shlex.split(command)
        assert Path(name).name == Path(program()).name  # which stands otherwise in another folder
        assert mpnet(*arguments).returncode == 0
    fixed = ("fixed/net.cfg", "images", "--names", "net.names", "--count", 12, "--json")
    assert document_of(mpnet("doctor", *fixed))["findings"] == []
