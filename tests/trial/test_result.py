# SPDX-License-Identifier: MIT
"""Folders of results: finished once, replaced whole, found by their experiment's name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.errors import StoreError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import RunReport, run_experiment
from mpnet.trial.result import Result, finished, holds_result, mark_latest, read_result, republish


def test_a_second_run_computes_nothing(experiment: Path, report: RunReport) -> None:
    assert not report.reused
    second_report = run_experiment(read_experiment(experiment, ["precision.default=int8"]))
    assert second_report.reused
    assert second_report.result.run.metrics == report.result.run.metrics
    assert second_report.result.id == report.result.id


def test_the_experiments_folder_stands_for_the_latest_result(report: RunReport) -> None:
    assert report.baseline is not None
    folder = report.result.folder.parent
    assert holds_result(folder)
    assert read_result(folder).id == report.result.id
    mark_latest(report.baseline.folder)
    assert read_result(folder).id == report.baseline.id
    (folder / "latest").unlink()
    with pytest.raises(StoreError, match="holds 2 results"):
        read_result(folder)


def test_measures_leave_out_what_could_not_be_measured(report: RunReport) -> None:
    result = Result(report.result.folder, replace(report.result.run, metrics={"AP": 12.5, "AP_large": -1.0}))
    assert result.measures["AP"] == 12.5
    assert "AP_large" not in result.measures
    assert "agreement_AP" in result.measures
    assert result.words == "int8 everywhere"
    assert result.table.columns["measure"] == list(result.measures)


def test_a_changed_result_keeps_its_predictions(report: RunReport) -> None:
    predictions = report.result.predictions_path.read_bytes()
    republish(Result(report.result.folder, replace(report.result.run, notes=("changed",))))
    stored_result = finished(report.result.folder)
    assert stored_result is not None
    assert stored_result.run.notes == ("changed",)
    assert stored_result.predictions_path.read_bytes() == predictions


def test_a_class_without_its_measure_is_damage(report: RunReport) -> None:
    path = report.result.folder / "result.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["per_class"][0]["AP"]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StoreError, match="a damaged result of mpnet: per_class: AP of 'circle' is missing"):
        read_result(path)


def test_a_folder_without_results_says_what_to_name(tmp_path: Path) -> None:
    assert finished(tmp_path) is None
    with pytest.raises(StoreError, match="holds no result; name a folder that `mpnet run` wrote"):
        read_result(tmp_path)
