# SPDX-License-Identifier: MIT
"""The check of an experiment's int8 kernels runs on its own images."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import open_workbench
from mpnet.trial.verify import verify
from tests.networks import small_cfg, write_experiment, write_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    write_experiment(folder, small_cfg())
    write_network(folder, 2, small_cfg())
    return folder


def test_int8_kernels_give_what_simulation_gives(folder: Path) -> None:
    bench = open_workbench(read_experiment(folder / "experiment.yaml", ("precision.default=int8",)))
    images, checks = verify(bench, 2)
    assert images == 2
    assert {check.operation for check in checks} == {"Quantize", "Convolve"}
    assert all(check.passed for check in checks)


def test_without_int8_there_is_nothing_to_check(folder: Path) -> None:
    bench = open_workbench(read_experiment(folder / "experiment.yaml", ("precision.default=fp16",)))
    with pytest.raises(ConfigError, match="int8"):
        verify(bench)
