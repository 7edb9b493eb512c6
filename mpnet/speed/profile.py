# SPDX-License-Identifier: MIT
"""Measures the time of every step that any configuration of a network can have, and checks the sums."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.engine.covering import covering_plans, random_plans, step_signature
from mpnet.engine.devices import open_kernels
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.json_values import Json
from mpnet.kernels.core import constant
from mpnet.kernels.environment import cpu_count, cpu_name
from mpnet.model.precision import precision
from mpnet.progress import Advance, Progress, silent
from mpnet.speed.clock import Times, in_turn, together
from mpnet.speed.latency_table import CheckedConfiguration, LatencyTable, predicted_ms
from mpnet.speed.steps import open_network, random_image, step_calls

CHECKS = 8
REPEATS = 15
ROUNDS = constant("MPB_PROFILE_ROUNDS")
"""How often a table is measured while its error is above `table.BOUND_PERCENT`; the best is kept."""


def measure_table(
    prepared: Prepared,
    options: EngineOptions,
    precisions: Sequence[str],
    *,
    threads: int,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Progress = silent,
) -> LatencyTable:
    """Measure all steps, then whole configurations that were not looked at before, batch 1.

    This is repeated while the error is too large, up to ROUNDS times.

    A step's time is the median over all passes of all plans that have it. Whole passes are taken in turn with the passes
    step by step: a pass in one call is a little faster than its steps in a call each, and `scale`, the median ratio of the
    two, says by how much. Measured and predicted times of the checked configurations are medians as well.
    """
    plans = covering_plans(prepared.network, options, precisions, seed)
    tables = []
    with progress("configurations", None) as advance:
        for number in range(ROUNDS):
            tables.append(_measured_once(prepared, options, precisions, plans, threads, repeats, seed + number, advance))
            if tables[-1].good:
                break
    return min(tables, key=lambda table: table.errors_percent[0])


def _measured_once(
    prepared: Prepared,
    options: EngineOptions,
    precisions: Sequence[str],
    plans: Sequence[Plan],
    threads: int,
    repeats: int,
    seed: int,
    advance: Advance,
) -> LatencyTable:
    network, image = prepared.network, random_image(prepared.network, seed)
    step_samples: dict[str, list[float]] = {}
    ratios = []
    for plan in plans:
        steps, whole_pass = measure_steps(Session(prepared, plan, threads), image, repeats)
        for signature, times in steps.items():
            step_samples.setdefault(signature, []).extend(times.ms)
        ratios.append(whole_pass.median_ms / together(steps.values()).median_ms)
        advance(1)
    checks_ms = []
    for plan in random_plans(network, options, precisions, CHECKS, seed):
        session = Session(prepared, plan, threads)
        if any(step_signature(plan, step) not in step_samples for step in plan.steps):
            steps, _ = measure_steps(session, image, repeats)
            for signature, times in steps.items():
                step_samples.setdefault(signature, list(times.ms))
        [whole_pass] = in_turn(partial(session.forward, image, copy=False), repeats=repeats)
        checks_ms.append((plan, whole_pass.median_ms))
        advance(1)
    scale = statistics.median(ratios)
    step_ms = {signature: scale * statistics.median(times) for signature, times in step_samples.items()}
    checks = tuple(CheckedConfiguration(plan.precision.key, ms, predicted_ms(plan, step_ms)) for plan, ms in checks_ms)
    machine: dict[str, Json] = {"cpu": cpu_name(), "isa": prepared.kernels.name, "threads": threads, "batch": 1, "scale": scale}
    return LatencyTable(network.digest, tuple(precisions), machine, step_ms=step_ms, checks=checks)


def measure_steps(session: Session, image: NDArray[np.float32], repeats: int) -> tuple[dict[str, Times], Times]:
    """Time the steps, by signature, and whole passes, in turn: a pass step by step, a pass in one call."""
    session.forward(image, copy=False)
    calls = step_calls(session, len(image))
    *call_times, whole_pass = in_turn(
        *(work for _, work in calls), partial(session.forward, image, copy=False), repeats=repeats
    )
    by_signature: dict[str, list[Times]] = {}
    for (number, _), times in zip(calls, call_times, strict=True):
        by_signature.setdefault(step_signature(session.run_plan, session.run_plan.steps[number]), []).append(times)
    # Heads only hand tensors over: no call, no time.
    no_time = Times((0.0,) * repeats)
    every = (step_signature(session.run_plan, step) for step in session.run_plan.steps)
    return {
        signature: together(by_signature[signature]) if signature in by_signature else no_time for signature in every
    }, whole_pass


def profile_network(
    source: Experiment | str | Path,
    *,
    weights: str | Path | None = None,
    precisions: Sequence[str] = ("fp32", "fp16", "int8"),
    threads: int | None = None,
    isa: str | None = None,
    device: str | None = None,
    repeats: int = REPEATS,
    progress: Progress = silent,
) -> LatencyTable:
    """Measure every step of every configuration of a network, batch 1.

    source:  a cfg, or an experiment that names one and says how it is quantised.
    weights: None: random ones, which take the same time. threads: None: all cores. isa, device: None: the best table.
    Raises: ConfigError for no precision, PrecisionError for an unknown one, and as the readers do.
    """
    if not precisions:
        raise ConfigError("--precisions: name at least one, such as fp32,int8")
    for name in precisions:
        precision(name)
    network, values, options = open_network(source, weights, "choose for")
    prepared = Prepared.under(options, network, values, open_kernels(isa, device))
    return measure_table(
        prepared, options, tuple(dict.fromkeys(precisions)), threads=threads or cpu_count(), repeats=repeats, progress=progress
    )
