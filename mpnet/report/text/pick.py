# SPDX-License-Identifier: MIT
"""The outcome of `mpnet pick`, for a terminal."""

from __future__ import annotations

import shlex

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.messages import counted, number_text, percent_text
from mpnet.model.plan_key import short_key
from mpnet.packages import program
from mpnet.report.data.row_words import row_words
from mpnet.report.text.terminal import print_table
from mpnet.resolve.pick import PickedRow, PickOutcome, budgets_text


def print_pick(outcome: PickOutcome, console: Console) -> None:
    """Print the pick, its runner-up, what other budgets would give, and the command that exports the pick."""
    budgets = budgets_text(outcome.budgets)
    row = outcome.pick
    if row is None:
        console.print(f"None of {counted(outcome.count, 'configuration')} keeps {budgets}.")
        if outcome.nearest is not None:
            console.print(f"Nearest is {_name(outcome.nearest)}: {_values(outcome.nearest)}.")
        return
    rows = [("pick", "", row)] + ([("runner-up", "", outcome.runner_up)] if outcome.runner_up is not None else [])
    rows += [("looser", f"{other.option} {other.budget}", other.row) for other in outcome.looser]
    rows += [("tighter", f"{other.option} {other.budget}", other.row) for other in outcome.tighter]
    label = measure(outcome.cost).label
    headings = ("", "budget", "precision", "key", *row.values, f"{label} saved")
    cells = [
        [
            name,
            budget,
            row_words(entry.precision, entry.words),
            short_key(entry.precision),
            *(number_text(value) for value in entry.values.values()),
            "" if entry.saves is None else percent_text(entry.saves),
        ]
        for name, budget, entry in rows
    ]
    title = f"Of {counted(outcome.count, 'configuration')} with {budgets}"
    print_table(console, headings, cells, title, left=(0, 1, 2, 3), fold=(1, 2))
    if "--max-loss" in outcome.budgets:
        state = "is shown to keep" if row.is_shown else "keeps, on the images at hand and not shown,"
        console.print(f"The pick {state} --max-loss {outcome.budgets['--max-loss']}.")
    if outcome.timed_count is not None:
        doubt = f" Its times are unreliable ({outcome.doubt}); the same sweep measures them again." if outcome.doubt else ""
        console.print(
            f"{counted(outcome.timed_count, 'configuration')} of these were timed by the sweep, and no other one counts; "
            f"with a table of `mpnet profile` (sweep.latency) all have a time.{doubt}"
        )
    source = shlex.quote(outcome.source or f"{outcome.store}:{row.precision}")
    console.print(f"{program()} export {source} -o mixed.cfg", soft_wrap=True)


def _name(row: PickedRow) -> str:
    return f"{row.words} ({short_key(row.precision)})" if row.words else short_key(row.precision)


def _values(row: PickedRow) -> str:
    return ", ".join(f"{name} {number_text(value)}" for name, value in row.values.items())
