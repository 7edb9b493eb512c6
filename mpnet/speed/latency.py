# SPDX-License-Identifier: MIT
"""The time of a forward pass as results keep it, whether it can be believed, and how people read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.session import Session
from mpnet.kernels.environment import cpu_count, cpu_name
from mpnet.model.keys import json_key
from mpnet.speed.clock import NOISY, Times
from mpnet.speed.steps import STEP_RUNS, time_steps


@dataclass(frozen=True)
class StepLatency:
    """The time of one step of a plan. layer: index of the layer that it belongs to, None: not stored."""

    step: str = ""
    layer: int | None = field(default=None, metadata=json_key(omit_default=True))
    ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Times of forward passes of one image.

    isa:     what ran it: a kernel table's name, or another engine's.
    low_ms, high_ms: the middle half of the passes; min_ms: the fastest; images: how many passes there were.
    doubt:   why the times should not be believed, '' where nothing speaks against them. Version 0.1.0 did not store it.
    """

    isa: str
    threads: int
    cpu: str | None = field(default=None, metadata=json_key(omit_default=True))
    median_ms: float
    min_ms: float | None = field(default=None, metadata=json_key(omit_default=True))
    low_ms: float | None = field(default=None, metadata=json_key(omit_default=True))
    high_ms: float | None = field(default=None, metadata=json_key(omit_default=True))
    images: int | None = field(default=None, metadata=json_key(omit_default=True))
    doubt: str | None = field(default=None, metadata=json_key(omit_default=True))
    steps: tuple[StepLatency, ...] = ()


def latency_of(times: Times, isa: str, threads: int, steps: Sequence[StepLatency] = ()) -> Latency:
    """Return the latency of passes that took these times; isa, threads: what ran them."""
    low, high = times.quartiles_ms
    return Latency(
        isa=isa,
        threads=threads,
        cpu=cpu_name(),
        median_ms=times.median_ms,
        min_ms=times.min_ms,
        low_ms=low,
        high_ms=high,
        images=len(times.ms),
        doubt=times.doubt(threads, cpu_count()),
        steps=tuple(steps),
    )


def latency_with_steps(session: Session, batch: NDArray[np.float32], times: Times) -> Latency:
    """Return the latency of a session's passes; its steps are timed now."""
    steps = [StepLatency(timed.name, timed.step.layer, timed.median_ms) for timed in time_steps(session, batch, STEP_RUNS)]
    return latency_of(times, session.prepared.kernels.name, session.threads, steps)


def layer_ms(latency: Latency | None) -> dict[int, float]:
    """Return the milliseconds by layer index: a layer's steps added up, conversions before it included."""
    times: dict[int, float] = {}
    for step in () if latency is None else latency.steps:
        if step.layer is not None and step.ms is not None:
            times[step.layer] = times.get(step.layer, 0.0) + float(step.ms)
    return times


def doubt_of(latency: Latency | None) -> str:
    """Return why a latency should not be believed, or ''; the figures alone tell where the reason was not stored."""
    if latency is None:
        return ""
    least = latency.min_ms or 0.0
    if latency.doubt or latency.median_ms <= NOISY * least or not least:
        return latency.doubt or ""
    return f"the median is {latency.median_ms / least:.1f} times the least"


def stale(latency: Latency | None, isa: str, threads: int) -> bool:
    """Return whether to measure again: in doubt, or taken on another machine or with other threads."""
    if latency is None or doubt_of(latency):
        return True
    return (latency.cpu, latency.isa, latency.threads) != (cpu_name(), isa, threads)


def latency_text(latency: Latency) -> str:
    """Return the median and middle half for people; a latency that is not to be believed is called unreliable."""
    low, high = latency.low_ms, latency.high_ms
    middle = f"{latency.median_ms:.2f} ms" + (f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else "")
    return f"unreliable: {middle}" if doubt_of(latency) else middle


def short_latency(latency: Latency) -> str:
    """Return the same for narrow tables: an unreliable latency without its middle half."""
    return f"unreliable, {latency.median_ms:.2f} ms" if doubt_of(latency) else latency_text(latency)
