# SPDX-License-Identifier: MIT
"""The one configuration that a sweep recommends: in terminal, page, statement, `--json`, API, demo and as STORE:recommended.

It is the cheapest that is shown to keep the budget. Where none is, it is the cheapest that loses no more with a standard error
on the images that test, said to be found and not shown, with about how many more images would tell. Of what was tested that is
the last, from accurate to cheap, before the first that does not: what is cheaper would be chosen for its luck on these images.
The budget is `sweep.max_loss`, else the limits on accuracy of `sweep.constraints`, else the margins of the task. Limits on
costs are always kept. Where nothing says what a configuration loses, nothing is recommended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Callable, Mapping, Sequence

from mpnet.config.measures import DROP, cost_objective, measure, names_of
from mpnet.evaluation.noninferiority import POOLED, Losses
from mpnet.formats.documents.typed import as_json, build
from mpnet.json_values import JsonObject
from mpnet.messages import limits_text
from mpnet.model.task import TASKS, Task
from mpnet.sweep.choose.margins import budget_text, margins_of
from mpnet.sweep.choose.picks import breaks_limit
from mpnet.sweep.result import ConfigurationRow, FrontRow, Pick, Recommendation, Safety, SetLosses, SweepResult

RECOMMENDED = "recommended"
RULE = (
    "the cheapest that is shown to lose no more than the budget; where none is, the cheapest that loses no more with a "
    "standard error on the images that test"
)
"""The rule of `recommended`, as the rules of picks are told."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of a configuration's losses beside the figures of its row.

    losses: by set of images, as of a pick. more_images: about how many more would tell whether it keeps the budget, None: no
    number does, or nobody knows.
    """

    losses: Mapping[str, SetLosses]
    more_images: int | None = None


DEAR = 1.2
"""Cost of a shown recommendation, times that of the cheapest that is found, from which that one is named beside it."""

Judge = Callable[[ConfigurationRow, Mapping[str, float]], Evidence]
"""Gives the evidence for a row and a budget, in percent points by measure."""


def with_recommendation(result: SweepResult, rows: Sequence[FrontRow] = (), judge: Judge | None = None) -> SweepResult:
    """Return a result with what it recommends, or why it recommends nothing.

    rows: configurations beside the front and the picks that may be recommended. judge: None: only what the result has is known.
    """
    row, is_shown, words = _choose(result, rows)
    if row is None:
        return replace(result, recommended=None, not_recommended=words, best_found=None)
    recommended = _recommendation(result, row, is_shown, words, judge)
    best_found = None
    if is_shown and not row.is_baseline:
        cheaper, reason = _find_cheapest(result, _candidates(result, rows))
        if cheaper is not None and DEAR * _cost(result, cheaper) <= _cost(result, row):
            best_found = _recommendation(result, cheaper, False, reason, judge)
    return replace(result, not_recommended="", recommended=recommended, best_found=best_found)


def _recommendation(
    result: SweepResult, row: FrontRow | Pick, is_shown: bool, words: str, judge: Judge | None
) -> Recommendation:
    """Describe a row as what is recommended, with the evidence for it. words: the reason."""
    budget, baseline = budget_of(result), result.baseline
    evidence = Evidence(_known_losses(result, row), _known_images(result, row))
    if judge is not None and not row.is_baseline:
        evidence = judge(row, budget)
    more_images = None if is_shown else evidence.more_images
    if more_images is not None:
        words += f"; about {more_images:,} more images would tell"
    return Recommendation(
        precision=row.precision,
        trial=row.trial,
        is_baseline=row.is_baseline,
        is_tried=row.is_tried,
        options=row.options,
        metrics=row.metrics,
        held_out=row.held_out,
        costs=row.costs,
        losses=evidence.losses,
        saves={} if baseline is None else savings(row.costs, baseline.costs),
        words=row.words,
        is_shown=is_shown,
        reason=words,
        more_images=more_images,
        budget=budget,
    )


def named_configurations(result: SweepResult) -> dict[str, Pick]:
    """Return what somebody could take, by name: the recommendation first, then the picks."""
    recommended = {} if result.recommended is None else {RECOMMENDED: result.recommended}
    return {**recommended, **result.picks}


def labelled_configurations(result: SweepResult) -> list[tuple[str, Pick]]:
    """Return what somebody could take, each configuration once, with all its names: `recommended, safe`."""
    labels: dict[str, list[str]] = {}
    rows: dict[str, Pick] = {}
    for name, row in named_configurations(result).items():
        labels.setdefault(row.trial, []).append(name)
        rows.setdefault(row.trial, row)
    return [(", ".join(labels[trial]), row) for trial, row in rows.items()]


def read_findings(document: JsonObject) -> SweepResult:
    """Return a stored result with its recommendation, which stores of older versions lack."""
    result = build(SweepResult, document)
    return result if RECOMMENDED in document else with_recommendation(result)


def complete_findings(document: JsonObject) -> JsonObject:
    """Return a stored result as `read_findings`, as plain values."""
    if RECOMMENDED in document:
        return document
    result = read_findings(document)
    recommended = None if result.recommended is None else as_json(result.recommended)
    reason = {"not_recommended": result.not_recommended} if result.not_recommended else {}
    return {**document, RECOMMENDED: recommended, **reason}


def budget_of(result: SweepResult) -> dict[str, float]:
    """Return the points by measure that the recommended configuration may lose at most."""
    safety = result.safety
    if safety is not None and safety.is_asked:
        return dict(safety.margin)
    limits = _limited_losses(result)
    if limits:
        return limits
    if safety is not None:
        return dict(safety.margin)
    metrics = {} if result.baseline is None else result.baseline.metrics
    margins = margins_of(None, _task_of(result)).points
    return {name: points for name, points in margins.items() if metrics.get(name, -1.0) >= 0}


def estimated_loss(row: ConfigurationRow, baseline: ConfigurationRow, name: str, selecting: int, held_out: int) -> float | None:
    """Return what a row loses of a measure on all images at hand, percent points; None where nothing was measured.

    selecting, held_out: images of both sets, by which the losses on them are weighted.
    """
    total = weight = 0.0
    for values, baseline_values, images in (
        (row.metrics, baseline.metrics, selecting),
        (row.held_out, baseline.held_out, held_out),
    ):
        value, best = values.get(name, -1.0), baseline_values.get(name, -1.0)
        if measure(name).kind == "agreement" and value >= 0:
            best = 100.0
        if value >= 0 and best >= 0 and images:
            total += images * (best - value)
            weight += images
    return total / weight if weight else None


def images_to_add(losses: Losses, budget: Mapping[str, float], error: float, testing: int, images: int) -> int | None:
    """Return about how many images to add before a test tells whether a budget is kept; None where no number does.

    losses: on the images that test. error: of the test. testing, images: how many test, and all. Two digits are given.
    """
    agreements = [name for name in budget if measure(name).kind == "agreement"]
    needed: list[int | None] = []
    for name in agreements or budget:
        loss = losses.get(name + POOLED, losses.get(name))
        enough = None if loss is None else loss.images_to_tell(budget[name], error)
        needed.append(None if enough is None or loss is None else round(enough * testing / max(1, loss.images)))
    known = [count for count in needed if count is not None]
    if len(known) < len(needed) or not known or max(known) <= testing:
        return None
    count = (max(known) - testing) * images // testing
    size: int = 10 ** max(0, len(str(count)) - 2)
    return max(size, -(-count // size) * size)


def _choose(result: SweepResult, rows: Sequence[FrontRow]) -> tuple[FrontRow | Pick | None, bool, str]:
    """Return the configuration, whether it is shown to keep the budget, and the reason; without one the reason is why."""
    baseline = result.baseline
    if result.nearest is not None:
        return None, False, f"nothing meets the limits ({limits_text(result.limits)})"
    if baseline is None:
        return None, False, "the baseline has no figures, so that no loss is known"
    budget, candidates = budget_of(result), _candidates(result, rows)
    shown = _shown_row(result, budget, candidates)
    if shown is not None:
        return shown, True, f"shown to lose at most {budget_text(budget)}"
    counted = _counted_measures(result, baseline)
    if not counted:
        return None, False, _missing_text(budget)
    best, reason = _find_cheapest(result, candidates)
    if best is not None:
        return best, False, reason
    limit = budget_text({name: budget[name] for name in counted})
    if _breaks_any(baseline, baseline, result.limits):
        return None, False, f"nothing that keeps the limits ({limits_text(result.limits)}) loses at most {limit}"
    return baseline, True, f"the baseline, because everything cheaper that was tried loses more than {limit}"


def _candidates(result: SweepResult, rows: Sequence[FrontRow]) -> dict[tuple[str, str], FrontRow | Pick]:
    """Return what may be recommended, by precision string and options."""
    candidates: dict[tuple[str, str], FrontRow | Pick] = {}
    for row in (*result.picks.values(), *result.front, *rows, *(() if result.best is None else (result.best,))):
        candidates.setdefault((row.precision, row.options), row)
    return candidates


def _counted_measures(result: SweepResult, baseline: FrontRow) -> list[str]:
    """Return the measures of the budget that losses are known of; none where one is required and not known."""
    budget = budget_of(result)
    selecting, held_out = result.holdout.selecting, result.holdout.held_out
    counted = [name for name in budget if estimated_loss(baseline, baseline, name, selecting, held_out) is not None]
    is_required = result.safety is not None and result.safety.is_asked
    return [] if is_required and len(counted) < len(budget) else counted


def _find_cheapest(
    result: SweepResult, candidates: Mapping[tuple[str, str], FrontRow | Pick]
) -> tuple[FrontRow | Pick | None, str]:
    """Return the cheapest that keeps the budget on the images at hand, and how that is said; None: there is none."""
    baseline, budget = result.baseline, budget_of(result)
    counted = [] if baseline is None else _counted_measures(result, baseline)
    if baseline is None or not counted:
        return None, ""
    limit = budget_text({name: budget[name] for name in counted})
    sequence = () if result.safety is None else (*result.safety.tested, *result.safety.untested)
    last = _last_likely(result, budget, candidates)
    if last is not None:
        return last, (
            f"best found, not shown: the cheapest that loses at most {limit}, a standard error included, on the images "
            "that test"
        )
    selecting, held_out = result.holdout.selecting, result.holdout.held_out
    shown_above = _shown_above(result, budget)
    # Where the first of a sequence loses more, nothing cheaper than it is likely to lose less.
    first_cost = next((_cost(result, row) for test in sequence if (row := candidates.get((test.precision, test.options)))), 0.0)
    fitting: list[tuple[float, float, str, FrontRow | Pick]] = []
    for name, row in candidates.items():
        if (
            _cost(result, row) < first_cost
            or row.is_baseline
            or name in shown_above
            or _breaks_any(row, baseline, result.limits)
        ):
            continue
        losses = [estimated_loss(row, baseline, measure_name, selecting, held_out) for measure_name in counted]
        known = [loss for loss in losses if loss is not None]
        if len(known) == len(losses) and all(
            loss <= budget[measure_name] for loss, measure_name in zip(known, counted, strict=True)
        ):
            fitting.append((_cost(result, row), max(known), row.precision, row))
    if not fitting:
        return None, ""
    _, _, _, best = min(fitting, key=lambda entry: entry[:3])
    return best, f"best found, not shown: the cheapest that loses at most {limit} on the images at hand"


def _last_likely(
    result: SweepResult, budget: Mapping[str, float], candidates: Mapping[tuple[str, str], FrontRow | Pick]
) -> FrontRow | Pick | None:
    """Return the last of the tests' sequence before the first that does not keep the budget by a standard error, or None."""
    last = None
    for test in () if result.safety is None else (*result.safety.tested, *result.safety.untested):
        losses = {name: loss for name, loss in test.losses.items() if name.removesuffix(POOLED) in budget}
        if not losses or any(
            loss.loss + loss.standard_error > budget[name.removesuffix(POOLED)] for name, loss in losses.items()
        ):
            break
        row = candidates.get((test.precision, test.options))
        if row is not None and not row.is_baseline and not _breaks_any(row, result.baseline or row, result.limits):
            last = row
    return last


def _shown_row(
    result: SweepResult, budget: Mapping[str, float], rows: Mapping[tuple[str, str], FrontRow | Pick]
) -> FrontRow | Pick | None:
    """Return the cheapest configuration that the tests show to keep a budget."""
    if result.safety is None or budget == result.safety.margin:
        return result.picks.get("safe")
    return next((rows[name] for name in reversed(shown_configurations(result, budget)) if name in rows), None)


def shown_configurations(result: SweepResult, budget: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the configurations that a sweep's tests show to keep a budget, by precision string and options.

    They come from accurate to cheap, as they were tested; on held-out images the first that is not shown ends the tests.
    """
    shown: list[tuple[str, str]] = []
    safety = result.safety
    for test in () if safety is None else safety.tested:
        if all(
            name in test.losses
            and all(test.losses[counted].most <= points for counted in (name, name + POOLED) if counted in test.losses)
            for name, points in budget.items()
        ):
            shown.append((test.precision, test.options))
        elif safety is not None and safety.is_held_out:
            break
    return shown


def _shown_above(result: SweepResult, budget: Mapping[str, float]) -> set[tuple[str, str]]:
    """Return the configurations that tests show to lose more than the budget."""
    if result.safety is None or budget != result.safety.margin:
        return set()
    return {(test.precision, test.options) for test in result.safety.tested if test.state == "not met"}


def _missing_text(budget: Mapping[str, float]) -> str:
    if budget and all(measure(name).kind != "agreement" for name in budget):
        return (
            f"no image has labels, without which {budget_text(budget)} cannot be judged; add labels, or name a budget of "
            "agreement, such as sweep.max_loss: 3 agreement"
        )
    return (
        "nothing says what a configuration loses: no image has labels, and the baseline finds nothing to agree with; add "
        "labels, or images in which it finds something (data.unlabelled)"
    )


def _limited_losses(result: SweepResult) -> dict[str, float]:
    """Return the limits on accuracy in percent points by measure."""
    limits: dict[str, float] = {}
    for key, limit in result.limits.items():
        name = key.removesuffix("_relative")
        if not name.endswith(DROP):
            continue
        name = "AP" if name == "ap" + DROP else name.removesuffix(DROP)
        if key.endswith("_relative"):
            limit *= 0.0 if result.baseline is None else result.baseline.metrics.get(name, 0.0)
        limits[name] = min(limit, limits.get(name, math.inf))
    return limits


def _breaks_any(row: ConfigurationRow, baseline: ConfigurationRow, limits: Mapping[str, float]) -> bool:
    return any(breaks_limit(row, baseline, key, limit) for key, limit in limits.items())


def _cost(result: SweepResult, row: ConfigurationRow) -> float:
    return row.costs.get(cost_objective(result.objectives), math.inf)


def savings(values: Mapping[str, float], baseline_values: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each of the baseline's costs that a configuration saves, percent."""
    return {
        name: 100 * (1 - values[name] / baseline_values[name])
        for name in names_of("cost", stored="trials")
        if values.get(name) is not None and baseline_values.get(name)
    }


def _known_losses(result: SweepResult, row: FrontRow | Pick) -> Mapping[str, SetLosses]:
    return next((pick.losses for pick in result.picks.values() if pick.trial == row.trial), {})


def _known_images(result: SweepResult, row: FrontRow | Pick) -> int | None:
    tested: Safety | None = result.safety
    rows = () if tested is None else tested.tested
    return next((test.more_images for test in rows if (test.precision, test.options) == (row.precision, row.options)), None)


def _task_of(result: SweepResult) -> Task:
    metrics = {} if result.baseline is None else result.baseline.metrics
    return next((task for task in TASKS.values() if task.quality in metrics or task.agreement in metrics), TASKS["detection"])
