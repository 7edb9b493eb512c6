# SPDX-License-Identifier: MIT
"""Runs and sweeps under other conditions: what they compare, what they keep, what their names are."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from mpnet.formats.documents.typed import build
from mpnet.report.text.conditions import print_conditions
from mpnet.sweep.result import SweepResult
from tests.cli.conftest import Mpnet, document_of

SWEEP = (
    "--set",
    "sweep={strategy: one_at_a_time, precisions: [fp32, int8], objectives: [agreement_AP, AP, bit_operations], holdout: 0, "
    "conditions: [blur:2, dark]}",
    "--workers",
    "1",
    "--json",
)


def test_a_condition_is_part_of_a_results_name(mpnet: Mpnet, experiment: Path) -> None:
    arguments = ("run", experiment, "--set", "precision.default=int8", "--json")
    clean = document_of(mpnet(*arguments))
    dark = document_of(mpnet(*arguments, "--set", "data.condition=dark"))
    by_condition = document_of(mpnet(*arguments, "--set", "data.condition=dark:3"))
    assert "condition" not in clean["protocol"]
    assert dark["protocol"]["condition"] == "dark:3"
    assert dark["id"] == by_condition["id"] != clean["id"]
    assert dark["digests"]["data"] == clean["digests"]["data"]
    assert dark["agreement"]["head_sqnr_db"] != clean["agreement"]["head_sqnr_db"]


def test_calibration_sees_images_as_they_are(mpnet: Mpnet, experiment: Path) -> None:
    arguments = ("run", experiment, "--set", "precision.default=int8", "--json")
    arguments += ("--set", "quantization.activations.ranges=calibrated", "--set", "data.calibration.count=3")
    clean = document_of(mpnet(*arguments))
    dark = document_of(mpnet(*arguments, "--set", "data.condition=dark:5"))
    assert dark["digests"]["calibration"] == clean["digests"]["calibration"]
    assert dark["id"] != clean["id"]


@pytest.mark.slow
def test_a_sweep_measures_each_condition_as_a_run_does(mpnet: Mpnet, experiment: Path) -> None:
    swept = document_of(mpnet("sweep", experiment, *SWEEP))
    conditions = swept["conditions"]
    assert conditions["conditions"] == ["blur:2", "dark:3"]
    row = next(row for row in conditions["rows"] if row["trial"] != swept["baseline"]["trial"])
    for name, extra in (
        ("clean", ()),
        ("blur:2", ("--set", "data.condition=blur:2")),
        ("dark:3", ("--set", "data.condition=dark")),
    ):
        run = document_of(mpnet("run", f"{swept['store']}:{row['precision']}", *extra, "--json"))
        assert row["under"][name]["AP"] == run["metrics"]["AP"]
        assert row["under"][name]["agreement_AP"] == run["agreement"]["AP"]
    agreements = [row["under"][name]["agreement_AP"] for name in conditions["conditions"]]
    assert row["under"]["mean"]["agreement_AP"] == sum(agreements) / 2
    assert row["under"]["worst"]["agreement_AP"] == min(agreements)
    precisions = {row["precision"] for row in conditions["rows"]}
    for front in conditions["front"].values():
        assert set(front) <= precisions
    assert set(conditions["picks"]["clean"]) == {"balanced", "smallest"}


@pytest.mark.slow
def test_what_was_measured_under_conditions_is_kept(mpnet: Mpnet, experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = document_of(mpnet("sweep", experiment, *SWEEP))
    monkeypatch.setattr("mpnet.sweep.choose.conditions.predict", None)
    second = document_of(mpnet("sweep", experiment, *SWEEP))
    assert second["conditions"] == first["conditions"]
    process = mpnet("sweep", experiment, *SWEEP[:-1])
    assert process.returncode == 0, process.stderr
    assert "Under other conditions" in process.stdout
    assert "blur:2" in process.stdout
    assert "ran under conditions" not in process.stdout
    # Of a front that is thinned: how many ran is counted, whichever of them are on the front of all images.
    conditions = {**second["conditions"], "of_front": 40, "front": {**second["conditions"]["front"], "clean": []}}
    printed = StringIO()
    print_conditions(build(SweepResult, {**second, "conditions": conditions}), Console(file=printed, width=200))
    assert f"{len(second['front'])} of the front's 40 ran under conditions" in printed.getvalue()


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("[rain]", "'rain' is no condition"),
        ("[fog, fog:3]", "comes twice"),
        ("[fog:0]", "a severity is 1 to 5"),
        ("[fog], objectives: [head_sqnr_db, bit_operations]", "head_sqnr_db is not measured"),
    ],
)
def test_conditions_that_do_not_exist_are_said_before_anything_runs(
    mpnet: Mpnet, experiment: Path, conditions: str, message: str
) -> None:
    sweep = f"sweep={{strategy: one_at_a_time, conditions: {conditions}}}"
    refused = mpnet("sweep", experiment, "--set", sweep)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert message in refused.stderr


@pytest.mark.slow
def test_reports_and_comparisons_show_images_under_their_condition(mpnet: Mpnet, experiment: Path) -> None:
    runs = [
        document_of(mpnet("run", experiment, "--set", f"precision.default={name}", "--set", "data.condition=dark:5", "--json"))
        for name in ("fp32", "int8")
    ]
    page = mpnet("report", *(run["folder"] for run in runs), "-o", experiment.parent / "page.html")
    assert page.returncode == 0, page.stderr
    compared = mpnet("compare", *(run["folder"] for run in runs), "--images", experiment.parent / "changes")
    assert compared.returncode == 0, compared.stderr
    clean = document_of(mpnet("run", experiment, "--set", "precision.default=int8", "--json"))
    comparison = document_of(mpnet("compare", runs[1]["folder"], clean["folder"], "--json"))
    assert any("condition" in str(line) for line in comparison["protocol_differences"])
