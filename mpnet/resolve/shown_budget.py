# SPDX-License-Identifier: MIT
"""Does a run still keep a budget of loss, as shown on its own images? For scripts: `mpnet run --require-shown`."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpnet.config.measures import measure
from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import ERROR
from mpnet.messages import number_text
from mpnet.model.keys import json_key
from mpnet.model.task import TASKS
from mpnet.sweep.choose.budgets import LOSS, PERCENT, Budget, read_budgets
from mpnet.trial.experiment import RunReport

OPTION = "--require-shown"


@dataclass(frozen=True)
class ShownLoss:
    """The loss of one measure beside its limit, in percent points.

    loss: the estimate. most: what it is below, wrongly with a probability of at most 5 %. limit: what it may be.
    state: `met` where it is shown to be at most the limit. more_images: about how many more would tell; None where it is told
    already, or no number does.
    """

    measure: str
    loss: float
    most: float
    limit: float
    state: str
    more_images: int | None

    @property
    def text(self) -> str:
        """Return the loss, what is shown of it, and what would tell, for people."""
        label = measure(self.measure).label
        known = f"{label}: loses {number_text(self.loss)}, shown to be at most {number_text(self.most)}"
        more = f"; about {self.more_images:,} more images would tell" if self.more_images else ""
        return f"{known}, the limit is {number_text(self.limit)}{more}"


@dataclass(frozen=True)
class ShownBudget:
    """A budget of loss and what is known of each of its measures on the images of a run. is_shown: whether all are kept."""

    budget: str
    images: int
    is_shown: bool = field(metadata=json_key("shown"))
    losses: tuple[ShownLoss, ...]


def check_budget_text(text: str) -> None:
    """Raise ConfigError for what is no budget of loss of any task, before anything is run."""
    errors = []
    for task in TASKS.values():
        try:
            read_budgets(LOSS, text, task, OPTION)
        except ConfigError as error:
            errors.append(error)
    if len(errors) == len(TASKS):
        raise errors[0]


def check_shown(report: RunReport, text: str) -> ShownBudget:
    """Test whether a run's loss against its baseline is shown to be within a budget, such as `1 agreement, 0.5 AP`.

    A run that is the baseline itself loses nothing.
    Raises: ConfigError for what is no budget, or where nothing says what a measure loses.
    """
    bench = report.bench
    budgets = read_budgets(LOSS, text, bench.kit.task, OPTION)
    result = report.deployed or report.result
    if report.baseline is None:
        if bench.experiment.baseline is None:
            raise ConfigError(f"{OPTION}: there is no baseline to lose against; leave --no-baseline out, or set baseline: fp32")
        return ShownBudget(text, len(bench.inputs), True, ())
    baseline, predictions = (bench.kit.read(side.predictions_path, bench.dataset) for side in (report.baseline, result))
    losses = bench.kit.loss(bench.dataset, baseline)(predictions).losses
    rows = []
    for budget in budgets:
        name = bench.kit.task.quality if budget.unit == PERCENT else budget.unit
        loss = losses.get(name)
        if loss is None:
            raise ConfigError(
                f"{OPTION}: nothing says what {measure(name).label} loses on these images; give labels, or agreement"
            )
        limit = _limit(budget, report)
        needed = loss.images_to_tell(limit) if loss.state(limit) == "unclear" else None
        more = None if needed is None else max(needed - loss.images, 1)
        rows.append(ShownLoss(name, loss.loss, loss.bounds(ERROR)[1], limit, loss.state(limit), more))
    return ShownBudget(text, len(bench.inputs), all(row.state == "met" for row in rows), tuple(rows))


def _limit(budget: Budget, report: RunReport) -> float:
    """Return the limit in points."""
    if budget.unit != PERCENT:
        return budget.amount
    assert report.baseline is not None
    return budget.amount / 100 * report.baseline.run.metrics[report.bench.kit.task.quality]
