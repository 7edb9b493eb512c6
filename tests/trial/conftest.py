# SPDX-License-Identifier: MIT
"""A tiny network with five labelled images, and one finished run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import RunReport, open_workbench, run_experiment
from mpnet.trial.workbench import Workbench
from tests.networks import write_experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Return the path of an experiment.yaml whose files lie beside it."""
    return write_experiment(tmp_path)


@pytest.fixture
def bench(experiment: Path) -> Workbench:
    """Return the experiment, opened."""
    return open_workbench(read_experiment(experiment))


@pytest.fixture
def report(experiment: Path) -> RunReport:
    """Return the report of the experiment, run at int8 beside fp32."""
    return run_experiment(read_experiment(experiment, ["precision.default=int8"]), command="mpnet run experiment.yaml")
