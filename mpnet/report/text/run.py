# SPDX-License-Identifier: MIT
"""One finished run, and its baseline, for the terminal."""

from __future__ import annotations

from typing import Iterator, Mapping, Sequence

from rich.console import Console

from mpnet.backends.deployment import UNIFORM, slower_note
from mpnet.config.measures import AGREEMENT, names_of
from mpnet.evaluation.operating_point import OperatingErrors
from mpnet.messages import bytes_text, count_text
from mpnet.model.plan_key import short_key
from mpnet.model.task import Task
from mpnet.report.data.task_words import words_of
from mpnet.report.text.operating_point import print_operating_point
from mpnet.report.text.terminal import print_table
from mpnet.speed.latency import Latency, doubt_of, short_latency
from mpnet.trial.result import Result
from mpnet.trial.run_result import EngineRun

Row = list[object]
"""A label and a cell of each run."""


def print_run(
    result: Result,
    baseline: Result | None,
    console: Console,
    deployed: Result | None = None,
    point: OperatingErrors | None = None,
    own_baseline: Result | None = None,
) -> None:
    """Print a run's protocol and a table of its metrics, agreement, cost and latency, then notes.

    baseline: the run that it is compared with. deployed: the same configuration in another engine.
    point:    errors at one score threshold, as `report.collect.operating_point` counts them.
    own_baseline: of tuned weights, where `baseline` is their parent's.
    """
    _print_protocol(result, console)
    runs = [run for run in (baseline, own_baseline, result, deployed) if run is not None]
    in_engine = None if deployed is None else deployed.run.deployed
    rows = [
        *_configuration_rows(runs),
        *_accuracy_rows(runs, result.task),
        *_agreement_rows(runs, result.task),
        *(_head_error_rows(runs) if in_engine is not None else ()),
        *_cost_rows(runs),
        *_latency_rows(runs),
        *(_engine_rows(in_engine, len(runs)) if in_engine is not None else ()),
    ]
    engine = [] if in_engine is None else [f"{in_engine.engine} {in_engine.version}"]
    before = [*(["baseline"] if baseline else []), *(["tuned baseline"] if own_baseline else [])]
    names = [*before, "mpnet" if deployed else "this run", *engine]
    print_table(console, ["", *names], rows, fold=range(1, 1 + len(runs)))
    if point is not None:
        print_operating_point(point, console)
    _print_notes(runs, in_engine, console)
    console.print(str(runs[-1].folder))


def _print_protocol(result: Result, console: Console) -> None:
    protocol = result.run.protocol
    console.print(
        f"{result.name}: {words_of(result.task).protocol(protocol)}, dialect {protocol.get('dialect', 'darknet')}, "
        f"batch norm {protocol['batch_norm']}"
    )


def _configuration_rows(runs: Sequence[Result]) -> Iterator[Row]:
    yield ["precision", *[run.words for run in runs]]
    yield ["key", *[short_key(run.run.precision.key) for run in runs]]


def _accuracy_rows(runs: Sequence[Result], task: Task) -> Iterator[Row]:
    for name in names_of("accuracy", stored="trials", task=task):
        yield [name, *[_percent(run.metrics.get(name)) for run in runs]]


def _agreement_rows(runs: Sequence[Result], task: Task) -> Iterator[Row]:
    """Yield a row for each measure of agreement and one for the heads; nothing where no run has any."""
    agreements = [run.run.agreement for run in runs]
    if not any(agreements):
        return
    for name in names_of("agreement", task=task):
        stored = name.removeprefix(AGREEMENT)
        values = [None if agreement is None else agreement.values.get(stored) for agreement in agreements]
        yield [name.replace("_", " "), *["" if value is None else _percent(value) for value in values]]
    yield ["SQNR of heads", *[_decibels(agreement.head_sqnr_db) if agreement else "" for agreement in agreements]]


def _head_error_rows(runs: Sequence[Result]) -> Iterator[Row]:
    errors = [None if run.run.deployed is None else run.run.deployed.values.get("head_error") for run in runs]
    yield ["head error to mpnet", *["" if error is None else f"{error:.1e}" for error in errors]]


def _cost_rows(runs: Sequence[Result]) -> Iterator[Row]:
    costs = [run.run.cost for run in runs]
    yield ["weights", *[bytes_text(cost["weight_bytes"]) for cost in costs]]
    yield ["peak activations", *[bytes_text(cost["peak_activation_bytes"]) for cost in costs]]
    yield ["MACs in int8", *map(_int8_share, costs)]
    yield ["bit operations", *[count_text(cost["bit_operations"]) for cost in costs]]


def _latency_rows(runs: Sequence[Result]) -> Iterator[Row]:
    times = [run.run.latency for run in runs]
    yield ["latency", *[short_latency(latency) if latency else "-" for latency in times]]
    yield ["  taken with", *[_machine(latency) for latency in times]]


def _engine_rows(in_engine: EngineRun, run_count: int) -> Iterator[Row]:
    """Yield mpnet's time and the engine's, taken in turn, and the engine's with all layers in one precision."""
    times = in_engine.values
    yield [
        "latency, taken in turn",
        *[""] * (run_count - 2),
        f"{times['mpnet_latency_ms']:.2f} ms",
        f"{times['latency_ms']:.2f} ms",
    ]
    for precision, time_ms in _uniform_times(in_engine).items():
        yield [f"  all layers in {precision}", *[""] * (run_count - 1), f"{time_ms:.2f} ms"]


def _uniform_times(in_engine: EngineRun) -> dict[str, float]:
    """Return the engine's milliseconds with all layers in one precision, by precision, as far as they are known."""
    return {name: ms for name in UNIFORM if (ms := in_engine.values.get(f"{name}_latency_ms")) is not None}


def _print_notes(runs: Sequence[Result], in_engine: EngineRun | None, console: Console) -> None:
    doubts = {doubt for run in runs if (doubt := doubt_of(run.run.latency))}
    if doubts:
        console.print(f"note: the latency is unreliable: {'; '.join(sorted(doubts))}. The same command measures it again.")
    if in_engine is not None:
        slower = slower_note(in_engine.engine, in_engine.values["latency_ms"] or 0.0, _uniform_times(in_engine))
        if slower:
            console.print(f"note: {slower}")
    for note in runs[-1].run.notes:
        console.print(f"note: {note}")


def _percent(value: float | None) -> str:
    return "-" if value is None or value < 0 else f"{value:.2f}"


def _decibels(values: Sequence[float | None]) -> str:
    return ", ".join("exact" if value is None else f"{value:.1f} dB" for value in values)


def _int8_share(cost: Mapping[str, float]) -> str:
    return f"{100 * cost['int8_macs'] / cost['macs']:.1f} %" if cost.get("macs") else "-"


def _machine(latency: Latency | None) -> str:
    return f"{latency.isa}, {latency.threads} thread{'s' if latency.threads != 1 else ''}" if latency else ""
