"""Three configurations of a sweep that somebody could take, by stated rules, each with its loss and its interval.

safe:     the cheapest of the front whose loss (of AP; of a classifier: top-1) is within one standard error, on the images
          that select and on those that were held out: half of what the paired 95 % interval allows, so not merely one that
          few images can't tell from none. docs/decisions/0012 says why.
balanced: the knee of the front: farthest above the straight line between its cheapest and its most accurate end.
smallest: the cheapest of all; within the limits, where there are any.

With limits all three keep them. The front is that of the first measure of accuracy and the first cost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign_key
from mpnet.evaluation.compare import Interval
from mpnet.progress import Progress, silent
from mpnet.sweep.front import knee, non_dominated
from mpnet.sweep.problem import Problem
from mpnet.sweep.setup import SweepSetup
from mpnet.sweep.space import Configuration
from mpnet.sweep.store import Trial, TrialStore
from mpnet.trial.inference import run_plans

PICK_RULES = {
    "safe": "the cheapest whose loss is within one standard error",
    "balanced": "the knee of the front",
    "smallest": "the cheapest of all that keep the limits",
}
AT_ONCE = 4
"""Configurations that are judged in one walk through the images."""
MOST_JUDGED = 64
_NOTE = "losses/t3"
"""Intervals of earlier rules stand in the notes `losses` (percentiles, as in 0.1.0) and `losses/t`; they are judged again."""

Losses = Mapping[str, "Loss"]
Judged = Callable[[Sequence[Configuration]], Mapping[Configuration, Losses]]


@dataclass(frozen=True)
class Loss:
    """The task's quality against the baseline's on one set of images: how many there are, and the paired interval,
    percent points."""

    images: int
    quality: Interval

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero: the loss is not chance."""
        return self.quality.high < 0

    @property
    def within_one_standard_error(self) -> bool:
        """Whether the loss is at most one standard error, half of what the interval reaches down."""
        return -self.quality.difference <= (self.quality.difference - self.quality.low) / 2


def pick(problem: Problem, known: Mapping[Configuration, Trial], judged: Judged) -> dict[str, Configuration]:
    """The picks by name; one that nothing fits is missing.

    judged: quality lost by configurations, by the name of the images ('all', or 'selecting' and 'held_out'); {} where it
            was not measured.
    """
    baseline = known.get(Configuration(problem.baseline))
    fitting = [c for c, trial in known.items() if baseline is None or problem.meets(trial, baseline)]
    if not fitting:
        return {}
    points = np.array([[problem.cost(known[c]), problem.quality(known[c])] for c in fitting])
    front = [int(i) for i in non_dominated(points * np.array([1.0, -1.0]))]  # cheapest first
    found = {"balanced": fitting[front[knee(*points[front].T)]], "smallest": fitting[front[0]]}
    if baseline is not None:
        safe = _safe([fitting[i] for i in front[:MOST_JUDGED]], judged)
        if safe is not None:
            found["safe"] = safe
    return {name: found[name] for name in PICK_RULES if name in found}


def _safe(cheapest_first: Sequence[Configuration], judged: Judged) -> Configuration | None:
    for start in range(0, len(cheapest_first), AT_ONCE):
        part = cheapest_first[start : start + AT_ONCE]
        losses = judged(part)
        for configuration in part:
            of_it = losses.get(configuration)
            if of_it and all(loss.within_one_standard_error for loss in of_it.values()):
                return configuration
    return None


class PairedEvaluator:
    """Runs configurations on the images again, for what a store does not keep: what they find.

    What was judged stays in the store, so that it is done once.
    """

    def __init__(
        self, setup: SweepSetup, store: TrialStore, contexts: Sequence[int], baseline: str, progress: Progress = silent
    ) -> None:
        self._setup, self._store, self._contexts = setup, store, contexts
        self._baseline = baseline
        self._progress = progress
        self._stored: dict[str, dict[str, list[float]]] = store.document(_NOTE)
        self._sets: list[_Images] | None = None

    def __call__(self, configurations: Sequence[Configuration]) -> dict[Configuration, Losses]:
        """Quality lost by each, by set of images. Raises: as running a network does."""
        missing = [c for c in configurations if self._name(c) not in self._stored]
        if missing:
            for configuration, found in zip(missing, self._found(missing), strict=True):
                assert self._sets is not None
                losses = {part.name: part.loss(found) for part in self._sets}
                self._stored[self._name(configuration)] = {
                    name: [loss.images, loss.quality.difference, loss.quality.low, loss.quality.high]
                    for name, loss in losses.items()
                }
            self._store.set_note(_NOTE, json.dumps(self._stored))
        return {
            c: {name: Loss(int(row[0]), Interval(*row[1:])) for name, row in self._stored[self._name(c)].items()}
            for c in configurations
        }

    def _name(self, configuration: Configuration) -> str:
        return f"{self._contexts[configuration.options]}:{self._baseline}:{configuration.key}"

    def _found(self, configurations: Sequence[Configuration]) -> list[Any]:
        wanted = list(configurations)
        if self._sets is None:
            wanted.insert(0, Configuration(self._baseline))
        found: dict[Configuration, Any] = {}
        with self._progress("judging the cheapest of the front", None) as advance:
            for number in sorted({c.options for c in wanted}):
                bench = self._setup.benches[number]
                part = [c for c in wanted if c.options == number]
                plans = [bench.plan(assign_key(bench.network, c.key)) for c in part]
                outcomes = run_plans(bench, plans, advance)
                found.update({c: outcome.found for c, outcome in zip(part, outcomes, strict=True)})
        if self._sets is None:
            self._sets = self._images(found[wanted.pop(0)])
        return [found[c] for c in configurations]

    def _images(self, baseline: Any) -> list[_Images]:
        setup = self._setup
        if not len(setup.report):
            return [_Images("all", setup, setup.select, baseline)]
        return [_Images("selecting", setup, setup.select, baseline), _Images("held_out", setup, setup.report, baseline)]


class _Images:
    """One set of images, and what the baseline finds in them."""

    def __init__(self, name: str, setup: SweepSetup, positions: NDArray[np.intp], baseline: Any) -> None:
        self.name = name
        self._positions = positions
        bench = setup.bench
        self._loss = bench.kit.loss(bench.dataset.subset(positions.tolist()), baseline.of_images(positions))

    def loss(self, found: Any) -> Loss:
        return Loss(len(self._positions), self._loss(found.of_images(self._positions)))


def losses_as_json(losses: Losses, quality: str) -> dict[str, Any]:
    """Losses of one pick by set of images, for documents; quality: name of what was lost."""
    return {
        name: {
            "pictures": loss.images,
            quality: {
                "difference": loss.quality.difference,
                "low": loss.quality.low,
                "high": loss.quality.high,
                "told_from_none": loss.significant,
            },
        }
        for name, loss in losses.items()
    }
