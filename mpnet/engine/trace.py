"""What happens step by step in a forward pass: how long each step takes, what range its result has."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.plan import Step
from mpnet.engine.run import Session
from mpnet.engine.tensor import Tensor
from mpnet.errors import ConfigError


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of one step for the whole batch: the least and the median of the repetitions."""

    number: int
    step: Step
    name: str
    min_ms: float
    median_ms: float


@dataclass(frozen=True)
class StepRange:
    """What one step gave, over the whole batch. int8: as the reals that the codes stand for, and the share of codes at
    either end of the scale.
    """

    number: int
    step: Step
    name: str
    minimum: float
    maximum: float
    saturated: float


def step_name(session: Session, step: Step) -> str:
    """Such as `Quantize for conv-2`."""
    return f"{step.operation.name} for {session.plan.network.layers[step.layer].name}"


def time_steps(session: Session, batch: NDArray[np.float32], repeats: int = 10) -> tuple[StepTime, ...]:
    """Time every step of the plan as it runs (fused), heads excepted: they only hand tensors over.

    Raises: ConfigError for fewer than one repetition; what `Session.forward` raises.
    """
    if repeats < 1:
        raise ConfigError(f"repeats is {repeats}; measure at least once")
    session.forward(batch, copy=False)
    bound = session.bound(len(batch))
    clock = time.perf_counter
    steps = session.run_plan.steps
    totals: dict[int, list[float]] = {number: [0.0] * repeats for number, _ in bound.calls}
    for repeat in range(repeats):
        for number, call in bound.calls:
            start = clock()
            bound.run_call(number, call)
            totals[number][repeat] += clock() - start
    return tuple(
        StepTime(number, steps[number], step_name(session, steps[number]), 1e3 * min(ran), 1e3 * float(np.median(ran)))
        for number, ran in totals.items()
    )


def step_ranges(session: Session, batch: NDArray[np.float32]) -> tuple[StepRange, ...]:
    """The range of every step's result, unfused."""
    found: list[StepRange] = []

    def look(number: int, step: Step, tensor: Tensor) -> None:
        low, high, saturated = _range(tensor)
        found.append(StepRange(number, step, step_name(session, step), low, high, saturated))

    session.observe(batch, look)
    return tuple(found)


def _range(tensor: Tensor) -> tuple[float, float, float]:
    data: NDArray[Any] = tensor.data
    if tensor.params is None:
        return float(data.min()), float(data.max()), 0.0
    lows, highs, saturated = [], [], 0
    for image, row in zip(data, tensor.params, strict=True):
        lows.append((int(image.min()) - int(row["zero_point"])) * float(row["scale"]) + float(row["offset"]))
        highs.append((int(image.max()) - int(row["zero_point"])) * float(row["scale"]) + float(row["offset"]))
        saturated += int(np.count_nonzero((image == row["low"]) | (image == row["high"])))
    return min(lows), max(highs), saturated / data.size
