# SPDX-License-Identifier: MIT
"""A run and a bench on a board, over an sshd on loopback: the same bits, other bits, rubbish, and a board that throttles."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import cv2
import pytest
from rich.console import Console

from mpnet.data.dataset import ImageRecord
from mpnet.deploy.bench_on_board import bench_on_board
from mpnet.deploy.board_images import board_images
from mpnet.deploy.run_on_board import first_difference, run_on_board
from mpnet.detection.conditions import Condition
from mpnet.detection.images import read_image
from mpnet.errors import ConfigError, EngineError
from mpnet.formats.cfg.read import read_cfg
from mpnet.report.text.bench import print_bench
from mpnet.speed.bench import Bench
from mpnet.trial.experiment import RunReport, run_experiment
from mpnet.trial.inputs import Inputs
from tests.cli.conftest import run_program
from tests.deploy.conftest import write_stand_in
from tests.deploy.sshd import Loopback
from tests.mprun.conftest import Program, mpnet
from tests.mprun.conftest import mprun as mprun
from tests.networks import write_experiment

pytestmark = pytest.mark.slow


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Write the tiny network with labelled images, one of them a JPEG and the others PNGs; return its experiment.yaml."""
    path = write_experiment(tmp_path)
    png = min((tmp_path / "images").glob("*.png"))
    cv2.imwrite(str(png.with_suffix(".jpg")), cv2.imread(str(png)))
    png.unlink()
    return path


def test_a_board_finds_the_bytes_of_the_run_in_all_kinds_of_images(host: Loopback, mprun: Program, experiment: Path) -> None:
    changes = ("--set", "data.condition=fog", "--set", "precision.default=int8")
    arguments = ("run", experiment, *changes, "--on", "board")
    process = run_program(experiment.parent, *arguments, "--ssh-config", host.config, "--mprun", mprun.path, "--json")
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    board = document["board"]
    assert (board["host"], board["same_bits"], board["difference"]) == ("board", True, "")
    assert board["images"] == document["protocol"]["images"]
    stored = json.loads(Path(document["folder"], "detections.json").read_text(encoding="utf-8"))
    assert board["detections"] == len(stored) > 0
    measures = board["measures"]
    assert {"AP", "AP50", "agreement_AP"} < measures.keys()
    agreement = {f"agreement_{name}": value for name, value in document["agreement"].items()}
    assert measures == {name: {**document["metrics"], **agreement}[name] for name in measures}
    assert (host.folders, list(host.home.iterdir())) == ([], [])


@pytest.fixture
def report(experiment: Path) -> RunReport:
    return run_experiment(experiment)


def test_other_findings_are_named_and_measured(host: Loopback, report: RunReport, tmp_path: Path) -> None:
    lines = report.result.predictions_path.read_text(encoding="utf-8").splitlines()
    changed = [lines[0], lines[1].replace('"score":0', '"score":1'), *lines[2:]]
    (tmp_path / "other.json").write_text("\n".join(changed) + "\n", encoding="utf-8")
    run = run_on_board(report, host.board(), write_stand_in(tmp_path, f"cp {tmp_path}/other.json detections.json"))
    assert not run.is_same
    assert run.difference.startswith('line 2 is {"image_id":')
    assert run.detections == len(lines) - 2
    with pytest.raises(EngineError, match="what came back are no detections"):
        run_on_board(report, host.board(), write_stand_in(tmp_path, "echo '{' > detections.json"))
    assert host.folders == []


def test_the_first_difference_of_two_files_is_a_line() -> None:
    assert first_difference(b"[]\n", b"[]\n") == ""
    assert first_difference(b"[\n{}\n]\n", b"[\n]\n") == "line 2 is {} there and ] here"
    assert first_difference(b"[\n", b"[\n]\n") == "line 2 is missing there and ] here"
    assert first_difference(b"[", b"[\n") == "one file ends in the middle of a line"
    assert "\x1b" not in first_difference(b"\x1b[31m", b"")


def test_images_go_as_they_are_where_mprun_reads_them_else_as_pixels(report: RunReport, tmp_path: Path) -> None:
    inputs = report.bench.inputs
    listed, archive = board_images(inputs)
    names = listed.content().decode().splitlines()
    assert names == [f"{record.id} images/{record.id}" for record in inputs.records]
    with tarfile.open(fileobj=io.BytesIO(archive.content())) as unpacked:
        for record in inputs.records:
            member = unpacked.extractfile(f"images/{record.id}")
            assert member is not None
            data = member.read()
            assert data.startswith(b"\xff\xd8" if record.path.endswith(".jpg") else b"P6\n")
            (tmp_path / "sent").write_bytes(data)
            assert (read_image(tmp_path / "sent") == read_image(record.path)).all()
    foggy = board_images(inputs.under(Condition("fog", 3)))
    assert (foggy[0].digest, foggy[1].digest == archive.digest) == (listed.digest, False)
    negative = ImageRecord(-1, "a.png", 1, 1, "")
    with pytest.raises(ConfigError, match="with --on ids are from 0"):
        board_images(Inputs([negative], report.bench.network, "stretch", lambda record: read_image(record.path)))


def test_a_board_benches_every_combination(host: Loopback, mprun: Program, experiment: Path) -> None:
    folder = experiment.parent
    arguments = ("bench", "net.cfg", "--precisions", "fp32,mixed", "--threads", "1,2", "--repeats", 3, "--json")
    process = run_program(folder, *arguments, "--on", "board", "--ssh-config", host.config, "--mprun", mprun.path)
    document = json.loads(process.stdout)
    assert process.returncode == int("doubt" in document["machine"]), process.stderr
    assert document["machine"]["host"] == "board"
    assert [(case["threads"], case["precision"]) for case in document["cases"]] == [
        (threads, precision) for threads in (1, 2) for precision in ("fp32", "mixed")
    ]
    network = read_cfg(folder / "net.cfg")
    for case in document["cases"]:
        assert case["macs"] == network.macs == sum(step["macs"] for step in case["steps"])
        assert 0 < case["min_ms"] <= case["median_ms"]
        assert all(0 <= step["min_ms"] <= step["median_ms"] for step in case["steps"])
        assert (case["overhead_ms"], case["first_result_ratio"], case["peak_share"]) == (None, None, None)
    assert (host.folders, list(host.home.iterdir())) == ([], [])


RUBBISH = {"no JSON": "echo {", "no steps": 'echo \'{"isa": "neon", "threads": 1, "min_ms": 1, "median_ms": 1, "steps": []}\''}


@pytest.mark.parametrize("kind", RUBBISH)
def test_times_that_are_none_give_one_line(kind: str, host: Loopback, experiment: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="what came back are no times") as caught:
        bench_on_board(
            experiment.parent / "net.cfg",
            host.board(),
            program=write_stand_in(tmp_path, RUBBISH[kind]),
            precisions=("fp32",),
            repeats=3,
        )
    assert "\n" not in str(caught.value)
    assert host.folders == []


def test_what_only_this_machine_has_is_refused_before_a_board_is_asked(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(experiment.parent)
    for words, message in (
        (("bench", "net.cfg", "--on", "board", "--isa", "all"), "--isa all: means levels of this machine"),
        (("bench", "net.cfg", "--on", "board", "--device", "opencl"), "--device: is of this machine"),
        (("bench", "net.cfg", "--ssh-config", "net.cfg"), "are of a board; name it with --on"),
        (("run", experiment, "--mprun", "net.cfg"), "are of a board; name it with --on"),
        (("run", experiment, "--on", "a b"), "is no host"),
    ):
        assert message in mpnet(*words, code=2)


def test_a_bench_of_a_board_that_throttled_is_doubted(experiment: Path) -> None:
    machine = {"host": "board", "core": "Cortex-A72", "doubt": "the clock fell to 1500 of 1800 MHz"}
    bench = Bench(read_cfg(experiment.parent / "net.cfg"), {}, (), machine)
    assert (bench.doubt, bench.as_json()["machine"]) == (machine["doubt"], machine)
    text = io.StringIO()
    print_bench(bench, Console(file=text, width=200))
    assert "measured on board\ncore Cortex-A72, doubt the clock fell to 1500 of 1800 MHz" in text.getvalue()
