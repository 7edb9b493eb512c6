# SPDX-License-Identifier: MIT
"""One finished run, and its baseline, for the terminal."""

from __future__ import annotations

from typing import Any, Mapping

from rich.console import Console

from mpnet.backends.deployment import UNIFORM, slower_note
from mpnet.config.measures import AGREEMENT, names_of
from mpnet.messages import bytes_text, count_text
from mpnet.model.plan_key import short_key
from mpnet.report.data.task_words import words_of
from mpnet.report.text.operating_point import print_operating_point
from mpnet.report.text.terminal import print_table
from mpnet.speed.steps import doubt_of, short_latency
from mpnet.trial.result import Result


def print_outcome(
    result: Result,
    baseline: Result | None,
    console: Console,
    deployed: Result | None = None,
    point: Mapping[str, Any] | None = None,
) -> None:
    """Protocol, metrics, agreement, cost and latency of a run, the baseline's beside them, and those of the same
    configuration in another engine. point: errors at one score threshold, as `operating.of_run` counts them."""
    document = result.document
    protocol = document["protocol"]
    console.print(
        f"{result.name}: {words_of(result.task).protocol(protocol)}, dialect {protocol.get('dialect', 'darknet')}, "
        f"batch norm {protocol['batch_norm']}"
    )
    runs = [run for run in (baseline, result, deployed) if run is not None]
    engine = [] if deployed is None else ["{engine} {version}".format(**deployed.document["deployed"])]
    rows: list[list[object]] = [
        ["precision", *[run.words for run in runs]],
        ["key", *[short_key(run.document["precision"]["key"]) for run in runs]],
    ]
    for name in names_of("accuracy", stored="trials", task=result.task):
        rows.append([name, *[_percent(run.metrics.get(name)) for run in runs]])
    agreements = [run.document.get("agreement") or {} for run in runs]
    if any(agreements):
        for name in names_of("agreement", task=result.task):
            values = [agreement.get(name.removeprefix(AGREEMENT)) for agreement in agreements]
            rows.append([name.replace("_", " "), *["" if value is None else _percent(value) for value in values]])
        rows.append(["SQNR of heads", *[_decibels(agreement["head_sqnr_db"]) if agreement else "" for agreement in agreements]])
    if deployed is not None:
        errors = [(run.document.get("deployed") or {}).get("head_error") for run in runs]
        rows.append(["head error to mpnet", *["" if error is None else f"{error:.1e}" for error in errors]])
    costs = [run.document["cost"] for run in runs]
    rows.append(["weights", *[bytes_text(cost["weight_bytes"]) for cost in costs]])
    rows.append(["peak activations", *[bytes_text(cost["peak_activation_bytes"]) for cost in costs]])
    rows.append(["MACs in int8", *map(_share, costs)])
    rows.append(["bit operations", *[count_text(cost["bit_operations"]) for cost in costs]])
    times = [run.document.get("latency") for run in runs]
    rows.append(["latency", *[short_latency(latency) if latency else "-" for latency in times]])
    rows.append(["  taken with", *[_machine(latency) for latency in times]])
    slower = ""
    if deployed is not None:
        uniform = {p: ms for p in UNIFORM if (ms := deployed.document["deployed"].get(f"{p}_latency_ms")) is not None}
        in_mpnet, in_engine = (deployed.document["deployed"][name] for name in ("mpnet_latency_ms", "latency_ms"))
        slower = slower_note(deployed.document["deployed"]["engine"], in_engine, uniform)
        rows.append(["latency, taken in turn", *[""] * (len(runs) - 2), f"{in_mpnet:.2f} ms", f"{in_engine:.2f} ms"])
        for precision, there in uniform.items():
            rows.append([f"  all layers in {precision}", *[""] * (len(runs) - 1), f"{there:.2f} ms"])
    names = [*(["baseline"] if baseline else []), "mpnet" if deployed else "this run", *engine]
    print_table(console, ["", *names], rows, fold=range(1, 1 + len(runs)))
    if point is not None:
        print_operating_point(point, console)
    doubts = {doubt for run in runs if (doubt := doubt_of(run.document.get("latency")))}
    if doubts:
        console.print(f"note: the latency is unreliable: {'; '.join(sorted(doubts))}. The same command measures it again.")
    if slower:
        console.print(f"note: {slower}")
    last = deployed or result
    for remark in last.document.get("notes", []):
        console.print(f"note: {remark}")
    console.print(str(last.folder))


def _percent(value: float | None) -> str:
    return "-" if value is None or value < 0 else f"{value:.2f}"


def _decibels(values: list[float | None]) -> str:
    return ", ".join("exact" if value is None else f"{value:.1f} dB" for value in values)


def _share(cost: dict[str, Any]) -> str:
    return f"{100 * cost['int8_macs'] / cost['macs']:.1f} %" if cost.get("macs") else "-"


def _machine(latency: dict[str, Any] | None) -> str:
    return f"{latency['isa']}, {latency['threads']} thread{'s' if latency['threads'] != 1 else ''}" if latency else ""
