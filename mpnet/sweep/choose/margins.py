# SPDX-License-Identifier: MIT
"""The loss that a sweep's choice may have: `sweep.margin`, or what the user says in words, `sweep.max_loss: 3 agreement`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from mpnet.config.experiment import SweepSection
from mpnet.config.measures import measure
from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import POOLED
from mpnet.messages import shown
from mpnet.model.task import Task
from mpnet.sweep.choose.budgets import LOSS, PERCENT, read_budgets

ACCURACY_POINTS, AGREEMENT_POINTS = 1.0, 3.0
"""Margins where nobody names others. A point of AP is what detectors are usually compared by; agreement falls three to five
times as fast (docs/sweeps.md)."""


@dataclass(frozen=True)
class Margins:
    """Most points that a choice may lose, by measure.

    asked: the user named a budget, so that it has to be shown; else a measure counts only where the images are enough to show
    anything about it. percent: of the baseline's value by measure, which become points once that is known.
    """

    points: Mapping[str, float]
    asked: bool = False
    percent: Mapping[str, float] = field(default_factory=dict)

    def of_baseline(self, values: Mapping[str, float]) -> Margins:
        """Return the margins in points alone. values: the baseline's by measure; what it lacks may lose nothing."""
        relative = {name: percent / 100 * max(0.0, values.get(name, 0.0)) for name, percent in self.percent.items()}
        return Margins({**self.points, **relative}, self.asked)


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
    place = f"{source}: sweep.max_loss"
    budgets = read_budgets(LOSS, text, task, place)
    if any(budget.amount > 100 for budget in budgets):
        raise ConfigError(f"{place}: {shown(text)} is no budget; at most 100 points or % can be lost")
    points = {budget.unit: budget.amount for budget in budgets if budget.unit != PERCENT}
    percent = [budget.amount for budget in budgets if budget.unit == PERCENT]
    return Margins(points, asked=True, percent={task.quality: percent[0]} if percent else {})


def budget_text(budget: Mapping[str, float]) -> str:
    """Return a budget in words, such as `3 agreement AP and 1 AP`. Names are as `loss_label` takes them."""
    return " and ".join(f"{points:g} {loss_label(name)}" for name, points in budget.items())
