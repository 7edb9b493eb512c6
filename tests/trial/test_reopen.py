# SPDX-License-Identifier: MIT
"""What stands behind a result is opened again, and nothing else in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.errors import DataError, StoreError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import RunReport, run_experiment
from mpnet.trial.identity import identity_of
from mpnet.trial.reopen import image_loader, open_dataset, reopen


def test_a_result_is_enough_to_have_its_workbench_again(report: RunReport) -> None:
    run = report.result.run
    bench = reopen(run.provenance)
    assert identity_of(bench, assign_key(bench.network, run.precision.key)).id == run.id
    assert open_dataset(run.provenance).digest == report.bench.dataset.digest


def test_calibration_goes_along(experiment: Path) -> None:
    overrides = ["precision.default=int8", "quantization={activations: {ranges: calibrated}}", "data.calibration.count=3"]
    run = run_experiment(read_experiment(experiment, overrides)).result.run
    assert run.calibration is not None
    assert reopen(run.provenance, experiment.parent / "runs").calibration.digest == run.digests["calibration"]


def test_changed_files_are_not_used(experiment: Path, report: RunReport) -> None:
    label = next((experiment.parent / "labels").glob("*.txt"))
    label.write_text("0 0.5 0.5 0.25 0.25\n", encoding="utf-8")
    with pytest.raises(DataError, match="images or labels have changed since this was measured"):
        open_dataset(report.result.run.provenance)
    with pytest.raises(StoreError, match="has changed since this was measured; measure again"):
        reopen(report.result.run.provenance)


def test_a_result_without_sources_says_so(report: RunReport) -> None:
    with pytest.raises(DataError, match="the result does not name its files; measure it again"):
        reopen(replace(report.result.run.provenance, sources={}))


def test_images_are_loaded_under_the_results_condition(report: RunReport) -> None:
    record = report.bench.dataset.images[0]
    plain = image_loader({})(record)
    assert np.array_equal(plain, image_loader(report.result.run.protocol)(record))
    assert not np.array_equal(plain, image_loader({"condition": "fog:4"})(record))
