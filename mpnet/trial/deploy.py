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
from mpnet.engine.run import Session
from mpnet.progress import Progress, silent
from mpnet.spec.experiment import Experiment
from mpnet.spec.identity import TrialIdentity
from mpnet.spec.measures import AGREEMENT, DEPLOYED, names_of
from mpnet.speed.clock import in_turn
from mpnet.speed.steps import LATENCY_LEAST, LATENCY_RUNS, LATENCY_SECONDS, believable, latency_of
from mpnet.trial.experiment import RunReport, check_start, open_workbench
from mpnet.trial.latency import latencies
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
    places = {"deployed": folder / identity.id, "own": folder / bench.identity(plan.precision).id}
    if reference is not None:
        places["baseline"] = folder / bench.identity(reference.precision).id
    known = {name: None if force else finished(place) for name, place in places.items()}
    own, base, result = known["own"], known.get("baseline"), known["deployed"]
    if own is not None and result is not None and (base is not None or reference is None):
        mark_latest(result.folder)
        return RunReport(own, None if base is None or base.id == own.id else base, True, bench, result)
    check_start(bench, folder)
    with progress("pictures", len(bench.inputs)) as advance:
        found = run_deployed(bench, plan, deployment, reference, advance)

    def store(outcome: Outcome, document: dict[str, Any] | None = None) -> Result:
        made = document or build_document(bench, outcome, baseline=found.baseline, command=command,
                                          latency=latencies(bench, [outcome.plan])[0])
        return publish(made, bench.kit.to_json(outcome.found, bench.dataset), folder / made["id"])

    if found.baseline is None or found.baseline is found.own:
        base = None
    elif base is None:
        base = store(found.baseline)
    if own is None:
        own = store(found.own)
    result = store(found.outcome, deployed_document(bench, found, identity, command))
    mark_latest(result.folder)
    return RunReport(own, base, False, bench, result)


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


def deployed_document(bench: Workbench, found: Deployed, identity: TrialIdentity, command: str) -> dict[str, Any]:
    """The result.json of an engine's outcome; times of engine and mpnet are taken now, in turn."""
    deployment, plan = found.deployment, found.own.plan
    latency, own_ms, layer_ms = measure_in_turn(bench, plan, deployment)
    document = build_document(
        bench, found.outcome, baseline=found.baseline, command=command, identity=identity, latency=latency
    )
    layers = fates(bench.configuration(plan.precision), deployment.exported, deployment.executed)
    warnings, task = warnings_of(layers, deployment.engine), bench.kit.task
    document["deployed"] = {
        "engine": deployment.engine, "version": deployment.version,
        "reference": bench.identity(plan.precision).id,
        task.quality: document["metrics"][task.quality],
        task.agreement: (document["agreement"] or {}).get(task.agreement.removeprefix(AGREEMENT)),
        "head_error": found.outcome.head_error,
        "latency_ms": latency["median_ms"], "mpnet_latency_ms": own_ms,
        "layers": [{**asdict(layer), "ms": (layer_ms or {}).get(layer.index)} for layer in layers],
    }
    document["notes"] = [*document["notes"], f"forward passes by {deployment.engine} {deployment.version}",
                         *deployment.notes, *warnings]
    return document


def measure_in_turn(
    bench: Workbench, plan: Plan, deployment: Deployment
) -> tuple[dict[str, Any], float, Mapping[int, float] | None]:
    """(the engine's `latency` of a result, mpnet's median milliseconds, the engine's by layer), passes taken in turn."""
    picture = bench.inputs.take([0]).x
    session, model = Session(bench.prepared, plan, bench.threads), deployment.open(bench.threads)
    own, other = believable(lambda: in_turn(
        lambda: session.forward(picture), lambda: model.forward(picture), repeats=LATENCY_RUNS, least=LATENCY_LEAST,
        seconds=2 * LATENCY_SECONDS,
    ), bench.threads)
    layer_ms = model.layer_ms()
    steps = [{"step": bench.network.layers[index].name, "layer": index, "ms": ms}
             for index, ms in sorted((layer_ms or {}).items())]
    return latency_of(other, deployment.engine, bench.threads, steps), own.median_ms, layer_ms


def deployed_values(document: Mapping[str, Any]) -> dict[str, float]:
    """The measures of kind `deployed` that a result holds."""
    deployed = document.get("deployed") or {}
    return {name: float(deployed[name.removeprefix(DEPLOYED)]) for name in names_of("deployed")
            if deployed.get(name.removeprefix(DEPLOYED)) is not None}
