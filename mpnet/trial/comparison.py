# SPDX-License-Identifier: MIT
"""A configuration beside what it is compared with: mpnet's run of it, of the baseline, and another engine's run of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.backends.deployment import Deployment, deploy, uniforms
from mpnet.backends.mixed import deploy_mixed
from mpnet.backends.placement import placements, warnings_of
from mpnet.config.identity import TrialIdentity
from mpnet.config.measures import AGREEMENT
from mpnet.engine.bind import LayerFailure
from mpnet.engine.plan import Plan
from mpnet.errors import NonFiniteError
from mpnet.progress import Advance, unseen
from mpnet.trial.identity import configuration_of, identity_of
from mpnet.trial.inference import Forward, Outcome, Runner, own_runner, run_all
from mpnet.trial.latency import IN_ENGINE, IN_MPNET, Turns, measure_in_turn
from mpnet.trial.result import run_result_of
from mpnet.trial.run_result import EngineRun, PlacedLayer, RunResult
from mpnet.trial.workbench import Workbench

BASELINE = "baseline"
OWN_BASELINE = "own baseline"
"""The weights' own, where the baseline is their parent's."""


def _finite(plan: Plan, deployment: Deployment) -> Forward:
    """Return the engine's forward pass, which checks what it gives as mpnet's own sessions do."""
    forward = deployment.open(1).forward

    def checked(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        heads = forward(batch)
        for slot, head in zip(plan.outputs, heads, strict=True):
            if not np.isfinite(head).all():
                layer = next(step.layer for step in plan.steps if step.output == slot)
                error = NonFiniteError(f"in {deployment.engine} a value is NaN or infinite")
                raise LayerFailure.of(plan.network, layer, error)
        return heads

    return checked


@dataclass(frozen=True, eq=False)
class Comparison:
    """plan: of the configuration. baseline: of the one it is compared with, None for none; may be the same.

    deployment: who runs the configuration beside mpnet, None for nobody.
    """

    bench: Workbench
    plan: Plan
    baseline: Plan | None
    deployment: Deployment | None = None

    @property
    def plans(self) -> dict[str, Plan]:
        """Return the plans that mpnet runs, by name; the configuration last."""
        in_mpnet = {IN_MPNET: self.plan}
        if self.baseline is None or self.reference == IN_MPNET:
            return in_mpnet
        is_own = self.bench.parent is None or self._is_baseline
        own = {} if is_own else {OWN_BASELINE: self.bench.plan(self.baseline.precision)}
        return {BASELINE: self.baseline, **own, **in_mpnet}

    @property
    def _is_baseline(self) -> bool:
        return self.baseline is not None and self.baseline.precision.key == self.plan.precision.key

    def bench_of(self, name: str) -> Workbench:
        """Return the workbench that a side runs on: of the baseline the parent's, where there is one."""
        return self.bench.reference if name == BASELINE else self.bench

    @property
    def reference(self) -> str | None:
        """Name of the side that the others' agreement is measured against."""
        if self.baseline is None:
            return None
        return IN_MPNET if self._is_baseline and self.bench.parent is None else BASELINE

    @property
    def requested(self) -> str:
        """Name of the side that the user asked for."""
        return IN_MPNET if self.deployment is None else IN_ENGINE

    def identities(self) -> dict[str, TrialIdentity]:
        """Return what decides each side's result.

        The engine's: all that decides mpnet's own, and who it is and what it was given.
        """
        identities = {name: identity_of(self.bench_of(name), plan.precision) for name, plan in self.plans.items()}
        if self.deployment is not None:
            identities[IN_ENGINE] = replace(identities[IN_MPNET], engine=self.deployment.identity)
        return identities

    def kernels(self) -> dict[str, str]:
        """Name of what computes each side, as latencies state it."""
        names = dict.fromkeys(self.plans, self.bench.kernels.name)
        return names if self.deployment is None else {**names, IN_ENGINE: self.deployment.engine}

    def run(self, advance: Advance = unseen) -> dict[str, Outcome]:
        """Forward all images through every side, image by image.

        Raises: as `run_all`; LayerFailure where values that leave the engine are not finite.
        """
        plans, deployment = self.plans, self.deployment
        runners = {name: own_runner(self.bench_of(name).prepared, plan) for name, plan in plans.items()}
        if deployment is not None:
            opened = partial(_finite, self.plan, deployment)
            runners[IN_ENGINE] = Runner(self.plan, opened, list(plans).index(IN_MPNET))
        return dict(zip(runners, run_all(self.bench, list(runners.values()), advance), strict=True))

    def turns(self) -> Turns:
        """Time every side's passes, in turn."""
        uniform = {}
        if self.deployment is not None:
            uniform = uniforms(self.deployment.engine, configuration_of(self.bench, self.plan.precision, {"sources": {}}))
        return measure_in_turn(self.bench, self.plans, self.deployment, uniform)

    def result(self, name: str, outcomes: Mapping[str, Outcome], turns: Turns, command: str) -> RunResult:
        """Return the result of a side."""
        run = run_result_of(
            self.bench_of(name),
            outcomes[name],
            baseline=None if self.reference is None else outcomes[self.reference],
            command=command,
            identity=self.identities()[name],
            latency=turns.latency(name),
        )
        if name == IN_ENGINE and self.deployment is not None:
            return _with_engine(run, self, self.deployment, outcomes[name], turns)
        return run


def _with_engine(run: RunResult, comparison: Comparison, deployment: Deployment, outcome: Outcome, turns: Turns) -> RunResult:
    """Return the result of an engine's run with what it says beyond a result of mpnet's own."""
    bench, precisions = comparison.bench, comparison.plan.precision
    layers = placements(configuration_of(bench, precisions), deployment.exported, deployment.executed)
    task = bench.kit.task
    agreement = {} if run.agreement is None else run.agreement.values
    values = {
        task.quality: run.metrics[task.quality],
        task.agreement: agreement.get(task.agreement.removeprefix(AGREEMENT)),
        "head_error": outcome.head_error,
        **turns.both(),
    }
    placed = tuple(PlacedLayer(**asdict(layer), ms=(turns.layer_ms or {}).get(layer.index)) for layer in layers)
    notes = (
        *run.notes,
        f"forward passes by {deployment.engine} {deployment.version}",
        *deployment.notes,
        *warnings_of(layers, deployment.engine),
    )
    engine_run = EngineRun(deployment.engine, deployment.version, identity_of(bench, precisions).id, values, placed)
    return replace(run, deployed=engine_run, notes=notes)


def comparison_of(bench: Workbench, engine: str | Sequence[str] | None) -> Comparison:
    """Return the experiment's configuration, its baseline and the engine to compare.

    engine: a backend's name, or several by preference, of which each runs the layers that it supports. Raises: as `deploy`.
    """
    plan, name = bench.plan(bench.assign()), bench.experiment.baseline
    return Comparison(
        bench,
        plan,
        bench.reference.plan(bench.uniform(name)) if name else None,
        None if engine is None else deployment_of(bench, plan, engine),
    )


def deployment_of(bench: Workbench, plan: Plan, engine: str | Sequence[str]) -> Deployment:
    """Deploy the workbench's configuration in an engine; the files name their source, but not where it lies."""
    configuration = configuration_of(bench, plan.precision, {"sources": {}})
    return deploy(engine, configuration) if isinstance(engine, str) else deploy_mixed(engine, configuration)
