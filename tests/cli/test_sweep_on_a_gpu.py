# SPDX-License-Identifier: MIT
"""Sweeps on a GPU store what sweeps on the CPU store, and go on with what these began."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import SWEEP, stored_trials
from tests.cli.conftest import Mpnet, document_of
from tests.kernels.gpus import gpu_kernels
from tests.networks import small_cfg, write_experiment


@pytest.mark.slow
def test_trials_of_a_gpu_and_of_the_cpu_share_a_store(mpnet: Mpnet, tmp_path: Path) -> None:
    device = gpu_kernels().name
    experiment = write_experiment(tmp_path, small_cfg())
    with experiment.open("a", encoding="utf-8") as file:
        file.write(f"{SWEEP}}}\n")
    stores = [tmp_path / f"{name}.sqlite" for name in ("cpu", "both")]
    words = ("sweep", experiment, "--workers", "1", "--json")
    document_of(mpnet(*words, "--store", stores[0]))
    first = document_of(mpnet(*words, "--store", stores[1], "--set", "sweep.budget.trials=5"))["computed"]
    second = document_of(mpnet(*words, "--store", stores[1], "--device", device))["computed"]
    assert first + second == 16
    assert min(first, second) > 0
    expected = stored_trials(stores[0])
    assert len(expected) == 16
    assert stored_trials(stores[1]) == expected
