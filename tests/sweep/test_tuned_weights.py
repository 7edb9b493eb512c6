# SPDX-License-Identifier: MIT
"""Tuned weights as one more choice of a sweep: in the same store, on the same front, compared with the same baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.config.experiment import Experiment
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.typed import as_json
from mpnet.formats.weights import read_weights, weights_content
from mpnet.model.weights import random_weights
from mpnet.resolve.source import experiment_named
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.sweep.run import run_sweep
from mpnet.trial.experiment import open_workbench, run_experiment
from mpnet.tuning.record import TUNING_RECORD, TuningRecord
from tests.networks import write_experiment

SWEEP = (
    "sweep={strategy: one_at_a_time, precisions: [fp32, int8], objectives: [agreement_AP, bit_operations],"
    " holdout: 0, space: {tuned: tuned.yaml}}"
)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Return a small experiment; beside it tuned.yaml, as if its weights had been tuned to others."""
    path = write_experiment(tmp_path)
    bench = open_workbench(read_experiment(path))
    # A little of other weights: near enough to find much the same, far enough to tell.
    other = random_weights(bench.network, 9)
    layers = {
        index: replace(values, biases=values.biases + 0.01 * other.layers[index].biases + 0.01)
        for index, values in bench.weights.layers.items()
    }
    tuned = replace(bench.weights, layers=layers)
    (tmp_path / "tuned.weights").write_bytes(weights_content(tuned, bench.network))
    write_record(tmp_path, bench.weights.digest, read_weights(tmp_path / "tuned.weights", bench.network).digest, path)
    text = path.read_text()
    assert "weights: net.weights" in text
    model = text.replace("weights: net.weights", "weights: tuned.weights, parent: net.weights, tuning: tuned.json")
    (tmp_path / "tuned.yaml").write_text(model)
    return path


def write_record(folder: Path, parent: str, weights: str, path: Path, images: tuple[str, ...] = ()) -> None:
    network = open_workbench(read_experiment(path)).network
    record = TuningRecord(
        created="2026-11-28T12:00:00+00:00",
        mpnet="0",
        cfg=network.digest,
        parent=parent,
        weights=weights,
        precision="q",
        measure="agreement_AP",
        options={},
        tuned_on=0,
        apart=0,
        agreement_before=90.0,
        agreement_after=95.0,
        gain=5.0,
        low=1.0,
        high=9.0,
        own_fp32=99.0,
        stages=(),
        images=images,
    )
    (folder / "tuned.json").write_text(json.dumps({**TUNING_RECORD.head, **as_json(record)}))


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
    tuned = read_weights(tmp_path / "tuned.weights", bench.network).digest
    write_record(tmp_path, bench.weights.digest, tuned, experiment, (bench.dataset.images[0].sha256,))
    with pytest.raises(ConfigError, match=r"1 of the images took part in tuning .*tuned\.json.*evaluate on others"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    write_record(tmp_path, "0" * 64, tuned, experiment)
    with pytest.raises(ConfigError, match=r"tuned\.yaml: its weights were tuned from others than .*net\.weights"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    (tmp_path / "tuned.yaml").write_text(experiment.read_text())
    with pytest.raises(ConfigError, match=r"tuned\.yaml: names no record in model\.tuning"):
        run_sweep(sweep_of(experiment, tmp_path), store=tmp_path / "s.sqlite", workers=1)
    assert not (tmp_path / "s.sqlite").exists()
