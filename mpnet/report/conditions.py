# SPDX-License-Identifier: MIT
"""Conditions of a sweep in a terminal: what its picks are worth when images are noisy, dark or blurred."""

from __future__ import annotations

from typing import Any, Mapping

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.model.plan_key import short_key
from mpnet.model.task import TASKS
from mpnet.report.terminal import number_text, print_table
from mpnet.sweep.conditions import CLEAN, MEAN, WORST


def print_conditions(document: Mapping[str, Any], out: Console) -> None:
    """The `conditions` of a sweep's document, if it has any: one row per condition, one column per pick; and what changes."""
    part = document.get("conditions")
    if not part:
        return
    under = {row["trial"]: row["under"] for row in part["rows"]}
    baseline, picks = document["baseline"], document["picks"]
    order = [CLEAN, *part["conditions"], MEAN, WORST]
    measured = next(iter(under.values()))[CLEAN]
    task = next(task for task in TASKS.values() if {task.quality, task.agreement} & set(measured))
    shown = task.agreement if task.agreement in measured else task.quality
    columns: list[tuple[str, list[object]]] = [("images", [*order])]
    if baseline is not None and task.quality in measured:
        values = under[baseline["trial"]]
        columns.append((f"baseline {measure(task.quality).label}", [number_text(values[name][task.quality]) for name in order]))
    columns += [
        (name, [number_text(under[row["trial"]][condition][shown]) for condition in order]) for name, row in picks.items()
    ]
    names, cells = zip(*columns, strict=True)
    title = f"Under other conditions: {measure(shown).label} of the picks, {part['images']} images"
    print_table(out, names, list(zip(*cells, strict=True)), title)
    for name, words in ((MEAN, "on average over the conditions"), (WORST, "in the worst of the conditions")):
        changed = [
            f"{pick} would be {short_key(key)} in place of {short_key(part['picks'][CLEAN][pick])}"
            for pick, key in part["picks"][name].items()
            if key != part["picks"][CLEAN].get(pick)
        ]
        kept = len(set(part["front"][name]) & set(part["front"][CLEAN]))
        out.print(
            f"Judged {words}, {kept} of the {len(part['front'][CLEAN])} configurations of the front stay on it; "
            + ("; ".join(changed) if changed else "balanced and smallest stay as they are")
        )
    ran = sum(row["trial"] in under for row in document["front"])
    if ran < part["of_front"]:
        out.print(f"{ran} of the front's {part['of_front']} ran under conditions, evenly spread")
