# SPDX-License-Identifier: MIT
"""Latencies of results: taken in turn, and again when a stored one cannot be believed or is another machine's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Model
from mpnet.backends.deployment import UNIFORM, Deployment, uniforms
from mpnet.engine.plan import Plan
from mpnet.engine.session import Session
from mpnet.errors import StoreError
from mpnet.export import Configuration
from mpnet.speed.clock import Times, Work, in_turn
from mpnet.speed.latency import Latency, StepLatency, latency_of, latency_with_steps
from mpnet.speed.steps import passes_in_turn, random_image
from mpnet.trial.result import Result, republish
from mpnet.trial.workbench import Workbench

EXPORTED_RUNS, EXPORTED_SECONDS = 10, 2.0
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

    def latency(self, name: str) -> Latency:
        """Return the latency of one of those that took turns."""
        if name in self.sessions:
            return latency_with_steps(self.sessions[name], self.image, self.times[name])
        session = next(iter(self.sessions.values()))
        steps = [
            StepLatency(session.plan.network.layers[index].name, index, ms)
            for index, ms in sorted((self.layer_ms or {}).items())
        ]
        return latency_of(self.times[name], self.engine, self.threads, steps)

    def both(self) -> dict[str, float]:
        """Return the medians of engine, mpnet, and the engine with all layers at one precision, as `deployed` of a result."""
        return {
            "latency_ms": self.times[IN_ENGINE].median_ms,
            "mpnet_latency_ms": self.times[IN_MPNET].median_ms,
            **{f"{name}_latency_ms": self.times[name].median_ms for name in UNIFORM if name in self.times},
        }


def measure_in_turn(
    bench: Workbench,
    plans: Mapping[str, Plan],
    deployment: Deployment | None = None,
    uniform: Mapping[str, Deployment] | None = None,
) -> Turns:
    """Time passes of configurations by name, and of another engine, in turn.

    The engine runs the configuration called IN_MPNET, and the network with all layers at one precision, by that one's name.
    """
    image = bench.inputs.take([0]).x
    sessions = {name: Session(bench.prepared, plan, bench.threads) for name, plan in plans.items()}
    works = {name: partial(session.forward, image) for name, session in sessions.items()}
    if deployment is None:
        return Turns("", bench.threads, sessions, image, _times(works, bench.threads))
    model = deployment.open(bench.threads)
    works[IN_ENGINE] = partial(model.forward, image)
    works |= {
        name: partial(uniform_deployment.open(bench.threads).forward, image)
        for name, uniform_deployment in (uniform or {}).items()
    }
    times = _times(works, bench.threads)
    return Turns(deployment.engine, bench.threads, sessions, image, times, model.layer_ms())


def time_exported(engine: str, configuration: Configuration, model: Model) -> dict[str, float]:
    """Return the least milliseconds of one image and thread in an engine.

    They are of the model that runs the configuration, as `mix`, and of the same network with all layers at one precision, by
    its name.

    """
    image = random_image(configuration.network)
    models = {"mix": model, **{name: deployment.open(1) for name, deployment in uniforms(engine, configuration).items()}}
    works = [partial(timed_model.forward, image) for timed_model in models.values()]
    all_times = in_turn(*works, repeats=EXPORTED_RUNS, least=1, seconds=EXPORTED_SECONDS)
    return {name: times.min_ms for name, times in zip(models, all_times, strict=True)}


def _times(works: Mapping[str, Work], threads: int) -> dict[str, Times]:
    return dict(zip(works, passes_in_turn(list(works.values()), threads), strict=True))


def renewed(results: Mapping[str, Result], turns: Turns) -> dict[str, Result]:
    """Return stored results with the times that were taken now, since times taken apart cannot be compared.

    What can be written is stored, what cannot be is shown all the same.
    """
    fresh = {}
    for name, result in results.items():
        run = replace(result.run, latency=turns.latency(name))
        if name == IN_ENGINE and run.deployed is not None:
            run = replace(run, deployed=replace(run.deployed, values={**run.deployed.values, **turns.both()}))
        fresh[name] = Result(result.folder, run)
        with suppress(StoreError):
            republish(fresh[name])
    return fresh
