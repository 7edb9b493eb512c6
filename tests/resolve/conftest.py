# SPDX-License-Identifier: MIT
"""One experiment with a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import run_experiment
from mpnet.trial.result import Result
from tests.networks import write_experiment


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Return the tiny network's run at int8; its files lie in tmp_path."""
    experiment = read_experiment(write_experiment(tmp_path), ["precision.default=int8", "baseline=none"])
    return run_experiment(experiment).result
