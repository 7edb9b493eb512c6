"""An experiment's configuration run by another engine, beside mpnet's own run of it: same pictures, decoding, metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Model
from mpnet.backends.deployment import Deployment, deploy
from mpnet.backends.fate import fates, warnings_of
from mpnet.backends.mixed import deploy_mixed
from mpnet.engine.plan import Plan
from mpnet.progress import Progress, silent
from mpnet.spec.experiment import Experiment
from mpnet.spec.identity import TrialIdentity
from mpnet.spec.measures import AGREEMENT, DEPLOYED, names_of
from mpnet.speed.steps import stale
from mpnet.trial.experiment import RunReport, check_start, open_workbench
from mpnet.trial.latency import Turns, measure_in_turn, renewed_in_turn
from mpnet.trial.result import Result, build_document, finished, mark_latest, publish
from mpnet.trial.run import Forward, Outcome, Runner, own_runner, run_all
from mpnet.trial.workbench import Workbench


@dataclass(frozen=True, eq=False)
class Deployed:
    """outcome: what the engine found; own: what mpnet found with the same configuration; baseline: with another, or None.

    deployment: who ran it.
    """

    deployment: Deployment
    outcome: Outcome
    own: Outcome
    baseline: Outcome | None


def run_in_engine(
    experiment: Experiment, engine: str | Sequence[str], *, force: bool = False, command: str = "", progress: Progress = silent
) -> RunReport:
    """Evaluate the experiment's configuration in another engine and in mpnet's, and store both results.

    engine: a backend's name; or several by preference, of which each runs the layers that it supports.
    As `mpnet.trial.experiment.run_experiment`; the engine's result says in `deployed` how far it is from mpnet's.
    Raises: as that, and as `deploy`.
    """
    bench = open_workbench(experiment)
    plan = bench.plan(bench.assign())
    deployment = deployment_of(bench, plan, engine)
    identity = engine_identity(bench, plan, deployment)
    folder = experiment.output / experiment.name
    reference = None if experiment.baseline is None else bench.plan(bench.uniform(experiment.baseline))
    plans = {"own": plan}
    if reference is not None and reference.precision.key != plan.precision.key:
        plans["baseline"] = reference
    places = {"deployed": folder / identity.id, **{name: folder / bench.identity(each.precision).id
                                                   for name, each in plans.items()}}
    known = {name: result for name, place in places.items() if not force and (result := finished(place)) is not None}
    if len(known) == len(places):
        mark_latest(known["deployed"].folder)
        kernels = {"deployed": deployment.engine}
        if any(stale(result.document.get("latency"), kernels.get(name, bench.kernels.name), bench.threads)
               for name, result in known.items()):
            known = renewed_in_turn(known, measure_in_turn(bench, plans, deployment))
        return RunReport(known["own"], known.get("baseline"), True, bench, known["deployed"])
    check_start(bench, folder)
    with progress("pictures", len(bench.inputs)) as advance:
        found = run_deployed(bench, plan, deployment, reference, advance)
    turns = measure_in_turn(bench, plans, deployment)

    def store(outcome: Outcome, document: dict[str, Any]) -> Result:
        return publish(document, bench.kit.to_json(outcome.found, bench.dataset), folder / document["id"])

    stored = renewed_in_turn({name: known[name] for name in plans if name in known}, turns)
    for name, outcome, beside in (("baseline", found.baseline, None), ("own", found.own, found.baseline)):
        if name in plans and name not in stored and outcome is not None:
            document = build_document(bench, outcome, baseline=beside, command=command, latency=turns.latency(name))
            stored[name] = store(outcome, document)
    deployed = store(found.outcome, deployed_document(bench, found, identity, turns, command))
    mark_latest(deployed.folder)
    return RunReport(stored["own"], stored.get("baseline"), False, bench, deployed)


def deployment_of(bench: Workbench, plan: Plan, engine: str | Sequence[str]) -> Deployment:
    """The workbench's configuration in an engine; the files say where it comes from, but not where that lies."""
    configuration = bench.configuration(plan.precision, {"sources": {}})
    return deploy(engine, configuration) if isinstance(engine, str) else deploy_mixed(engine, configuration)


def engine_identity(bench: Workbench, plan: Plan, deployment: Deployment) -> TrialIdentity:
    """What decides the engine's result: all that decides mpnet's own, the engine, its version, and what it was given."""
    return replace(bench.identity(plan.precision), engine=deployment.identity)


def run_deployed(
    bench: Workbench, plan: Plan, deployment: Deployment, reference: Plan | None, advance: Any
) -> Deployed:
    """Forward all pictures through baseline, mpnet's own session and the engine, picture by picture."""
    same = reference is None or reference.precision.key == plan.precision.key
    runners = [own_runner(bench.prepared, each) for each in ([] if same or reference is None else [reference]) + [plan]]
    runners.append(Runner(plan, lambda: _forward(deployment.open(1)), len(runners) - 1))
    outcomes = run_all(bench, runners, advance)
    return Deployed(deployment, outcomes[-1], outcomes[-2], None if reference is None else outcomes[0])


def _forward(model: Model) -> Forward:
    def forward(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return model.forward(batch)

    return forward


def deployed_document(
    bench: Workbench, found: Deployed, identity: TrialIdentity, turns: Turns, command: str
) -> dict[str, Any]:
    """The result.json of an engine's outcome."""
    deployment, plan = found.deployment, found.own.plan
    document = build_document(
        bench, found.outcome, baseline=found.baseline, command=command, identity=identity, latency=turns.latency("deployed")
    )
    layers = fates(bench.configuration(plan.precision), deployment.exported, deployment.executed)
    warnings, task = warnings_of(layers, deployment.engine), bench.kit.task
    document["deployed"] = {
        "engine": deployment.engine, "version": deployment.version,
        "reference": bench.identity(plan.precision).id,
        task.quality: document["metrics"][task.quality],
        task.agreement: (document["agreement"] or {}).get(task.agreement.removeprefix(AGREEMENT)),
        "head_error": found.outcome.head_error,
        **turns.both(),
        "layers": [{**asdict(layer), "ms": (turns.layer_ms or {}).get(layer.index)} for layer in layers],
    }
    document["notes"] = [*document["notes"], f"forward passes by {deployment.engine} {deployment.version}",
                         *deployment.notes, *warnings]
    return document


def deployed_values(document: Mapping[str, Any]) -> dict[str, float]:
    """The measures of kind `deployed` that a result holds."""
    deployed = document.get("deployed") or {}
    return {name: float(deployed[name.removeprefix(DEPLOYED)]) for name in names_of("deployed")
            if deployed.get(name.removeprefix(DEPLOYED)) is not None}
