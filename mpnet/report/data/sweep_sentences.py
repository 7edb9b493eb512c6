# SPDX-License-Identifier: MIT
"""Sentences about a sweep, for the terminal and for pages."""

from __future__ import annotations

from itertools import accumulate
from typing import Container, Mapping, Sequence

from mpnet.config.measures import cost_objective, measure
from mpnet.evaluation.compare import Interval
from mpnet.messages import counted, number_text, percent_text
from mpnet.model.task import TASKS
from mpnet.report.data.row_words import row_key
from mpnet.report.data.summary import bounds
from mpnet.report.data.words import clean
from mpnet.speed.latency import Latency, doubt_of
from mpnet.sweep.result import FailedLayer, Recommendation, SetLosses, SweepResult

WHOLE_SETS = ("held_out", "all")
"""Sets of images that a loss is told on without saying which they are."""
FAILURES_NAMED = 3
"""Places at which most configurations failed."""


def ruled_out_needed(result: SweepResult, preposition: str, selecting: int) -> str:
    """Say how many images proved that configurations are not on the front; '' where nobody counted that.

    For example `, 900 of them by costs alone, half of the others 8, the last 56 of 79`.
    preposition: before numbers of images, such as `after `. selecting: how many images select.
    """
    counts = {int(images): number for images, number in result.ruled_out_after.items()}
    by_costs = counts.pop(0, 0)
    text = f", {by_costs:,} of them by costs alone" if by_costs else ""
    if not counts:
        return text
    ends = list(zip(counts, accumulate(counts.values()), strict=True))
    half_images = next(images for images, number in ends if 2 * number >= ends[-1][1])
    rest_text = "the others" if by_costs else "them"
    return f"{text}, half of {rest_text} {preposition}{half_images}, the last {preposition}{ends[-1][0]} of {selecting}"


def failed_text(failures: Sequence[FailedLayer], space: int | None = None) -> str:
    """Say how many configurations failed, and at which layers; '' for none. space: of how many, None: not known."""
    if not failures:
        return ""
    rows = sorted(failures, key=lambda row: -row.configurations)
    reasons = "; ".join(f"{clean(row.reason)} ({row.configurations:,})" for row in rows[:FAILURES_NAMED])
    more_text = f"; {len(rows) - FAILURES_NAMED} more places" if len(rows) > FAILURES_NAMED else ""
    count = sum(row.configurations for row in rows)
    return f"{count:,}{f' of {space:,}' if space else ''} configurations failed and have no figures: {reasons}{more_text}"


def recommendation_text(result: SweepResult) -> str:
    """Return what a sweep recommends and why, in words that every output has; '' before it has a baseline.

    Where that is shown but dear, the cheapest that is found stands behind it.
    """
    row = result.recommended
    if row is None:
        return f"Nothing is recommended: {result.not_recommended}." if result.baseline and result.not_recommended else ""
    sentence = f"Recommended is {_name_of(row)}: {row.reason}."
    found = result.best_found
    if found is not None:
        cost = cost_objective(result.objectives)
        savings = [f"{percent_text(r.saves[cost], 0)}" for r in (found, row) if cost in r.saves]
        saves = f", which saves {savings[0]} of the {measure(cost).label} instead of {savings[1]}" if len(savings) == 2 else ""
        sentence += f" Cheaper is {_name_of(found)}{saves}: {found.reason}."
    return sentence


def _name_of(row: Recommendation) -> str:
    key = row_key(row.precision, row.options)
    return f"{row.words} ({key})" if row.words else key


def times_of(result: SweepResult) -> dict[str, Latency]:
    """Return the times of a sweep by name, that of a pick for the recommendation that is the same configuration as well."""
    times, row = dict(result.times), result.recommended
    if row is not None and "recommended" not in times:
        same = next((name for name, pick in result.picks.items() if pick.trial == row.trial and name in times), None)
        same = "baseline" if row.is_baseline and "baseline" in times else same
        if same is not None:
            times["recommended"] = times[same]
    return times


def time_lines(times: Mapping[str, Latency]) -> list[str]:
    """Return sentences about a sweep's `times`: the baseline's and int8's, which picks are slower, and any doubt."""
    baseline = times.get("baseline")
    if baseline is None:
        return []
    int8 = times.get("int8")
    int8_text = "" if int8 is None else f", int8 everywhere {int8.median_ms:.2f} ms"
    lines = [
        f"The baseline takes {baseline.median_ms:.2f} ms an image{int8_text} ({baseline.cpu}, {baseline.isa}, "
        f"{baseline.threads} thread{'' if baseline.threads == 1 else 's'})."
    ]
    doubts = [doubt for latency in times.values() if (doubt := doubt_of(latency))]
    slower = [name for name, latency in times.items() if latency.median_ms > baseline.median_ms]
    if doubts:
        lines.append(f"These times are unreliable ({doubts[0]}); the same sweep measures them again on a quiet machine.")
    if slower:
        ratios = ", ".join(f"{name} {times[name].median_ms / baseline.median_ms - 1:+.0%}" for name in slower)
        subject = "By them slower than the baseline" if doubts else "Slower than the baseline on this machine"
        lines.append(f"{subject}, although it costs fewer bit operations: {ratios} time.")
    return lines


def judged_by(measures: Container[str]) -> str:
    """Return the measure of a pick's loss that is shown: the task's quality, without labels agreement; '' for neither."""
    names = (*(task.quality for task in TASKS.values()), *(task.agreement for task in TASKS.values()))
    return next((name for name in names if name in measures), "")


def change_text(losses: Mapping[str, SetLosses]) -> str:
    """Return the change of the measure of `judged_by` on the held-out images where there are any, else on all."""
    _, of_set = _reported(losses)
    loss = None if of_set is None else of_set.losses.get(judged_by(of_set.losses))
    if loss is None:
        return "not measured"
    interval = Interval(loss.difference, loss.low, loss.high)
    return f"{number_text(interval.difference, signed=True)} ({bounds(interval)})"


def images_text(losses: Mapping[str, SetLosses]) -> str:
    """Describe the images that `change_text` is of: `46 held-out images`."""
    name, of_set = _reported(losses)
    if of_set is None:
        return ""
    loss = of_set.losses.get(judged_by(of_set.losses))
    images = (loss.images if loss is not None else None) or of_set.images
    return counted(images, "held-out image" if name == "held_out" else "image") + ("" if name in WHOLE_SETS else f" ({name})")


def _reported(losses: Mapping[str, SetLosses]) -> tuple[str, SetLosses | None]:
    name = "held_out" if "held_out" in losses else next(iter(losses), "")
    return name, losses.get(name)
