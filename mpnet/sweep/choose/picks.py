# SPDX-License-Identifier: MIT
"""Three configurations of a sweep that somebody could take, by stated rules, each with its loss and its interval.

safe:     the cheapest that is shown to lose no more than a margin, on images that did not choose it (`sweep.safe`).
balanced: the knee of the front: farthest above the straight line between its cheapest and its most accurate end.
smallest: the cheapest of all; within the limits, where there are any.

With limits all three keep them. The front is that of the first measure of accuracy and the first cost.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import DROP, measure
from mpnet.engine.assign import assign_key
from mpnet.errors import EngineError
from mpnet.evaluation.compare import Interval
from mpnet.evaluation.noninferiority import Loss, Losses
from mpnet.formats.documents.typed import as_json
from mpnet.messages import limits_text
from mpnet.model.task import Task
from mpnet.progress import Advance
from mpnet.sweep.problem.front import knee, non_dominated
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import ConfigurationRow, MeasureLoss, SetLosses, SweepResult
from mpnet.sweep.setup import OpenSweep, SweepSetup
from mpnet.sweep.store import Trial
from mpnet.sweep.store.notes import JudgementNote, SetLossNote
from mpnet.trial.inference import run_each
from mpnet.trial.kit import Compared, Predictions
from mpnet.trial.workbench import Workbench

PICK_RULES = {
    "safe": "the cheapest that is shown to lose no more than the margin",
    "balanced": "the knee of the front",
    "smallest": "the cheapest of all",
}
AT_ONCE = 4
"""Configurations that are judged in one walk through the images."""
DRAWS_KEPT = 200
_NOTE = "shown"
"""Intervals of earlier rules stand in notes called `losses` and `judged`; what they judged is judged again."""


@dataclass(frozen=True)
class SetLoss:
    """A configuration against the baseline on one set of images.

    images: how many, of which `labelled` have labels. quality: the paired difference of the task's quality with its 95 %
    interval, percent points; None where there is nothing to measure. losses: see `evaluation.noninferiority`.
    """

    images: int
    labelled: int
    quality: Interval | None
    losses: Losses

    @property
    def note(self) -> SetLossNote:
        """Return the loss as numbers, which stores keep."""
        interval = self.quality
        return SetLossNote(
            self.images,
            self.labelled,
            None if interval is None else (interval.difference, interval.low, interval.high),
            {name: tuple(loss.as_json()) for name, loss in self.losses.items()},
        )

    @staticmethod
    def of_note(note: SetLossNote) -> SetLoss:
        """Return the loss that a store has kept."""
        return SetLoss(
            note.images,
            note.labelled,
            None if note.quality is None else Interval(*note.quality),
            {name: Loss.from_json(values) for name, values in note.losses.items()},
        )


@dataclass(frozen=True)
class Judgement:
    """A configuration against the baseline, by set of images: 'all', or 'selecting' and 'held_out'.

    The agreement is in percent on images drawn again from all of them, (DRAWS_KEPT,).
    """

    sets: Mapping[str, SetLoss]
    drawn: Sequence[float] = field(default=())

    @property
    def testing(self) -> SetLoss | None:
        """Return the loss on the images that did not choose it; on all where nothing was held out."""
        return self.sets.get("held_out", self.sets.get("all"))


def rule_of(name: str, result: SweepResult | None) -> str:
    """Return the rule of a pick in one sweep: with its limits, and whether they rule a cheaper configuration out.

    result: of the sweep, None: it has not ended.
    """
    pick = None if result is None else result.picks.get(name)
    if name != "smallest" or result is None or not result.limits or pick is None:
        return PICK_RULES[name]
    limits, baseline = result.limits, result.baseline
    cost = next((name for name in result.objectives if measure(name).cost), "")
    cheaper = [row for row in result.front if row.costs.get(cost, math.inf) < pick.costs.get(cost, -math.inf)]
    broken = [key for key in limits if any(breaks_limit(row, baseline, key, limits[key]) for row in cheaper)]
    rule = f"the cheapest of those that keep the limits ({limits_text(limits)})"
    return f"{rule}; cheaper ones of the front break {' and '.join(broken)}" if broken else rule


def breaks_limit(row: ConfigurationRow, baseline: ConfigurationRow | None, key: str, limit: float) -> bool:
    """Return whether a configuration of a result is beyond a limit, as `Problem.excesses` says it."""
    if not key.removesuffix("_relative").endswith(DROP):
        return {**row.metrics, **row.costs}.get(key, 0.0) > limit
    name = "AP" if key.startswith("ap_drop") else key.removesuffix(DROP)
    baseline_value = 0.0 if baseline is None else baseline.metrics.get(name, 0.0)
    drop = baseline_value - row.metrics.get(name, baseline_value)
    return drop > limit * (baseline_value if key.endswith("_relative") else 1)


Judge = Callable[[Sequence[Assignment]], Mapping[Assignment, Judgement]]


def pick(problem: Problem, trials: Mapping[Assignment, Trial], safe: Assignment | None = None) -> dict[str, Assignment]:
    """Choose the picks by name; one that nothing fits is missing. safe: what `sweep.safe` found to be it."""
    baseline = trials.get(Assignment(problem.baseline))
    fitting = [c for c, trial in trials.items() if baseline is None or problem.meets(trial, baseline)]
    if not fitting:
        return {}
    points = np.array([[problem.cost(trials[c]), problem.quality(trials[c])] for c in fitting])
    front = [int(i) for i in non_dominated(points * np.array([1.0, -1.0]))]  # cheapest first
    picks = {"balanced": fitting[front[knee(*points[front].T)]], "smallest": fitting[front[0]]}
    if safe is not None:
        picks["safe"] = safe
    return {name: picks[name] for name in PICK_RULES if name in picks}


def predict(
    bench_of: Callable[[int], Workbench], configurations: Sequence[Assignment], advance: Advance
) -> tuple[dict[Assignment, Predictions], dict[Assignment, str]]:
    """Run configurations on all images: what they predict, and why some have values that are not finite.

    bench_of: the workbench of an option set, by its number. Raises: as running a network does.
    """
    predictions: dict[Assignment, Predictions] = {}
    reasons: dict[Assignment, str] = {}
    for options in sorted({c.options for c in configurations}):
        bench, group = bench_of(options), list(dict.fromkeys(c for c in configurations if c.options == options))
        outcomes = run_each(bench, [bench.plan(assign_key(bench.network, c.key)) for c in group], advance)
        for configuration, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, str):
                reasons[configuration] = outcome
            else:
                predictions[configuration] = outcome.predictions
    return predictions, reasons


class PairedEvaluator:
    """An evaluator that runs configurations on the images again, for what a store does not keep: what they find.

    What was judged stays in the store, so that it is done once.
    """

    def __init__(self, sweep: OpenSweep) -> None:
        self._setup, self._store, self._contexts = sweep.setup, sweep.store, sweep.contexts
        self._baseline = sweep.problem.baseline
        self._progress = sweep.progress
        self._stored = self._store.read_notes(_NOTE, JudgementNote)
        self._sets: list[_Images] = []

    def __call__(self, configurations: Sequence[Assignment]) -> dict[Assignment, Judgement]:
        """Compare each with the baseline. Raises: as running a network does."""
        unjudged = [c for c in configurations if self._name(c) not in self._stored]
        for start in range(0, len(unjudged), AT_ONCE):
            group = unjudged[start : start + AT_ONCE]
            for configuration, predictions in zip(group, self._predict(group), strict=True):
                drawn, image_sets = self._drawn(predictions), [image_set for image_set in self._sets if image_set.name]
                self._stored[self._name(configuration)] = JudgementNote(
                    {image_set.name: image_set.loss(predictions).note for image_set in image_sets},
                    tuple(round(float(value), 3) for value in drawn if np.isfinite(value)),
                )
            self._store.set_note(_NOTE, json.dumps({name: as_json(note) for name, note in self._stored.items()}))
        judgements = {}
        for configuration in configurations:
            stored = self._stored[self._name(configuration)]
            by_set = {name: SetLoss.of_note(note) for name, note in stored.sets.items()}
            judgements[configuration] = Judgement(by_set, stored.drawn)
        return judgements

    def _name(self, configuration: Assignment) -> str:
        return f"{self._contexts[configuration.options]}:{self._baseline}:{configuration.key}"

    def _predict(self, configurations: Sequence[Assignment]) -> list[Predictions]:
        requested = list(configurations)
        if not self._sets:
            requested.insert(0, self._setup.reference(self._baseline))
        with self._progress("judging the front", None) as advance:
            predictions, reasons = predict(self._setup.bench_of, requested, advance)
        for configuration, reason in reasons.items():  # a trial of these images, which the sweep has, would have failed
            raise EngineError(f"{self._setup.bench.network.source}: {reason}, in the configuration {configuration.key}")
        if not self._sets:
            self._sets = self._images(predictions[requested.pop(0)])
        return [predictions[c] for c in configurations]

    def _images(self, baseline: Predictions) -> list[_Images]:
        setup = self._setup
        if not len(setup.report):
            return [_Images("all", setup, setup.select, baseline)]
        all_positions = np.arange(len(setup.bench.dataset.images))
        return [
            _Images("selecting", setup, setup.select, baseline),
            _Images("held_out", setup, setup.report, baseline),
            _Images("", setup, all_positions, baseline),  # of which only the draws are kept
        ]

    def _drawn(self, predictions: Predictions) -> NDArray[np.float64]:
        if len(self._setup.bench.dataset.images) < 2:
            return np.empty(0)  # one image drawn again is the same image
        return self._sets[-1].compared(predictions).drawn[:DRAWS_KEPT]


class _Images:
    """One set of images, and what the baseline finds in them."""

    def __init__(self, name: str, setup: SweepSetup, positions: NDArray[np.intp], baseline: Predictions) -> None:
        self.name = name
        self._positions = positions
        bench = setup.bench
        dataset = bench.dataset.subset(positions.tolist())
        self._labelled = dataset.labelled_count
        self._loss = bench.kit.loss(dataset, baseline.of_images(positions))
        self._last: tuple[Predictions, Compared] | None = None

    def compared(self, predictions: Predictions) -> Compared:
        """Compare a run with the baseline; the last comparison is kept."""
        if self._last is None or self._last[0] is not predictions:
            self._last = predictions, self._loss(predictions.of_images(self._positions))
        return self._last[1]

    def loss(self, predictions: Predictions) -> SetLoss:
        compared = self.compared(predictions)
        return SetLoss(len(self._positions), self._labelled, compared.quality, compared.losses)


def losses_of(judgement: Judgement, task: Task) -> dict[str, SetLosses]:
    """Return what a configuration loses by set of images.

    The task's quality comes with its paired 95 % interval, agreement with the ends of its one-sided ones.
    """
    losses_by_set = {}
    for name, set_loss in judgement.sets.items():
        losses: dict[str, MeasureLoss] = {}
        if set_loss.quality is not None:
            losses[task.quality] = MeasureLoss(
                difference=set_loss.quality.difference,
                low=set_loss.quality.low,
                high=set_loss.quality.high,
                told_from_none=set_loss.quality.high < 0,
                images=set_loss.labelled,
            )
        agreement = set_loss.losses.get(task.agreement)
        if agreement is not None:
            least, most = agreement.bounds()
            losses[task.agreement] = MeasureLoss(difference=-agreement.loss, low=-most, high=-least, images=agreement.images)
        losses_by_set[name] = SetLosses(images=set_loss.images, losses=losses)
    return losses_by_set
