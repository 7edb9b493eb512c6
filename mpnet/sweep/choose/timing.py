# SPDX-License-Identifier: MIT
"""Milliseconds of what a sweep offers to take, measured on this machine: bit operations do not say which is faster."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from mpnet.engine.assign import assign_key
from mpnet.engine.session import Session
from mpnet.formats.documents.typed import as_json, build
from mpnet.speed.latency import Latency, latency_of, stale
from mpnet.speed.steps import passes_in_turn
from mpnet.sweep.choose.recommend import RECOMMENDED, named_configurations
from mpnet.sweep.result import ConfigurationRow, SweepResult
from mpnet.sweep.setup import OpenSweep

BASELINE = "baseline"
_NOTE = "times/1"


def time_picks(sweep: OpenSweep, result: SweepResult) -> dict[str, Latency]:
    """Return latencies, without steps, for `baseline`, each pick, and a recommendation that is none of these.

    They are from passes of one image that took turns.

    Times of the same configurations are taken from the store if they were measured on this machine and can be believed.
    {} where there is nothing to take.
    """
    if not named_configurations(result):
        return {}
    rows: dict[str, ConfigurationRow] = {} if result.baseline is None else {BASELINE: result.baseline}
    rows |= result.picks
    if result.recommended is not None and result.recommended.trial not in {row.trial for row in rows.values()}:
        rows[RECOMMENDED] = result.recommended
    bench = sweep.setup.bench
    isa, threads = bench.kernels.name, bench.threads
    latencies: dict[str, dict[str, Any]] = sweep.store.document(_NOTE) or {}
    if latencies.keys() != {row.trial for row in rows.values()} or any(
        stale(build(Latency, latency), isa, threads) for latency in latencies.values()
    ):
        image = bench.inputs.take([0]).x  # on which none of them fails, as on a random image it may
        passes = {}
        for row in rows.values():
            under_options = sweep.setup.benches[sweep.configuration_of(row).options]
            plan = under_options.plan(assign_key(bench.network, row.precision))
            passes[row.trial] = partial(Session(under_options.prepared, plan, threads).forward, image)
        times = passes_in_turn(list(passes.values()), threads)
        latencies = {
            trial: as_json(latency_of(pass_times, isa, threads)) for trial, pass_times in zip(passes, times, strict=True)
        }
        sweep.store.set_note(_NOTE, json.dumps(latencies))
    return {name: build(Latency, latencies[row.trial]) for name, row in rows.items()}
