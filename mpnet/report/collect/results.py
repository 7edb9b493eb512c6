# SPDX-License-Identifier: MIT
"""Finished runs as ReportData, read only; nothing is computed that was not measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import AGREEMENT, MEASURES, names_of
from mpnet.engine.cost import LayerCost
from mpnet.errors import ConfigError
from mpnet.formats.documents.typed import as_json
from mpnet.model.plan_key import split_key
from mpnet.quantization.measure import decibels
from mpnet.report.data.report_data import Layer, LayerPair, ReportData, Status
from mpnet.resolve.configurations import Configurations, axes, by_axis, front_rows
from mpnet.speed.latency import doubt_of, layer_ms
from mpnet.trial.result import Result
from mpnet.trial.run_result import RunResult

ROWS_SHOWN = 12_000
"""Most configurations on a page; of more, the front and the most accurate ones stay, the rest is sampled evenly."""


def from_results(results: Sequence[Result]) -> ReportData:
    """Return runs on the same data as report data; the first is the baseline, the last one the chosen configuration.

    Raises: ConfigError for runs on different data.
    """
    runs = [result.run for result in results]
    for run in runs[1:]:
        if run.digests.get("data") != runs[0].digests.get("data"):
            raise ConfigError("runs on different images or labels cannot share a report; name runs on the same data")
    chosen = runs[-1]
    rows = [result_values(run, baseline=runs[0].id) for run in runs]
    # A baseline agrees with itself; result.json leaves that out.
    baseline_values = {m.name: m.itself for m in MEASURES if m.itself is not None and any(m.name in row for row in rows[1:])}
    rows[0] = {**baseline_values, **rows[0]}
    columns = _columns(rows)
    table = Configurations(
        tuple(run.precision.key for run in runs),
        columns,
        front_rows(columns, *axes(columns)),
        *axes(columns),
        baseline=0,
        chosen=len(runs) - 1,
    )
    doubts = [
        f"The latency of {run.precision.key} was unreliable ({doubt_of(run.latency)}) and is left out; "
        "`mpnet run` measures it again."
        for run in runs
        if doubt_of(run.latency)
    ]
    return ReportData(
        title=chosen.name,
        kind="run" if len(results) == 1 else "runs",
        source=", ".join(str(result.folder) for result in results),
        created=chosen.created,
        status=Status("finished", len(results), len(results)),
        configurations=table,
        layers=layers_of(chosen.precision.layers),
        costs=layer_pairs(
            (runs[0].precision.layers, chosen.precision.layers), (layer_ms(runs[0].latency), layer_ms(chosen.latency))
        ),
        protocol=chosen.protocol,
        versions=chosen.versions,
        digests={str(name): str(value) for name, value in chosen.digests.items() if value is not None},
        latency={} if chosen.latency is None else {n: value for n, value in as_json(chosen.latency).items() if n != "steps"},
        notes=(*chosen.notes, *doubts),
    )


def result_values(run: RunResult, baseline: str) -> dict[str, float]:
    """Return a result's numbers under the names of report columns.

    -1 (nothing to measure) is left out, and so is agreement with another run than `baseline`, the id of the page's own.
    """
    values = {name: float(value) for name, value in run.metrics.items() if value >= 0}
    agreement = run.agreement
    if agreement is not None and agreement.baseline == baseline:
        stored = {name: agreement.values.get(name.removeprefix(AGREEMENT)) for name in names_of("agreement")}
        values.update({name: float(value) for name, value in stored.items() if value is not None})
        if agreement.head_sqnr_db:
            values["head_sqnr_db"] = mean_sqnr(agreement.head_sqnr_db)
    cost = run.cost
    values.update({quantity.name: float(cost[quantity.name]) for quantity in by_axis(True) if quantity.name in cost})
    if cost.get("macs"):
        values["fp_mac_share"] = 100 * (1 - cost.get("int8_macs", 0) / cost["macs"])
    # What cannot be believed is no point of a plot.
    if run.latency is not None and not doubt_of(run.latency):
        values["latency_ms"] = float(run.latency.median_ms)
    return values if run.deployed is None else {**values, **run.deployed.measures}


def mean_sqnr(heads: Iterable[float | None]) -> float:
    """Return one SQNR for several heads: of the mean of their noise-to-signal ratios; None is a head without noise."""
    ratios = [0.0 if value is None or value == math.inf else 10 ** (-value / 10) for value in heads]
    mean = sum(ratios) / len(ratios)
    return -decibels(mean) if mean > 0 else math.inf


def thinned(table: Configurations, limit: int = ROWS_SHOWN, seed: int = 0, required: Iterable[str] = ()) -> Configurations:
    """Return a table of about `limit` rows at most.

    It has the front, baseline, chosen configuration, the required keys, single steps from the uniform ones, and a fair sample.
    """
    if len(table) <= limit:
        return table
    keep = table.front.copy()
    keep[[row for row in (table.baseline, table.chosen) if row is not None]] = True
    named_keys = {*required, *_uniform_and_neighbours(table)}
    keep |= np.fromiter((key in named_keys for key in table.keys), dtype=bool, count=len(table))
    remaining = np.flatnonzero(~keep)
    random = np.random.RandomState(seed)
    keep[random.choice(remaining, max(0, min(len(remaining), limit - int(keep.sum()))), replace=False)] = True
    rows = np.flatnonzero(keep)
    new_row: dict[int | None, int | None] = {None: None, **{int(old): new for new, old in enumerate(rows)}}
    return replace(
        table,
        keys=tuple(table.keys[row] for row in rows),
        front=table.front[rows],
        columns={name: values[rows] for name, values in table.columns.items()},
        baseline=new_row[table.baseline],
        chosen=new_row[table.chosen],
        dropped=table.dropped + len(table) - len(rows),
    )


def _uniform_and_neighbours(table: Configurations) -> Iterable[str]:
    """Yield the keys that sensitivities are read from: all layers alike, and all but one."""
    codes_of_layers, suffix = split_key(table.keys[0])
    codes = sorted({code for key in table.keys for code in split_key(key)[0]})
    for code in codes:
        yield code * len(codes_of_layers) + suffix
        for position in range(len(codes_of_layers)):
            for neighbour_code in codes:
                yield code * position + neighbour_code + code * (len(codes_of_layers) - position - 1) + suffix


def layers_of(rows: Sequence[LayerCost]) -> tuple[Layer, ...]:
    """Return the layers of a result's `precision.layers`; those with parameters have a place in precision strings."""
    layers, position = [], 0
    for row in rows:
        weighted = bool(row.parameters)
        layers.append(
            Layer(
                row.index,
                row.type,
                row.name or row.type,
                position if weighted else None,
                row.shape,
                row.macs,
                row.parameters,
                tuple(selector for selector in row.selectors if selector != str(row.index)),
            )
        )
        position += weighted
    return tuple(layers)


def layer_pairs(
    layers: tuple[Sequence[LayerCost], Sequence[LayerCost]], times: tuple[Mapping[int, float], Mapping[int, float]]
) -> tuple[LayerPair, ...]:
    """Return the milliseconds and weight bytes per layer, for layers that have either.

    layers: of the baseline and of the chosen configuration; times: milliseconds by layer index of both.
    """
    tables = [{layer.index: layer for layer in rows} for rows in layers]
    pairs = []
    for index, layer in tables[1].items():
        baseline_layer = tables[0].get(index)
        cost = LayerPair(
            index,
            layer.name or layer.type,
            times[0].get(index, math.nan),
            times[1].get(index, math.nan),
            0.0 if baseline_layer is None else float(baseline_layer.weight_bytes),
            float(layer.weight_bytes),
        )
        if cost.chosen_bytes or cost.baseline_bytes or cost.chosen_ms > 0 or cost.baseline_ms > 0:
            pairs.append(cost)
    return tuple(pairs)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: np.array([row.get(name, math.nan) for row in rows], dtype=np.float64) for name in names}
