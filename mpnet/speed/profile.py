"""Measures the time of every step that any configuration of a network can have, and checks the sums."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.covering import covering_plans, random_plans, step_signature
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.run import Session
from mpnet.errors import ConfigError
from mpnet.kernels.environment import cpu_count, cpu_name
from mpnet.kernels.isa import kernels
from mpnet.progress import Progress, silent
from mpnet.spec.precision import precision
from mpnet.speed.clock import in_turn
from mpnet.speed.latency import predicted_ms
from mpnet.speed.steps import open_network, random_picture, time_steps
from mpnet.speed.table import LatencyTable

CHECKS = 8
REPEATS = 15


def measure_table(
    prepared: Prepared, options: EngineOptions, precisions: Sequence[str], *, threads: int, repeats: int = REPEATS,
    seed: int = 0, progress: Progress = silent,
) -> LatencyTable:
    """Measure all steps, then whole configurations that were not looked at before, batch 1.

    A step's time is the median over repeats, the smallest over the plans that have it: what disturbs a measurement only
    ever adds to it.
    """
    network = prepared.network
    picture = random_picture(network, seed)
    plans = covering_plans(network, options, precisions, seed)
    step_ms: dict[str, float] = {}
    checks = []
    with progress("configurations", len(plans) + CHECKS) as advance:
        for plan in plans:
            for signature, ms in measure_steps(Session(prepared, plan, threads), picture, repeats).items():
                step_ms[signature] = min(ms, step_ms.get(signature, ms))
            advance(1)
        for plan in random_plans(network, options, precisions, CHECKS, seed):
            session = Session(prepared, plan, threads)
            for signature, ms in measure_steps(session, picture, repeats).items():
                step_ms.setdefault(signature, ms)
            [whole] = in_turn(partial(session.forward, picture, copy=False), repeats=repeats)
            checks.append({"precision": plan.precision.key, "measured_ms": whole.median_ms,
                           "predicted_ms": predicted_ms(plan, step_ms)})
            advance(1)
    machine = {"cpu": cpu_name(), "isa": prepared.kernels.name, "threads": threads, "batch": 1}
    return LatencyTable(network.digest, tuple(precisions), step_ms, machine, tuple(checks))


def measure_steps(session: Session, picture: NDArray[np.float32], repeats: int) -> dict[str, float]:
    """Milliseconds of each step by signature: medians over passes that run all steps in order."""
    plan = session.run_plan
    found = {step_signature(plan, step): 0.0 for step in plan.steps}
    for timed in time_steps(session, picture, repeats):
        found[step_signature(plan, timed.step)] += timed.median_ms
    return found


def profile_network(
    cfg: str | Path, *, weights: str | Path | None = None, precisions: Sequence[str] = ("fp32", "fp16", "int8"),
    threads: int | None = None, isa: str | None = None, repeats: int = REPEATS,
    progress: Progress = silent,
) -> LatencyTable:
    """Measure every step of every configuration of a network, batch 1, dynamic ranges.

    weights: None: random ones, which take the same time. threads: None: all cores. isa: None: the best.
    Raises: ConfigError for no precision, PrecisionError for an unknown one, and as the readers do.
    """
    if not precisions:
        raise ConfigError("--precisions: name at least one, such as fp32,int8")
    for name in precisions:
        precision(name)
    network, values = open_network(cfg, weights, "choose for")
    options = resolve_options(network)
    prepared = Prepared(network, values, kernels(None if isa in (None, "auto") else isa), batch_norm=options.batch_norm)
    return measure_table(
        prepared, options, tuple(dict.fromkeys(precisions)), threads=threads or cpu_count(), repeats=repeats,
        progress=progress,
    )
