# SPDX-License-Identifier: MIT
"""The story of a run: from an experiment to a stored result."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Sequence

from mpnet.config.experiment import DataSection, Experiment
from mpnet.detection.conditions import condition
from mpnet.detection.images import FlawedImage, image
from mpnet.engine.devices import open_runtime
from mpnet.engine.options import resolve_options
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.files.atomic import check_writable
from mpnet.formats.files.cache import open_cache
from mpnet.formats.labels.class_names import class_names
from mpnet.formats.labels.dataset import dataset_of
from mpnet.formats.weights import open_weights
from mpnet.kernels.environment import cpu_count
from mpnet.model.network import NetworkSpec
from mpnet.progress import Progress, silent
from mpnet.speed.latency import stale
from mpnet.trial.calibration import calibrated
from mpnet.trial.comparison import BASELINE, OWN_BASELINE, Comparison, comparison_of
from mpnet.trial.inputs import Inputs
from mpnet.trial.latency import IN_ENGINE, IN_MPNET, renewed
from mpnet.trial.parent import with_parent
from mpnet.trial.result import Result, finished, mark_latest, publish
from mpnet.trial.task import for_task
from mpnet.trial.workbench import Workbench


@dataclass(frozen=True)
class RunReport:
    """result: of the experiment's configuration. baseline: of the one it was compared with, None for none.

    reused: whether nothing was computed, since the same trial had finished before. bench: what it ran on.
    deployed: of the same configuration in another engine, None for none.
    own_baseline: of weights that have a parent, whose baseline the others are compared with: their own; else None.
    """

    result: Result
    baseline: Result | None
    reused: bool
    bench: Workbench
    deployed: Result | None = None
    own_baseline: Result | None = None


def with_network(experiment: Experiment) -> tuple[Experiment, NetworkSpec]:
    """Read the network that an experiment names; what the experiment leaves open is filled in as the network has it.

    Raises: ConfigError, FormatError.
    """
    network = read_cfg(experiment.model.cfg, experiment.model.dialect)
    return for_task(experiment, network), network


def open_workbench(experiment: Experiment, network: NetworkSpec | None = None) -> Workbench:
    """Load everything that trials of an experiment need, and calibrate where its options ask for it.

    network: as `with_network` gave it beside this experiment; None: it is read here.
    Raises: ConfigError, FormatError, DataError, KernelError; each message is one line with place and remedy.
    """
    data = experiment.data
    if data is None:
        raise ConfigError(f"{experiment.source}: key 'data' is missing; name labelled images to evaluate on")
    image_condition = None
    if data.condition is not None:
        image_condition = condition(data.condition, f"{experiment.source}: data.condition")
        data = replace(data, condition=str(image_condition))  # `fog` and `fog:3` are one condition
        experiment = replace(experiment, data=data)
    if network is None:
        experiment, network = with_network(experiment)
    weights = open_weights(experiment.model.weights, network, open_cache())
    names = class_names(network, experiment.model.names, data)
    dataset = dataset_of(data, names)
    threads = experiment.runtime.threads or cpu_count()
    quantization = experiment.quantization
    flawed: list[FlawedImage] = []
    bench = Workbench(
        experiment=experiment,
        network=network,
        weights=weights,
        dataset=dataset,
        inputs=Inputs(
            dataset.images,
            network,
            experiment.detection.fitted,
            partial(image, remark=flawed.append),
            workers=threads,
            condition=image_condition,
        ),
        options=resolve_options(network, quantization.options, quantization.layers, batch_norm=experiment.model.batch_norm),
        kernels=open_runtime(experiment.runtime),
        threads=threads,
        sources=_sources(experiment, data),
        names=names,
        flawed=flawed,
    )
    return calibrated(with_parent(bench))


def run_experiment(
    experiment: Experiment | str | Path,
    *,
    engine: str | Sequence[str] | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress = silent,
) -> RunReport:
    """Evaluate the experiment's configuration and store result and detections under its output folder.

    When the experiment has a baseline (fp32 unless it says otherwise) and the configuration differs from it, the baseline
    runs along, on the same decoded images, and is stored as well. engine: another one that runs the configuration beside
    mpnet, a backend's name, or several by preference, of which each runs the layers that it supports; its result says in
    `deployed` how far it is from mpnet's. What is finished already is not computed again, unless `force`; its times are
    taken again where they are in doubt or another machine's.
    progress: counts images. command: the command line, for the record.
    Raises: as `open_workbench` and `mpnet.backends.deployment.deploy`; EngineError, StoreError.
    """
    if not isinstance(experiment, Experiment):
        experiment = read_experiment(experiment)
    bench = open_workbench(experiment)
    comparison = comparison_of(bench, engine)
    folder = bench.experiment.output / bench.experiment.name
    results = {} if force else _finished(comparison, folder)
    kernels = comparison.kernels()
    reused = len(results) == len(kernels)
    if reused:
        mark_latest(results[comparison.requested].folder)
        if any(stale(result.run.latency, kernels[name], bench.threads) for name, result in results.items()):
            results = renewed(results, comparison.turns())
    else:
        check_writable(folder)  # what would end an evaluation before its result is stored is found first
        bench.inputs.check()
        with progress("images", len(bench.inputs)) as advance:
            outcomes = comparison.run(advance)
        turns = comparison.turns()
        results = renewed(results, turns)
        for name in (name for name in outcomes if name not in results):
            run = comparison.result(name, outcomes, turns, command)
            predictions = bench.kit.to_json(outcomes[name].predictions, bench.dataset)
            results[name] = publish(run, predictions, folder / run.id)
        mark_latest(results[comparison.requested].folder)
    sides = (results.get(name) for name in (IN_ENGINE, OWN_BASELINE))
    return RunReport(results[IN_MPNET], results.get(BASELINE), reused, bench, *sides)


def _finished(comparison: Comparison, folder: Path) -> dict[str, Result]:
    """Return the stored results of its sides; those that were compared with something else do not count."""
    identities = comparison.identities()
    results = {name: result for name, identity in identities.items() if (result := finished(folder / identity.id)) is not None}
    if comparison.reference is not None:
        reference = identities[comparison.reference].id
        results = {
            name: result
            for name, result in results.items()
            if name == comparison.reference or (result.run.agreement is not None and result.run.agreement.baseline == reference)
        }
    return results


def _sources(experiment: Experiment, data: DataSection) -> dict[str, str]:
    paths = {
        "cfg": experiment.model.cfg,
        "weights": experiment.model.weights,
        "names": experiment.model.names,
        "parent": experiment.model.parent,
        "tuning": experiment.model.tuning,
        "images": data.images,
        "labels": data.labels,
        "annotations": data.annotations,
        "unlabelled": data.unlabelled,
    }
    return {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
