# SPDX-License-Identifier: MIT
"""The task of a network, and the kit that does what is done for it: one row per task of `model.task`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

from mpnet.config.experiment import Experiment
from mpnet.config.measures import DROP, measure, objectives
from mpnet.errors import ConfigError
from mpnet.model.network import NetworkSpec
from mpnet.model.task import Task
from mpnet.trial.classification import CLASSIFICATION_KIT
from mpnet.trial.detection import DETECTION_KIT
from mpnet.trial.kit import Kit

_KITS: dict[str, Kit[Any]] = {kit.task.name: kit for kit in (DETECTION_KIT, CLASSIFICATION_KIT)}


def kit_of(task: Task) -> Kit[Any]:
    """Return the kit of a task."""
    return _KITS[task.name]


def task_of(network: NetworkSpec) -> Task:
    """Return what a network is for. Raises: ConfigError when it is neither."""
    if network.task is None:
        raise ConfigError(
            f"{network.source}: has no detection head such as [yolo], and does not end in one value per class, "
            "so there is nothing to evaluate"
        )
    return network.task


def for_task(experiment: Experiment, network: NetworkSpec) -> Experiment:
    """Return the experiment with what it leaves open filled in as networks of this task have it.

    Raises: ConfigError for data or objectives of another task.
    """
    task = task_of(network)
    source, data, sweep = experiment.source, experiment.data, experiment.sweep
    if data is not None and data.format not in ("", *task.formats):
        raise ConfigError(
            f"{source}: data.format is {data.format!r}, but {network.source} is {task.a}; use {' or '.join(task.formats)}"
        )
    if sweep is not None:
        labelled = data is None or data.format != ""
        objective_names = sweep.objectives or task.objectives(
            experiment.baseline is not None, sweep.latency is not None, labelled
        )
        if not labelled:
            objective_names = _without_accuracy(objective_names, task, source)
            _check_limits(sweep.constraints.measures, task, source)
        limits = ["AP" for limit in (sweep.constraints.ap_drop, sweep.constraints.ap_drop_relative) if limit is not None]
        for key, names in (("objectives", objective_names), ("constraints", [*limits, *sweep.constraints.drop_names])):
            for name in names:
                if measure(name).task not in ("", task.name):
                    raise ConfigError(
                        f"{source}: sweep.{key}: {name} is not measured of {task.a} such as {network.source}; "
                        f"known are {', '.join(objectives(task))}"
                    )
        sweep = replace(sweep, objectives=objective_names)
    resize = experiment.detection.resize or network.resize
    return replace(experiment, sweep=sweep, detection=replace(experiment.detection, resize=resize))


def _without_accuracy(names: tuple[str, ...], task: Task, source: str) -> tuple[str, ...]:
    """Return the objectives that images without labels have. Raises: ConfigError where none of them is of quality."""
    measured = tuple(name for name in names if measure(name).kind != "accuracy")
    if any(measure(name).higher for name in measured):
        return measured
    missing = ", ".join(name for name in names if name not in measured)
    raise ConfigError(
        f"{source}: sweep.objectives: {missing} cannot be measured of images without labels; use {task.agreement}, which needs "
        "a baseline, or name labelled images in data.format and data.images"
    )


def _check_limits(names: Sequence[str], task: Task, source: str) -> None:
    """Check what constraints limit where no image has labels: -1 against -1 would keep every limit. Raises: ConfigError."""
    for name in names:
        if measure(name).kind == "accuracy":
            raise ConfigError(
                f"{source}: sweep.constraints: {name} cannot be measured of images without labels; "
                f"limit {task.agreement}{DROP}, or name labelled images in data.format and data.images"
            )
