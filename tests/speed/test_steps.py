# SPDX-License-Identifier: MIT
"""Times of a session's steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.speed.steps import time_steps
from tests.engine.conftest import batch, network, prepared, weights

__all__ = ["batch", "network", "prepared", "weights"]


def test_every_step_but_the_heads_is_timed(prepared: Prepared, batch: NDArray[np.float32]) -> None:
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network, "int8")))
    times = time_steps(session, batch, repeats=3)
    assert [t.name for t in times] == [
        f"{step.operation.name} for {prepared.network.layers[step.layer].name}"
        for step in session.run_plan.steps
        if step.operation.name != "Yolo"
    ]
    assert all(0 < t.min_ms <= t.median_ms for t in times)
    with pytest.raises(ConfigError, match="repeats is 0"):
        time_steps(session, batch, repeats=0)
