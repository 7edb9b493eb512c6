"""Sweeps over a real Dask scheduler with real worker processes on loopback."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from mpnet.errors import ConfigError, EngineError
from mpnet.sweep.dask_executor import DaskExecutor
from mpnet.sweep.evaluator import Evaluator
from mpnet.sweep.loop import Sweep, SweepState, WorkerPool
from mpnet.sweep.problem import Problem, objectives_of
from mpnet.sweep.space import build_space
from mpnet.sweep.store import Subject, TrialStore
from mpnet.sweep.strategies import strategy
from mpnet.sweep.units import Unit
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import tiny_yolo
from tests.sweep.synthetic import SyntheticRecipe

NETWORK = tiny_yolo()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    # Workers are started fresh and must find this file's modules.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def task() -> Problem:
    return Problem(
        build_space(NETWORK, ("fp32", "int8")),
        tuple(c.macs for c in NETWORK.convolutions),
        objectives_of(("AP", "bit_operations")),
    )


def sweep(path: Path, task: Problem, scheduler: str, recipe: Any) -> SweepState:
    executor = DaskExecutor(scheduler, recipe)
    try:
        with TrialStore.open(path, Subject("n", "w", "d", "p")) as store:
            made = Sweep(task, NETWORK, store, [store.context({})], lambda: WorkerPool(executor))
            return made.run(strategy("exhaustive").walk)
    finally:
        executor.close()


def test_dask_workers_find_everything(scheduler: str, task: Problem, tmp_path: Path) -> None:
    state = sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task))
    assert {c.key for c in state.known} == set(task.space.all_keys())


def test_the_work_of_a_dead_dask_worker_is_redone(scheduler: str, task: Problem, tmp_path: Path) -> None:
    flag = tmp_path / "die"
    flag.touch()
    state = sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task, die=str(flag)))
    assert not flag.exists()
    assert len(state.known) == 64


def test_an_error_in_a_dask_worker_arrives_as_it_is(scheduler: str, task: Problem, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^layer 3: not finite$"):
        sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task, fail="layer 3: not finite"))


def test_real_trials_have_the_bits_of_this_process(scheduler: str) -> None:
    made = with_baseline(context(NETWORK, images=3))
    assert isinstance(made.images, np.ndarray)
    unit = Unit(0, ("ffffff", "qhfqfq", "qqqqqq"))
    executor = DaskExecutor(scheduler, partial(Evaluator, made))
    try:
        executor.submit(unit)
        done = []
        while not done:
            done = executor.wait(1.0)
    finally:
        executor.close()
    assert done[0].trials == Evaluator(made).evaluate(unit).trials


def test_nobody_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    monkeypatch.setattr("mpnet.sweep.dask_executor.CONNECT_SECONDS", 1.0)
    with pytest.raises(ConfigError, match=r"--scheduler tcp://127.0.0.1:9: no Dask scheduler answers .*dask scheduler"):
        DaskExecutor("tcp://127.0.0.1:9", None)


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"Dask is not installed; pip install 'mpnet\[dask\]'"):
        DaskExecutor("tcp://127.0.0.1:9", None)
