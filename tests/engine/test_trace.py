"""Looking into a forward pass."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.run import Session
from mpnet.engine.trace import step_ranges, time_steps
from mpnet.errors import ConfigError


def test_every_step_but_the_heads_is_timed(prepared: Prepared, batch: NDArray[np.float32]) -> None:
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network, "int8")))
    times = time_steps(session, batch, repeats=3)
    assert [t.name for t in times] == [
        f"{step.operation.name} for {prepared.network.layers[step.layer].name}"
        for step in session.run_plan.steps if step.operation.name != "Yolo"
    ]
    assert all(0 < t.min_ms <= t.median_ms for t in times)
    with pytest.raises(ConfigError, match="repeats is 0"):
        time_steps(session, batch, repeats=0)


def test_ranges_of_results(prepared: Prepared, batch: NDArray[np.float32]) -> None:
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network, "int8")))
    seen = {r.number: r for r in step_ranges(session, batch)}
    assert len(seen) == len(session.plan.steps)
    heads = session.forward(batch)
    last = seen[len(session.plan.steps) - 1]
    assert (last.minimum, last.maximum, last.saturated) == (float(heads[1].min()), float(heads[1].max()), 0.0)
    first = seen[0]
    assert first.name == "Quantize for conv-1"
    assert first.maximum == pytest.approx(float(batch.max()), abs=1 / 255)
    # The codes reach from end to end: at least the largest and the smallest value sit there.
    assert 6 / batch.size <= first.saturated < 0.1
