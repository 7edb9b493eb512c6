# SPDX-License-Identifier: MIT
"""The setup of a sweep before its first trial: identities at once, images and workers only when needed."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment, SweepSection
from mpnet.config.identity import digest_of
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.calibration_statistics import CalibrationStatistics
from mpnet.engine.cost import layer_costs
from mpnet.errors import ConfigError
from mpnet.formats.documents.typed import as_json
from mpnet.json_values import JsonObject
from mpnet.kernels.environment import versions
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, PRECISIONS, Precision
from mpnet.model.quantization import LEARNT
from mpnet.progress import Progress, silent
from mpnet.speed.latency_table import LatencyTable, read_table
from mpnet.sweep.evaluate.context import Baseline, SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import Executor, InlineExecutor, ProcessExecutor
from mpnet.sweep.evaluate.race import SAMPLE, SAMPLED_FROM
from mpnet.sweep.evaluate.scoring import split_positions
from mpnet.sweep.evaluate.scratch import Scratch
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment, OptionSet, Space
from mpnet.sweep.result import ConfigurationRow
from mpnet.sweep.search.screening import SCREENING_IMAGES
from mpnet.sweep.store import Subject, TrialStore
from mpnet.sweep.store.notes import ContextDocument, ContextMeasures, StatusNote, SweepNote
from mpnet.sweep.store.records import SWEEP, write_record
from mpnet.trial.calibration import under_quantization
from mpnet.trial.identity import calibration_images, identity_of, notes_of, protocol_of
from mpnet.trial.inputs import spread
from mpnet.trial.parent import open_tuned
from mpnet.trial.run_result import CalibrationImages
from mpnet.trial.setup import CalibratedOptions
from mpnet.trial.workbench import Workbench

REFERENCE = -1
"""In place of the number of an option set: the weights that the baseline has."""


@dataclass(frozen=True, eq=False)
class SweepSetup:
    """benches: the workbench under each option set. documents: the store's context of each. subject: of the store.

    baseline: key of the run that others are compared with, None for none.
    select, report: positions of the images that select, and of those that only report.
    """

    bench: Workbench
    section: SweepSection
    space: Space
    benches: tuple[Workbench, ...]
    documents: tuple[JsonObject, ...]
    subject: Subject
    baseline: str | None
    select: NDArray[np.intp]
    report: NDArray[np.intp]
    table: LatencyTable | None

    def reference(self, key: str) -> Assignment:
        """Return the configuration that others are compared with, for `bench_of`. key: the baseline's."""
        return Assignment(key, 0 if self.bench.parent is None else REFERENCE)

    def bench_of(self, options: int) -> Workbench:
        """Return the workbench of an option set, by number; of REFERENCE the one whose baseline others are compared with."""
        return self.bench.reference if options == REFERENCE else self.benches[options]

    @property
    def store_path(self) -> Path:
        """Return where the sweep's store lies by default: it is named after network, weights, data and protocol."""
        experiment = self.bench.experiment
        return experiment.output / experiment.name / f"sweep-{digest_of(asdict(self.subject))[:12]}.sqlite"


@dataclass(frozen=True, eq=False)
class OpenSweep:
    """A sweep whose store is open.

    contexts: numbers of the store's contexts, one per option set. progress: shows how far long work is.
    """

    problem: Problem
    setup: SweepSetup
    store: TrialStore
    contexts: tuple[int, ...]
    progress: Progress = silent

    def configuration_of(self, row: ConfigurationRow) -> Assignment:
        """Return the configuration that a row of the sweep's result is about."""
        options = [option_set.text for option_set in self.problem.space.option_sets]
        return Assignment(row.precision, options.index(row.options))


def section_of(experiment: Experiment) -> SweepSection:
    """Return the experiment's sweep section. Raises: ConfigError where there is none."""
    if experiment.sweep is None:
        raise ConfigError(
            f"{experiment.source}: key 'sweep' is missing; say what to sweep, such as "
            f"sweep: {{strategy: one_at_a_time, precisions: [fp32, int8]}}"
        )
    return experiment.sweep


def _check_integer_only(bench: Workbench, space: Space) -> None:
    """Check that all codes are of integers. Raises: ConfigError naming a layer that may become one of reals."""
    for variable in space.variables:
        for code in variable.codes:
            if not BY_CODE[code].carries_scale:
                layer = bench.network.layers[space.layers[variable.positions[0]]]
                raise ConfigError(
                    f"sweep: layer {layer.index} ({layer.name}) may be {BY_CODE[code]}, which is no precision of whole numbers;"
                    " under quantization.integer_only set sweep.precisions to [int16, int8]"
                )


def set_up(bench: Workbench, section: SweepSection, space: Space) -> SweepSetup:
    """Set up everything that decides what a trial is; no image is decoded, but calibration runs where it did not before.

    Raises: ConfigError for a latency table that does not fit.
    """
    experiment, network = bench.experiment, bench.network
    benches = tuple(under_options(bench, space, number) for number in range(len(space.option_sets)))
    if any(chosen.options.integer_only for chosen in benches):
        _check_integer_only(bench, space)
    plan = bench.assign()
    table = read_table(section.latency) if section.latency is not None else None
    if table is not None:
        table.check(network, space.precisions, section.latency_error)
    codes = None if experiment.baseline is None else split_key(bench.uniform(experiment.baseline).key)[0]
    holdout = section.held_out(len(bench.dataset.images), bench.dataset.unlabelled)
    select, report = split_positions([image.sha256 for image in bench.dataset.images], holdout, section.seed)
    measures = ContextMeasures(
        holdout,
        section.seed if holdout else None,
        codes,
        "darknet_mAP50" in section.objectives,
        table.digest if table is not None else None,
    )
    identities = [identity_of(chosen, plan, _rows(bench, space)) for chosen in benches]
    documents = []
    for identity, option_set in zip(identities, space.option_sets, strict=True):
        parts = as_json(identity)
        del parts["plan"], parts["engine"]
        documents.append(as_json(ContextDocument(parts, option_set.text, measures)))
    first = identities[0]
    subject = Subject(first.cfg, first.weights, first.data, digest_of(first.protocol))
    return SweepSetup(
        bench,
        section,
        space,
        benches,
        tuple(documents),
        subject,
        None if codes is None else codes + space.suffix,
        select,
        report,
        table,
    )


def under_options(bench: Workbench, space: Space, number: int) -> Workbench:
    """Return the workbench with the weights of one option set of a space, and its options put over the experiment's own.

    It is calibrated if the options ask for that.
    """
    quantization, option_set = bench.experiment.quantization, space.option_sets[number]
    overlaid = quantization.options.overlaid(option_set.options)
    if option_set.weights is not None:
        bench = replace(bench, weights=option_set.weights, parent=bench.reference)
    return under_quantization(bench, overlaid, quantization.layers if option_set.layers is None else option_set.layers)


def with_tuned(space: Space, bench: Workbench, path: Path | None) -> Space:
    """Return the space with an option set more for each that it has: the same with weights that were tuned.

    path: of the experiment that `mpnet tune` wrote, None: the space as it is. Raises: as `open_tuned`.
    """
    if path is None:
        return space
    tuned = open_tuned(bench, path)
    choices = tuple(
        OptionSet(
            ", ".join(filter(None, (option_set.text, f"weights={path.name}"))),
            tuned.quantization.options.overlaid(option_set.options),
            tuned.weights,
            tuned.quantization.layers,
            tuned.sources,
        )
        for option_set in space.option_sets
    )
    return replace(space, option_sets=(*space.option_sets, *choices))


def _rows(bench: Workbench, space: Space) -> list[Precision]:
    """Return all precisions that a trial's layers with weights may have, the baseline's among them."""
    baseline = bench.experiment.baseline
    return [PRECISIONS[name] for name in (*space.precisions, *([baseline] if baseline else []))]


def _statistics(bench: Workbench, space: Space) -> CalibrationStatistics | None:
    """Return the bench's statistics as far as workers need them."""
    pairs = [(index, precision) for precision in _rows(bench, space) for index in space.layers]
    needed = [(index, precision) for index, precision in pairs if bench.options.of(index).needs_statistics(precision)]
    statistics = bench.calibration.statistics
    if statistics is None or not needed:
        return None
    schemes = [(index, bench.options.of(index).rounded_to(precision)[0]) for index, precision in needed]
    return statistics.stored((index, scheme) for index, scheme in schemes if scheme.rounding == LEARNT)


def make_context(setup: SweepSetup, stack: ExitStack, threads: int, remote: bool) -> SweepContext:
    """Decode the images and run the baseline. stack: closes what is made. remote: workers share no disk with us."""
    bench = setup.bench
    scratch = Scratch()
    stack.callback(scratch.close)
    plan = bench.assign()
    images, where = scratch.array((len(bench.dataset.images), *bench.network.in_shape))
    geometry = []
    for batch in bench.inputs.batches(4):
        images[batch.start : batch.start + len(batch.x)] = batch.x
        geometry += list(batch.geometry)
    context = SweepContext(
        network=bench.network,
        options=tuple(
            CalibratedOptions(each.weights, each.options, each.calibration.channel_means, _statistics(each, setup.space))
            for each in setup.benches
        ),
        unweighted={i: plan[i] for i in plan.keyed},
        decoder=bench.decoder,
        dataset=bench.dataset,
        images=np.array(images) if remote else where,
        geometry=geometry_array(geometry),
        select=setup.select,
        report=setup.report,
        screening=setup.select[spread(len(setup.select), SCREENING_IMAGES)],
        requested_measures=setup.section.objectives,
        isa="auto" if remote else bench.kernels.host_kernels.name,
        device="auto" if remote else bench.kernels.device.name,
        falls_back=bool(bench.experiment.runtime.backends),
        threads=threads,
        group=max(8, bench.experiment.runtime.batch),
        step_ms=setup.table.step_ms if setup.table is not None else None,
        known_keys=tuple(setup.space.mixed(number) for number in range(len(setup.benches))) if remote else (),
    )
    if setup.baseline is None:
        return context
    # No worker is busy yet, so the baseline may have all threads.
    reference = context
    if bench.parent is not None:
        parent = bench.parent
        weights = CalibratedOptions(
            parent.weights, parent.options, parent.calibration.channel_means, _statistics(parent, setup.space)
        )
        reference = replace(context, options=(weights,))
    baseline = Evaluator(replace(reference, threads=bench.threads)).baseline(setup.baseline)
    return replace(context, baseline=baseline if remote else _on_disk(baseline, scratch))


def with_image_order(
    context: SweepContext, problem: Problem, store: TrialStore, number: int, threads: int
) -> tuple[SweepContext, int]:
    """Return the context with the order in which races look at images, and the MACs executed to find it.

    A sample of the space runs on all images, unless the store holds the order. A small space does without.

    number: of the store's context. threads: for the sample, no worker being busy yet.
    """
    if problem.space.size < SAMPLED_FROM:
        return context, 0
    note, macs = f"order/{number}:{','.join(sorted(problem.names))}", 0
    order = np.array(store.document(note).get("images") or (), np.intp)
    if not np.array_equal(np.sort(order), np.arange(len(context.select))):
        evaluator = Evaluator(replace(context, threads=threads))
        order, macs = evaluator.images_by_loss(problem.names, problem.space.drawn_keys(SAMPLE))
        store.set_note(note, json.dumps({"images": order.tolist()}))
    return replace(context, order=order), macs


def _on_disk(baseline: Baseline, scratch: Scratch) -> Baseline:
    outputs = []
    for tensor in baseline.outputs:
        assert not isinstance(tensor, str)
        values, where = scratch.array(tensor.shape)
        values[:] = tensor
        outputs.append(where)
    return replace(baseline, outputs=tuple(outputs))


def make_executor(context: SweepContext, workers: int, scheduler: str | None) -> Executor:
    """Make an executor: Dask workers of a scheduler, processes of this machine, or this process."""
    recipe = partial(Evaluator, context)
    if scheduler is not None:
        from mpnet.sweep.evaluate.dask_executor import DaskExecutor

        return DaskExecutor(scheduler, recipe)
    if workers == 1:
        return InlineExecutor(recipe())
    return ProcessExecutor(recipe, workers)


def describe(store: TrialStore, setup: SweepSetup, contexts: tuple[int, ...], command: str, front_name: str) -> None:
    """Store what a report needs to know of a sweep beside its trials, under the names that a result has."""
    bench, section = setup.bench, setup.section
    top = bench.plan(bench.uniform("fp32"))
    sweep = SweepNote(
        name=bench.experiment.name,
        strategy=section.strategy,
        command=command,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=versions(),
        digests={**identity_of(bench, top.precision, _rows(bench, setup.space)).digests(), "plan": None, "trial": None},
        layers=layer_costs(top),
        notes=tuple(notes_of(bench, _rows(bench, setup.space))),
        objectives=section.objectives,
        front_name=front_name,
        contexts=contexts,
        holdout=section.held_out(len(bench.dataset.images), bench.dataset.unlabelled),
        suffix=setup.space.suffix,
        baseline=setup.baseline,
        selecting=len(setup.select),
        images=len(bench.dataset.images),
        protocol=protocol_of(bench),
        constraints=section.constraints.as_json(),
        sources=dict(bench.sources),
        tuned={
            chosen.weights.digest: option_set.sources
            for chosen, option_set in zip(setup.benches, setup.space.option_sets, strict=True)
            if option_set.sources
        },
        calibration=_calibrated(setup),
        latency=dict(setup.table.machine) if setup.table is not None else None,
    )
    write_record(store, contexts, SWEEP, as_json(sweep))


def _calibrated(setup: SweepSetup) -> CalibrationImages | None:
    """Return the images that any of the option sets was calibrated on."""
    rows = _rows(setup.bench, setup.space)
    return next((images for bench in setup.benches if (images := calibration_images(bench, rows)) is not None), None)


def say(store: TrialStore, state: str, strategy: str, total: int | None) -> None:
    """Note how far the sweep is, for --status and reports."""
    status = StatusNote(state=state, owner=store.owner, strategy=strategy, total=total, time=time.time())
    store.set_note("status", json.dumps(as_json(status)))
