# SPDX-License-Identifier: MIT
"""An estimate of the time of an exact sweep, before it begins."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mpnet.engine.assign import assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.plan import build_plan
from mpnet.engine.session import Session
from mpnet.model.precision import PRECISIONS
from mpnet.speed.clock import in_turn
from mpnet.sweep.evaluate.sharing import forward_equivalents
from mpnet.sweep.problem.space import Space
from mpnet.trial.workbench import Workbench

SCORE_SECONDS = 60e-6
"""For one configuration and image: suppression, matching, average precision. Only for the estimate."""


@dataclass(frozen=True)
class PassSeconds:
    """About how long a forward pass over all images takes in one thread: mean over a space's precisions, and the slowest."""

    mean: float
    most: float


def seconds_per_pass(bench: Workbench, space: Space) -> PassSeconds:
    """Time two passes of one image at each precision of the space.

    One whose values overflow says nothing, and 0 is said where all do.
    """
    options = replace(bench.options, ranges={}, layers={}, complete={})
    keys = dict.fromkeys(space.lowered(PRECISIONS[name].code) for name in space.precisions)
    plans = [build_plan(bench.network, assign_key(bench.network, key), options) for key in keys]
    image = np.zeros((1, *bench.network.in_shape), np.float32)
    seconds = []
    for plan in plans:
        with suppress(LayerFailure):
            [taken] = in_turn(partial(Session(bench.prepared, plan, 1).forward, image), repeats=1)
            seconds.append(len(bench.dataset.images) * taken.min_ms / 1e3)
    return PassSeconds(sum(seconds) / len(seconds), max(seconds)) if seconds else PassSeconds(0.0, 0.0)


def estimate_seconds(bench: Workbench, space: Space, per_pass: float, workers: int) -> float:
    """Estimate how long an exact sweep takes, in seconds. per_pass: the mean."""
    passes = float(forward_equivalents(bench.network, space))
    return (passes * per_pass + len(bench.dataset.images) * space.size * SCORE_SECONDS) / workers


def duration(seconds: float) -> str:
    """Write seconds for people."""
    for size, unit in ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
