# SPDX-License-Identifier: MIT
"""The sweep as a whole, on trials that cost nothing: resume, several processes, kills, dead workers, budgets."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mpnet.errors import ConfigError, EngineError
from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.executor import Executor, InlineExecutor, ProcessExecutor
from mpnet.sweep.evaluate.sharing import forward_equivalents, forward_equivalents_of
from mpnet.sweep.evaluate.work_chunks import MAX_REPEATED, MAX_TRIALS, ChunkResult, WorkChunk, planned_equivalents, split_work
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.chunk_sizes import ChunkSizes
from mpnet.sweep.search.failed import FailedTrials
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import STRATEGIES, strategy
from mpnet.sweep.store import Subject, Trial, TrialStore
from tests.sweep.sweep_networks import tiny_yolo, yolov3_tiny
from tests.sweep.synthetic import SyntheticRecipe

SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)
NETWORK = tiny_yolo()


def problem(**keywords: object) -> Problem:
    space = replace(build_space(NETWORK, ("fp32", "fp16", "int8")), suffix="+1:q")
    return Problem(space, tuple(c.macs for c in NETWORK.convolutions), objectives_of(("AP", "bit_operations")), **keywords)


def sweep(
    store: TrialStore, task: Problem, executor: Executor | None = None, name: str = "exhaustive", **keywords: object
) -> SweepState:
    executor = executor or InlineExecutor(SyntheticRecipe(task))
    try:
        return Sweep(task, NETWORK, store, [store.context({"arithmetic": "1"})], lambda: WorkerPool(executor), **keywords).run(
            strategy(name).walk
        )
    finally:
        executor.close()


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore.open(tmp_path / "sweep.sqlite", SUBJECT)


def test_everything_asked_for_is_known_and_stored(store: TrialStore) -> None:
    task = problem()
    state = sweep(store, task)
    assert len(state.trials) == state.total == state.computed == 3**6
    keys = {"".join(codes) + "+1:q" for codes in itertools.product("fhq", repeat=6)}
    assert {t.key for t in store.trials(1)} == set(task.space.all_keys()) == keys
    assert store.work().macs == state.macs == 1000 * 3**6
    assert store.claims() == {}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_running_again_computes_nothing(store: TrialStore, name: str) -> None:
    task = problem(trials=60 if name == "pareto" else None)
    first = sweep(store, task, name=name)
    second = sweep(store, task, name=name)
    assert second.computed == 0
    assert second.trials == first.trials


def test_a_budget_of_trials_stops_and_more_of_it_goes_on(store: TrialStore) -> None:
    state = sweep(store, problem(trials=100))
    assert (len(state.trials), state.exhausted_budget) == (100, "trials")
    state = sweep(store, problem(trials=150))
    assert (len(state.trials), state.computed, state.exhausted_budget) == (150, 50, "trials")
    assert sweep(store, problem()).computed == 3**6 - 150


def test_a_budget_of_seconds_stops(store: TrialStore) -> None:
    state = sweep(store, problem(), seconds=0.0)
    assert (len(state.trials), state.exhausted_budget) == (0, "seconds")
    assert store.claims() == {}


def test_another_context_shares_nothing(store: TrialStore) -> None:
    task = problem()
    sweep(store, task)
    executor = InlineExecutor(SyntheticRecipe(task, seed=2))
    state = Sweep(task, NETWORK, store, [store.context({"arithmetic": "2"})], lambda: WorkerPool(executor)).run(
        strategy("exhaustive").walk
    )
    assert state.computed == 3**6


@pytest.mark.slow
def test_worker_processes_give_the_same(store: TrialStore, tmp_path: Path) -> None:
    task = problem()
    inline = sweep(store, task)
    with TrialStore.open(tmp_path / "other.sqlite", SUBJECT) as second_store:
        assert sweep(second_store, task, ProcessExecutor(SyntheticRecipe(task), 2)).trials == inline.trials


@pytest.mark.slow
def test_the_work_of_a_dead_worker_is_redone(store: TrialStore, tmp_path: Path) -> None:
    task = problem()
    flag = tmp_path / "die"
    flag.touch()
    state = sweep(store, task, ProcessExecutor(SyntheticRecipe(task, die=str(flag)), 2))
    assert not flag.exists()
    assert len(state.trials) == 3**6


@pytest.mark.slow
def test_a_unit_that_kills_every_worker_is_an_error(store: TrialStore, tmp_path: Path) -> None:
    task = problem()
    flag = tmp_path / "always"
    flag.touch()
    with pytest.raises(EngineError, match=r"3 workers died over configurations ffffff\+1:q to .* fewer --workers"):
        sweep(store, task, ProcessExecutor(SyntheticRecipe(task, die=str(flag)), 1))


def test_an_error_in_a_worker_arrives_as_it_is(store: TrialStore) -> None:
    task = problem()
    with pytest.raises(EngineError, match=r"^layer 3: not finite$"):
        sweep(store, task, ProcessExecutor(SyntheticRecipe(task, fail="layer 3: not finite"), 1))


def test_no_workers_is_an_error() -> None:
    with pytest.raises(ConfigError, match="use 1 or more"):
        ProcessExecutor(SyntheticRecipe(problem()), 0)


def test_closing_ends_all_workers() -> None:
    executor = ProcessExecutor(SyntheticRecipe(problem()), 2)
    pids = [worker.process.pid for worker in executor._workers]
    executor.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


FIRST_WORKER = """
from mpnet.sweep.evaluate.executor import ProcessExecutor
from mpnet.sweep.search.failed import FailedTrials
from tests.sweep.test_sweep import SyntheticRecipe, problem
if __name__ == "__main__":
    executor = ProcessExecutor(SyntheticRecipe(problem()), 1)
    status = open(f"/proc/{executor._workers[0].process.pid}/status").read()
    print(*(line.split()[1] for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))))
    executor.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_worker_that_is_loading_does_not_answer_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "first_worker.py"
    script.write_text(FIRST_WORKER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    output = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment).stdout
    blocked, ignored = (int(mask, 16) for mask in output.split())
    assert (blocked | ignored) & 1 << signal.SIGINT - 1


def sweep_in_a_process(path: str, log: str, seconds: float = 0.0, workers: int = 1) -> None:
    """Run a sweep. seconds: what a pass is said to take."""
    task = problem()
    recipe = SyntheticRecipe(task, log=log, seconds=seconds / 2)
    executor = InlineExecutor(recipe) if workers == 1 else ProcessExecutor(recipe, workers)
    with TrialStore.open(path, SUBJECT) as store:
        try:
            Sweep(
                task, NETWORK, store, [store.context({"arithmetic": "1"})], lambda: WorkerPool(executor, 1 << 24, seconds)
            ).run(strategy("exhaustive").walk)
        finally:
            executor.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "workers"), [((0.0, 0.0, 0.0), (1, 1, 1)), ((1.0, 0.0, 0.5), (1, 1, 1)), ((1.0, 1.0), (1, 2))]
)
def test_several_processes_share_one_store(
    store: TrialStore, tmp_path: Path, seconds: tuple[float, ...], workers: tuple[int, ...]
) -> None:
    """Whole units, and units of which some processes make parts."""
    log = tmp_path / "computed"
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=sweep_in_a_process, args=(str(store.path), str(log), *process_arguments))
        for process_arguments in zip(seconds, workers, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    computed = Counter(log.read_text(encoding="ascii").split())
    assert len(computed) == 3**6
    assert set(computed.values()) == {1}
    assert store.count() == 3**6


@pytest.mark.slow
def test_sweeps_that_are_killed_go_on_where_they_were(store: TrialStore, tmp_path: Path) -> None:
    """kill -9 again and again: in the end all trials are there, and hardly any was computed twice."""
    log = tmp_path / "computed"
    log.touch()
    rng = random.Random(3)
    kills = 0
    for attempt in range(120):
        pid = os.fork()
        if pid == 0:
            try:
                sweep_in_a_process(str(store.path), str(log))
                os._exit(0)
            finally:
                os._exit(1)
        # Later and later, so that the last ones get far on a slow machine as well.
        time.sleep(rng.random() * 0.004 * attempt)
        os.kill(pid, signal.SIGKILL)
        if os.waitpid(pid, 0)[1] == 0:
            break
        kills += 1
    state = sweep(store, problem())
    assert len(state.trials) == 3**6
    assert all(
        trials.values == SyntheticRecipe(problem()).evaluate(split_work(NETWORK, [configuration])[0]).trials[0].values
        for configuration, trials in state.trials.items()
    )
    computed = Counter(log.read_text(encoding="ascii").split())
    unit_size = max(
        len(u.keys) for u in split_work(NETWORK, [Assignment(k) for k in problem().space.all_keys()], bytes_per_head=1 << 24)
    )
    assert sum(computed.values()) <= 3**6 + kills * unit_size


class Interrupted(InlineExecutor):
    """Computes so many parts, then is stopped as by Ctrl-C."""

    def __init__(self, task: Problem, seconds: float, chunk_count: int) -> None:
        super().__init__(SyntheticRecipe(task, seconds=seconds))
        self.chunk_count = chunk_count

    def wait(self, timeout: float) -> list[ChunkResult]:
        if self.chunk_count == 0:
            raise KeyboardInterrupt
        self.chunk_count -= 1
        return super().wait(timeout)


def run(task: Problem, store: TrialStore, executor: Executor, seconds: float, **keywords: object) -> SweepState:
    contexts = [store.context({"arithmetic": "1"})]
    return Sweep(task, NETWORK, store, contexts, lambda: WorkerPool(executor, 1, seconds), **keywords).run(
        strategy("exhaustive").walk
    )


def test_an_interruption_in_the_first_unit_keeps_its_parts(store: TrialStore, tmp_path: Path) -> None:
    """729 configurations are one unit; at a second a pass and 4 s a part, parts have a few each."""
    task = problem()
    assert len(split_work(NETWORK, map(Assignment, task.space.all_keys()), bytes_per_head=1)) < 4
    counts = [0]
    with pytest.raises(KeyboardInterrupt):
        run(task, store, Interrupted(task, 0.5, 6), 1.0, on_update=lambda state: counts.append(len(state.trials)))
    stored_count = store.count()
    assert 6 <= stored_count < 200
    assert len(set(counts)) == 7  # progress counts part by part
    with TrialStore.open(store.path) as second:
        assert len(second.claims()) == 1  # of a process that lives; on leaving it gives back what it claimed
    store.close()
    with TrialStore.open(store.path) as second, TrialStore.open(tmp_path / "whole.sqlite", SUBJECT) as uninterrupted:
        assert second.claims() == {}
        state = run(task, second, InlineExecutor(SyntheticRecipe(task)), 0.0)
        assert (state.computed, len(state.trials)) == (3**6 - stored_count, 3**6)
        run(task, uninterrupted, InlineExecutor(SyntheticRecipe(task)), 0.0)
        assert list(second.trials(1)) == list(uninterrupted.trials(1))


@cache
def first_unit() -> tuple[NetworkSpec, WorkChunk]:
    network = yolov3_tiny()
    return network, split_work(network, map(Assignment, build_space(network, ("fp32", "int8")).all_keys()))[0]


@pytest.mark.parametrize("seconds", [0.01, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("elapsed", [0.0, 100.0, 1e5])
def test_chunks_take_seconds_and_repeat_little(seconds: float, elapsed: float) -> None:
    network, unit = first_unit()
    sizes, keys = ChunkSizes(network, seconds), unit.keys
    chunks: list[tuple[str, ...]] = []
    while keys:
        count = sizes.choose(keys, elapsed, is_racing=False)
        chunks.append(keys[:count])
        keys = keys[count:]
    passes = [forward_equivalents_of(network, chunk) for chunk in chunks]
    assert tuple(key for chunk in chunks for key in chunk) == unit.keys
    assert max(passes) * seconds <= max(5.0, elapsed / 10, 2 * seconds)
    assert sum(passes) <= forward_equivalents_of(network, unit.keys) + len(chunks) - 1


def test_chunks_follow_what_chunks_took() -> None:
    keys = tuple(problem().space.all_keys())
    assert ChunkSizes(NETWORK, 0.05).choose(keys, 0.0, is_racing=True) < len(keys)  # a quarter of 4 s, as long as it is a guess
    sizes = ChunkSizes(NETWORK, 0.001)
    assert sizes.choose(keys, 0.0, is_racing=True) == len(keys)
    sizes.learn(keys, True, 1000.0)
    assert sizes.choose(keys, 0.0, is_racing=True) < 20
    assert sizes.choose(keys, 0.0, is_racing=False) == len(keys)
    assert sizes.choose(keys, 20_000.0, is_racing=True) == len(keys)


def test_chunks_grow_only_where_much_is_repeated() -> None:
    network = yolov3_tiny()
    [unit, *_] = split_work(network, map(Assignment, build_space(network, ("fp32", "int8")).all_keys()))
    first, second = unit.keys[:32], unit.keys[32:64]
    sizes = ChunkSizes(network, 2.0)
    alone, continued = (float(forward_equivalents_of(network, keys)) for keys in (first, (first[-1], *second)))
    sizes.learn(first, False, 2.0 * alone)
    share = 1 - (continued - 1) / float(forward_equivalents_of(network, second))
    sizes.learn(second, False, 2.0 * (continued - 1), first, share)
    remaining = unit.keys[64:]
    count = sizes.choose(remaining, 1e5, False, first + second)
    assert 2.0 * (float(forward_equivalents_of(network, (second[-1], *remaining[:count]))) - 1) <= 5.0
    sizes.learn(second, False, 2.0 * alone, first)  # by a worker that has cached nothing
    assert sizes.choose(remaining, 1e5, False, first + second) == len(remaining)


@pytest.mark.slow
def test_a_worker_goes_on_where_its_last_unit_ended() -> None:
    executor = ProcessExecutor(SyntheticRecipe(problem()), 1)
    try:
        first, distant, neighbour = (WorkChunk(0, (key,)) for key in ("ffffff+1:q", "qqqqqq+1:q", "fffffq+1:q"))
        for unit in (first, distant, neighbour):
            executor.submit(unit)
        chunks: list[WorkChunk] = []
        while len(chunks) < 3:
            chunks += [result.chunk for result in executor.wait(10)]
        assert chunks == [first, neighbour, distant]
    finally:
        executor.close()


def test_the_time_left_does_not_grow_between_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    state = SweepState(FailedTrials(NETWORK), total=100, start_time=1000.0)
    now[0] += 50
    assert state.seconds_left is None
    state.trials = {Assignment(str(number)): Trial(str(number), {}) for number in range(20)}
    state.settled, state.committed = 20, now[0]
    assert state.seconds_left == 200
    now[0] += 30
    assert state.seconds_left == 170
    now[0] += 300
    assert state.seconds_left == 0


def test_units_cover_everything_once_and_share_prefixes() -> None:
    keys = list(problem().space.all_keys())
    for workers, size in ((1, 1), (1, 1 << 24), (4, 1), (16, 1 << 26)):
        units = split_work(NETWORK, [Assignment(key) for key in keys], workers=workers, bytes_per_head=size)
        assert [key for unit in units for key in unit.keys] == keys
        assert len(units) >= min(workers, len(keys) // 16)
        assert all(len(unit.keys) <= MAX_TRIALS for unit in units)
    whole_units = split_work(NETWORK, [Assignment(key) for key in keys], bytes_per_head=1)
    theory = forward_equivalents(NETWORK, problem().space)
    assert theory <= planned_equivalents(NETWORK, whole_units) <= theory * (1 + MAX_REPEATED)
    assert planned_equivalents(NETWORK, whole_units) < planned_equivalents(NETWORK, units) < len(keys)


def test_units_of_different_options_are_apart() -> None:
    units = split_work(NETWORK, [Assignment("ffffff", 1), Assignment("ffffff", 0), Assignment("fffffq", 1)])
    assert [(unit.options, unit.keys) for unit in units] == [(0, ("ffffff",)), (1, ("ffffff", "fffffq"))]
