"""One finished run, and its baseline, for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from mpnet.messages import bytes_text, count_text
from mpnet.spec.measures import AGREEMENT, names_of
from mpnet.trial.result import Result


def print_outcome(result: Result, baseline: Result | None, console: Console) -> None:
    """Protocol, metrics, agreement, cost and latency of a run, the baseline's beside them."""
    document = result.document
    protocol = document["protocol"]
    console.print(
        f"{result.name}: {protocol['images']} pictures, {protocol['boxes']} boxes, {protocol['resize']}, confidence "
        f"{protocol['confidence']}, NMS {protocol['nms']} ({protocol['nms_kind']})"
    )
    runs = [run for run in (baseline, result) if run is not None]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ["baseline", "this run"] if baseline else ["this run"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("precision", *[str(run.document["precision"]["key"]) for run in runs])
    for name in names_of("accuracy", stored="trials"):
        table.add_row(name, *[_percent(run.metrics.get(name)) for run in runs])
    agreement = document.get("agreement")
    if agreement:
        for name in names_of("agreement"):
            table.add_row(name.replace("_", " "), "", _percent(agreement.get(name.removeprefix(AGREEMENT))))
        table.add_row("SQNR of heads", "", _decibels(agreement["head_sqnr_db"]))
    costs = [run.document["cost"] for run in runs]
    table.add_row("weights", *[bytes_text(cost["weight_bytes"]) for cost in costs])
    table.add_row("peak activations", *[bytes_text(cost["peak_activation_bytes"]) for cost in costs])
    table.add_row("MACs in int8", *map(_share, costs))
    table.add_row("bit operations", *[count_text(cost["bit_operations"]) for cost in costs])
    table.add_row("latency", *[_latency(run.document.get("latency")) for run in runs])
    console.print(table)
    for remark in document.get("notes", []):
        console.print(f"note: {remark}")
    console.print(str(result.folder))


def _percent(value: float | None) -> str:
    return "-" if value is None or value < 0 else f"{value:.2f}"


def _decibels(values: list[float | None]) -> str:
    return ", ".join("exact" if value is None else f"{value:.1f} dB" for value in values)


def _share(cost: dict[str, Any]) -> str:
    return f"{100 * cost['int8_macs'] / cost['macs']:.1f} %" if cost.get("macs") else "-"


def _latency(latency: dict[str, Any] | None) -> str:
    if not latency:
        return "-"
    return f"{latency['median_ms']:.2f} ms ({latency['isa']}, {latency['threads']} threads)"
