# SPDX-License-Identifier: MIT
"""Tuned weights as one more choice of a sweep: in the same store, on the same front, compared with the same baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.config.experiment import Experiment
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.weights import read_weights
from mpnet.resolve.source import experiment_named
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.sweep.run import run_sweep
from mpnet.trial.experiment import open_workbench, run_experiment
from tests.tuned import write_record, write_tuned

SWEEP = (
    "sweep={strategy: one_at_a_time, precisions: [fp32, int8], objectives: [agreement_AP, bit_operations],"
    " holdout: 0, space: {tuned: tuned.yaml}}"
)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Return a small experiment; beside it tuned.yaml, as if its weights had been tuned to others."""
    return write_tuned(tmp_path)


def sweep_of(path: Path, tmp_path: Path) -> Experiment:
    return read_experiment(path, [SWEEP, f"output={tmp_path / 'runs'}"])


@pytest.mark.slow
def test_trials_of_both_weights_lie_in_one_store_and_open_again(experiment: Path, tmp_path: Path) -> None:
    run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    plain, tuned = (read_sweep(tmp_path / "s.sqlite", f"{'f' * 13}@{number}") for number in (1, 2))
    assert (plain.options, tuned.options) == ("", "weights=tuned.yaml")
    agreement = [stored.configurations.columns["agreement_AP"][stored.configurations.chosen] for stored in (plain, tuned)]
    assert agreement[0] == 100 != agreement[1]
    # A trial of the tuned weights is a run of the experiment that `mpnet tune` wrote, whoever names it.
    named, _ = experiment_named(f"{tmp_path / 's.sqlite'}:{tuned.configurations.keys[1]}@2")
    assert (named.model.weights, named.model.parent) == (tmp_path / "tuned.weights", tmp_path / "net.weights")
    run = run_experiment(named)
    written = read_experiment(tmp_path / "tuned.yaml", [f"output={tmp_path / 'runs'}"])
    again = run_experiment(replace(written, precision=named.precision))
    assert (run.result.run.digests, run.result.run.metrics) == (again.result.run.digests, again.result.run.metrics)
    assert run.result.run.agreement is not None
    assert run.result.run.agreement.values["AP"] == tuned.configurations.columns["agreement_AP"][1]


def test_weights_that_do_not_belong_to_the_sweep_are_refused_in_one_line(experiment: Path, tmp_path: Path) -> None:
    bench = open_workbench(read_experiment(experiment))
    network = bench.network
    tuned = read_weights(tmp_path / "tuned.weights", network).digest
    write_record(tmp_path, network.digest, bench.weights.digest, tuned, (bench.dataset.images[0].sha256,))
    with pytest.raises(ConfigError, match=r"1 of the images took part in tuning .*tuned\.json.*evaluate on others"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    write_record(tmp_path, network.digest, "0" * 64, tuned)
    with pytest.raises(ConfigError, match=r"tuned\.yaml: its weights were tuned from others than .*net\.weights"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    (tmp_path / "tuned.yaml").write_text(experiment.read_text())
    with pytest.raises(ConfigError, match=r"tuned\.yaml: names no record in model\.tuning"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    assert not (tmp_path / "s.sqlite").exists()
