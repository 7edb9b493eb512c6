"""Latencies of results: taken in turn, and again when a stored one cannot be believed or is another machine's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.backends.deployment import Deployment
from mpnet.engine.assign import assign_key
from mpnet.engine.plan import Plan
from mpnet.engine.run import Session
from mpnet.errors import StoreError
from mpnet.speed.clock import Times
from mpnet.speed.steps import latency_of, latency_with_steps, measure_latencies, passes_in_turn, stale
from mpnet.trial.result import Result, republish
from mpnet.trial.workbench import Workbench


def latencies(bench: Workbench, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """The `latency` of each plan, passes over the first picture taken in turn."""
    picture = bench.inputs.take([0]).x
    return measure_latencies([Session(bench.prepared, plan, bench.threads) for plan in plans], picture)


def measured_again(bench: Workbench, results: Sequence[Result]) -> list[Result]:
    """Results with the latency of this machine, when one is in doubt or another machine's; all are taken in turn."""
    if not any(stale(result.document.get("latency"), bench.kernels.name, bench.threads) for result in results):
        return list(results)
    plans = [bench.plan(assign_key(bench.network, str(result.document["precision"]["key"]))) for result in results]
    return renewed(results, latencies(bench, plans))


def renewed(results: Sequence[Result], times: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Results with another latency; what can be written is stored, what cannot be is shown all the same."""
    found = []
    for result, latency in zip(results, times, strict=True):
        document = {**result.document, "latency": latency}
        with_it = Result(result.folder, document)
        with suppress(StoreError):
            with_it = republish(result, document)
        found.append(with_it)
    return found


@dataclass(frozen=True, eq=False)
class Turns:
    """Passes over the first picture, taken in turn: of mpnet's own sessions by name, and, as `deployed`, of the engine.

    layer_ms: the engine's by layer, None where it does not say.
    """

    engine: str
    threads: int
    sessions: Mapping[str, Session]
    picture: NDArray[np.float32]
    times: Mapping[str, Times]
    layer_ms: Mapping[int, float] | None

    def latency(self, name: str) -> dict[str, Any]:
        """The `latency` of a result."""
        if name in self.sessions:
            return latency_with_steps(self.sessions[name], self.picture, self.times[name])
        session = next(iter(self.sessions.values()))
        steps = [{"step": session.plan.network.layers[index].name, "layer": index, "ms": ms}
                 for index, ms in sorted((self.layer_ms or {}).items())]
        return latency_of(self.times[name], self.engine, self.threads, steps)

    def both(self) -> dict[str, float]:
        """Medians of engine and mpnet, as `deployed` of a result has them."""
        return {"latency_ms": self.times["deployed"].median_ms, "mpnet_latency_ms": self.times["own"].median_ms}


def measure_in_turn(bench: Workbench, plans: Mapping[str, Plan], deployment: Deployment) -> Turns:
    """Time passes of configurations, one of them called `own`, and of the engine."""
    picture = bench.inputs.take([0]).x
    sessions = {name: Session(bench.prepared, plan, bench.threads) for name, plan in plans.items()}
    model = deployment.open(bench.threads)
    works = [*(partial(session.forward, picture) for session in sessions.values()), partial(model.forward, picture)]
    times = dict(zip((*sessions, "deployed"), passes_in_turn(works, bench.threads), strict=True))
    return Turns(deployment.engine, bench.threads, sessions, picture, times, model.layer_ms())


def renewed_in_turn(results: Mapping[str, Result], turns: Turns) -> dict[str, Result]:
    """Stored results with the times that were taken now: what was taken apart cannot be compared."""
    found = {}
    for name, result in results.items():
        if name == "deployed":
            both = {**result.document["deployed"], **turns.both()}
            result = Result(result.folder, {**result.document, "deployed": both})
        found[name] = renewed([result], [turns.latency(name)])[0]
    return found
