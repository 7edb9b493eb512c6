# SPDX-License-Identifier: MIT
"""Paths of experiment files as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import MpnetError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.files.paths import find_by_any_form, without_detours


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


@pytest.mark.parametrize("folder", ["", "dossie\u0301", "dossi\u00e9"])
def test_a_file_is_found_with_accents_composed_or_apart(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    apart, composed = place / "cafe\u0301.png", place / "caf\u00e9.png"
    assert find_by_any_form(composed) == composed
    apart.touch()
    assert find_by_any_form(composed) == apart
    composed.touch()
    assert find_by_any_form(composed) == composed
    assert find_by_any_form(apart) == apart


@pytest.mark.parametrize(
    ("path", "hint"),
    [("~/net.cfg", "`~` is a shell's word for the home folder"), ("$HOME/net.cfg", "variables are put in by a shell")],
)
def test_what_a_shell_would_have_read_is_said(path: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MpnetError, match=hint):
        read_cfg(path)
