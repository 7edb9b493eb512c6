# SPDX-License-Identifier: MIT
"""The findings of a sweep, as the document that --json prints and the store keeps for reports."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from mpnet.config.measures import HELD_OUT, trial_costs, trial_metrics
from mpnet.model.task import DETECTION, Task
from mpnet.sweep.choose.margins import Margins, margins_of
from mpnet.sweep.choose.picks import Judge, Judgement, losses_of, pick
from mpnet.sweep.choose.recommend import Evidence, images_to_add, savings, with_recommendation
from mpnet.sweep.choose.safe import check_safety, describe_safety
from mpnet.sweep.choose.stability import stability
from mpnet.sweep.layer_ranks import LayerNoise, LayerRank
from mpnet.sweep.problem.front import front_gap, non_dominated
from mpnet.sweep.problem.packed_trials import PackedTrials
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment, Space
from mpnet.sweep.result import ConfigurationRow, FailedLayer, FrontRow, Gap, Holdout, NearestRow, Pick, SweepResult
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.store import Trial, TrialStore


def front_of(problem: Problem, trials: Mapping[Assignment, Trial]) -> list[Assignment]:
    """Return the configurations that no other one dominates, the best first by the first objective."""
    configurations = list(trials)
    return [configurations[index] for index in problem.front(list(trials.values()))]


@dataclass(frozen=True, eq=False)
class Candidates:
    """All that a sweep may choose from.

    contexts: numbers of the store's contexts, one per option set.
    tried:    finished trials that the strategy asked for. trials: these and what other strategies stored, `tried` first.
    """

    problem: Problem
    store: TrialStore
    contexts: tuple[int, ...]
    tried: Mapping[Assignment, Trial]
    trials: Mapping[Assignment, Trial]

    @property
    def baseline(self) -> Trial | None:
        """Return the trial that others are compared with."""
        return self.trials.get(Assignment(self.problem.baseline))

    def configuration_of(self, trial: Trial | None) -> Assignment | None:
        """Return the first configuration with a trial's key and values."""
        if trial is None:
            return None
        # Texts, since a value that is not a number equals nothing.
        text = str(trial)
        return next((c for c in self.trials if c.key == trial.key and str(self.trials[c]) == text), None)


def find_candidates(
    problem: Problem, store: TrialStore, contexts: tuple[int, ...], tried: Mapping[Assignment, Trial]
) -> Candidates:
    """Collect all finished trials of the space under the sweep's options, whichever strategy asked for them.

    A trial that lacks an objective (an older sweep measured less) is left out.
    """
    other_trials = PackedTrials()
    for options, context in enumerate(contexts):
        if store.count(context) == sum(c.options == options for c in tried):
            continue
        for trial in store.trials(context):
            if trial.key in problem.space and not any(math.isnan(trial.get(o.name)) for o in problem.objectives):
                configuration = Assignment(trial.key, options)
                if configuration not in tried:
                    other_trials.add(configuration, trial)
    return Candidates(problem, store, contexts, tried, PackedTrials.concatenate(tried, other_trials) if other_trials else tried)


def exact_gap(candidates: Candidates, excluded_count: int = 0) -> Gap | None:
    """Compare the front of what a strategy tried with the exact one; None until the whole space is known.

    excluded_count: configurations without a trial that are no part of the front for certain, or failed.
    """
    problem = candidates.problem
    if len(candidates.trials) + excluded_count < problem.space.size:
        return None
    return front_gap(problem.pairs(list(candidates.tried.values())), problem.pairs(list(candidates.trials.values())))


@dataclass(frozen=True, eq=False)
class SweepFacts:
    """The facts of a sweep that its result repeats.

    images:        all images. selecting: those that select.
    macs_per_pass: of one forward pass of one image. passes_in_theory: forward passes for one image that one uninterrupted walk
                   through the space needs.
    margins:       most that the safe pick may lose, None: the task's own. intervals_by: where intervals come from, in words.
    table:         what predicted latencies, None: nothing did.
    words, ranks:  a precision string in words; layers by what lowering them costs. noises: by the noise that this brings.
    """

    name: str
    strategy: str
    images: int
    selecting: int
    macs_per_pass: int
    passes_in_theory: float
    task: Task = DETECTION
    margins: Margins | None = None
    intervals_by: str = ""
    table: str | None = None
    words: Callable[[str], str] = lambda key: ""
    ranks: tuple[LayerRank, ...] = ()
    noises: tuple[LayerNoise, ...] = ()


def choose_result(candidates: Candidates, state: SweepState, facts: SweepFacts, judge: Judge) -> SweepResult:
    """Choose from what was measured. judge: compares configurations with the baseline, see `picks`."""
    problem, store, contexts, trials = candidates.problem, candidates.store, candidates.contexts, candidates.trials
    baseline = candidates.baseline
    margins = (facts.margins or margins_of(None, facts.task)).of_baseline({} if baseline is None else baseline.values)
    tests = check_safety(problem, trials, judge, margins, facts.task, facts.images, facts.selecting)
    picks = pick(problem, trials, tests.safe)
    judgements = judge(list(dict.fromkeys([*picks.values(), *(test.configuration for test in (*tests.tested, *tests.likely))])))
    best, nearest = _best_and_nearest(candidates)
    if "safe" in picks and not problem.constraints.on_accuracy:
        best = picks["safe"]
    failed = failures(store, contexts, problem.space)
    ruled_out = _count_ruled_out(candidates)
    work, passes = store.work(), facts.macs_per_pass * facts.images
    describe = RowWriter(candidates, facts)
    option_texts = [options.text for options in problem.space.option_sets]
    result = SweepResult(
        name=facts.name,
        strategy=facts.strategy,
        state="stopped" if state.exhausted_budget else "finished",
        stopped=state.exhausted_budget,
        trials=len(candidates.tried),
        known=len(trials),
        ruled_out=ruled_out,
        ruled_out_after={str(n): count for n, count in store.ruled_out_after(contexts, problem.front_name).items()},
        failed=failed,
        computed=state.computed,
        space=problem.space.size,
        forward_equivalents=state.macs / passes,
        forward_equivalents_theory=facts.passes_in_theory,
        forward_equivalents_store=work.macs / passes,
        images=facts.images,
        seconds=state.seconds,
        seconds_store=work.seconds,
        objectives=tuple(objective.name for objective in problem.objectives),
        holdout=Holdout(facts.selecting, facts.images - facts.selecting),
        precisions=tuple(problem.space.precisions),
        baseline=None if baseline is None else describe.front_row(Assignment(problem.baseline)),
        limits={key: value for key, value in problem.constraints.as_json().items() if value is not None},
        best=None if best is None else describe.front_row(best),
        picks={name: describe.pick(configuration, judgements.get(configuration)) for name, configuration in picks.items()},
        safety=describe_safety(tests, option_texts),
        stability=stability(problem, trials, {c: judgement.drawn for c, judgement in judgements.items()}, picks),
        intervals_by=facts.intervals_by,
        nearest=None if nearest is None else describe.nearest(nearest),
        front=tuple(describe.front_row(configuration) for configuration in front_of(problem, trials)),
        own_front=tuple(configuration.key for configuration in front_of(problem, candidates.tried)),
        gap=exact_gap(candidates, ruled_out + sum(row.configurations for row in failed)),
        store=str(store.path),
        table=facts.table,
        layers=facts.ranks,
        layers_by_noise=facts.noises,
    )

    def gather_evidence(row: ConfigurationRow, budget: Mapping[str, float]) -> Evidence:
        configuration = Assignment(row.precision, option_texts.index(row.options))
        judgement = judge([configuration]).get(configuration)
        if judgement is None:  # nobody can judge: a store whose images are gone
            return Evidence({})
        losses = {} if judgement.testing is None else judgement.testing.losses
        more_images = images_to_add(losses, budget, tests.error, tests.images, facts.images)
        return Evidence(losses_of(judgement, facts.task), more_images)

    judged = [test.configuration for test in (*tests.tested, *tests.likely)]
    rows = [
        describe.front_row(configuration)
        for configuration in dict.fromkeys([*judged, *_accuracy_fronts(candidates, facts.task)])
    ]
    return with_recommendation(result, rows, gather_evidence)


def _accuracy_fronts(candidates: Candidates, task: Task) -> list[Assignment]:
    """Return the configurations on the front of the first cost and any of the task's measures of loss, within the limits."""
    problem, trials, baseline = candidates.problem, candidates.trials, candidates.baseline
    fitting = [c for c, trial in trials.items() if baseline is None or problem.meets(trial, baseline)]
    members: dict[Assignment, None] = {}
    for name in (task.quality, task.agreement):
        measured = [c for c in fitting if trials[c].values.get(name, -1.0) >= 0]
        points = np.array([[problem.cost(trials[c]), -trials[c].get(name)] for c in measured]).reshape(-1, 2)
        members.update(dict.fromkeys(measured[int(index)] for index in non_dominated(points)))
    return list(members)


def _best_and_nearest(candidates: Candidates) -> tuple[Assignment | None, Assignment | None]:
    """Return the best configuration that keeps the limits, and without one the nearest to them; without a baseline neither."""
    problem, baseline, trials = candidates.problem, candidates.baseline, candidates.trials
    if baseline is None:
        return None, None
    best = candidates.configuration_of(problem.best(trials.values(), baseline))
    if best is not None:
        return best, None
    return None, candidates.configuration_of(problem.nearest(trials.values(), baseline))


class RowWriter:
    """A writer of configurations as rows of a result."""

    def __init__(self, candidates: Candidates, facts: SweepFacts) -> None:
        self._candidates, self._facts = candidates, facts

    def front_row(self, configuration: Assignment) -> FrontRow:
        """Return the row of a configuration of the front, of the baseline, or of the best one."""
        return FrontRow(**self._figures(configuration), words=self._facts.words(configuration.key))

    def pick(self, configuration: Assignment, judgement: Judgement | None) -> Pick:
        """Return the row of a pick. judgement: its losses, None: it was not compared with the baseline."""
        losses = {} if judgement is None else losses_of(judgement, self._facts.task)
        trial, baseline = self._candidates.trials[configuration], self._candidates.baseline
        saves = {} if baseline is None else savings(trial.values, baseline.values)
        return Pick(**self._figures(configuration), losses=losses, saves=saves, words=self._facts.words(configuration.key))

    def nearest(self, configuration: Assignment) -> NearestRow:
        """Return the row of the configuration that is nearest to the limits."""
        trial, baseline = self._candidates.trials[configuration], self._candidates.baseline
        excesses = () if baseline is None else self._candidates.problem.excesses(trial, baseline)
        return NearestRow(**self._figures(configuration), beyond={key: excess for key, excess in excesses if excess > 0})

    def _figures(self, configuration: Assignment) -> dict[str, Any]:
        """Return the fields of a `ConfigurationRow`."""
        candidates = self._candidates
        problem, values = candidates.problem, candidates.trials[configuration].values
        return {
            "precision": configuration.key,
            "trial": candidates.store.trial_digest(candidates.contexts[configuration.options], configuration.key),
            "is_baseline": configuration == Assignment(problem.baseline),
            "is_tried": configuration in candidates.tried,
            "options": problem.space.option_sets[configuration.options].text,
            "metrics": {name: values[name] for name in trial_metrics() if name in values},
            "held_out": {name: values[HELD_OUT + name] for name in trial_metrics() if HELD_OUT + name in values},
            "costs": {name: values[name] for name in trial_costs() if name in values},
        }


def failures(store: TrialStore, contexts: Sequence[int], space: Space | None = None) -> tuple[FailedLayer, ...]:
    """Return the layers at which configurations failed, so that they have no figures.

    space: which ones count, None: all.
    """
    counts, reasons = Counter[int](), dict[int, str]()
    for context in contexts:
        for trial in store.failed_trials(context):
            if space is None or trial.key in space:
                counts[trial.layer] += 1
                reasons.setdefault(trial.layer, trial.reason)
    return tuple(FailedLayer(layer, reasons[layer], counts[layer]) for layer in sorted(counts))


def _count_ruled_out(candidates: Candidates) -> int:
    """Count the configurations without a trial that the store knows to be no part of the front."""
    problem = candidates.problem
    return sum(
        Assignment(key, options) not in candidates.trials and key in problem.space
        for options, context in enumerate(candidates.contexts)
        for key in candidates.store.all_ruled_out(context, problem.front_name)
    )
