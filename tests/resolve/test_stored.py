# SPDX-License-Identifier: MIT
"""Names on the command line: runs by folder, trials of sweeps by precision string or pick."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import StoreError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.resolve.stored import find_configuration, in_store, split_source
from mpnet.sweep.run import run_sweep
from mpnet.trial.result import Result
from tests.networks import write_experiment


def test_a_folder_of_results_stands_for_its_latest_run(result: Result) -> None:
    configuration = find_configuration(str(result.folder.parent))
    assert configuration.key == result.run.precision.key
    assert configuration.result is not None
    assert configuration.result.id == result.id
    assert configuration.provenance == result.run.provenance
    assert configuration.output == result.folder.parent.parent.absolute()
    assert configuration.held_out == {}


def test_a_path_that_exists_has_no_key(result: Result, tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_source(str(odd)) == (odd, None)
    assert in_store(str(result.folder)) == (result.folder, None, None)


def test_a_key_behind_a_folder_without_sweeps_is_refused(result: Result) -> None:
    with pytest.raises(StoreError, match="holds no sweep, so 'safe' names nothing in it"):
        find_configuration(f"{result.folder.parent}:safe")


def test_a_pick_is_that_of_its_own_option_set(tmp_path: Path) -> None:
    """One precision string under two option sets: names lead to the trial that the sweep means, not to the first of its key."""
    experiment = read_experiment(
        write_experiment(tmp_path),
        [
            "sweep={strategy: exhaustive, space: {quantization: {weights.granularity: [per_tensor, per_channel]}}}",
            "sweep.space.layers={heads: int8, 8: int8, 10: int8, 12: int8, 13: int8}",
        ],
    )
    sweep_result = run_sweep(experiment, workers=1)
    assert len({row.options for row in sweep_result.front}) == 2
    for name, pick in sweep_result.picks.items():
        configuration = find_configuration(f"{sweep_result.store}:{name}")
        assert configuration.key == pick.precision
        assert {measure: configuration.values[measure] for measure in pick.metrics} == pytest.approx(
            pick.metrics, abs=1e-9, nan_ok=True
        )
        assert configuration.provenance.digests["chosen trial"] == pick.trial
    best = sweep_result.best
    if best is None or best.is_baseline:  # then `chosen` is the knee of the front
        best = None
    recommended = find_configuration(f"{sweep_result.store}:chosen")
    assert best is None or recommended.provenance.digests["chosen trial"] == best.trial
    tensor, channel = (
        find_configuration(f"{sweep_result.store}:{sweep_result.front[-1].precision}@{number}") for number in (1, 2)
    )
    assert tensor.provenance.protocol["quantization"] != channel.provenance.protocol["quantization"]
    with pytest.raises(StoreError, match="has no option set @3; this sweep has @1 to @2"):
        find_configuration(f"{sweep_result.store}:{sweep_result.front[-1].precision}@3")
