"""Tables of measured time per step, so that a workstation can sweep accuracy with a board's latency.

A step's time depends on what it does and on the shapes, not on what comes before it, so the time of a configuration is
the sum of its steps', conversions included. `mpnet profile` measures the table and states how far that sum is from
whole configurations that it measured as well.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.engine.operations import Convolve
from mpnet.engine.plan import Plan, Step
from mpnet.errors import ConfigError


def step_signature(step: Step) -> str:
    """What a step's time depends on: the layer that it works for, what it does, from and to which storage."""
    name = step.operation.name
    if isinstance(step.operation, Convolve):
        return f"{step.layer} {name} {step.operation.precision}"
    return f"{step.layer} {name} {step.takes} {step.gives}"


def predicted_ms(plan: Plan, step_ms: Mapping[str, float]) -> float:
    """Sum of the table's times over a plan's steps. Raises: ConfigError for a step that the table lacks."""
    total = 0.0
    for step in plan.steps:
        signature = step_signature(step)
        if signature not in step_ms:
            raise ConfigError(
                f"sweep.latency: the table has no time for {signature!r} (layer, step, precisions); make it again with "
                f"`mpnet profile` for this network and all precisions of the sweep"
            )
        total += step_ms[signature]
    return total
