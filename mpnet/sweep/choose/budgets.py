# SPDX-License-Identifier: MIT
"""Budgets in the user's words, such as `1 agreement`, `1.2x` or `2MB`, for configurations that a store has figures of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpnet.errors import ConfigError
from mpnet.messages import shown
from mpnet.model.task import Task

LOSS, TIME, BYTES = "--max-loss", "--max-time", "--max-bytes"
BUDGET_KEYS = {"max_loss": LOSS, "max_time": TIME, "max_bytes": BYTES}
"""Options by their keys in files and in names of configurations."""
PERCENT, TIMES = "%", "x"
BYTE_UNITS = {"b": 1.0, "kb": 1e3, "mb": 1e6}
_EXAMPLES = {LOSS: "'1 agreement'", TIME: "1.2x", BYTES: "2MB"}
_BUDGET = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z0-9_]*[A-Za-z%][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Budget:
    """A limit as it was written.

    option: of the command line. amount: in the unit. unit: `%` of the baseline, `x` (times int8's), `ms`, or of bytes in lower
    case; of a loss a measure's name for points of it. name: of the unit as it is written.
    """

    option: str
    amount: float
    unit: str
    name: str

    def written(self, amount: float) -> str:
        """Return the budget with another amount, as the command line takes it."""
        space = " " if self.option == LOSS and self.unit != PERCENT else ""
        return f"{amount:.10g}{space}{self.name}"


def read_budgets(option: str, text: str, task: Task, place: str = "") -> list[Budget]:
    """Read the budgets of an option: one, or of losses several with commas between. place: where they stand, '': the option.

    Raises: ConfigError for what is no budget, a unit that there is none of, or one measure with two limits.
    """
    budgets: list[Budget] = []
    for part in text.split(",") if option == LOSS else [text]:
        match = _BUDGET.fullmatch(part.strip())
        units = _units(option, task)
        unit = None if match is None else units.get(match[2].lower())
        if match is None or unit is None:
            names = {LOSS: f"agreement, {task.quality}, %", TIME: "x, ms, %", BYTES: "kB, MB, x, %"}[option]
            raise ConfigError(
                f"{place or option}: {shown(part.strip())} is no budget; write a number and a unit ({names}), "
                f"such as {_EXAMPLES[option]}"
            )
        name = {"kb": "kB", "mb": "MB"}.get(match[2].lower(), match[2])
        budgets.append(Budget(option, float(match[1]), unit, name))
    measures = [task.quality if budget.unit == PERCENT else budget.unit for budget in budgets]
    if len(set(measures)) < len(measures):
        raise ConfigError(f"{place or option}: {shown(text)} limits one measure twice; leave one of the two")
    return budgets


def budgets_in_name(name: str) -> dict[str, str]:
    """Return the budgets of a name such as `max_loss=1 agreement, 0.5 AP, max_bytes=2MB`, by option; {} where it has none.

    Raises: ConfigError for a budget that there is none of, or one that is named twice.
    """
    if "=" not in name:
        return {}
    texts: dict[str, str] = {}
    for part in re.split(r"[,;]\s*(?=[A-Za-z_]+\s*=)", name):
        key, _, text = (piece.strip() for piece in part.partition("="))
        if key not in BUDGET_KEYS:
            raise ConfigError(f"{shown(name)}: {shown(key)} is no budget; name {', '.join(BUDGET_KEYS)}, such as max_bytes=2MB")
        if BUDGET_KEYS[key] in texts:
            raise ConfigError(f"{shown(name)}: {key} is named twice; leave one of the two")
        texts[BUDGET_KEYS[key]] = text
    return texts


def _units(option: str, task: Task) -> dict[str, str]:
    """Return the units of an option by how they may be written, in lower case."""
    if option == LOSS:
        words = {"agreement": task.agreement, task.agreement.lower(): task.agreement, task.quality.lower(): task.quality}
        return {**words, PERCENT: PERCENT}
    units = ("ms", TIMES, PERCENT) if option == TIME else (*BYTE_UNITS, TIMES, PERCENT)
    return {unit: unit for unit in units}
