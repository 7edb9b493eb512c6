# SPDX-License-Identifier: MIT
"""Milliseconds of what a sweep offers to take, measured on this machine: bit operations do not say which is faster."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Mapping

from mpnet.engine.assign import assign_key
from mpnet.engine.session import Session
from mpnet.speed.steps import latency_of, passes_in_turn, stale
from mpnet.sweep.setup import SweepSetup
from mpnet.sweep.store import TrialStore

BASELINE = "baseline"
_NOTE = "times/1"


def time_picks(setup: SweepSetup, store: TrialStore, document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The `latency` of a result (without steps) for `baseline` and each pick, from passes of one image that took turns.

    document: of the sweep; times of the same configurations are taken from the store if they were measured on this
    machine and can be believed. {} where there is nothing to take.
    """
    entries = {name: entry for name, entry in ((BASELINE, document["baseline"]), *document["picks"].items()) if entry}
    if not document["picks"]:
        return {}
    texts = [option.text for option in setup.space.option_sets]
    stored: dict[str, dict[str, Any]] = store.document(_NOTE) or {}
    isa, threads = setup.bench.kernels.name, setup.bench.threads
    trials = {name: str(entry["trial"]) for name, entry in entries.items()}
    if stored.keys() != set(trials.values()) or any(stale(latency, isa, threads) for latency in stored.values()):
        image = setup.bench.inputs.take([0]).x  # on which none of them fails, as on a random image it may
        passes = {}
        for name, entry in entries.items():
            bench = setup.benches[texts.index(entry["options"])]
            plan = bench.plan(assign_key(bench.network, entry["precision"]))
            passes[trials[name]] = partial(Session(bench.prepared, plan, threads).forward, image)
        times = passes_in_turn(list(passes.values()), threads)
        stored = {trial: latency_of(one, isa, threads, []) for trial, one in zip(passes, times, strict=True)}
        store.set_note(_NOTE, json.dumps(stored))
    return {name: stored[trial] for name, trial in trials.items()}
