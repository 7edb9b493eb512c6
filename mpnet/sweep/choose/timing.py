# SPDX-License-Identifier: MIT
"""Milliseconds of what a sweep offers to take, measured on this machine: bit operations do not say which is faster."""

from __future__ import annotations

import json
from functools import partial

from mpnet.engine.assign import assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.session import Session
from mpnet.formats.documents.typed import as_json
from mpnet.model.plan_key import split_key
from mpnet.model.precision import INT8
from mpnet.speed.latency import Latency, latency_of, stale
from mpnet.speed.steps import passes_in_turn
from mpnet.sweep.choose.recommend import RECOMMENDED, named_configurations
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import ConfigurationRow, SweepResult
from mpnet.sweep.setup import OpenSweep

BASELINE, EVERYWHERE_INT8 = "baseline", "int8"
"""Names of what is timed beside what a sweep names: budgets of time may be times int8's."""
_NOTE = "times/1"


def time_picks(sweep: OpenSweep, result: SweepResult) -> dict[str, Latency]:
    """Return latencies, without steps, for `baseline`, each pick, a recommendation that is none of these, and all in `int8`.

    They are from passes of one image that took turns. int8 is left out where the space does not have it, or it fails.

    Times of the same configurations are taken from the store if they were measured on this machine and can be believed.
    {} where there is nothing to take.
    """
    if not named_configurations(result):
        return {}
    rows: dict[str, ConfigurationRow] = {} if result.baseline is None else {BASELINE: result.baseline}
    rows |= result.picks
    if result.recommended is not None and result.recommended.trial not in {row.trial for row in rows.values()}:
        rows[RECOMMENDED] = result.recommended
    configurations = {name: (row.trial, sweep.configuration_of(row)) for name, row in rows.items()}
    int8 = _int8_everywhere(sweep, result)
    if int8 is not None:
        configurations[EVERYWHERE_INT8] = sweep.store.trial_digest(sweep.contexts[int8.options], int8.key), int8
    bench = sweep.setup.bench
    isa, threads = bench.kernels.name, bench.threads
    latencies = sweep.store.read_notes(_NOTE, Latency)
    if latencies.keys() != {trial for trial, _ in configurations.values()} or any(
        stale(latency, isa, threads) for latency in latencies.values()
    ):
        image = bench.inputs.take([0]).x  # on which none of them fails, as on a random image it may
        passes = {}
        for trial, configuration in list(configurations.values()):
            under_options = sweep.setup.benches[configuration.options]
            plan = under_options.plan(assign_key(bench.network, configuration.key))
            forward = partial(Session(under_options.prepared, plan, threads).forward, image)
            if configuration == int8:
                try:  # nobody need have tried it
                    forward()
                except LayerFailure:
                    del configurations[EVERYWHERE_INT8]
                    continue
            passes[trial] = forward
        times = passes_in_turn(list(passes.values()), threads)
        latencies = {trial: latency_of(pass_times, isa, threads) for trial, pass_times in zip(passes, times, strict=True)}
        sweep.store.set_note(_NOTE, json.dumps({trial: as_json(latency) for trial, latency in latencies.items()}))
    return {name: latencies[trial] for name, (trial, _) in configurations.items()}


def _int8_everywhere(sweep: OpenSweep, result: SweepResult) -> Assignment | None:
    """Return the configuration with int8 everywhere under the recommendation's options, None: there is none, or it failed."""
    space = sweep.problem.space
    key = space.lowered(INT8.code)
    if set(split_key(key)[0]) != {INT8.code}:
        return None
    options = 0 if result.recommended is None else sweep.configuration_of(result.recommended).options
    return None if sweep.store.find_failed(sweep.contexts[options], [key]) else Assignment(key, options)
