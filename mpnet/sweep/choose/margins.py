# SPDX-License-Identifier: MIT
"""The loss that a sweep's choice may have: `sweep.margin`, or what the user says in words, `sweep.max_loss: 3 agreement`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from mpnet.config.experiment import SweepSection
from mpnet.config.measures import measure
from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import POOLED
from mpnet.messages import shown
from mpnet.model.task import Task

ACCURACY_POINTS, AGREEMENT_POINTS = 1.0, 3.0
"""Margins where nobody names others. A point of AP is what detectors are usually compared by; agreement falls three to five
times as fast (docs/sweeps.md)."""


@dataclass(frozen=True)
class Margins:
    """Most points that a choice may lose, by measure.

    asked: the user named a budget, so that it has to be shown; else a measure counts only where the images are enough to show
    anything about it.
    """

    points: Mapping[str, float]
    asked: bool = False


def loss_label(name: str) -> str:
    """Say in words what a loss is of. name: of a measure, or of one with the classes pooled."""
    return measure(name.removesuffix(POOLED)).label + (" of all classes in one list" if name.endswith(POOLED) else "")


def margins_of(section: SweepSection | None, task: Task, source: str = "sweep") -> Margins:
    """Return the margins of a sweep.

    section: None for the usual ones.

    Raises: ConfigError for a budget that is none, or a measure of another task.
    """
    points = {task.agreement: AGREEMENT_POINTS, task.quality: ACCURACY_POINTS}
    if section is None:
        return Margins(points)
    if section.max_loss is not None:
        return _budget(section.max_loss, task, source)
    for name, value in section.margin.points.items():
        if name not in points:
            raise ConfigError(f"{source}: sweep.margin: {name} is not of {task.a}; known are {', '.join(points)}")
        points[name] = value
    return Margins(points)


def _budget(text: str, task: Task, source: str) -> Margins:
    number, _, name = text.strip().partition(" ")
    measures = {task.quality.lower(): task.quality, task.agreement.lower(): task.agreement, "agreement": task.agreement}
    measure = measures.get(name.strip().lower())
    try:
        points = float(number)
    except ValueError:
        points = -1.0
    if measure is None or not 0 <= points <= 100:
        raise ConfigError(
            f"{source}: sweep.max_loss: {shown(text)} is no budget; write points and measure, such as "
            f"'3 agreement' or '1 {task.quality}'"
        )
    return Margins({measure: points}, asked=True)
