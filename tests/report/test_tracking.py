# SPDX-License-Identifier: MIT
"""`--log`: what a tracking program keeps of a run and of a sweep, without any network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpnet.report import tracking
from mpnet.trial.result import read_result
from tests.cli.conftest import Mpnet, document_of, experiment, mpnet  # noqa: F401  # noqa: F401

SWEEP = ("--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8]}", "--workers", "1", "--no-time")


class RecordingTracker:
    """A program that remembers what it is told."""

    def __init__(self) -> None:
        self.parameters_kept: dict[str, str] = {}
        self.steps: list[tuple[int, dict[str, float]]] = []
        self.files: list[Path] = []
        self.is_closed = False

    def parameters(self, values: Any) -> None:
        self.parameters_kept.update(values)

    def measures(self, values: Any, step: int) -> None:
        self.steps.append((step, dict(values)))

    def file(self, path: Path) -> None:
        self.files.append(path)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> RecordingTracker:
    trackers = RecordingTracker()
    monkeypatch.setattr(tracking, "open_tracker", lambda program, name: trackers)
    return trackers


def test_a_run_is_kept(mpnet: Mpnet, experiment: Path, tracker: RecordingTracker) -> None:
    document = document_of(mpnet("run", experiment, "--log", "mlflow", "--json"))
    result = read_result(experiment.parent / document["folder"])
    assert tracker.parameters_kept["precision"] == document["precision"]["key"]
    [(_, measures)] = tracker.steps
    assert measures["AP50"] == result.metrics["AP50"]
    assert measures["bit_operations"] == document["cost"]["bit_operations"]
    assert [path.name for path in tracker.files] == ["result.json", f"{result.id}.html"]
    assert (
        "One configuration" in tracker.files[1].read_text() or "2 configurations were compared" in tracker.files[1].read_text()
    )
    assert tracker.is_closed


def test_every_trial_of_a_sweep_is_a_step(mpnet: Mpnet, experiment: Path, tracker: RecordingTracker) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--log", "mlflow", "--json"))
    trials = [step for step, measures in tracker.steps if "AP" in measures]
    assert trials == list(range(1, document["trials"] + 1))
    assert tracker.steps[-1][1] == {"front": len(document["front"])}
    assert tracker.parameters_kept["pick.smallest"] == document["picks"]["smallest"]["precision"]
    store, page = tracker.files
    assert store.name == Path(document["store"]).name
    assert f"{document['trials']} configurations were measured" in page.read_text()
    assert tracker.is_closed


class ServerError(Exception):
    """A tracking program's own: no OSError, no error of mpnet."""


class FailingTracker(RecordingTracker):
    """A program that prints, and fails in one of its calls, from the third of them on."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call, self.calls = call, 0
        self.fail_in("open")

    def fail_in(self, call: str) -> None:
        print("View your run at http://127.0.0.1:9")
        self.calls += 1
        if call == self.call and (call != "measures" or len(self.steps) > 1):
            raise ServerError("API request failed:\nconnection refused")

    def parameters(self, values: Any) -> None:
        self.fail_in("parameters")
        super().parameters(values)

    def measures(self, values: Any, step: int) -> None:
        self.fail_in("measures")
        super().measures(values, step)

    def file(self, path: Path) -> None:
        self.fail_in("file")

    def close(self) -> None:
        self.fail_in("close")


NOTE = "failed (ServerError: API request failed:\\nconnection refused); it is told nothing more, the results are as without it"


@pytest.mark.parametrize("call", ["open", "parameters", "measures", "file", "close"])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_program_that_fails_is_one_note_and_takes_no_result_with_it(
    command: str, call: str, mpnet: Mpnet, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingTracker("")
    failing.call, working = call, RecordingTracker()

    def open_tracker(program: str, name: str) -> RecordingTracker:
        if program == "wandb":
            return working
        failing.fail_in("open")
        return failing

    monkeypatch.setattr(tracking, "open_tracker", open_tracker)
    if command == "run" and call == "measures":
        failing.steps = [(0, {}), (0, {})]
    arguments = (command, experiment, *(SWEEP if command == "sweep" else ()), "--json")
    process = mpnet(*arguments, "--log", "mlflow", "--log", "wandb")
    document = document_of(process)  # nothing else stands on standard output
    assert process.stderr.count("--log mlflow: ") == process.stderr.count(f"--log mlflow: {NOTE}") == 1
    assert "Traceback" not in process.stderr
    failed_after = failing.calls
    assert working.is_closed  # the other one is told all
    assert len(working.files) == 2
    assert working.parameters_kept["precision"]
    again = document_of(mpnet(*arguments))
    trials = "trials" if command == "sweep" else "metrics"
    assert again[trials] == document[trials]
    assert failing.calls == failed_after


def test_a_tracker_that_fails_leaves_the_exit_status_of_a_sweep(
    mpnet: Mpnet, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "open_tracker", lambda program, name: FailingTracker("open"))
    limits = ("--set", "sweep.constraints={ap_drop: 0, weight_bytes: 1}")
    process = mpnet("sweep", experiment, *SWEEP, *limits, "--log", "mlflow")
    assert process.returncode == 1  # nothing fits, which the result says
    assert process.stderr.count(NOTE) == 1


def test_an_interrupted_sweep_closes_its_tracker(
    mpnet: Mpnet, experiment: Path, tracker: RecordingTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(values: Any, step: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tracker, "measures", interrupt)
    process = mpnet("sweep", experiment, *SWEEP, "--log", "mlflow")
    assert process.returncode == 130
    assert tracker.is_closed


def test_a_page_that_cannot_be_written_is_one_note(
    mpnet: Mpnet, experiment: Path, tracker: RecordingTracker, tmp_path: Path
) -> None:
    document = document_of(mpnet("run", experiment, "--json"))
    folder = experiment.parent / document["folder"]
    folder.with_name(f"{folder.name}.html").mkdir()
    process = mpnet("run", experiment, "--json", "--log", "mlflow")
    assert document_of(process)["metrics"] == document["metrics"]
    assert process.stderr.count("--log: has no page of the report: ") == 1
    assert [path.name for path in tracker.files] == ["result.json"]
    assert tracker.is_closed


def test_a_program_that_is_missing_is_one_line(mpnet: Mpnet, experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "requirements", lambda *names: ("no-such-package>=1",))
    process = mpnet("run", experiment, "--log", "wandb")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "pip install --upgrade 'mpnet[wandb]'" in process.stderr


def test_mlflow_gives_up_soon_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    patience: dict[str, str | None] = {}

    def set_experiment(name: str) -> None:
        patience.update({setting: os.environ.get(setting) for setting in tracking.MLFLOW_PATIENCE})

    module = SimpleNamespace(set_experiment=set_experiment, start_run=lambda run_name: None)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setattr(tracking, "requirements", lambda *names: ())
    for setting in tracking.MLFLOW_PATIENCE:  # what is set below goes with the test
        monkeypatch.setenv(setting, "")
        monkeypatch.delenv(setting)
    tracking.open_tracker("mlflow", "name")
    assert patience == tracking.MLFLOW_PATIENCE
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")
    tracking.open_tracker("mlflow", "name")
    assert patience == {**tracking.MLFLOW_PATIENCE, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "7"}


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlflow", "tensorboard", "wandb"])
def test_real_programs_take_it(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(program, reason=f"SKIPPED WITHOUT {program.upper()}: pip install {program}, to test --log {program}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "page.html").write_text("<title>report</title>")
    tracker = tracking.open_tracker(program, "name")
    tracker.parameters({"precision": "qqq"})
    tracker.measures({"AP": 50.0}, 1)
    for name in ("result.json", "page.html"):
        tracker.file(tmp_path / name)
    tracker.close()
    inputs = [tmp_path / "result.json", tmp_path / "page.html"]
    outputs = [path for path in tmp_path.rglob("*") if path.is_file() and path not in inputs]
    for name in ("result.json", "page.html"):  # a copy, or its path in a text
        assert any(path.name == name or name.encode() in path.read_bytes() for path in outputs)
