# SPDX-License-Identifier: MIT
"""Passes that take turns, and results whose times are taken again; no test looks at how long anything takes."""

from __future__ import annotations

from mpnet.trial.experiment import RunReport
from mpnet.trial.latency import IN_MPNET, measure_in_turn, renewed
from mpnet.trial.result import read_result
from mpnet.trial.workbench import Workbench


def test_every_configuration_has_a_latency_with_its_steps(bench: Workbench) -> None:
    plans = {name: bench.plan(bench.uniform(name)) for name in ("fp32", "int8")}
    turns = measure_in_turn(bench, plans)
    assert turns.sessions.keys() == turns.times.keys() == plans.keys()
    for name, plan in plans.items():
        latency = turns.latency(name)
        assert (latency.isa, latency.threads) == (bench.kernels.name, bench.threads)
        assert latency.min_ms is not None
        assert 0 < latency.min_ms <= latency.median_ms
        layers = {step.layer for step in latency.steps}
        assert layers <= {layer.index for layer in plan.network.layers}
        assert set(bench.weighted_layers) <= layers


def test_renewed_times_are_stored_and_change_nothing_else(report: RunReport) -> None:
    bench = report.bench
    turns = measure_in_turn(bench, {IN_MPNET: bench.plan(bench.assign())})
    fresh = renewed({IN_MPNET: report.result}, turns)[IN_MPNET]
    stored_result = read_result(fresh.folder)
    assert stored_result.run == fresh.run
    assert fresh.run.latency != report.result.run.latency
    assert {**fresh.document, "latency": None} == {**report.result.document, "latency": None}
