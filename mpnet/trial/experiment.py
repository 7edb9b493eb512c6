"""From an experiment to a stored result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mpnet.detection.pictures import picture
from mpnet.engine.options import resolve_options
from mpnet.errors import ConfigError
from mpnet.evaluation.dataset import load_dataset
from mpnet.formats.atomic import check_writable
from mpnet.formats.cache import open_cache
from mpnet.formats.cfg import read_cfg
from mpnet.formats.experiment_yaml import read_experiment
from mpnet.formats.weights import open_weights
from mpnet.kernels.environment import cpu_count
from mpnet.kernels.isa import kernels
from mpnet.progress import Progress, silent
from mpnet.spec.experiment import DataSection, Experiment
from mpnet.trial.calibration import calibrated
from mpnet.trial.heads import class_names
from mpnet.trial.inputs import Inputs
from mpnet.trial.latency import latencies, measured_again, renewed
from mpnet.trial.result import Result, build_document, finished, mark_latest, publish
from mpnet.trial.run import Outcome, run_plans
from mpnet.trial.task import for_task
from mpnet.trial.workbench import Workbench


@dataclass(frozen=True)
class RunReport:
    """result: of the experiment's configuration. baseline: of the one it was compared with, None for none.

    reused: whether nothing was computed, since the same trial had finished before. bench: what it ran on.
    deployed: of the same configuration in another engine, None for none.
    """

    result: Result
    baseline: Result | None
    reused: bool
    bench: Workbench
    deployed: Result | None = None


def open_workbench(experiment: Experiment) -> Workbench:
    """Load everything that trials of an experiment need, and calibrate where its options ask for it.

    Raises: ConfigError, FormatError, DataError, KernelError; each message is one line with place and remedy.
    """
    data = experiment.data
    if data is None:
        raise ConfigError(f"{experiment.source}: key 'data' is missing; name labelled pictures to evaluate on")
    network = read_cfg(experiment.model.cfg, experiment.model.dialect)
    experiment = for_task(experiment, network)
    weights = open_weights(experiment.model.weights, network, open_cache())
    names = class_names(network, experiment.model.names, data)
    dataset = load_dataset(
        data.format, data.images, labels=data.labels, annotations=data.annotations, names=names, limit=data.limit
    )
    threads = experiment.runtime.threads or cpu_count()
    isa = experiment.runtime.isa
    quantization = experiment.quantization
    repaired: list[str] = []
    bench = Workbench(
        experiment, network, weights, dataset,
        Inputs(dataset.images, network, experiment.detection.fitted, partial(picture, repaired=repaired.append),
               workers=threads),
        resolve_options(network, quantization.options, quantization.layers, batch_norm=experiment.model.batch_norm),
        kernels(None if isa == "auto" else isa, "runtime.isa (or --isa)"), threads, sources=_sources(experiment, data),
        repaired=repaired,
    )
    return calibrated(bench)


def run_experiment(
    experiment: Experiment | str | Path, *, force: bool = False, command: str = "", progress: Progress = silent
) -> RunReport:
    """Evaluate the experiment's configuration and store result and detections under its output folder.

    A trial that is finished already is not computed again, unless `force`. When the experiment has a baseline (fp32
    unless it says otherwise) and the configuration differs from it, the baseline runs along, on the same decoded
    pictures, and is stored as well. progress: counts pictures. command: the command line, for the record.
    Raises: as `open_workbench`; EngineError, StoreError.
    """
    if not isinstance(experiment, Experiment):
        experiment = read_experiment(experiment)
    bench = open_workbench(experiment)
    experiment, precisions = bench.experiment, bench.assign()
    reference = bench.uniform(experiment.baseline) if experiment.baseline else None
    if reference is not None and reference.key == precisions.key:
        reference = None
    folder = experiment.output / experiment.name
    known = None if force else finished(folder / bench.identity(precisions).id)
    base = None if force or reference is None else finished(folder / bench.identity(reference).id)
    if known is not None and (reference is None or (base is not None and _compared(known, base))):
        mark_latest(known.folder)
        known, *others = measured_again(bench, [known, *([base] if base is not None else [])])
        return RunReport(known, others[0] if others else None, True, bench)
    plans = [bench.plan(p) for p in (reference, precisions) if p is not None]
    check_start(bench, folder)
    with progress("pictures", len(bench.inputs)) as advance:
        outcomes = run_plans(bench, plans, advance)

    times = dict(zip((plan.precision.key for plan in plans), latencies(bench, plans), strict=True))

    def store(outcome: Outcome, baseline: Outcome | None) -> Result:
        document = build_document(bench, outcome, baseline=baseline, command=command,
                                  latency=times[outcome.plan.precision.key])
        return publish(document, bench.kit.to_json(outcome.found, bench.dataset), folder / document["id"])

    if reference is not None and base is None:
        base = store(outcomes[0], None)
    elif base is not None and reference is not None:
        # The stored one was taken at another time; beside this run's only what was taken with it can be compared.
        [base] = renewed([base], [times[reference.key]])
    result = store(outcomes[-1], outcomes[0])
    mark_latest(result.folder)
    return RunReport(result, base, False, bench)


def check_start(bench: Workbench, folder: Path) -> None:
    """What would end an evaluation before its result is stored, found first. Raises: StoreError, DataError."""
    check_writable(folder)
    bench.inputs.check()


def _compared(result: Result, baseline: Result) -> bool:
    agreement = result.document.get("agreement")
    return isinstance(agreement, dict) and agreement.get("baseline") == baseline.id


def _sources(experiment: Experiment, data: DataSection) -> dict[str, str]:
    paths = {
        "cfg": experiment.model.cfg, "weights": experiment.model.weights, "names": experiment.model.names,
        "images": data.images, "labels": data.labels, "annotations": data.annotations,
    }
    return {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
