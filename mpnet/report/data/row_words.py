# SPDX-License-Identifier: MIT
"""Names of configurations in tables and sentences of a sweep."""

from __future__ import annotations

from typing import Any, Mapping

from mpnet.model.plan_key import short_key
from mpnet.model.plan_words import IN_TABLES, PlanWords


def row_key(row: Mapping[str, Any]) -> str:
    """Return a row's key, with its quantisation options where there are several."""
    return short_key(row["precision"]) + (f" ({row['options']})" if row["options"] else "")


def describe_configuration(document: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Describe a row in words where the front has them, else by its key."""
    rows = (*document["front"], *filter(None, (document["best"], *(document.get("picks") or {}).values())))
    words = {candidate["precision"]: candidate["words"] for candidate in rows if "words" in candidate}
    key = row["precision"]
    return words[key] + (f" ({row['options']})" if row["options"] else "") if key in words else row_key(row)


def row_words(row: Mapping[str, Any]) -> str:
    """Describe a row's key in the width of a column."""
    words = str(row.get("words", ""))
    return words if 0 < len(words) <= IN_TABLES else PlanWords((), {})(row["precision"])
