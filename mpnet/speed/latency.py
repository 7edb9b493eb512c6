"""Tables of measured time per step, so that a workstation can sweep accuracy with a board's latency.

A step's time depends on what it does and on the shapes, not on what comes before it, so the time of a configuration is
the sum of its steps' as they run (fused), conversions included. `mpnet profile` measures the table and states how far
that sum is from whole configurations that it measured as well.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.engine.fuse import fuse_plan
from mpnet.engine.operations import Convolve
from mpnet.engine.plan import Plan, Step
from mpnet.errors import ConfigError


def step_signature(plan: Plan, step: Step) -> str:
    """What a step's time depends on: a layer at a precision, or one tensor that is moved or converted."""
    operation, name = step.operation, step.operation.name
    if isinstance(operation, Convolve):
        return f"{step.layer} {name} {operation.precision} {step.gives}"
    if operation.is_conversion:
        return f"{plan.slots[step.inputs[0]].layer} {name} {step.takes} {step.gives}"
    # Two slices of one layer differ by what they read.
    return f"{step.layer} {name} {plan.slots[step.inputs[0]].layer} {step.takes}"


def predicted_ms(plan: Plan, step_ms: Mapping[str, float]) -> float:
    """Sum of the table's times over a plan's steps. Raises: ConfigError for a step that the table lacks."""
    total = 0.0
    for step in fuse_plan(plan).steps:
        signature = step_signature(plan, step)
        if signature not in step_ms:
            raise ConfigError(
                f"sweep.latency: the table has no time for {signature!r} (layer, step, precisions); make it again with "
                f"`mpnet profile` for this network and all precisions of the sweep"
            )
        total += step_ms[signature]
    return total
