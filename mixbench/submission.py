# SPDX-License-Identifier: MIT
"""What a method hands in: a JSON file with what it asked, what it spent besides and its answers.

{"format": "mixbench-submission", "version": 1, "problem": "aix-tensor", "table": SHA-256 of the table, "method": "mine",
 "budget": 100 or null, "asked": [keys in order], "spent": [[keys asked before, passes, reason], ...], "answers": [keys],
 "sensitivities": [numbers, one per layer] or null}

Sensitivities are those of a method that ranks layers; a file without them has none.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from mixbench.errors import BenchmarkError, shown
from mixbench.files import write_text
from mixbench.problem import Problem, load_problem

FORMAT, VERSION = "mixbench-submission", 1
MOST_PASSES = 10**15
MOST_LETTERS = 100
"""Of a method's name."""


@dataclass(frozen=True, eq=False)
class Submission:
    """A checked submission. problem: as the method left it. answers: the assignments that it stands by."""

    method: str
    problem: Problem
    answers: tuple[str, ...]

    @property
    def passes(self) -> int:
        """All that was spent, with one pass for each answer that was not asked for."""
        return self.problem.passes + len(set(self.answers) - set(self.problem.asked))


def write_submission(submission: Submission, path: Path) -> None:
    """Write it whole or not at all. Raises: BenchmarkError where it cannot be written."""
    problem = submission.problem
    document = {
        "format": FORMAT,
        "version": VERSION,
        "problem": problem.name,
        "table": problem.digest,
        "method": submission.method,
        "budget": None if problem.budget == math.inf else problem.budget,
        "asked": list(problem.asked),
        "spent": problem.spent,
        "answers": list(submission.answers),
        "sensitivities": problem.sensitivities,
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def read_submission(path: Path, load: Callable[[str, float], Problem] = load_problem) -> Submission:
    """Read and check a submission. load: gives the problem of a name and a budget.

    Raises: BenchmarkError, one line that says what is wrong.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path}: cannot be read as JSON ({error})") from None
    version = document.get("version") if isinstance(document, dict) else None
    if not isinstance(document, dict) or document.get("format") != FORMAT or isinstance(version, bool) or version != VERSION:
        raise BenchmarkError(f'{path}: is no submission of version {VERSION}; "format" must be {FORMAT!r}')
    method = _of_type(document, "method", str, path)
    if not (method.isprintable() and method[:1].isalnum() and len(method) <= MOST_LETTERS):
        raise BenchmarkError(
            f'{path}: "method" must begin with a letter or digit and have at most {MOST_LETTERS} printable letters, not '
            f"{shown(method)}"
        )
    budget = document.get("budget")
    is_number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if budget is not None and not (is_number and 0 < budget <= MOST_PASSES):
        raise BenchmarkError(f'{path}: "budget" must be a number above 0, at most 1e15, or null')
    problem = load(_of_type(document, "problem", str, path), math.inf if budget is None else float(budget))
    if document.get("table") != problem.digest:
        raise BenchmarkError(f"{path}: is of another table of {problem.name}; run the method again on {problem.digest[:12]}")
    asked, spent, answers = (_of_type(document, name, list, path) for name in ("asked", "spent", "answers"))
    for name, keys in (("asked", asked), ("answers", answers)):
        if not all(isinstance(key, str) for key in keys):
            raise BenchmarkError(f'{path}: "{name}" must hold keys, texts of one letter for each layer')
    if not answers:
        raise BenchmarkError(f'{path}: has no answers; "answers" must list at least one key')
    try:
        problem.complete([*asked, *answers])
    except BenchmarkError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    problem.asked = dict.fromkeys(asked)
    for row in spent:
        if not (
            isinstance(row, list)
            and len(row) == 3
            and all(
                isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST_PASSES for number in row[:2]
            )
            and row[0] <= len(problem.asked)
            and isinstance(row[2], str)
        ):
            raise BenchmarkError(f'{path}: "spent" must hold [keys asked before, passes, reason], not {shown(row)}')
        problem.spent.append((row[0], row[1], row[2]))
    _read_sensitivities(document, problem, path)
    submission = Submission(method, problem, tuple(dict.fromkeys(answers)))
    if submission.passes > problem.budget:
        raise BenchmarkError(f"{path}: spends {submission.passes:,} passes of a budget of {problem.budget:,.0f}")
    return submission


def _read_sensitivities(document: dict[str, Any], problem: Problem, path: Path) -> None:
    sensitivities = document.get("sensitivities")
    if sensitivities is None:
        return
    is_list = isinstance(sensitivities, list)
    if not is_list or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in sensitivities):
        raise BenchmarkError(f'{path}: "sensitivities" must be a list of numbers, or null')
    try:
        problem.rank_layers(sensitivities)
    except (BenchmarkError, OverflowError) as error:
        raise BenchmarkError(f'{path}: "sensitivities": {error}') from None


def _of_type(document: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        raise BenchmarkError(f'{path}: "{name}" must be {"a text" if kind is str else "a list"}')
    return value
