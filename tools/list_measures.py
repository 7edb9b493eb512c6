# SPDX-License-Identifier: MIT
"""Writes what docs/ says of each measure and of each objective, from the table in mpnet/config/measures.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable

from mpnet.config.measures import MEASURES, Measure, droppable, limits
from mpnet.model.task import CLASSIFICATION, DETECTION

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _row(row: Measure) -> str:
    better = "" if row.kind == "count" else "higher" if row.higher else "lower"
    return f"| `{row.name}` | {row.kind} | {better} | {row.means} |\n"


def _names(rows: Iterable[Measure]) -> str:
    return ", ".join(f"`{row.name}`" for row in rows)


def _keys(names: Iterable[str]) -> str:
    head, *tail = names
    return f"| `sweep.constraints.{head}`" + "".join(f", `.{name}`" for name in tail) + " |"


def _replace_once(text: str, pattern: str, words: str) -> str:
    replaced, count = re.subn(pattern, lambda _: words, text)
    if count != 1:
        raise SystemExit(f"{pattern}: {count} places in the document")
    return replaced


def documents() -> dict[Path, str]:
    """Return the documents that list measures, as they should be."""
    evaluation, experiments = DOCS / "evaluation.md", DOCS / "experiments.md"
    table = _replace_once(
        evaluation.read_text(encoding="utf-8"), r"(?:\| `\w+` \| \w+ \| \w* \| .*\n)+", "".join(map(_row, MEASURES))
    )
    ranked, costs = ([row for row in MEASURES if row.objective and row.higher is higher] for higher in (True, False))
    of_task = {task: _names(row for row in ranked if row.task == task) for task in (DETECTION.name, CLASSIFICATION.name, "")}
    text = experiments.read_text(encoding="utf-8")
    text = _replace_once(
        text,
        r"accuracy ranks: .*?; costs: [^|]* \|",
        f"accuracy ranks: {of_task[DETECTION.name]}, of classifiers {of_task[CLASSIFICATION.name]}; "
        f"of both {of_task['']}; costs: {_names(costs)} |",
    )
    drops = [f"{row.name}_drop" for row in droppable()]
    named_drops = re.findall(r"\| `sweep\.constraints\.(\w+_drop)`, `\.\w+_drop`", text)
    drops.sort(key=lambda name: name != named_drops[0])
    text = _replace_once(text, r"\| `sweep\.constraints\.\w+_drop`, [^|]* \|", _keys(drops))
    return {
        evaluation: table,
        experiments: _replace_once(text, r"\| `sweep\.constraints\.\w+_bytes`[^|]* \|", _keys(row.name for row in limits())),
    }


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
