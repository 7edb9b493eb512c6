# SPDX-License-Identifier: MIT
"""Budgets of loss that a run is, or is not, shown to keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import ERROR
from mpnet.formats.documents.experiment import read_experiment
from mpnet.resolve.shown_budget import check_budget_text, check_shown
from mpnet.trial.experiment import RunReport, run_experiment
from tests.networks import small_cfg, write_experiment


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("shown")
    return run_experiment(read_experiment(write_experiment(folder, small_cfg())))


def test_a_budget_is_shown_where_the_loss_is_below_it_with_its_uncertainty(report: RunReport) -> None:
    assert report.baseline is not None
    kit, dataset = report.bench.kit, report.bench.dataset
    baseline, predictions = (kit.read(side.predictions_path, dataset) for side in (report.baseline, report.result))
    loss = kit.loss(dataset, baseline)(predictions).losses["agreement_AP"]
    most = loss.bounds(ERROR)[1]
    for limit, is_shown in ((min(100.0, most + 0.01), True), (most - 0.01, False)):
        budget = check_shown(report, f"{limit} agreement")
        assert (budget.is_shown, budget.images) == (is_shown, 5)
        [row] = budget.losses
        assert (row.measure, row.loss, row.most, row.limit) == ("agreement_AP", loss.loss, most, limit)
        assert (row.state == "met") is is_shown


def test_all_measures_of_a_budget_have_to_be_shown(report: RunReport) -> None:
    budget = check_shown(report, "100 agreement, 0.0001 AP")
    assert [row.measure for row in budget.losses] == ["agreement_AP", "AP"]
    assert [row.state == "met" for row in budget.losses] == [True, False]
    assert not budget.is_shown


def test_the_baseline_itself_loses_nothing_and_without_one_nothing_is_said(report: RunReport) -> None:
    assert check_shown(replace(report, baseline=None), "1 agreement").is_shown
    experiment = replace(report.bench.experiment, baseline=None)
    with pytest.raises(ConfigError, match="no baseline to lose against"):
        check_shown(replace(report, baseline=None, bench=replace(report.bench, experiment=experiment)), "1 agreement")


def test_what_is_no_budget_is_refused_before_anything_runs() -> None:
    check_budget_text("1 top1")
    with pytest.raises(ConfigError, match="--require-shown: 'much' is no budget"):
        check_budget_text("much")
