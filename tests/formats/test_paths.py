# SPDX-License-Identifier: MIT
"""Paths of experiment files as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.files.paths import without_detours


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("experiments/../runs/a", "runs/a"),
        ("experiments/deep/../../runs", "runs"),
        ("../../runs", "../../runs"),
        ("missing/../runs", "missing/../runs"),  # where there is no such folder, the system finds nothing either
        ("link/../runs", "link/../runs"),  # which is elsewhere/runs
        ("experiments/./a", "experiments/a"),
        (".", "."),
    ],
)
def test_detours_go_where_they_change_nothing(
    written: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiments" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere/deep")
    monkeypatch.chdir(tmp_path)
    assert str(without_detours(Path(written))) == expected
    for path in (Path(written), tmp_path / written):
        assert without_detours(path).resolve() == path.resolve()


def test_an_experiments_paths_have_no_detours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiments").mkdir()
    monkeypatch.chdir(tmp_path)
    text = "name: a\nmodel: {cfg: ../net/a.cfg, weights: ../net/a.weights}\noutput: ../runs\n"
    experiment = parse_experiment(text, source="experiments/a.yaml", base="experiments")
    assert [str(path) for path in (experiment.model.cfg, experiment.model.weights, experiment.output)] == [
        "net/a.cfg",
        "net/a.weights",
        "runs",
    ]
