# SPDX-License-Identifier: MIT
"""The story of a sweep: from an experiment with a sweep section to a front."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable

from mpnet.backends.partition import check_backends
from mpnet.config.experiment import OWN_BACKENDS, Experiment, SweepSection
from mpnet.detection.conditions import Condition
from mpnet.errors import ConfigError
from mpnet.formats.documents.typed import as_json
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import short_key, split_key
from mpnet.model.plan_words import PlanWords
from mpnet.model.selectors import layer_groups
from mpnet.progress import Progress, silent
from mpnet.sweep.choose.conditions import ConditionRuns, conditions_of
from mpnet.sweep.choose.cost_budgets import with_cost_budgets
from mpnet.sweep.choose.findings import SweepFacts, choose_result, failures, find_candidates
from mpnet.sweep.choose.layer_ranking import rank_by_noise, rank_layers
from mpnet.sweep.choose.margins import Margins, margins_of
from mpnet.sweep.choose.picks import PairedEvaluator
from mpnet.sweep.choose.timing import time_picks
from mpnet.sweep.choose.verify import Verification, verifying
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import Executor
from mpnet.sweep.evaluate.sharing import forward_equivalents
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import build_space
from mpnet.sweep.result import SweepResult
from mpnet.sweep.search.estimate import duration, estimate_seconds, seconds_per_pass
from mpnet.sweep.search.loop import OnUpdate, Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import Strategy, strategy
from mpnet.sweep.setup import (
    OpenSweep,
    SweepSetup,
    describe,
    make_context,
    make_executor,
    say,
    section_of,
    set_up,
    with_image_order,
    with_tuned,
)
from mpnet.sweep.store import TrialStore
from mpnet.sweep.store.latest import mark_latest_store
from mpnet.sweep.store.records import FINDINGS, write_record
from mpnet.trial.experiment import open_workbench, with_network
from mpnet.trial.task import task_of

ASK_SECONDS = 2 * 3600.0
"""An exact sweep that would take longer asks for --yes."""
SMALL_MACS = 2e13
"""Multiply-accumulates up to which strategy auto tries every configuration: a minute or two of two cores."""
MACS_PER_CONFIGURATION, MACS_PER_RESULT = 1e9, 3e7
"""What measuring and storing a configuration takes, and decoding and matching an image of it, as multiply-accumulates of the
same time: of small networks, most of a sweep."""
MAX_CONFIGURATIONS = 20_000_000
"""More than this does not fit into memory, whatever the time."""

READ_ONLY = "the store cannot be written: what it holds is told, nothing is added"


@dataclass(frozen=True)
class SweepStart:
    """The facts of a sweep before its first trial.

    theory: forward passes for one image of a walk through the space. estimate: of its time, in words.
    notes: what the user should know, one line each. words: describes a precision string.
    """

    problem: Problem
    theory: float
    images: int
    selecting: int
    store: Path
    estimate: str
    listed: bool
    notes: tuple[str, ...] = ()
    words: Callable[[str], str] = short_key


@dataclass(frozen=True, eq=False)
class SweepPlan:
    """A sweep that is ready to open its store.

    margins: most that the safe pick may lose. conditions, engines: under and in which the result runs as well.
    """

    experiment: Experiment
    network: NetworkSpec
    strategy: Strategy
    problem: Problem
    setup: SweepSetup
    margins: Margins
    conditions: tuple[Condition, ...]
    engines: tuple[str, ...]


@dataclass(frozen=True)
class Workforce:
    """The workers of a sweep. workers: processes here, which share threads. scheduler: address of Dask's, None: none."""

    workers: int
    scheduler: str | None = None


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
) -> SweepResult:
    """Sweep as the experiment says; everything finished is in the store, and running again goes on from there.

    store:     the file; None: `<output>/<name>/sweep-<digest>.sqlite`, named after network, weights, data, protocol.
    workers:   processes on this machine; None: one per thread of the experiment. scheduler: address of Dask's.
    yes:       start an exact sweep however long it takes. progress: of judging what could be picked.
    timed:     measure the milliseconds of baseline and picks on this machine as well.
    Result:    what `mpnet sweep --json` prints.
    Raises: ConfigError for a space that is empty or too large, StoreError, and as `open_workbench`.
    """
    started = time.monotonic()
    plan = prepare(experiment)
    with ExitStack() as stack:
        path = store or plan.setup.store_path
        opened = stack.enter_context(TrialStore.open_or_read(path, plan.setup.subject))
        contexts = tuple(opened.context(document) for document in plan.setup.documents)
        sweep = OpenSweep(plan.problem, plan.setup, opened, contexts, progress)
        workforce = Workforce(workers or plan.setup.bench.threads, scheduler)
        start, seconds_per_pass = estimate_start(plan, sweep, workforce.workers, is_confirmed=yes)
        on_start(start)
        describe(opened, plan.setup, contexts, command, plan.problem.front_name)
        if store is None and opened.writable:
            mark_latest_store(path)
        state = search(plan, sweep, workforce, seconds_per_pass, started, on_update)
        result = choose(plan, sweep, state, start.theory, is_timed=timed)
        save(sweep, result)
        say(opened, result.state, result.strategy, state.total)
    return result


def prepare(experiment: Experiment) -> SweepPlan:
    """Read what a sweep needs, and check all that can be checked before its store is opened.

    Raises: ConfigError for a space that is empty or too large or options that do not fit each other, and as `open_workbench`.
    """
    section_of(experiment)
    experiment, network = with_network(experiment)
    section = section_of(experiment)
    selected = strategy(section.strategy)
    space = build_space(network, section.precisions, section.space)
    if selected.is_exact and space.size > MAX_CONFIGURATIONS:
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
    if selected.screens and experiment.baseline is None:
        raise ConfigError(
            f"{experiment.source}: sweep.strategy: {section.strategy} needs a baseline to compare heads with; "
            "set baseline to a precision such as fp32, or use strategy additive"
        )
    selected.check(problem)
    margins = margins_of(section, task_of(network), experiment.source)
    conditions = conditions_of(section.conditions, section.objectives, experiment.source)
    check_backends(experiment.backends)
    engines = () if section.verify is None else verifying(experiment, section.verify)
    bench = open_workbench(experiment, network)
    if selected.prunes and bench.dataset.unlabelled and bench.kit.task.quality in section.objectives:
        raise ConfigError(
            f"{experiment.source}: {section.strategy} cannot bound {bench.kit.task.quality} where images have no labels; "
            f"use {bench.kit.task.agreement} in sweep.objectives, or leave data.unlabelled out"
        )
    space = replace(with_tuned(space, bench, section.space.tuned), suffix=split_key(bench.assign().key)[1])
    setup = set_up(bench, section, space)
    constraints = with_cost_budgets(setup, experiment.source)
    if constraints != section.constraints:
        setup = replace(setup, section=replace(section, constraints=constraints))
        problem = replace(problem, constraints=constraints)
        selected.check(problem)
    exact_macs = float(forward_equivalents(network, space)) * network.macs * len(bench.dataset.images)
    exact_macs += space.size * (MACS_PER_CONFIGURATION + MACS_PER_RESULT * len(bench.dataset.images))
    heads = layer_groups(network).get("heads", ())
    outputs = frozenset(position for position, layer in enumerate(space.layers) if layer in heads)
    problem = replace(problem, space=space, outputs=outputs, is_small=exact_macs <= SMALL_MACS)
    return SweepPlan(experiment, network, selected, problem, setup, margins, conditions, engines)


def estimate_start(plan: SweepPlan, sweep: OpenSweep, workers: int, *, is_confirmed: bool) -> tuple[SweepStart, float]:
    """Return what is known before the first trial, and the seconds of a pass at most.

    is_confirmed: an exact sweep may take however long. Raises: ConfigError for one that takes long and is not confirmed.
    """
    bench, section, problem, network = plan.setup.bench, plan.setup.section, plan.problem, plan.network
    space, images, store = problem.space, len(bench.dataset.images), sweep.store
    remaining = space.size - sum(min(store.count(context), space.size) for context in sweep.contexts)
    remaining -= store.count_ruled_out(sweep.contexts, problem.front_name) if plan.strategy.prunes else 0
    remaining -= sum(row.configurations for row in failures(store, sweep.contexts, space))
    per_pass = seconds_per_pass(bench, space)
    seconds = estimate_seconds(bench, space, per_pass.mean, workers) * max(0, remaining) / space.size
    theory = float(forward_equivalents(network, space))
    if plan.strategy.is_exact and seconds > ASK_SECONDS and not is_confirmed:
        raise ConfigError(
            f"{plan.experiment.source}: {section.strategy} over {space.size:,} configurations takes "
            f"{_about(plan.strategy, seconds)} here ({images} images, "
            f"{theory:,.0f} forward passes each); start it with --yes, narrow "
            f"sweep.space, or use another strategy (additive, greedy, pareto)"
        )
    start = SweepStart(
        problem,
        theory,
        images,
        len(plan.setup.select),
        store.path,
        _about(plan.strategy, seconds),
        plan.strategy.is_exact,
        (*plan.setup.bench.dataset.notes, *_notes(plan.experiment, section), *(() if store.writable else (READ_ONLY,))),
        PlanWords.of_network(network),
    )
    return start, per_pass.most


def search(
    plan: SweepPlan, sweep: OpenSweep, workforce: Workforce, seconds_per_pass: float, started: float, on_update: OnUpdate
) -> SweepState:
    """Evaluate what the strategy asks for and the store lacks, until it ends or the budget does.

    seconds_per_pass: at most, on one thread. started: time.monotonic() of the sweep's start.
    """
    bench, problem, store = plan.setup.bench, plan.problem, sweep.store
    say(store, "running", plan.setup.section.strategy, None)
    with ExitStack() as stack:

        def open_pool() -> WorkerPool:
            store.heartbeat()  # before images are read for what cannot be stored
            loop.show_preparation(f"{len(bench.dataset.images)} images are read, and the baseline runs on them")
            threads = max(1, bench.threads // workforce.workers)
            context = make_context(plan.setup, stack, threads, remote=workforce.scheduler is not None)
            macs = 0
            if plan.strategy.prunes:
                loop.show_preparation("a sample of configurations runs, for the order of the images")
                context, macs = with_image_order(context, problem, store, sweep.contexts[0], bench.threads)
            executor = make_executor(context, workforce.workers, workforce.scheduler)
            stack.callback(executor.close)
            return worker_pool(context, executor, problem, plan.setup.baseline, seconds_per_pass, macs)

        loop = Sweep(
            problem,
            plan.network,
            store,
            sweep.contexts,
            open_pool,
            seconds=plan.setup.section.budget.seconds,
            on_update=on_update,
            integer_only=any(under_options.options.integer_only for under_options in plan.setup.benches),
        )
        loop.state.start_time = started
        return loop.run(plan.strategy.walk)


def choose(plan: SweepPlan, sweep: OpenSweep, state: SweepState, theory: float, *, is_timed: bool) -> SweepResult:
    """Choose from all that the store has, and run what was chosen in other engines, under conditions and against the clock.

    theory: forward passes for one image of a walk through the space. is_timed: measure milliseconds on this machine as well.
    """
    setup, problem, kit = plan.setup, plan.problem, plan.setup.bench.kit
    facts = SweepFacts(
        name=plan.experiment.name,
        strategy=setup.section.strategy,
        images=len(setup.bench.dataset.images),
        selecting=len(setup.select),
        macs_per_pass=plan.network.macs,
        passes_in_theory=theory,
        task=kit.task,
        margins=plan.margins,
        intervals_by=kit.intervals_by,
        table=setup.table.text if setup.table is not None else None,
        words=PlanWords.of_network(plan.network),
        ranks=rank_layers(problem, state.trials, plan.network),
        noises=rank_by_noise(problem, sweep.store, sweep.contexts, plan.network) if plan.strategy.screens else (),
    )
    candidates = find_candidates(problem, sweep.store, sweep.contexts, state.trials)
    result = choose_result(candidates, state, facts, PairedEvaluator(sweep))
    if setup.section.verify is not None:
        result = replace(result, verified=Verification(sweep, setup.section.verify, plan.engines).verify(result))
    if plan.conditions:
        result = replace(result, conditions=ConditionRuns(sweep, plan.conditions).measure(result))
    return replace(result, times=time_picks(sweep, result) if is_timed else {})


def save(sweep: OpenSweep, result: SweepResult) -> None:
    """Keep a result in the store, as that of the last sweep and of its contexts."""
    write_record(sweep.store, sweep.contexts, FINDINGS, as_json(result))


def worker_pool(
    context: SweepContext, executor: Executor, problem: Problem, baseline: str | None, seconds_per_pass: float, macs: int
) -> WorkerPool:
    """Return the workers of an executor, with what this process knows without them. The rest as `WorkerPool`."""
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
