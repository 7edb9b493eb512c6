# SPDX-License-Identifier: MIT
"""Sweeps over a real Dask scheduler with real worker processes on loopback."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import ConfigError, EngineError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.sweep.choose.findings import front_of
from mpnet.sweep.evaluate.dask_executor import DaskExecutor
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.shared_passes import SharedPasses
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.setup import make_context, section_of, set_up
from mpnet.sweep.store import Subject, TrialStore
from mpnet.trial.experiment import open_workbench, with_network
from tests.networks import small_cfg, write_experiment
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import tiny_yolo
from tests.sweep.synthetic import SyntheticRecipe
from tests.sweep.test_failed import overflowing

NETWORK = tiny_yolo()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    # Workers are started fresh and must find this file's modules.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster


@pytest.fixture
def scheduler(cluster: Any) -> str:
    """Return the address of a scheduler, with both workers there again, whatever an earlier test did to one."""
    cluster.wait_for_workers(2, timeout=60)
    return str(cluster.scheduler_address)


@pytest.fixture
def task() -> Problem:
    return Problem(
        build_space(NETWORK, ("fp32", "int8")),
        tuple(c.macs for c in NETWORK.convolutions),
        objectives_of(("AP", "bit_operations")),
    )


def sweep(path: Path, task: Problem, scheduler: str, recipe: Any, name: str = "exhaustive") -> SweepState:
    executor = DaskExecutor(scheduler, recipe)
    try:
        with TrialStore.open(path, Subject("n", "w", "d", "p")) as store:
            search = Sweep(task, NETWORK, store, [store.context({})], lambda: WorkerPool(executor))
            return search.run(strategy(name).walk)
    finally:
        executor.close()


def test_dask_workers_find_everything(scheduler: str, task: Problem, tmp_path: Path) -> None:
    state = sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task))
    assert {c.key for c in state.trials} == set(task.space.all_keys())


def test_the_work_of_a_dead_dask_worker_is_redone(scheduler: str, task: Problem, tmp_path: Path) -> None:
    flag = tmp_path / "die"
    flag.touch()
    state = sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task, die=str(flag)))
    assert not flag.exists()
    assert len(state.trials) == 64


def test_an_error_in_a_dask_worker_arrives_as_it_is(scheduler: str, task: Problem, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^layer 3: not finite$"):
        sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task, fail="layer 3: not finite"))


def _wrong_values(self: SharedPasses, positions: Any) -> Tensor:
    return host_tensor(np.ascontiguousarray(self._images[positions]) * np.float32(0.999))


_original_values: list[tuple[Any, str, object]] = []
"""In a Dask worker: what `_change` changed, and what it was before."""


def _change(changes: tuple[tuple[str, str, object], ...]) -> None:
    """Give attributes other values, in a Dask worker."""
    for owner, name, value in changes:
        namespace = pkgutil.resolve_name(owner)
        _original_values.append((namespace, name, getattr(namespace, name)))
        setattr(namespace, name, value)


def _restore() -> None:
    """Undo `_change`, in a Dask worker."""
    while _original_values:
        setattr(*_original_values.pop())


@contextlib.contextmanager
def changed_workers(scheduler: str, *changes: tuple[str, str, object]) -> Iterator[None]:
    """Make all workers as if they were of another build."""
    distributed = pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    with distributed.Client(scheduler, set_as_default=False) as client:
        client.run(_change, changes)
        try:
            yield
        finally:
            client.run(_restore)


OTHER_RELEASE = ("mpnet", "__version__", "0.0.9")
EXECUTOR = "mpnet.sweep.evaluate.dask_executor"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (OTHER_RELEASE, r"worker tcp://\S+ is mpnet 0\.0\.9; this process is mpnet \d"),
        ((EXECUTOR, "__version__", "0.0.9"), r"a Dask worker is mpnet 0\.0\.9, .*; this process is mpnet \d"),
        ((EXECUTOR, "ARITHMETIC_VERSION", "0"), r"arithmetic 0, .* which may compute other bits; this .* arithmetic [1-9]"),
    ],
)
def test_workers_of_another_release_are_refused(
    scheduler: str, task: Problem, tmp_path: Path, change: tuple[str, str, object], message: str
) -> None:
    with changed_workers(scheduler, change), pytest.raises(ConfigError, match=message) as excinfo:
        sweep(tmp_path / "a.sqlite", task, scheduler, SyntheticRecipe(task))
    assert "\n" not in str(excinfo.value)
    if (tmp_path / "a.sqlite").exists():
        with TrialStore.open(tmp_path / "a.sqlite", Subject("n", "w", "d", "p")) as store:
            assert store.find(store.context({}), list(task.space.all_keys())) == {}


def test_a_worker_of_another_release_that_joins_later_is_refused(scheduler: str, task: Problem, tmp_path: Path) -> None:
    preload = tmp_path / "old.py"
    preload.write_text("import mpnet; mpnet.__version__ = '0.0.9'")
    options = ("--no-nanny", "--no-dashboard", "--preload", str(preload))
    with contextlib.closing(DaskExecutor(scheduler, SyntheticRecipe(task))) as executor:
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with pytest.raises(ConfigError, match=r"^--scheduler tcp://\S+: worker tcp://\S+ is mpnet 0\.0\.9; this process"):
                evaluated(executor, WorkChunk(0, ("ffffff",)), times=10_000)
        finally:
            worker.kill()
            worker.wait()


def test_workers_that_compute_other_bits_are_refused(scheduler: str) -> None:
    sweep_context = replace(context(NETWORK, images=3), known_keys=("qhfqfq", "fqhfqh"))
    replacement = ("mpnet.sweep.evaluate.shared_passes:SharedPasses", "_values", _wrong_values)
    with (
        changed_workers(scheduler, replacement),
        contextlib.closing(DaskExecutor(scheduler, partial(Evaluator, sweep_context))) as executor,
        pytest.raises(ConfigError, match=r"and computes other bits in a known pass; .* so nothing of it is kept"),
    ):
        evaluated(executor, WorkChunk(0, ("ffffff",)))


def evaluated(executor: DaskExecutor, unit: WorkChunk, times: int = 1) -> list[ChunkResult]:
    for _ in range(times):
        executor.submit(unit)
        finished_chunks: list[ChunkResult] = []
        while not finished_chunks:
            finished_chunks = executor.wait(1.0)
    return finished_chunks


def test_real_trials_have_the_bits_of_this_process(scheduler: str) -> None:
    sweep_context = replace(with_baseline(context(NETWORK, images=3)), known_keys=("qhfqfq", "fqhfqh"))
    assert isinstance(sweep_context.images, np.ndarray)
    unit = WorkChunk(0, ("ffffff", "qhfqfq", "qqqqqq"))
    executor = DaskExecutor(scheduler, partial(Evaluator, sweep_context))
    try:
        finished_chunks = evaluated(executor, unit)
    finally:
        executor.close()
    assert finished_chunks[0].trials == Evaluator(sweep_context).evaluate(unit).trials


def test_failed_trials_arrive_with_their_layer(scheduler: str, tmp_path: Path) -> None:
    sweep_context = with_baseline(overflowing())
    task = Problem(
        build_space(NETWORK, ("fp32", "fp16")),
        tuple(c.macs for c in NETWORK.convolutions),
        objectives_of(("AP", "weight_bytes")),
    )
    state = sweep(tmp_path / "a.sqlite", task, scheduler, partial(Evaluator, sweep_context))
    expected = Evaluator(sweep_context).evaluate(WorkChunk(0, tuple(task.space.all_keys())))
    assert {c.key for c in state.failed_trials} == {failed_trial.key for failed_trial in expected.failed_trials}
    assert {c.key: trial for c, trial in state.trials.items()} == {trial.key: trial for trial in expected.trials}
    with TrialStore.read(tmp_path / "a.sqlite") as store:
        assert sorted(store.failed_trials(1), key=str) == sorted(expected.failed_trials, key=str)


def test_workers_need_no_file_of_this_machine(scheduler: str, tmp_path: Path) -> None:
    """Workers elsewhere see neither images, weights nor store."""
    path = write_experiment(tmp_path, small_cfg())
    path.write_text(path.read_text() + "sweep: {strategy: exhaustive, precisions: [fp32, int8], objectives: [agreement_AP]}")
    experiment, network = with_network(read_experiment(path))
    bench = open_workbench(experiment, network)
    section = section_of(experiment)
    setup = set_up(bench, section, build_space(network, section.precisions, section.space))
    unit = WorkChunk(0, tuple(setup.space.all_keys())[::4])
    with contextlib.ExitStack() as stack:
        sweep_context = make_context(setup, stack, 1, remote=True)
        expected = Evaluator(sweep_context).evaluate(unit)
        executor = stack.enter_context(contextlib.closing(DaskExecutor(scheduler, partial(Evaluator, sweep_context))))
        for name in ("images", "labels"):
            shutil.rmtree(tmp_path / name)
        for name in ("net.cfg", "net.weights", "net.names", "experiment.yaml"):
            (tmp_path / name).unlink()
        assert evaluated(executor, unit)[0].trials == expected.trials


def test_nobody_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    monkeypatch.setattr("mpnet.sweep.evaluate.dask_executor.CONNECT_SECONDS", 1.0)
    with pytest.raises(ConfigError, match=r"--scheduler tcp://127.0.0.1:9: no Dask scheduler answers .*dask scheduler"):
        DaskExecutor("tcp://127.0.0.1:9", None)


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"Dask is not installed; pip install 'mpnet\[dask\]'"):
        DaskExecutor("tcp://127.0.0.1:9", None)


@pytest.mark.slow
def test_dask_workers_find_the_exact_front(scheduler: str, tmp_path: Path) -> None:
    sweep_context = with_baseline(context(NETWORK, images=12))
    evaluator = Evaluator(sweep_context)
    objectives = objectives_of(("agreement_AP", "weight_bytes"))
    task = Problem(build_space(NETWORK, ("fp32", "int8")), tuple(c.macs for c in NETWORK.convolutions), objectives)
    sweep_context = replace(sweep_context, order=evaluator.images_by_loss(task.names, task.space.drawn_keys(4))[0])
    state = sweep(tmp_path / "a.sqlite", task, scheduler, partial(Evaluator, sweep_context), "exact_front")
    trials = {Assignment(t.key): t for t in evaluator.evaluate(WorkChunk(0, tuple(task.space.all_keys()))).trials}
    assert state.ruled_out
    assert front_of(task, state.trials) == front_of(task, trials)
    assert all(trial == trials[configuration] for configuration, trial in state.trials.items())
