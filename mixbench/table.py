# SPDX-License-Identifier: MIT
"""Make a problem's table, and hold a table against new runs.

python -m mixbench.table make NAME [--workers N]     # sweeps mixbench/problems/NAME.yaml, goes on where it was stopped
python -m mixbench.table check NAME [COUNT]          # runs COUNT (200) assignments anew, drawn at random: all bits equal
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.hessian import statistics
from mixbench.problem import COLUMNS, HERE, TABLES, read_table
from mpnet.errors import MpnetError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.files.atomic import atomic_path
from mpnet.model.plan_key import split_key
from mpnet.model.selectors import select_layers
from mpnet.sweep.loop import Sweep, SweepState, WorkerPool
from mpnet.sweep.problem import Batch, Walk, objectives_of
from mpnet.sweep.problem import Problem as SweepProblem
from mpnet.sweep.search import run_sweep
from mpnet.sweep.setup import SweepSetup, make_context, make_executor, section_of, set_up
from mpnet.sweep.space import Configuration, build_space
from mpnet.sweep.store import Trial, TrialStore
from mpnet.sweep.store.records import choose_record
from mpnet.trial.experiment import open_workbench, with_network

_KEPT = ("images", "selecting", "holdout", "digests", "protocol", "contexts", "versions", "created")
"""Of what a store says of its sweep, that which a table says as well."""


def _setup(path: Path) -> tuple[SweepSetup, SweepProblem]:
    """A problem's sweep as it would be run. Raises: MpnetError."""
    experiment, network = with_network(read_experiment(path))
    section = section_of(experiment)
    space = build_space(network, section.precisions, section.space)
    problem = SweepProblem(space, tuple(layer.macs for layer in network.convolutions), objectives_of(section.objectives))
    return set_up(open_workbench(experiment, network), section, space), problem


def make(problem: Path, table: Path, workers: int | None = None) -> None:
    """Sweep what is missing of a problem, an experiment file, and write its table."""
    setup, sweep = _setup(problem)
    experiment, name = setup.bench.experiment, setup.bench.experiment.name

    def progress(state: SweepState) -> None:
        print(f"\r{name}: {state.done:,} of {state.total or 0:,} assignments", end="", file=sys.stderr, flush=True)

    run_sweep(experiment, workers=workers, yes=True, on_update=progress)
    print(file=sys.stderr)
    names = {layer.index: layer.name for layer in setup.bench.network.layers}
    heads = set(select_layers(setup.bench.network, "heads"))
    layers = [[sweep.space.layers[position] for position in variable.positions] for variable in sweep.space.variables]
    choices = [variable.codes for variable in sweep.space.variables]
    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.read(experiment.output / name / "latest.sqlite"))
        rows = {split_key(trial.key)[0]: trial for context in store.contexts() for trial in store.trials(context)}
        said = _said(store)
    metadata = {
        "layers": ["+".join(names[index] for index in group) for group in layers],
        "macs": [sum(setup.bench.network.layers[index].macs for index in group) for group in layers],
        "choices": choices,
        "heads": [number for number, group in enumerate(layers) if heads & set(group)],
        "hessian": statistics(setup, layers, choices),
        **{key: said.get(key) for key in _KEPT},
    }
    columns = _columns(sweep, rows)
    with atomic_path(table) as part, open(part, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, metadata=np.array(json.dumps(metadata)), **columns)


def _said(store: TrialStore) -> Mapping[str, Any]:
    record = choose_record(store, None)
    return {} if record is None else {**record.sweep, "contexts": list(store.contexts().values())}


def _columns(sweep: SweepProblem, rows: Mapping[str, Trial]) -> dict[str, NDArray[np.float64]]:
    """(size,) float64 of each measure, in the order of all keys."""
    trials = [rows[split_key(key)[0]] for key in sweep.space.all_keys()]
    return {name: np.array([trial.get(name) for trial in trials], np.float64) for name in COLUMNS}


def check(problem: Path, table: Path, count: int) -> int:
    """How many of `count` assignments, run anew, differ from the table; each is printed."""
    setup, sweep = _setup(problem)
    expected = read_table(table)
    keys = random.Random(0).sample(list(sweep.space.all_keys()), min(count, sweep.space.size))

    def drawn(asked: SweepProblem) -> Walk:
        yield Batch([Configuration(key) for key in {asked.baseline: None, **dict.fromkeys(keys)}])

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = stack.enter_context(TrialStore.open(Path(folder) / "check.sqlite", setup.subject))
        contexts = [store.context(document) for document in setup.documents]
        executor = make_executor(make_context(setup, stack, setup.bench.threads, remote=False), 1, None)
        stack.callback(executor.close)
        Sweep(sweep, setup.bench.network, store, contexts, lambda: WorkerPool(executor)).run(drawn)
        anew = {trial.key: trial for trial in store.trials(contexts[0])}
    differ = 0
    for key in keys:
        row = expected.number("".join(sweep.space.codes_of(key)))
        pairs = {column: (float(expected.columns[column][row]), anew[key].get(column)) for column in COLUMNS}
        unequal = {column: pair for column, pair in pairs.items() if pair[0] != pair[1]}
        if unequal:
            differ += 1
            print(f"{expected.name} {key}: {unequal}")
    print(f"{expected.name}: {len(keys)} assignments run anew, {differ} differ")
    return differ


def main(arguments: Sequence[str]) -> int:
    """The command. Result: exit code."""
    parser = argparse.ArgumentParser(prog="python -m mixbench.table", description="Make or check a problem's table.")
    parser.add_argument("command", choices=["make", "check"])
    parser.add_argument("name")
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args(arguments)
    try:
        problem, table = HERE / "problems" / f"{options.name}.yaml", TABLES / f"{options.name}.npz"
        if options.command == "check":
            return min(1, check(problem, table, options.count))
        make(problem, table, options.workers)
        return 0
    except MpnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
