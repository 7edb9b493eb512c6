"""From an experiment with a sweep section to a front."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

import numpy as np

from mpnet.api.calibration import calibrated
from mpnet.api.experiment import open_workbench
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.cost import layer_costs
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.run import Session
from mpnet.errors import ConfigError
from mpnet.experiments.context import Baseline, OptionsInForce, SweepContext
from mpnet.experiments.environment import versions
from mpnet.experiments.evaluator import Evaluator
from mpnet.experiments.executor import Executor, InlineExecutor, ProcessExecutor
from mpnet.experiments.findings import findings
from mpnet.experiments.identity import digest_of
from mpnet.experiments.latency_table import read_table
from mpnet.experiments.problem import Problem, objectives_of
from mpnet.experiments.ranking import rank_layers
from mpnet.experiments.recipe import EvaluatorRecipe
from mpnet.experiments.scoring import split_positions
from mpnet.experiments.scratch import Scratch
from mpnet.experiments.sharing import forward_equivalents
from mpnet.experiments.space import Space, build_space
from mpnet.experiments.store import Subject, TrialStore
from mpnet.experiments.strategies import EXACT, strategy
from mpnet.experiments.sweep import OnUpdate, Sweep, SweepState
from mpnet.experiments.workbench import Workbench
from mpnet.formats.cfg import read_cfg
from mpnet.spec.experiment import Experiment, SweepSection
from mpnet.spec.network import NetworkSpec

ASK_SECONDS = 2 * 3600.0
"""An exact sweep that would take longer asks for --yes."""
MAX_CONFIGURATIONS = 20_000_000
"""More than this does not fit into memory, whatever the time."""
SCORE_SECONDS = 60e-6
"""For one configuration and picture: suppression, matching, average precision. Only for the estimate."""


@dataclass(frozen=True)
class SweepStart:
    """What is known before the first trial. theory: forward passes for one picture of a walk through the space."""

    problem: Problem
    theory: float
    images: int
    selecting: int
    store: Path
    estimate_seconds: float
    listed: bool


def run_sweep(
    experiment: Experiment, *, store: Path | None = None, workers: int | None = None, scheduler: str | None = None,
    yes: bool = False, command: str = "", on_start: Callable[[SweepStart], None] = lambda start: None,
    on_update: OnUpdate = lambda state: None,
) -> dict[str, Any]:
    """Sweep as the experiment says; everything finished is in the store, and running again goes on from there.

    store:     the file; None: `<output>/<name>/sweep-<digest>.sqlite`, named after network, weights, data, protocol.
    workers:   processes on this machine; None: one per thread of the experiment. scheduler: address of Dask's.
    yes:       start an exact sweep however long it takes.
    Result:    the document of `mpnet sweep --json`.
    Raises: ConfigError for a space that is empty or too large, StoreError, and as `open_workbench`.
    """
    begin = time.monotonic()
    section = experiment.sweep
    if section is None:
        raise ConfigError(f"{experiment.source}: key 'sweep' is missing; say what to sweep, such as "
                          f"sweep: {{strategy: one_at_a_time, precisions: [fp32, int8]}}")
    network = read_cfg(experiment.model.cfg)
    space = build_space(network, section.precisions, section.space)
    if section.strategy in EXACT:
        _check_listable(space)
    bench = open_workbench(experiment)
    parallel = workers or bench.threads
    estimate = estimate_seconds(bench, space, parallel)
    if section.strategy in EXACT and estimate > ASK_SECONDS and not yes:
        raise ConfigError(
            f"{experiment.source}: {section.strategy} over {space.size:,} configurations takes about "
            f"{duration(estimate)} here ({len(bench.dataset.images)} pictures, "
            f"{float(forward_equivalents(network, space)):,.0f} forward passes each); start it with --yes, narrow "
            f"sweep.space, or use another strategy (additive, greedy, pareto)"
        )
    with ExitStack() as stack:
        scratch = Scratch()
        stack.callback(scratch.close)
        prepared = _prepare(bench, section, space, scratch, max(1, bench.threads // parallel), remote=bool(scheduler))
        path = store or experiment.output / experiment.name / f"sweep-{digest_of(asdict(prepared.subject))[:12]}.sqlite"
        opened = stack.enter_context(TrialStore.open(path, prepared.subject))
        contexts = tuple(opened.context(document) for document in prepared.documents)
        context = prepared.context
        problem = Problem(
            space, tuple(layer.macs for layer in network.convolutions), objectives_of(section.objectives),
            section.constraints, section.seed, section.budget.trials, section.sampler,
        )
        start = SweepStart(problem, float(forward_equivalents(network, space)), len(bench.dataset.images),
                           len(context.select), path, estimate, section.strategy in EXACT)
        on_start(start)
        _describe(opened, bench, section, contexts, context, command)
        executor = _executor(context, parallel, scheduler)
        stack.callback(executor.close)
        sweep = Sweep(
            problem, network, opened, contexts, executor, suffix=context.suffix, seconds=section.budget.seconds,
            bytes_per_head=context.baseline.candidate_bytes if context.baseline else 1 << 20, on_update=on_update,
        )
        sweep.state.started = begin
        state = sweep.run(strategy(section.strategy))
        document = _findings(start, state, opened, contexts, context, experiment.name, section.strategy)
        opened.set_note("findings", json.dumps(document))
        _say(opened, "finished" if not state.stopped else "stopped", section.strategy, state.total)
    return document


def estimate_seconds(bench: Workbench, space: Space, workers: int) -> float:
    """About how long an exact sweep takes: two forward passes are timed, the rest is counted."""
    plan = build_plan(bench.network, bench.assign(), replace(bench.options, ranges={}, layers={}, said={}))
    session = Session(bench.prepared, plan, 1)
    picture = np.zeros((1, *bench.network.in_shape), np.float32)
    session.forward(picture)
    begin = time.perf_counter()
    session.forward(picture)
    seconds = time.perf_counter() - begin
    passes = float(forward_equivalents(bench.network, space))
    return len(bench.dataset.images) * (passes * seconds + space.size * SCORE_SECONDS) / workers


def _check_listable(space: Space) -> None:
    if space.size > MAX_CONFIGURATIONS:
        raise ConfigError(
            f"sweep: {space.size:,} configurations are more than can be tried; narrow sweep.space, or use another "
            f"strategy (additive, greedy, pareto)"
        )


def duration(seconds: float) -> str:
    """Seconds for people."""
    for size, unit in ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


@dataclass(frozen=True)
class _Prepared:
    context: SweepContext
    subject: Subject
    documents: tuple[dict[str, Any], ...]


def _prepare(
    bench: Workbench, section: SweepSection, space: Space, scratch: Scratch, threads: int, remote: bool
) -> _Prepared:
    """Decode the pictures, run the baseline, and put everything together that workers need."""
    experiment, network = bench.experiment, bench.network
    benches = [under_options(bench, space, number) for number in range(len(space.option_sets))]
    plan = bench.assign()
    pictures, where = scratch.array((len(bench.dataset.images), *network.in_shape))
    geometry = []
    for batch in bench.inputs.batches(4):
        pictures[batch.start:batch.start + len(batch.x)] = batch.x
        geometry += list(batch.geometry)
    select, report = split_positions([image.sha256 for image in bench.dataset.images], section.holdout, section.seed)
    table = read_table(section.latency) if section.latency is not None else None
    if table is not None:
        table.check(network, space.precisions)
    context = SweepContext(
        network=network, weights=bench.weights,
        options=tuple(OptionsInForce(b.options, b.channel_means) for b in benches), own={i: plan[i] for i in plan.own},
        suffix=plan.key[len(space.layers):], heads=bench.heads, nms=bench.nms,
        confidence=experiment.detection.confidence, max_detections=experiment.detection.max_detections,
        dataset=bench.dataset, pictures=np.array(pictures) if remote else where, geometry=geometry_array(geometry),
        select=select, report=report, darknet="darknet_mAP50" in section.objectives,
        isa="auto" if remote else bench.kernels.name, threads=threads, group=max(8, experiment.runtime.batch),
        step_ms=table.step_ms if table is not None else None,
    )
    if experiment.baseline is not None:
        codes = bench.uniform(experiment.baseline).key[:len(space.layers)]
        found = Evaluator(context).baseline(codes)
        context = replace(context, baseline=found if remote else _on_disk(found, scratch))
    documents: list[dict[str, Any]] = []
    for number, chosen in enumerate(benches):
        parts = asdict(chosen.identity(plan))
        del parts["plan"]
        documents.append({
            "identity": parts, "options": space.option_sets[number].text,
            "measures": {
                "holdout": section.holdout, "seed": section.seed if section.holdout else None,
                "baseline": context.baseline.key if context.baseline else None, "darknet": context.darknet,
                "latency": table.digest if table is not None else None,
            },
        })
    first: dict[str, Any] = documents[0]["identity"]
    subject = Subject(first["cfg"], first["weights"], first["data"], digest_of(first["protocol"]))
    return _Prepared(context, subject, tuple(documents))


def under_options(bench: Workbench, space: Space, number: int) -> Workbench:
    """The workbench under one option set of a space, put over the experiment's own options; calibrated if that asks
    for it."""
    quantization = bench.experiment.quantization
    said = quantization.options.overlaid(space.option_sets[number].options)
    options = resolve_options(bench.network, said, quantization.layers, batch_norm=bench.options.batch_norm)
    return calibrated(replace(bench, options=options, calibration=None, channel_means=None))


def _on_disk(found: Baseline, scratch: Scratch) -> Baseline:
    heads = []
    for tensor in found.heads:
        assert not isinstance(tensor, str)
        values, where = scratch.array(tensor.shape)
        values[:] = tensor
        heads.append(where)
    return replace(found, heads=tuple(heads))


def _executor(context: SweepContext, workers: int, scheduler: str | None) -> Executor:
    if scheduler is not None:
        from mpnet.experiments.dask_executor import DaskExecutor

        return DaskExecutor(scheduler, EvaluatorRecipe(context))
    if workers == 1:
        return InlineExecutor(Evaluator(context))
    return ProcessExecutor(EvaluatorRecipe(context), workers)


def _describe(
    store: TrialStore, bench: Workbench, section: SweepSection, contexts: tuple[int, ...], context: SweepContext,
    command: str,
) -> None:
    """What a report needs to know of a sweep beside its trials, under the names that a result has."""
    top = bench.plan(bench.uniform("fp32"))
    store.set_note("sweep", json.dumps({
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"), "versions": versions(),
        "digests": {**bench.identity(top.precision).digests(), "plan": None, "trial": None},
        "layers": [row.as_json() for row in layer_costs(top)], "notes": list(bench.dataset.notes),
        "name": bench.experiment.name, "strategy": section.strategy, "command": command,
        "objectives": list(section.objectives), "holdout": section.holdout, "contexts": list(contexts),
        "suffix": context.suffix, "baseline": context.baseline.key + context.suffix if context.baseline else None,
        "selecting": len(context.select), "images": len(bench.dataset.images), "protocol": bench.protocol,
        "constraints": asdict(section.constraints), "sources": dict(bench.sources or {}),
    }))
    _say(store, "running", section.strategy, None)


def _say(store: TrialStore, state: str, strategy: str, total: int | None) -> None:
    store.set_note("status", json.dumps({"state": state, "owner": store.owner, "strategy": strategy, "total": total,
                                         "time": time.time()}))


def _findings(
    start: SweepStart, state: SweepState, store: TrialStore, contexts: tuple[int, ...], context: SweepContext,
    name: str, strategy_name: str,
) -> dict[str, Any]:
    network: NetworkSpec = context.network
    document = findings(
        start.problem, state, store, contexts, suffix=context.suffix, name=name, strategy=strategy_name,
        macs_per_pass=network.macs, images=start.images, selecting=start.selecting, theory=start.theory,
    )
    return {**document, "layers": rank_layers(start.problem, state.known, network)}
