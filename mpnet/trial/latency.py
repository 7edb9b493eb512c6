# SPDX-License-Identifier: MIT
"""Latencies of results: taken in turn, and again when a stored one cannot be believed or is another machine's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.backends.deployment import Deployment
from mpnet.engine.plan import Plan
from mpnet.engine.session import Session
from mpnet.errors import StoreError
from mpnet.speed.clock import Times, Work
from mpnet.speed.steps import latency_of, latency_with_steps, passes_in_turn
from mpnet.trial.result import Result, republish
from mpnet.trial.workbench import Workbench

IN_MPNET, IN_ENGINE = "own", "deployed"
"""Whose a pass is: mpnet's of the configuration, another engine's of the same."""


@dataclass(frozen=True, eq=False)
class Turns:
    """Passes over the first image, taken in turn: of mpnet's sessions by name, and, as IN_ENGINE, of another engine.

    engine: its name, '' without one. layer_ms: its milliseconds by layer, None where it does not say.
    """

    engine: str
    threads: int
    sessions: Mapping[str, Session]
    image: NDArray[np.float32]
    times: Mapping[str, Times]
    layer_ms: Mapping[int, float] | None = None

    def latency(self, name: str) -> dict[str, Any]:
        """The `latency` of a result."""
        if name in self.sessions:
            return latency_with_steps(self.sessions[name], self.image, self.times[name])
        session = next(iter(self.sessions.values()))
        steps = [
            {"step": session.plan.network.layers[index].name, "layer": index, "ms": ms}
            for index, ms in sorted((self.layer_ms or {}).items())
        ]
        return latency_of(self.times[name], self.engine, self.threads, steps)

    def both(self) -> dict[str, float]:
        """Medians of engine and mpnet, as `deployed` of a result has them."""
        return {"latency_ms": self.times[IN_ENGINE].median_ms, "mpnet_latency_ms": self.times[IN_MPNET].median_ms}


def measure_in_turn(bench: Workbench, plans: Mapping[str, Plan], deployment: Deployment | None = None) -> Turns:
    """Time passes of configurations by name, and of another engine, which runs the one called IN_MPNET."""
    image = bench.inputs.take([0]).x
    sessions = {name: Session(bench.prepared, plan, bench.threads) for name, plan in plans.items()}
    works = {name: partial(session.forward, image) for name, session in sessions.items()}
    if deployment is None:
        return Turns("", bench.threads, sessions, image, _times(works, bench.threads))
    model = deployment.open(bench.threads)
    times = _times({**works, IN_ENGINE: partial(model.forward, image)}, bench.threads)
    return Turns(deployment.engine, bench.threads, sessions, image, times, model.layer_ms())


def _times(works: Mapping[str, Work], threads: int) -> dict[str, Times]:
    return dict(zip(works, passes_in_turn(list(works.values()), threads), strict=True))


def renewed(results: Mapping[str, Result], turns: Turns) -> dict[str, Result]:
    """Stored results with the times that were taken now: what was taken apart cannot be compared. What can be written is
    stored, what cannot be is shown all the same."""
    fresh = {}
    for name, result in results.items():
        document = {**result.document, "latency": turns.latency(name)}
        if name == IN_ENGINE:
            document["deployed"] = {**document["deployed"], **turns.both()}
        fresh[name] = Result(result.folder, document)
        with suppress(StoreError):
            fresh[name] = republish(result, document)
    return fresh
