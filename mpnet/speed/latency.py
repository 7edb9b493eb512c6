# SPDX-License-Identifier: MIT
"""Tables of measured time per step, so that a workstation can sweep accuracy with a board's latency.

A step's time depends on what it does and on the shapes, not on what comes before it, so the time of a configuration is
the sum of its steps' as they run (fused), conversions included. `mpnet profile` measures the table and states how far
that sum is from whole configurations that it measured as well.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.engine.covering import step_signature
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError


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
