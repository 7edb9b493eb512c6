# SPDX-License-Identifier: MIT
"""How long an exact sweep takes, before it begins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from mpnet.engine.plan import build_plan
from mpnet.engine.session import Session
from mpnet.speed.clock import in_turn
from mpnet.sweep.sharing import forward_equivalents
from mpnet.sweep.space import Space
from mpnet.trial.workbench import Workbench

SCORE_SECONDS = 60e-6
"""For one configuration and image: suppression, matching, average precision. Only for the estimate."""


def seconds_per_pass(bench: Workbench) -> float:
    """About how long a forward pass over all images takes in one thread: two, of one image, are timed."""
    plan = build_plan(bench.network, bench.assign(), replace(bench.options, ranges={}, layers={}, complete={}))
    session = Session(bench.prepared, plan, 1)
    image = np.zeros((1, *bench.network.in_shape), np.float32)
    [taken] = in_turn(partial(session.forward, image), repeats=1)
    return len(bench.dataset.images) * taken.min_ms / 1e3


def estimate_seconds(bench: Workbench, space: Space, per_pass: float, workers: int) -> float:
    """About how long an exact sweep takes. per_pass: of `seconds_per_pass`."""
    passes = float(forward_equivalents(bench.network, space))
    return (passes * per_pass + len(bench.dataset.images) * space.size * SCORE_SECONDS) / workers


def duration(seconds: float) -> str:
    """Seconds for people."""
    for size, unit in ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
