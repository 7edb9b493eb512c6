# SPDX-License-Identifier: MIT
"""Names of configurations in tables and sentences of a sweep."""

from __future__ import annotations

from mpnet.model.plan_key import short_key
from mpnet.model.plan_words import IN_TABLES, PlanWords
from mpnet.sweep.choose.recommend import named_configurations
from mpnet.sweep.result import FrontRow, Pick, SweepResult


def row_key(precision: str, options: str) -> str:
    """Return a precision string as tables show it, with its quantisation options where there are several."""
    return short_key(precision) + (f" ({options})" if options else "")


def describe_configuration(result: SweepResult, precision: str, options: str) -> str:
    """Describe a configuration in words where the front has them, else by its key."""
    best = () if result.best is None else (result.best,)
    rows: tuple[FrontRow | Pick, ...] = (*result.front, *best, *named_configurations(result).values())
    words = {row.precision: row.words for row in rows if row.words}
    if precision not in words:
        return row_key(precision, options)
    return words[precision] + (f" ({options})" if options else "")


def row_words(precision: str, words: str) -> str:
    """Describe a precision string in the width of a column. words: what a sweep calls it, '' where it says nothing."""
    return words if 0 < len(words) <= IN_TABLES else PlanWords((), {})(precision)
