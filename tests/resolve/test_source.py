# SPDX-License-Identifier: MIT
"""What commands take as a configuration: experiment, run or cfg; with other files over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.resolve.source import Files, configuration_named, experiment_named
from mpnet.trial.experiment import run_experiment
from mpnet.trial.result import Result


def test_a_run_names_the_experiment_that_measures_it_again(result: Result) -> None:
    experiment, remark = experiment_named(str(result.folder), overrides=["baseline=none"])
    assert remark == ""
    assert experiment.name == result.name
    second_report = run_experiment(experiment)
    assert (second_report.result.id, second_report.reused) == (result.id, True)


@pytest.mark.parametrize("complete", [False, True])
def test_experiment_and_run_name_one_configuration(result: Result, tmp_path: Path, complete: bool) -> None:
    path = str(tmp_path / "experiment.yaml")
    of_experiment = configuration_named(path, overrides=["precision.default=int8"], complete=complete)
    of_run = configuration_named(str(result.folder), complete=complete)
    for source in (of_experiment, of_run):
        assert source.configuration.precisions.key == result.run.precision.key
        assert source.configuration.content == of_run.configuration.content
        assert source.notes == ()
    assert of_run.configuration.document["metrics"] == result.metrics
    assert of_run.configuration.document["digests"]["cfg"] == result.run.digests["cfg"]


def test_another_cfg_in_place_of_the_measured_one_is_said(result: Result, tmp_path: Path) -> None:
    other_cfg = tmp_path / "other.cfg"
    other_cfg.write_bytes(Path((result.run.sources or {})["cfg"]).read_bytes() + b"\n# changed\n")
    source = configuration_named(str(result.folder), Files(cfg=other_cfg), complete=False)
    assert source.notes == (
        f"{other_cfg} is not the file that was measured (its digest differs); its precisions are taken all the same",
    )


def test_only_experiment_files_take_settings(result: Result) -> None:
    with pytest.raises(ConfigError, match="--set changes an experiment file"):
        configuration_named(str(result.folder), overrides=["baseline=none"])


def test_a_cfg_takes_the_weights_beside_it(result: Result) -> None:
    cfg = Path((result.run.sources or {})["cfg"])
    source = configuration_named(str(cfg))
    assert source.configuration.options is not None
    with pytest.raises(ConfigError, match="no such file; name the weights with --weights"):
        _ = configuration_named(str(cfg), Files(weights=cfg.with_suffix(".gone"))).configuration.options
