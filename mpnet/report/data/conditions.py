# SPDX-License-Identifier: MIT
"""The worth of a sweep's front and picks when images are noisy, dark or blurred: tables for a terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from mpnet.config.measures import measure
from mpnet.messages import number_text
from mpnet.model.plan_key import short_key
from mpnet.model.task import TASKS
from mpnet.sweep.choose.conditions import CLEAN, MEAN, WORST
from mpnet.sweep.choose.recommend import labelled_configurations
from mpnet.sweep.result import ConditionRows, SweepResult


@dataclass(frozen=True)
class TextTable:
    """A title, names of columns, and rows of as many texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ConditionTables:
    """A sweep under other conditions.

    picks: a row for each condition, a column for each pick.
    front: a row for each configuration that ran: as the images are, in the mean and in the worst condition, and whether it is
           on the front of each.
    lines: what changes, in sentences.
    """

    picks: TextTable
    front: TextTable
    lines: Sequence[str]


def condition_tables(result: SweepResult) -> ConditionTables | None:
    """Return the tables of a sweep's result; None where it ran under no conditions."""
    section = result.conditions
    if section is None or not section.rows:
        return None
    measures_of = {row.trial: row.under for row in section.rows}
    measures = section.rows[0].under.get(CLEAN, {})
    task = next((task for task in TASKS.values() if {task.quality, task.agreement} & set(measures)), None)
    if task is None:
        return None
    shown_measure = task.agreement if task.agreement in measures else task.quality

    def cells(trial: str, conditions: Sequence[str], name: str) -> list[str]:
        values = measures_of.get(trial, {})
        return [number_text(values.get(condition, {}).get(name)) for condition in conditions]

    order = [CLEAN, *section.conditions, MEAN, WORST]
    baseline, picks = result.baseline, dict(labelled_configurations(result))
    columns: dict[str, list[str]] = {"images": order}
    if baseline is not None and task.quality in measures:
        columns[f"baseline {measure(task.quality).label}"] = cells(baseline.trial, order, task.quality)
    columns |= {name: cells(pick.trial, order, shown_measure) for name, pick in picks.items()}
    label, judged = measure(shown_measure).label, (CLEAN, MEAN, WORST)
    names = {pick.trial: name for name, pick in picks.items()} | ({baseline.trial: "baseline"} if baseline else {})
    rows = []
    for row in section.rows:
        fronts = [name for name in judged if row.precision in section.front.get(name, ())]
        precision = " ".join(filter(None, (short_key(row.precision), row.options)))
        rows.append(
            [precision, names.get(row.trial, ""), *cells(row.trial, judged, shown_measure), ", ".join(fronts) or "none"]
        )
    return ConditionTables(
        TextTable(
            f"Under other conditions: {label} of the picks, {section.images} images",
            list(columns),
            list(zip(*columns.values(), strict=True)),
        ),
        TextTable(f"The front and the picks: {label}", ("precision", "taken as", *judged, "on the front of"), rows),
        _changes(result, section),
    )


def _changes(result: SweepResult, section: ConditionRows) -> list[str]:
    """Say which picks and how much of the front would change under the conditions, a sentence each."""
    picks, front = section.picks, section.front
    clean = picks.get(CLEAN, {})
    lines = []
    for name, words in ((MEAN, "on average over the conditions"), (WORST, "in the worst of the conditions")):
        changed_picks = [
            f"{pick} would be {short_key(key)}" + (f" in place of {short_key(clean[pick])}" if pick in clean else "")
            for pick, key in picks.get(name, {}).items()
            if key != clean.get(pick)
        ]
        kept_count = len(set(front.get(name, ())) & set(front.get(CLEAN, ())))
        lines.append(
            f"Judged {words}, {kept_count} of the {len(front.get(CLEAN, ()))} configurations of the front stay on it; "
            + ("; ".join(changed_picks) if changed_picks else "balanced and smallest stay as they are")
        )
    trials = {row.trial for row in section.rows}
    ran_count = sum(row.trial in trials for row in result.front)
    if ran_count < section.of_front:
        lines.append(f"{ran_count} of the front's {section.of_front} ran under conditions, evenly spread")
    for failure in section.failed:
        name = " ".join(filter(None, (short_key(failure.precision), failure.options)))
        lines.append(f"under {failure.condition} {name} has no figures: {failure.reason}")
    return lines
