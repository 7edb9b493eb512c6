"""Finished runs side by side: metrics, costs and classes, the first run being the baseline."""

from __future__ import annotations

from typing import Any, Sequence

from rich.console import Console
from rich.table import Table

from mpnet.errors import ConfigError
from mpnet.experiments.result import Result

METRICS: tuple[str, ...] = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR100", "darknet_mAP50")
COSTS: tuple[str, ...] = ("weight_bytes", "peak_activation_bytes", "bit_operations")


def compare_results(results: Sequence[Result]) -> dict[str, Any]:
    """Metrics, costs, precision differences and per-class AP of every run, with differences to the first.

    Raises: ConfigError for fewer than two runs, or runs on different pictures or labels.
    """
    if len(results) < 2:
        raise ConfigError("compare needs at least two runs; name a baseline and one or more others")
    baseline = results[0]
    for other in results[1:]:
        if other.document["digests"].get("data") != baseline.document["digests"].get("data"):
            raise ConfigError(
                f"{other.folder}: was evaluated on other data than {baseline.folder}; only runs on the same pictures "
                "and labels can be compared"
            )
    return {
        "baseline": baseline.id,
        "protocol_differences": [_differences(baseline, other) for other in results],
        "runs": [_run(result, baseline) for result in results],
        "per_class": _per_class(results),
    }


def print_comparison(document: dict[str, Any], console: Console) -> None:
    """The document of `compare_results` as tables."""
    runs = document["runs"]
    table = Table(title="metrics in percent, differences to the first run", title_justify="left")
    table.add_column("")
    for run in runs:
        table.add_column(f"{run['name']} {run['id'][:8]}", justify="right")
    table.add_row("precision", *[run["precision"] for run in runs])
    for name in METRICS:
        cells = [_with_difference(run["metrics"].get(name), run["differences"].get(name)) for run in runs]
        if any(cell != "-" for cell in cells):
            table.add_row(name, *cells)
    for name in COSTS:
        table.add_row(name, *[f"{run['cost'].get(name, 0):,}" for run in runs])
    console.print(table)
    _print_classes(document, console)
    for run, differences in zip(runs, document["protocol_differences"], strict=True):
        if differences:
            console.print(f"{run['name']} {run['id'][:8]} differs in protocol: {', '.join(differences)}")


def _print_classes(document: dict[str, Any], console: Console) -> None:
    classes = [row for row in document["per_class"] if row["truths"] > 0]
    table = Table(title="AP per class, largest differences first", title_justify="left")
    table.add_column("class")
    table.add_column("truths", justify="right")
    for run in document["runs"]:
        table.add_column(run["id"][:8], justify="right")
    for row in sorted(classes, key=lambda row: -max(abs(d) for d in row["differences"]))[:20]:
        cells = [_with_difference(ap, d if i else None)
                 for i, (ap, d) in enumerate(zip(row["AP"], row["differences"], strict=True))]
        table.add_row(row["name"], str(row["truths"]), *cells)
    console.print(table)
    if len(classes) > 20:
        console.print(f"{len(classes) - 20} further classes with smaller differences: see --json")


def _run(result: Result, baseline: Result) -> dict[str, Any]:
    metrics = result.metrics
    return {
        "name": result.name,
        "id": result.id,
        "folder": str(result.folder),
        "precision": result.document["precision"].get("key", ""),
        "metrics": dict(metrics),
        "differences": {} if result is baseline else {
            name: metrics[name] - baseline.metrics[name] for name in metrics
            if name in baseline.metrics and metrics[name] >= 0 and baseline.metrics[name] >= 0
        },
        "cost": dict(result.document["cost"]),
        "agreement": result.document.get("agreement"),
    }


def _differences(baseline: Result, other: Result) -> list[str]:
    mine, theirs = baseline.document["protocol"], other.document["protocol"]
    return sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))


def _per_class(results: Sequence[Result]) -> list[dict[str, Any]]:
    rows = []
    for position, first in enumerate(results[0].document["per_class"]):
        aps = [result.document["per_class"][position]["AP"] for result in results]
        rows.append({"id": first["id"], "name": first["name"], "truths": first["truths"], "AP": aps,
                     "differences": [ap - aps[0] for ap in aps]})
    return rows


def _with_difference(value: float | None, difference: float | None) -> str:
    if value is None or value < 0:
        return "-"
    return f"{value:.2f}" if difference is None else f"{value:.2f} ({difference:+.2f})"
