# SPDX-License-Identifier: MIT
"""Times of a session: its passes, and its steps one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.engine.options import EngineOptions, resolve_options, with_some_ranges, without_statistics
from mpnet.engine.plan import Step
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.environment import cpu_count
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import Weights, random_weights
from mpnet.speed.clock import Times, Work, in_turn, together

LATENCY_RUNS, LATENCY_LEAST, LATENCY_SECONDS = 20, 3, 2.0
ATTEMPTS = 3
"""How often a pass is measured while other programs disturb it."""
STEP_RUNS = 5


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of one step for the whole batch. name: such as `Quantize for conv-2`."""

    step: Step
    name: str
    min_ms: float
    median_ms: float


def open_network(
    source: Experiment | str | Path, weights: str | Path | None, purpose: str
) -> tuple[NetworkSpec, Weights, EngineOptions]:
    """Open a network to measure, its weights and its quantisation; source: a cfg, or an experiment that names one.

    weights: None: random ones, which take the same time; so do the ranges that stand in for calibrated ones.
    Raises: ConfigError without convolutions, saying that there is nothing to `purpose`; as the readers do.
    """
    if isinstance(source, (str, Path)):
        network = read_cfg(source)
        options = resolve_options(network)
    else:
        network, quantization = read_cfg(source.model.cfg, source.model.dialect), source.quantization
        options = resolve_options(network, quantization.options, quantization.layers, batch_norm=source.model.batch_norm)
    if not network.convolutions:
        raise ConfigError(f"{network.source}: has no layer with weights, so there is nothing to {purpose}")
    values = random_weights(network) if weights is None else read_weights(weights, network)
    return network, values, with_some_ranges(without_statistics(options), network)


def random_image(network: NetworkSpec, seed: int = 0) -> NDArray[np.float32]:
    """Return one input of a network, float32 (1, h, w, c); what it holds does not change the time."""
    return np.random.Generator(np.random.PCG64(seed)).random((1, *network.in_shape), np.float32)


def step_calls(session: Session, images: int) -> list[tuple[int, Work]]:
    """List every C call of a pass as (number of its step, work), in the order of running."""
    bound = session.bound(images)
    return [(number, partial(bound.run_call, number, call)) for number, call in bound.calls]


def time_steps(session: Session, batch: NDArray[np.float32], repeats: int = 10) -> tuple[StepTime, ...]:
    """Time every step of the plan as it runs (fused), heads excepted: they only hand tensors over.

    Raises: ConfigError for fewer than one repetition; what `Session.forward` raises.
    """
    if repeats < 1:
        raise ConfigError(f"repeats is {repeats}; measure at least once")
    session.forward(batch, copy=False)
    calls = step_calls(session, len(batch))
    return steps_of(session, calls, in_turn(*(work for _, work in calls), repeats=repeats, warm_up=0))


def steps_of(session: Session, calls: Sequence[tuple[int, Work]], measured: Sequence[Times]) -> tuple[StepTime, ...]:
    """Return every step of a plan, from the times that its `step_calls` took."""
    times_of: dict[int, list[Times]] = {}
    for (number, _), times in zip(calls, measured, strict=True):
        times_of.setdefault(number, []).append(times)
    step_times = []
    for number, call_times in times_of.items():
        step, times = session.run_plan.steps[number], together(call_times)
        step_times.append(StepTime(step, step_name(session.plan.network, step), times.min_ms, times.median_ms))
    return tuple(step_times)


def step_name(network: NetworkSpec, step: Step) -> str:
    """Return a step as tables of times name it."""
    return f"{step.operation.name} for {network.layers[step.layer].name}"


def believable(measure: Callable[[], list[Times]], threads: int) -> list[Times]:
    """Measure again, a few times, while the machine is too busy; the calmest attempt.

    measure: times of pieces of work that were taken in turn.
    """
    attempts = []
    for _ in range(ATTEMPTS):
        attempts.append(measure())
        if not any(times.doubt(threads, cpu_count()) for times in attempts[-1]):
            return attempts[-1]
    return min(attempts, key=lambda attempt: max(times.median_ms / times.min_ms for times in attempt))


def passes_in_turn(passes: Sequence[Work], threads: int) -> list[Times]:
    """Time forward passes in turn, as results state them."""
    return believable(
        lambda: in_turn(*passes, repeats=LATENCY_RUNS, least=LATENCY_LEAST, seconds=LATENCY_SECONDS * len(passes)), threads
    )
