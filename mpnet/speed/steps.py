"""Times of a session: its passes, and its steps one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.plan import Step
from mpnet.engine.run import Session
from mpnet.errors import ConfigError
from mpnet.formats.cfg import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.spec.network import NetworkSpec
from mpnet.spec.weights import Weights, random_weights
from mpnet.speed.clock import Times, Work, in_turn, together

LATENCY_RUNS, LATENCY_LEAST, LATENCY_SECONDS = 20, 3, 2.0
STEP_RUNS = 5


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of one step for the whole batch. name: such as `Quantize for conv-2`."""

    step: Step
    name: str
    min_ms: float
    median_ms: float


def open_network(cfg: str | Path, weights: str | Path | None, purpose: str) -> tuple[NetworkSpec, Weights]:
    """A network to measure and its weights; None: random ones, which take the same time.

    Raises: ConfigError without convolutions, saying that there is nothing to `purpose`; as the readers do.
    """
    network = read_cfg(cfg)
    if not network.convolutions:
        raise ConfigError(f"{network.source}: has no layer with weights, so there is nothing to {purpose}")
    return network, random_weights(network) if weights is None else read_weights(weights, network)


def random_picture(network: NetworkSpec, seed: int = 0) -> NDArray[np.float32]:
    """One input of a network, float32 (1, h, w, c); what it holds does not change the time."""
    return np.random.Generator(np.random.PCG64(seed)).random((1, *network.in_shape), np.float32)


def step_calls(session: Session, images: int) -> list[tuple[int, Work]]:
    """(number of its step, work) of every C call of a pass, in the order of running."""
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
    parts: dict[int, list[Times]] = {}
    for (number, _), times in zip(calls, in_turn(*(work for _, work in calls), repeats=repeats, warm_up=0), strict=True):
        parts.setdefault(number, []).append(times)
    found = []
    for number, own in parts.items():
        step, times = session.run_plan.steps[number], together(own)
        name = f"{step.operation.name} for {session.plan.network.layers[step.layer].name}"
        found.append(StepTime(step, name, times.min_ms, times.median_ms))
    return tuple(found)


def measure_latency(session: Session, batch: NDArray[np.float32]) -> dict[str, Any]:
    """The `latency` of a result: milliseconds of a pass, input ready to heads, over a few passes, and of its steps."""
    [times] = in_turn(
        lambda: session.forward(batch), repeats=LATENCY_RUNS, least=LATENCY_LEAST, seconds=LATENCY_SECONDS
    )
    return {
        "isa": session.prepared.kernels.name,
        "threads": session.threads,
        "median_ms": times.median_ms,
        "min_ms": times.min_ms,
        "images": len(times.ms),
        "steps": [
            {"step": timed.name, "layer": timed.step.layer, "ms": timed.median_ms}
            for timed in time_steps(session, batch, STEP_RUNS)
        ],
    }

