# SPDX-License-Identifier: MIT
"""A finished sweep to NetworkPage: the recommended configuration beside whole precisions, on the images that chose nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Sequence

from mpnet.engine.cost import LayerCost, plan_cost
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.evaluation.compare import DRAWS
from mpnet.model.blocks import find_blocks
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, FP32
from mpnet.model.selectors import layer_groups
from mpnet.progress import Progress
from mpnet.report.collect.report import split_images
from mpnet.report.collect.rerun import NetworkRunner
from mpnet.report.collect.sweep_store import from_store
from mpnet.report.collect.task import prediction_tools
from mpnet.report.data.network_page import NetworkPage, NetworkPart, PageRow
from mpnet.report.data.report_data import ReportData, Status
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.speed.latency import Latency, latency_of
from mpnet.speed.steps import passes_in_turn
from mpnet.sweep.store.latest import store_at
from mpnet.trial.reopen import reopen


def collect_page(
    path: Path,
    *,
    progress: Progress,
    choose: str | None = None,
    sweep: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    timed: bool = True,
) -> NetworkPage:
    """Collect the page of one sweep's network; runs whole precisions and what the sweep names, and times them.

    choose, sweep: as of `collect`. timed: whether a pass of each is timed on this machine.
    Raises: ConfigError for what is not one finished sweep; StoreError where network or images are not what was measured.
    """
    store = store_at(path)
    if store is None:
        raise ConfigError(f"{path}: a page in Markdown is of one sweep; name its store, or the folder of its results")
    stored_sweep = read_sweep(store, choose, sweep)
    if stored_sweep.result is None or stored_sweep.configurations.baseline is None:
        raise ConfigError(f"{path}: this sweep has not ended, so there is nothing to recommend yet; run it to its end")
    trials = len(stored_sweep.configurations)
    data = from_store(stored_sweep, store, Status("finished", trials, trials))
    runner = NetworkRunner(reopen(stored_sweep.provenance))
    bench, network = runner.bench, runner.bench.network
    keys = _keys(data)
    with progress("configurations", len(bench.dataset.images)) as advance:
        predictions = runner.predictions(keys, advance)
    positions = list(split_images(bench.dataset, stored_sweep).items())[-1][1]
    subset = bench.dataset.subset(positions.tolist())
    pairing = prediction_tools(data.task).pairing(subset, predictions[0].of_images(positions), draws, seed)
    with progress("times", 1) as advance:
        latencies: list[Latency | None] = [*_latencies(runner, keys)] if timed else [None for _ in keys]
        advance(1)
    rows = []
    for key, row_predictions, latency in zip(keys, predictions, latencies, strict=True):
        pair = pairing.pair(row_predictions.of_images(positions))
        names = tuple(dict.fromkeys(pick.name for pick in data.picks if pick.key == key))
        costs = {name: float(value) for name, value in plan_cost(runner.plan(key)).items()}
        rows.append(PageRow(names, key, {**pair.values, **costs}, pair.metrics if key != keys[0] else {}, latency))
    rows[1:] = sorted(rows[1:], key=lambda row: -row.values["bit_operations"])
    chosen = data.configurations.keys[data.configurations.chosen or 0]
    costs_of_layers = runner.rows(chosen)
    return NetworkPage(
        data=data,
        network=Path(stored_sweep.provenance.sources.get("cfg") or network.source).name,
        in_shape=network.in_shape,
        classes=len(bench.dataset.categories),
        judging=len(positions),
        labelled=subset.labelled_count,
        rows=tuple(rows),
        parts=_parts(network, costs_of_layers, data),
        raised=_raised(network, chosen),
    )


def _keys(data: ReportData) -> list[str]:
    """Return the keys of fp32 everywhere, of other precisions everywhere, and of what the sweep names, each once.

    A sweep over fp16 and int8 compares with fp16 everywhere; pages of all networks compare with fp32.
    """
    table = data.configurations
    layers = len(split_key(table.keys[0])[0])
    used = {code for key in table.keys for code in split_key(key)[0]}
    uniform = [code * layers for code in BY_CODE if code in used]
    named = [table.keys[pick.row] for pick in data.picks if pick.row is not None]
    return list(dict.fromkeys([FP32.code * layers, *uniform, table.keys[table.chosen or 0], *named]))


def _latencies(runner: NetworkRunner, keys: Sequence[str]) -> list[Latency]:
    """Time one image through every configuration, in turn."""
    bench = runner.bench
    image = bench.inputs.take([0]).x
    passes = [partial(Session(bench.prepared, runner.plan(key), bench.threads).forward, image) for key in keys]
    return [latency_of(times, bench.kernels.name, bench.threads) for times in passes_in_turn(passes, bench.threads)]


def _parts(network: NetworkSpec, costs: Sequence[LayerCost], data: ReportData) -> tuple[NetworkPart, ...]:
    blocks = find_blocks(network)
    in_blocks = {index for indices in blocks.values() for index in indices}
    alone: dict[tuple[int, ...], str] = {
        (layer.index,): layer.name for layer in network.convolutions if layer.index not in in_blocks
    }
    groups: dict[tuple[int, ...], str] = alone | {indices: name for name, indices in blocks.items()}
    feeding = set(layer_groups(network).get("heads", ()))
    macs, weights = (sum(getattr(cost, name) for cost in costs) or 1 for name in ("macs", "parameters"))
    noises = _int8_noise(data)
    parts = []
    for indices in sorted(groups):
        rows = [costs[index] for index in indices]
        noise = [noises[index] for index in indices if index in noises]
        parts.append(
            NetworkPart(
                groups[indices],
                tuple(row.name for row in rows),
                tuple(dict.fromkeys(row.shape for row in rows)),
                sum(row.macs for row in rows) / macs,
                sum(row.parameters for row in rows) / weights,
                not feeding.isdisjoint(indices),
                tuple(dict.fromkeys(row.precision for row in rows)),
                sum(noise) if noise else None,
            )
        )
    return tuple(parts)


def _int8_noise(data: ReportData) -> dict[int, float]:
    """Return the noise of lowering to int8 by layer; of layers that change together the first has all of it."""
    rows = [row for row in data.layers_by_noise if row.precision == "int8"]
    total = sum(max(0.0, row.noise) for row in rows) or 1.0
    return {row.layers[0]: 100 * max(0.0, row.noise) / total for row in rows}


def _raised(network: NetworkSpec, key: str) -> dict[str, tuple[str, ...]]:
    """Return the nodes, or layers, of each precision but the lowest that a configuration has, by its name."""
    codes = split_key(key)[0]
    lowest = min(set(codes), key=lambda code: BY_CODE[code].rank)
    raised: dict[str, list[str]] = {}
    for layer, code in zip(network.convolutions, codes, strict=True):
        if code != lowest:
            raised.setdefault(BY_CODE[code].name, []).append(layer.source[0] if layer.source else layer.name)
    return {name: tuple(nodes) for name, nodes in raised.items()}
