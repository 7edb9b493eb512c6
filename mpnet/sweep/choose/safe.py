# SPDX-License-Identifier: MIT
"""Configurations shown to lose no more than a margin, on images that did not choose them.

The front of cost and agreement on the images that select is a sequence that the held-out images know nothing of. They test it
from its accurate to its cheap end, each configuration at the full error probability, and stop at the first that is not shown
to keep the margins: whatever the number of configurations, one that does not keep them is called safe with that probability
at most. It is fixed-sequence testing along a front (Angelopoulos and others, Learn then Test, 2021; Laufer-Goldshtein and
others, Efficiently controlling multiple risks with Pareto testing, ICLR 2023). Where nothing was held out all images chose,
so each test has the error probability divided by the number of configurations that could have been chosen (Bonferroni).
docs/decisions/0019 and 0028 say why.

Where nothing is shown, or only what is dear, the same images say what is likely to keep the margins: of the same sequence what
comes before the first that does not keep them by a standard error. The sequence does not know these images, so that what is
named there was not chosen for its luck on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Callable, Mapping, Sequence

import numpy as np

from mpnet.config.measures import measure
from mpnet.evaluation.noninferiority import ERROR, POOLED, Loss, Losses, State
from mpnet.messages import counted, number_text
from mpnet.model.task import Task
from mpnet.sweep.choose.expected_loss import LEAST_LOSS, expected_losses
from mpnet.sweep.choose.margins import Margins, budget_text, loss_label
from mpnet.sweep.choose.picks import Judge
from mpnet.sweep.problem.front import evenly, non_dominated
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import HalfWidths, LossBounds, Safety, SafetyWithTwice, TestedRow
from mpnet.sweep.store import Trial

MOST_TESTED = 24
"""Configurations of the front that are tested, evenly spread: each runs on all images once more."""
TOGETHER = 4
"""Configurations that are judged at a time: those after the first that is not shown need no run."""


@dataclass(frozen=True)
class Tested:
    """One configuration.

    losses: of the measures that count. images_to_tell: about how many images that test would tell, None where they tell
    already, or the loss is too near to the margin for any number. ends: whether it ends the tests of what is cheaper. A mean
    over classes that a standard error leaves in doubt does not: it is no test of the sequence, whose guarantee is of the
    other losses.
    """

    configuration: Assignment
    state: State
    losses: Losses
    images_to_tell: int | None
    ends: bool = False


@dataclass(frozen=True)
class SafetyTests:
    """Results of tests. tested: from accurate to cheap. safe: the cheapest that is shown to keep the margins, None: none is.

    images: that test, and all there are. error: probability of each test. held_out: whether the images did not choose.
    twice: the same with twice as many images to test on, if losses stay what they are; None: it is that itself.
    likely: those of the sequence, from accurate to cheap, before the first that does not keep the margins by a standard error;
            the last of them may come after the tests have ended.
    """

    margins: Margins
    tested: tuple[Tested, ...]
    safe: Assignment | None
    images: int
    all_images: int
    error: float
    held_out: bool
    twice: SafetyTests | None = None
    likely: tuple[Tested, ...] = ()

    @property
    def last_shown(self) -> Tested | None:
        """Return the safe configuration; without one the first that was tested."""
        return next((test for test in self.tested if test.configuration == self.safe), next(iter(self.tested), None))


def sequence(problem: Problem, trials: Mapping[Assignment, Trial], measure_name: str, margins: Margins) -> list[Assignment]:
    """Return the configurations to test, from accurate to cheap: at most MOST_TESTED of the front of cost and expected loss.

    Those are left out that lose more than the margin on the images that select already. measure_name: the agreement or accuracy
    there.
    """
    baseline = Assignment(problem.baseline)
    baseline_trial = trials.get(baseline)
    if baseline_trial is None or not trials:
        return []
    fitting = [c for c, trial in trials.items() if problem.meets(trial, baseline_trial) and measure_name in trial.values]
    best = 100.0 if measure(measure_name).kind == "agreement" else baseline_trial.get(measure_name)
    losses = expected_losses([trials[c] for c in fitting], measure_name, best)
    points = np.array([[problem.cost(trials[c]), loss] for c, loss in zip(fitting, losses, strict=True)]).reshape(-1, 2)
    front = [fitting[int(i)] for i in non_dominated(points)][::-1]
    front = [c for c in front if c != baseline]
    likely = [c for c in front if best - trials[c].get(measure_name) <= margins.points.get(measure_name, 100.0)] or front[:1]
    # Of those that lose nothing to speak of, two are enough: tests are better spent where losses begin.
    lossless = len(list(takewhile(lambda c: best - trials[c].get(measure_name) <= LEAST_LOSS, likely)))
    likely = [*likely[: min(1, lossless)], *likely[max(1, lossless - 1) if lossless else 0 :]]
    return evenly(likely, MOST_TESTED)


def check_safety(
    problem: Problem,
    trials: Mapping[Assignment, Trial],
    judge: Judge,
    margins: Margins,
    task: Task,
    images: int,
    selecting: int,
) -> SafetyTests:
    """Judge the sequence and test it. images: all; selecting: those that select."""

    def evidence(configurations: Sequence[Assignment]) -> dict[Assignment, Losses]:
        judgements = judge(configurations).items()
        return {c: judgement.testing.losses for c, judgement in judgements if judgement.testing is not None}

    margins = _measurable(margins, trials.get(Assignment(problem.baseline)))
    measure_name = task.agreement if any(task.agreement in trial.values for trial in trials.values()) else problem.quality_name
    testing_count = images - selecting
    return run_tests(
        sequence(problem, trials, measure_name, margins),
        evidence,
        margins,
        images=testing_count or images,
        all_images=images,
        held_out=testing_count > 0,
        choices=len(trials),
    )


def _measurable(margins: Margins, baseline: Trial | None) -> Margins:
    """Return the margins without those of measures that the images have no labels for; what the user asked for stays."""
    if margins.asked or baseline is None:
        return margins
    return replace(margins, points={name: points for name, points in margins.points.items() if not baseline.get(name) < 0})


def run_tests(
    configurations: Sequence[Assignment],
    evidence: Callable[[Sequence[Assignment]], Mapping[Assignment, Losses]],
    margins: Margins,
    *,
    images: int,
    all_images: int,
    held_out: bool,
    choices: int,
) -> SafetyTests:
    """Test configurations in this order.

    evidence: of their losses on the images that test; one may be missing. choices: how many could have been chosen, which
    counts where nothing was held out.
    """
    error = ERROR if held_out else ERROR / max(1, choices)
    losses: dict[Assignment, Losses] = {}
    once = twice = SafetyTests(margins, (), None, images, all_images, error, held_out)
    for first in range(0, max(1, len(configurations)), TOGETHER):
        judged = configurations[: first + TOGETHER]
        losses.update(evidence(judged[first:]) if judged else {})
        once, twice = (
            _walk(
                judged,
                {
                    c: {name: loss.with_images(factor * loss.images) for name, loss in losses_of_one.items()}
                    for c, losses_of_one in losses.items()
                },
                SafetyTests(margins, (), None, factor * images, factor * all_images, error, held_out),
            )
            for factor in (1, 2)
        )
        if held_out and judged and all(any(test.ends for test in walk.tested) for walk in (once, twice)):
            break  # nothing behind it is tested
    likely: list[Tested] = []
    for index, configuration in enumerate(configurations):
        if configuration not in losses:
            losses.update(evidence(configurations[index : index + TOGETHER]))
        test = _test(configuration, losses.get(configuration, {}), margins, error, images)
        if not _is_likely(test, margins):
            break
        likely.append(test)
    return replace(once, twice=twice, likely=tuple(likely))


def _is_likely(test: Tested, margins: Margins) -> bool:
    """Return whether the measured losses of a configuration keep the margins by a standard error, whatever their intervals.

    The last that keeps them by its estimate alone is near the margin, and beyond it on other images as often as not.
    """
    return bool(test.losses) and all(
        loss.loss + loss.standard_error <= margins.points[name.removesuffix(POOLED)] for name, loss in test.losses.items()
    )


def _walk(configurations: Sequence[Assignment], losses: Mapping[Assignment, Losses], plan: SafetyTests) -> SafetyTests:
    """Walk `plan` with the tests and what they show."""
    margins, error, images = plan.margins, plan.error, plan.images
    tested = [_test(c, losses.get(c, {}), margins, error, images) for c in configurations]
    safe = None
    for test in tested:
        if test.state == "met":
            safe = test.configuration
        elif plan.held_out and test.ends:
            break
    return replace(plan, tested=tuple(tested), safe=safe)


def _test(configuration: Assignment, losses: Losses, margins: Margins, error: float, images: int) -> Tested:
    counting_losses: dict[str, Loss] = {}
    states: list[State] = []
    is_doubted = False
    images_needed: list[int | None] = []
    required = [name for name in margins.points if margins.asked or measure(name).kind == "agreement"]
    if any(name not in losses for name in required):
        states.append("unclear")
        images_needed.append(None)
    for name in (name for base in margins.points for name in (base, base + POOLED) if name in losses):
        base = name.removesuffix(POOLED)
        margin, loss = margins.points[base], losses[name]
        upper_bound = loss.bounds(error)[1]
        state = loss.state(margin, error)
        if name == base and base + POOLED in losses and state != "not met":
            # Its interval hangs on classes of one object, so one standard error has to do: see docs/decisions/0028.
            state = "met" if loss.loss + loss.standard_error <= margin else "unclear"
            is_doubted = state == "unclear"
        if base not in required and upper_bound - loss.loss > margin and state != "not met":
            continue  # too few labels to show anything of this measure, whatever the configuration
        counting_losses[name] = loss
        states.append(state)
        if state == "unclear":
            enough_images = loss.images_to_tell(margin, error)
            images_needed.append(None if enough_images is None else round(enough_images * images / max(1, loss.images)))
    ends = "not met" in states or not states or states.count("unclear") > is_doubted
    state = "not met" if "not met" in states else "unclear" if "unclear" in states or not states else "met"
    images_to_tell = (
        None
        if state != "unclear" or not images_needed or None in images_needed
        else max(n for n in images_needed if n is not None)
    )
    return Tested(configuration, state, counting_losses, images_to_tell, ends)


STATE_WORDS: dict[State, str] = {"met": "met", "not met": "not met", "unclear": "cannot be told"}


def describe_safety(tests: SafetyTests, options: Sequence[str]) -> Safety:
    """Return what a sweep's result says of the tests. options: text of each option set."""
    return Safety(
        margin=dict(tests.margins.points),
        is_asked=tests.margins.asked,
        error=tests.error,
        is_held_out=tests.held_out,
        images=tests.images,
        safe=None if tests.safe is None else tests.safe.key,
        why=why(tests),
        twice=None if tests.twice is None else _describe_twice(tests, tests.twice),
        tested=tuple(_describe_test(tests, test, options) for test in tests.tested),
        untested=tuple(_describe_test(tests, test, options) for test in tests.likely if test not in tests.tested),
    )


def _describe_test(tests: SafetyTests, test: Tested, options: Sequence[str]) -> TestedRow:
    return TestedRow(
        test.configuration.key,
        options[test.configuration.options],
        STATE_WORDS[test.state],
        _more_images(tests, test),
        {
            name: LossBounds(*loss.bounds(tests.error), loss.loss, loss.images, loss.standard_error)
            for name, loss in test.losses.items()
        },
    )


def _describe_twice(tests: SafetyTests, twice: SafetyTests) -> SafetyWithTwice:
    test = tests.last_shown
    return SafetyWithTwice(
        twice.images,
        None if twice.safe is None else twice.safe.key,
        {
            name: HalfWidths(loss.half_width(tests.error), loss.with_images(2 * loss.images).half_width(tests.error))
            for name, loss in (test.losses if test else {}).items()
        },
    )


def why(safety: SafetyTests) -> str:
    """Say in a sentence what the tests showed."""
    limits = budget_text(safety.margins.points)
    images_text = counted(safety.images, "held-out image" if safety.held_out else "image")
    test = safety.last_shown
    if test is None:
        return f"only the baseline could be tested against a loss of at most {limits}"
    losses_text = "; ".join(
        f"{loss_label(name)} loses {number_text(loss.loss)}, at most {number_text(loss.bounds(safety.error)[1])} "
        f"({counted(loss.images)})"
        for name, loss in test.losses.items()
    )
    if safety.safe is not None:
        unlabelled = [measure(name).label for name in safety.margins.points if name not in test.losses]
        # Of agreement the loss of all objects in one list is shown, of the mean over classes a standard error counts.
        shown_names = [name + POOLED if name + POOLED in test.losses else name for name in safety.margins.points]
        shown_text = budget_text(
            {name: safety.margins.points[name.removesuffix(POOLED)] for name in shown_names if name in test.losses}
        )
        return f"shown to lose at most {shown_text}; {losses_text}" + (
            f"; there are too few labels to say anything about {' and '.join(unlabelled)}" if unlabelled else ""
        )
    more_images = _more_images(safety, test)
    return (
        f"no configuration is shown to lose at most {limits} on {images_text}; of the most accurate one tested, "
        + (losses_text or "nothing could be measured")
        + (f"; about {more_images:,} more images would decide it" if more_images is not None else "")
        + ("" if safety.held_out else "; no image was held out (sweep.holdout), which makes this harder to show")
    )


def _more_images(safety: SafetyTests, test: Tested) -> int | None:
    """Return the images to add, the same share of which tests, in two digits."""
    if test.images_to_tell is None or not safety.images:
        return None
    count = (test.images_to_tell - safety.images) * safety.all_images // safety.images
    size: int = 10 ** max(0, len(str(count)) - 2)
    return max(size, -(-count // size) * size)
