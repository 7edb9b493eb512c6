# SPDX-License-Identifier: MIT
"""From an experiment with a sweep section to a front."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable

from mpnet.config.experiment import OWN_BACKENDS, Experiment, SweepSection
from mpnet.errors import ConfigError
from mpnet.model.plan_key import split_key
from mpnet.model.plan_words import PlanWords
from mpnet.progress import Progress, silent
from mpnet.sweep.choose.conditions import ConditionRuns, conditions_of
from mpnet.sweep.choose.findings import failures, findings, rank_layers
from mpnet.sweep.choose.margins import margins_of
from mpnet.sweep.choose.picks import PairedEvaluator
from mpnet.sweep.choose.timing import time_picks
from mpnet.sweep.choose.verify import Verification, verifying
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import Executor
from mpnet.sweep.evaluate.sharing import forward_equivalents
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import build_space
from mpnet.sweep.search.estimate import duration, estimate_seconds, seconds_per_pass
from mpnet.sweep.search.loop import OnUpdate, Sweep, WorkerPool
from mpnet.sweep.search.strategies import Strategy, strategy
from mpnet.sweep.setup import describe, make_context, make_executor, say, section_of, set_up, with_image_order
from mpnet.sweep.store import TrialStore
from mpnet.sweep.store.latest import mark_latest_store
from mpnet.sweep.store.records import FINDINGS, write_record
from mpnet.trial.experiment import open_workbench, with_network
from mpnet.trial.task import task_of

ASK_SECONDS = 2 * 3600.0
"""An exact sweep that would take longer asks for --yes."""
MAX_CONFIGURATIONS = 20_000_000
"""More than this does not fit into memory, whatever the time."""

READ_ONLY = "the store cannot be written: what it holds is told, nothing is added"


@dataclass(frozen=True)
class SweepStart:
    """What is known before the first trial.

    theory: forward passes for one image of a walk through the space. estimate: of its time, in words.
    notes: what the user should know, one line each.
    """

    problem: Problem
    theory: float
    images: int
    selecting: int
    store: Path
    estimate: str
    listed: bool
    notes: tuple[str, ...] = ()


def run_sweep(
    experiment: Experiment,
    *,
    store: Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    yes: bool = False,
    timed: bool = False,
    command: str = "",
    on_start: Callable[[SweepStart], None] = lambda start: None,
    on_update: OnUpdate = lambda state: None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Sweep as the experiment says; everything finished is in the store, and running again goes on from there.

    store:     the file; None: `<output>/<name>/sweep-<digest>.sqlite`, named after network, weights, data, protocol.
    workers:   processes on this machine; None: one per thread of the experiment. scheduler: address of Dask's.
    yes:       start an exact sweep however long it takes. progress: of judging what could be picked.
    timed:     measure the milliseconds of baseline and picks on this machine as well.
    Result:    the document of `mpnet sweep --json`.
    Raises: ConfigError for a space that is empty or too large, StoreError, and as `open_workbench`.
    """
    begin = time.monotonic()
    section_of(experiment)
    experiment, network = with_network(experiment)
    section = section_of(experiment)
    chosen = strategy(section.strategy)
    space = build_space(network, section.precisions, section.space)
    if chosen.is_exact and space.size > MAX_CONFIGURATIONS:
        raise ConfigError(
            f"sweep: {space.size:,} configurations are more than can be tried; narrow sweep.space, or use "
            f"another strategy (additive, greedy, pareto)"
        )
    problem = Problem(
        space,
        tuple(layer.macs for layer in network.convolutions),
        objectives_of(section.objectives),
        section.constraints,
        section.seed,
        section.budget.trials,
        section.sampler,
    )
    chosen.check(problem)
    margins = margins_of(section, task_of(network), experiment.source)
    conditions = conditions_of(section.conditions, section.objectives, experiment.source)
    engines = () if section.verify is None else verifying(experiment, section.verify)
    bench = open_workbench(experiment, network)
    if chosen.prunes and bench.dataset.unlabelled and bench.kit.task.quality in section.objectives:
        raise ConfigError(
            f"{experiment.source}: {section.strategy} cannot bound {bench.kit.task.quality} where images have no labels; "
            f"use {bench.kit.task.agreement} in sweep.objectives, or leave data.unlabelled out"
        )
    space = replace(space, suffix=split_key(bench.assign().key)[1])
    problem = replace(problem, space=space)
    parallel = workers or bench.threads
    setup = set_up(bench, section, space)
    path = store or setup.store_path
    with ExitStack() as stack:
        opened = stack.enter_context(TrialStore.open_or_read(path, setup.subject))
        contexts = tuple(opened.context(document) for document in setup.documents)
        left = space.size - sum(min(opened.count(context), space.size) for context in contexts)
        left -= opened.count_ruled_out(contexts, problem.front_name) if chosen.prunes else 0
        left -= sum(row["configurations"] for row in failures(opened, contexts, space))
        per_pass = seconds_per_pass(bench, space)
        estimate = estimate_seconds(bench, space, per_pass.mean, parallel) * max(0, left) / space.size
        if chosen.is_exact and estimate > ASK_SECONDS and not yes:
            raise ConfigError(
                f"{experiment.source}: {section.strategy} over {space.size:,} configurations takes "
                f"{_about(chosen, estimate)} here ({len(bench.dataset.images)} images, "
                f"{float(forward_equivalents(network, space)):,.0f} forward passes each); start it with --yes, narrow "
                f"sweep.space, or use another strategy (additive, greedy, pareto)"
            )
        start = SweepStart(
            problem,
            float(forward_equivalents(network, space)),
            len(bench.dataset.images),
            len(setup.select),
            path,
            _about(chosen, estimate),
            chosen.is_exact,
            (*_notes(experiment, section), *(() if opened.writable else (READ_ONLY,))),
        )
        on_start(start)
        describe(opened, setup, contexts, command, problem.front_name)
        if store is None and opened.writable:
            mark_latest_store(path)
        say(opened, "running", section.strategy, None)

        def open_pool() -> WorkerPool:
            opened.heartbeat()  # before images are read for what cannot be stored
            sweep.preparing(f"{start.images} images are read, and the baseline runs on them")
            context = make_context(setup, stack, max(1, bench.threads // parallel), remote=scheduler is not None)
            macs = 0
            if chosen.prunes:
                sweep.preparing("a sample of configurations runs, for the order of the images")
                context, macs = with_image_order(context, problem, opened, contexts[0], bench.threads)
            executor = make_executor(context, parallel, scheduler)
            stack.callback(executor.close)
            return worker_pool(context, executor, problem, setup.baseline, per_pass.most, macs)

        sweep = Sweep(
            problem,
            network,
            opened,
            contexts,
            open_pool,
            seconds=section.budget.seconds,
            on_update=on_update,
            integer_only=any(chosen.options.integer_only for chosen in setup.benches),
        )
        sweep.state.started = begin
        state = sweep.run(chosen.walk)
        document = findings(
            problem,
            state,
            opened,
            contexts,
            name=experiment.name,
            strategy=section.strategy,
            macs_per_pass=network.macs,
            images=start.images,
            selecting=start.selecting,
            theory=start.theory,
            judged=PairedEvaluator(setup, opened, contexts, problem.baseline, progress),
            task=bench.kit.task,
            margins=margins,
            intervals_by=bench.kit.intervals_by,
        )
        words = PlanWords.of_network(network)
        for row in (*document["picks"].values(), *document["front"], document["baseline"], document["best"]):
            if row is not None:
                row["words"] = words(row["precision"])
        document["table"] = setup.table.text if setup.table is not None else None
        document["layers"] = rank_layers(problem, state.known, network)
        if section.verify is not None:
            check = Verification(setup, opened, contexts, problem, section.verify, engines, progress)
            document["verified"] = check.of(document)
        if conditions:
            document["conditions"] = ConditionRuns(setup, opened, contexts, problem, conditions, progress).of(document)
        document["times"] = time_picks(setup, opened, document) if timed else {}
        write_record(opened, contexts, FINDINGS, document)
        say(opened, "finished" if not state.stopped else "stopped", section.strategy, state.total)
    return document


def worker_pool(
    context: SweepContext, executor: Executor, problem: Problem, baseline: str | None, seconds_per_pass: float, macs: int
) -> WorkerPool:
    """The workers of an executor, with what this process knows without them. The rest as `WorkerPool`."""
    here, decoded = Evaluator(context), context.baseline.decoded_bytes if context.baseline else 1 << 20
    costs = partial(here.costs, names=problem.names)
    return WorkerPool(executor, decoded, seconds_per_pass, macs, baseline, here.baseline_trial, costs)


def _about(strategy: Strategy, seconds: float) -> str:
    return f"{'at most' if strategy.prunes else 'about'} {duration(seconds)}"


def _notes(experiment: Experiment, section: SweepSection) -> tuple[str, ...]:
    if experiment.backends == OWN_BACKENDS or section.verify is not None:
        return ()
    return (
        f"backends {', '.join(experiment.backends)}: a sweep searches with mpnet's own kernels; with sweep.verify: {{}} "
        "what it finds is run in these as well",
    )
