# SPDX-License-Identifier: MIT
"""Make a problem's table, and hold a table against new runs.

python -m mixbench.table make NAME [--workers N]     # sweeps mixbench/problems/NAME.yaml, goes on where it was stopped
python -m mixbench.table add NAME                    # takes into a sample what methods asked for since (mixbench.run --measure)
python -m mixbench.table layers NAME                 # writes figures of single layers beside the table (mixbench.divergence)
python -m mixbench.table check NAME [COUNT]          # runs COUNT (200) assignments anew, drawn at random: all bits equal

Of a front `check` runs COUNT that were measured, and COUNT that were ruled out, which the front must beat.
A problem whose strategy is not exact gives a sample: what the store and the table before it hold, so that `make` once more
takes in what methods asked for in between. `add` does that alone, without the sweep. Submissions to the table before it are
of another table then.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.divergence import measure_layers
from mixbench.errors import BenchmarkError, benchmark_errors
from mixbench.hessian import statistics
from mixbench.layer_figures import write_layer_figures
from mixbench.measure import Measurer, check_contexts, sweep_of
from mixbench.problem import COLUMNS, COST, FOLDER, QUALITY, TABLES, read_table
from mpnet.formats.documents.typed import as_json
from mpnet.formats.files.atomic import atomic_path
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.model.selectors import select_layers
from mpnet.sweep.problem.front import dominated
from mpnet.sweep.problem.problem import Problem as SweepProblem
from mpnet.sweep.run import run_sweep
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.setup import SweepSetup
from mpnet.sweep.store import Trial, TrialStore
from mpnet.sweep.store.records import choose_record

RECORD_KEYS = ("images", "selecting", "holdout", "digests", "protocol", "contexts", "versions", "created")
"""Of what a store says of its sweep, that which a table says as well."""
SAMPLED = tuple(name for name in COLUMNS if name != COST)
"""Columns of a sample's table: costs follow from keys."""


def _progress(name: str, total: int | None, state: SweepState) -> None:
    print(
        f"\r{name}: {state.finished_count:,} of {total or state.total or 0:,} assignments", end="", file=sys.stderr, flush=True
    )


def make(problem: Path, table: Path, workers: int | None = None) -> None:
    """Sweep what is missing of a problem, an experiment file, and write its table.

    Of strategy exact_front it has what may be on the front and whatever else the sweep's store has; of a strategy that is not
    exact what the store and the table that it replaces have. Figures of single layers are written beside it.
    """
    setup, sweep = sweep_of(problem)
    experiment, name = setup.bench.experiment, setup.bench.experiment.name

    result = run_sweep(experiment, workers=workers, yes=True, on_update=partial(_progress, name, None))
    print(file=sys.stderr)
    names = {layer.index: layer.name for layer in setup.bench.network.layers}
    heads = set(select_layers(setup.bench.network, "heads"))
    layers = [[sweep.space.layers[position] for position in variable.positions] for variable in sweep.space.variables]
    choices = [variable.codes for variable in sweep.space.variables]
    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.read(experiment.output / name / "latest.sqlite"))
        rows = {split_key(trial.key)[0]: trial for context in store.contexts() for trial in store.trials(context)}
        record = sweep_record(store)
    metadata = {
        "layers": ["+".join(names[index] for index in group) for group in layers],
        "macs": [sum(setup.bench.network.layers[index].macs for index in group) for group in layers],
        "choices": choices,
        "heads": [number for number, group in enumerate(layers) if heads & set(group)],
        "hessian": statistics(setup, layers, choices),
        **{key: record.get(key) for key in RECORD_KEYS},
    }
    arrays: dict[str, NDArray[Any]] = {}
    if not strategy(setup.section.strategy).is_exact:
        metadata["layer_costs"] = _layer_costs(setup, sweep)
        arrays.update(_sample(sweep, _earlier_rows(table, metadata), rows))
    elif strategy(setup.section.strategy).prunes:
        # Costs of what was not measured follow from the key, so they take no room.
        metadata["front"] = {
            "ruled_out": result.ruled_out,
            "ruled_out_after": result.ruled_out_after,
            "forward_equivalents_store": result.forward_equivalents_store,
        }
        metadata["layer_costs"] = _layer_costs(setup, sweep)
        arrays["rows"], columns = _columns(sweep, rows)
        arrays.update((name, column) for name, column in columns.items() if name != COST)
    else:
        arrays.update(_columns(sweep, rows)[1])
    _write(table, metadata, arrays)
    write_layers(problem, table, (setup, sweep))


def write_layers(problem: Path, table: Path, opened: tuple[SweepSetup, SweepProblem] | None = None) -> None:
    """Measure the layers of a problem, an experiment file, alone, and write their figures beside its table.

    opened: what `sweep_of` gives, where it is there already.
    Raises: BenchmarkError where the table is of other images, network or options; MpnetError.
    """
    setup, sweep = opened or sweep_of(problem)
    table_problem = read_table(table)
    check_contexts(setup, table_problem.metadata)
    write_layer_figures(measure_layers(setup, sweep, table_problem), table, table_problem.metadata)


def add(problem: Path, table: Path) -> int:
    """Take into a sample's table what the store of its sweep has beside it. Result: how many assignments.

    Raises: BenchmarkError for a table of another kind, of other images, network or options; MpnetError.
    """
    setup, sweep = sweep_of(problem)
    earlier = read_table(table)
    check_contexts(setup, earlier.metadata)
    if earlier.rows is None:
        raise BenchmarkError(f"{table}: is no sample, so that nothing can be added; `make` goes on with a front")
    with TrialStore.read(setup.store_path) as store:
        rows = {split_key(trial.key)[0]: trial for context in store.contexts() for trial in store.trials(context)}
    arrays = _sample(sweep, _earlier_rows(table, earlier.metadata), rows)
    _write(table, earlier.metadata, arrays)
    return len(arrays["keys"]) - len(earlier.rows)


def _sample(sweep: SweepProblem, earlier_rows: Mapping[str, list[float]], rows: Mapping[str, Trial]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a sample: the rows of the table before it, and those of a store."""
    columns = dict(earlier_rows)
    columns.update((key, [trial.get(name) for name in SAMPLED]) for key, trial in rows.items() if key in sweep.space)
    keys = sorted(columns)
    values = np.array([columns[key] for key in keys], np.float64)
    arrays: dict[str, NDArray[Any]] = {"keys": np.array([key.encode("ascii") for key in keys])}
    arrays.update((name, values[:, number]) for number, name in enumerate(SAMPLED))
    return arrays


def _write(table: Path, metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a table whole or not at all."""
    with atomic_path(table) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, metadata=np.array(json.dumps(metadata)), **arrays)


def _earlier_rows(table: Path, metadata: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the values of SAMPLED by key of a sample's table; {} without one, or where its images or options are others."""
    if not table.is_file():
        return {}
    earlier = read_table(table)
    if earlier.rows is None or earlier.metadata["contexts"] != json.loads(json.dumps(metadata["contexts"])):
        return {}
    return {key: [float(earlier.columns[name][row]) for name in SAMPLED] for key, row in earlier.rows.items()}


def sweep_record(store: TrialStore) -> Mapping[str, Any]:
    """Return what the store says of its last sweep, contexts included."""
    record = choose_record(store, None)
    return {} if record is None else {**as_json(record.sweep), "contexts": list(store.contexts().values())}


def _columns(sweep: SweepProblem, rows: Mapping[str, Trial]) -> tuple[NDArray[np.int32], dict[str, NDArray[np.float64]]]:
    """Numbers of the keys that have trials, in the order of all keys, and each measure of these."""
    numbered = [(number, rows.get(split_key(key)[0])) for number, key in enumerate(sweep.space.all_keys())]
    numbered_trials = [(number, trial) for number, trial in numbered if trial is not None]
    columns = {name: np.array([trial.get(name) for _, trial in numbered_trials], np.float64) for name in COLUMNS}
    return np.array([number for number, _ in numbered_trials], np.int32), columns


def _layer_costs(setup: SweepSetup, sweep: SweepProblem) -> list[dict[str, int]]:
    """Bit operations of each variable's layers, by code."""
    macs = [
        sum(setup.bench.network.layers[sweep.space.layers[position]].macs for position in variable.positions)
        for variable in sweep.space.variables
    ]
    return [
        {code: of_it * BY_CODE[code].weight_bits * 8 * BY_CODE[code].stored.item_bytes for code in variable.codes}
        for of_it, variable in zip(macs, sweep.space.variables, strict=True)
    ]


def _equal(column: str, stored_value: float, new_value: float) -> bool:
    """Bit for bit; but decibels of older tables have the last bit of the logarithm of the machine that made them."""
    return math.isclose(stored_value, new_value, rel_tol=4e-15) if column == "head_sqnr_db" else stored_value == new_value


def check(problem: Path, table: Path, count: int) -> int:
    """How many of `count` assignments, run anew, differ from the table; each is printed.

    Of a front as many again of what was ruled out are held against it: one that it does not dominate differs.
    """
    problem_table, generator = read_table(table), random.Random(0)
    quality, costs = problem_table.columns[QUALITY], problem_table.columns[COST]
    measured_rows, ruled_out_rows = np.flatnonzero(~np.isnan(quality)).tolist(), np.flatnonzero(np.isnan(quality)).tolist()
    assignments = problem_table.keys
    equal = [assignments[row] for row in generator.sample(measured_rows, min(count, len(measured_rows)))]
    beaten = [assignments[row] for row in generator.sample(ruled_out_rows, min(count, len(ruled_out_rows)))]
    keys = [*equal, *beaten]
    progress = partial(_progress, problem_table.name, len(keys))
    with tempfile.TemporaryDirectory() as folder, Measurer(problem, Path(folder) / "check.sqlite", progress) as measurer:
        measurer.check(problem_table.metadata)
        anew = dict(zip(keys, measurer(keys), strict=True))
    print(file=sys.stderr)
    differ = 0
    for key in equal:
        row = problem_table.number(key)
        pairs = {column: (float(problem_table.columns[column][row]), anew[key][column]) for column in COLUMNS}
        unequal = {column: pair for column, pair in pairs.items() if not _equal(column, *pair)}
        if unequal:
            differ += 1
            print(f"{problem_table.name} {key}: {unequal}")
    print(f"{problem_table.name}: {len(equal)} assignments run anew, {differ} differ")
    if not beaten:
        return differ
    front = np.column_stack([-quality, costs])[measured_rows]
    points = np.array([[-anew[key][QUALITY], anew[key][COST]] for key in beaten])
    unbeaten = [key for key, is_beaten in zip(beaten, dominated(points, front), strict=True) if not is_beaten]
    for key in unbeaten:
        print(f"{problem_table.name} {key}: was ruled out, but nothing beats {anew[key]}")
    print(f"{problem_table.name}: {len(beaten)} that were ruled out run anew, {len(unbeaten)} could be on the front")
    return differ + len(unbeaten)


def main(arguments: Sequence[str]) -> int:
    """Run the command. Result: exit code."""
    parser = argparse.ArgumentParser(prog="python -m mixbench.table", description="Make, extend or check a problem's table.")
    parser.add_argument("command", choices=["make", "add", "layers", "check"])
    parser.add_argument("name")
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args(arguments)
    try:
        problem, table = FOLDER / "problems" / f"{options.name}.yaml", TABLES / f"{options.name}.npz"
        with benchmark_errors():
            if options.command == "check":
                return min(1, check(problem, table, options.count))
            if options.command == "add":
                print(f"{options.name}: {add(problem, table):,} assignments added")
            elif options.command == "layers":
                write_layers(problem, table)
            else:
                make(problem, table, options.workers)
            return 0
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
