# SPDX-License-Identifier: MIT
"""How long does a sweep take on many machines? Its measured parts, replayed by simulated workers.

    python benchmarks/machines.py record PROBLEM.yaml PARTS.jsonl.gz [--workers 2]
    python benchmarks/machines.py simulate PROBLEM.yaml PARTS.jsonl.gz --workers 2 8 80

`record` runs a sweep, an experiment file, into its store and notes how long each part took in its worker; it goes on where it
was. `simulate` runs the same sweep anew with as many workers as are asked for. The process that `mpnet sweep` is does all of
its own work in real time: it hands out parts, rules out by costs, and commits to a store on this disk. Only workers are
simulated: a part takes as long as its configurations took when they were recorded, and a message takes MESSAGE_SECONDS.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import pickle
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Sequence

from mixbench.measure import sweep_of
from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.executor import Executor
from mpnet.sweep.evaluate.sharing import forward_equivalents_of
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.run import worker_pool
from mpnet.sweep.search.estimate import seconds_per_pass
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.setup import make_context, make_executor, with_image_order
from mpnet.sweep.store import Trial, TrialStore

MESSAGE_SECONDS = 0.002
"""From the end of a part to its result, and from handing out to its start: a local network and Dask's own work."""


class Recorder:
    """An executor's results, each noted in a file: the part's keys and the seconds that it took."""

    def __init__(self, executor: Executor, path: Path) -> None:
        self._executor, self._path, self.slots = executor, path, executor.slots

    def submit(self, unit: WorkChunk) -> None:
        """Take on a chunk of work."""
        self._executor.submit(unit)

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Return the results that are there within `timeout` seconds."""
        results = self._executor.wait(timeout)
        if not results:
            return results
        with gzip.open(self._path, "at") as file:
            for result in results:
                file.write(json.dumps({"seconds": result.seconds, "keys": " ".join(result.chunk.keys)}) + "\n")
        return results

    def close(self) -> None:
        """End the work."""
        self._executor.close()


class Clock:
    """Real seconds, but for those that are left out, and those that pass while simulated workers alone work."""

    def __init__(self) -> None:
        self._offset, self.waited = 0.0, 0.0

    @property
    def now(self) -> float:
        """Return the time of this clock, in seconds."""
        return time.monotonic() + self._offset

    def leave_out(self, start: float) -> None:
        """Leave out the time since `start`, a reading of `now`."""
        self._offset -= self.now - start

    def wait_until(self, time: float) -> float:
        """Let time pass. Result: seconds that passed."""
        duration = max(0.0, time - self.now)
        self._offset += duration
        self.waited += duration
        return duration


class SimulatedWorkers:
    """An executor that looks results up and waits in simulated time.

    trials: of the finished sweep, by key; all others were ruled out. rates: seconds per forward pass of a recorded key's part.
    """

    def __init__(
        self, network: NetworkSpec, slots: int, trials: dict[str, Trial], rates: dict[str, float], clock: Clock
    ) -> None:
        self.slots, self.clock = slots, clock
        self._network, self._trials, self._rates = network, trials, rates
        self._unknown = sum(rates.values()) / len(rates)
        self._free = [clock.now] * slots
        self._running: list[tuple[float, int, bytes]] = []
        self.busy, self.chunks = 0.0, 0
        self.sweep: Sweep | None = None

    def submit(self, unit: WorkChunk) -> None:
        """Take on a chunk of work."""
        message = pickle.dumps(unit)  # what the process that hands out has to do for it
        began = self.clock.now
        passes = float(forward_equivalents_of(self._network, unit.keys))
        seconds = passes * sum(self._rates.get(key, self._unknown) for key in unit.keys) / len(unit.keys)
        trials = tuple(self._trials[key] for key in unit.keys if key in self._trials)
        failed_keys = tuple(key for key in unit.keys if key not in self._trials)
        result = pickle.dumps(
            ChunkResult(pickle.loads(message), trials, 0, failed_keys, ((1, len(failed_keys)),) if failed_keys else (), seconds)
        )
        start = max(began + MESSAGE_SECONDS, heapq.heappop(self._free))
        heapq.heappush(self._free, start + seconds)
        heapq.heappush(self._running, (start + seconds + MESSAGE_SECONDS, self.chunks, result))
        self.busy, self.chunks = self.busy + seconds, self.chunks + 1
        self.clock.leave_out(began)

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Return the results that are there within `timeout` seconds."""
        duration = self.clock.wait_until(self._running[0][0])
        assert self.sweep is not None
        self.sweep.state.start_time -= duration
        results = []
        while self._running and self._running[0][0] <= self.clock.now:
            results.append(pickle.loads(heapq.heappop(self._running)[2]))
        return results

    def close(self) -> None:
        """End the work."""
        self._running.clear()


def record(path: Path, records_path: Path, workers: int) -> None:
    """Run a sweep and note the time of each part."""
    setup, problem = sweep_of(path)
    name, per_pass = setup.bench.experiment.name, seconds_per_pass(setup.bench, problem.space).most

    def progress(state: SweepState) -> None:
        print(
            f"\r{name}: {state.finished_count:,} of {state.total:,}, {len(state.trials):,} measured",
            end="",
            file=sys.stderr,
            flush=True,
        )

    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.open(setup.store_path, setup.subject))
        contexts = [store.context(document) for document in setup.documents]

        def open_pool() -> WorkerPool:
            context = make_context(setup, stack, 1, remote=False)
            context, macs = with_image_order(context, problem, store, contexts[0], setup.bench.threads)
            executor = Recorder(make_executor(context, workers, None), records_path)
            stack.callback(executor.close)
            return worker_pool(context, executor, problem, setup.baseline, per_pass, macs)

        state = Sweep(problem, setup.bench.network, store, contexts, open_pool, on_update=progress).run(
            strategy(setup.section.strategy).walk
        )
        print(file=sys.stderr)
        print(f"{name}: {state.finished_count:,} configurations, {state.computed:,} measured now, in {state.seconds:.0f} s")


def simulate(path: Path, records_path: Path, counts: Sequence[int]) -> None:
    """Print what the sweep would take with each number of workers."""
    setup, problem = sweep_of(path)
    network = setup.bench.network
    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.read(setup.store_path))
        trials = {trial.key: trial for context in store.contexts() for trial in store.trials(context)}
        rates = _rates(network, records_path)
        context = make_context(setup, stack, 1, remote=False)
        per_pass = seconds_per_pass(setup.bench, problem.space).most
        print(f"{setup.bench.experiment.name}: {problem.space.size:,} configurations, {len(trials):,} measured")
        print("workers  seconds  this process works  workers work  parts")
        for workers in counts:
            clock = Clock()
            began = clock.now
            executor = SimulatedWorkers(network, workers, trials, rates, clock)
            pool = partial(worker_pool, context, executor, problem, setup.baseline, per_pass, 0)
            with (
                tempfile.TemporaryDirectory() as folder,
                TrialStore.open(Path(folder) / "sweep.sqlite", setup.subject) as store,
            ):
                contexts = [store.context(document) for document in setup.documents]
                sweep = Sweep(problem, network, store, contexts, pool)
                executor.sweep = sweep
                sweep.run(strategy(setup.section.strategy).walk)
                took = clock.now - began
            alone = (took - clock.waited) / took
            print(
                f"{workers:7}  {took:7.0f}  {alone:18.0%}  {executor.busy / took / workers:12.0%}  {executor.chunks:5}",
                flush=True,
            )


def _rates(network: NetworkSpec, records_path: Path) -> dict[str, float]:
    """Seconds per forward pass over all images of the part that each recorded key was in."""
    rates = {}
    with gzip.open(records_path, "rt") as file:
        for line in file:
            row = json.loads(line)
            keys = row["keys"].split()
            rates.update(dict.fromkeys(keys, row["seconds"] / float(forward_equivalents_of(network, keys))))
    return rates


def main(arguments: Sequence[str]) -> None:
    """Run the command. Raises: MpnetError."""
    parser = argparse.ArgumentParser(description="What a sweep takes on many machines, by simulation from measured parts.")
    parser.add_argument("command", choices=["record", "simulate"])
    parser.add_argument("problem", type=Path)
    parser.add_argument("parts", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    options = parser.parse_args(arguments)
    if options.command == "record":
        record(options.problem, options.parts, options.workers[0])
    else:
        simulate(options.problem, options.parts, options.workers)


if __name__ == "__main__":
    main(sys.argv[1:])
