# SPDX-License-Identifier: MIT
"""Assignments of a problem run on its images, for what a table does not hold and for checks of what it holds.

This module and those that import it need mpnet, which runs the networks.
"""

from __future__ import annotations

import atexit
import json
import math
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Mapping, Sequence

from mixbench.errors import BenchmarkError, benchmark_errors
from mixbench.problem import COLUMNS, FOLDER, Problem, load_problem
from mpnet.formats.documents.experiment import read_experiment
from mpnet.sweep.problem.problem import Batch, Walk, objectives_of
from mpnet.sweep.problem.problem import Problem as SweepProblem
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.loop import OnUpdate, Sweep, WorkerPool
from mpnet.sweep.setup import SweepSetup, make_context, make_executor, section_of, set_up
from mpnet.sweep.store import TrialStore
from mpnet.trial.experiment import open_workbench, with_network


def sweep_of(path: Path) -> tuple[SweepSetup, SweepProblem]:
    """Open a problem's sweep, an experiment file, as it would be run. Raises: MpnetError."""
    experiment, network = with_network(read_experiment(path))
    section = section_of(experiment)
    space = build_space(network, section.precisions, section.space)
    problem = SweepProblem(space, tuple(layer.macs for layer in network.convolutions), objectives_of(section.objectives))
    return set_up(open_workbench(experiment, network), section, space), problem


def group_macs(sweep: SweepProblem) -> tuple[int, ...]:
    """Return the multiply-accumulates of each variable of a sweep's space: the sum over layers that share a precision."""
    return tuple(sum(sweep.macs[position] for position in variable.positions) for variable in sweep.space.variables)


def check_contexts(setup: SweepSetup, metadata: Mapping[str, Any]) -> None:
    """Check a table's metadata. Raises: BenchmarkError where its images, network or options are others."""
    documents = json.loads(json.dumps(setup.documents))
    if not all(document in metadata["contexts"] for document in documents):
        name = setup.bench.experiment.name
        raise BenchmarkError(f"{name}: network, images or options are not those of the table; make the table anew")


class Measurer:
    """Runs assignments; what it ran stays in a store. Images are read when the first one is missing there.

    problem: the experiment file. store: None: that of the problem's own sweep, which `mixbench.table make` takes up.
    on_update: gets the sweep's state whenever more is done.
    """

    def __init__(self, problem: Path, store: Path | None = None, on_update: OnUpdate = lambda state: None) -> None:
        self._on_update = on_update
        self._setup, self._sweep = sweep_of(problem)
        self._stack = ExitStack()
        self._store = self._stack.enter_context(TrialStore.open(store or self._setup.store_path, self._setup.subject))
        self._contexts = [self._store.context(document) for document in self._setup.documents]
        self._pool: WorkerPool | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and give memory back."""
        self._stack.close()

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Check a table's metadata. Raises: BenchmarkError where its images, network or options are others."""
        check_contexts(self._setup, metadata)

    def __call__(self, keys: Sequence[str]) -> list[dict[str, float]]:
        """Measure the table's columns of each key, one code per variable of the space. Raises: MpnetError."""
        full_keys = [self._sweep.space.key_of(key) for key in keys]

        def walk(problem: SweepProblem) -> Walk:
            yield Batch([Assignment(key) for key in {problem.baseline: None, **dict.fromkeys(full_keys)}])

        network, contexts = self._setup.bench.network, self._contexts
        Sweep(self._sweep, network, self._store, contexts, self._open_pool, on_update=self._on_update).run(walk)
        trials = self._store.find(self._contexts[0], full_keys)
        return [{name: trials[key].get(name) for name in COLUMNS} for key in full_keys]

    def _open_pool(self) -> WorkerPool:
        if self._pool is None:
            context = make_context(self._setup, self._stack, self._setup.bench.threads, remote=False)
            executor = make_executor(context, 1, None)
            self._stack.callback(executor.close)
            self._pool = WorkerPool(executor)
        return self._pool


def load_measured(name: str, budget: float = math.inf) -> Problem:
    """`mixbench.load_problem`, but what the table of a front lacks is run on the problem's images when it is asked for.

    Asking raises BenchmarkError where these are not there or not those of the table.
    """
    problem = load_problem(name, budget)

    def measure(keys: Sequence[str]) -> list[dict[str, float]]:
        with benchmark_errors():
            measurer = _measurer(name)
            measurer.check(problem.metadata)
            return measurer(keys)

    problem.measure = measure
    return problem


@cache
def _measurer(name: str) -> Measurer:
    measurer = Measurer(FOLDER / "problems" / f"{name}.yaml")
    atexit.register(measurer.close)
    return measurer
