# SPDX-License-Identifier: MIT
"""How near a submission comes to the exact front, on the images that chose and on others.

python -m mixbench.score SUBMISSION.json... [--measure]     # a table; --json: a document
python -m mixbench.score SUBMISSION.json... --after 100 200     # mean regret of what is known after so many passes

--measure runs what the table of a front lacks. The last three columns are of methods that rank layers: rank correlation of
their sensitivities with the loss of each layer lowered alone, the share of the most sensitive fifth of the layers that they
find, and the rank correlation of summed sensitivities with the loss of assignments; all on the images that judge.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.errors import BenchmarkError
from mixbench.front import best_pairs, front_gap
from mixbench.problem import COST, HELD_OUT_AGREEMENT, QUALITY, Problem, loader_of, points
from mixbench.ranking import Ranking, rank_figures
from mixbench.submission import Submission, read_submission

NEAR_LOSS = 0.1
"""Points of agreement: how near to the exact front `passes_to_near` asks a method to come."""


@dataclass(frozen=True)
class Score:
    """Figures of one submission.

    Regrets are points of agreement that its best assignment lacks at equal or lower cost, over the costs
    of the exact front (as the `gap` of a sweep): there against that front, on the others against the best that there is.

    passes: spent. regret_mean, regret_max, hypervolume: on the images that choose. uncovered: costs of the exact front below
    all answers; they count in no regret. passes_to_near: passes after which what was asked has a mean regret of at most 0.1;
    None: never. others_mean, others_max: regret on the other images of what it would pick there by those that choose.
    Regrets are None where every answer costs more than the whole exact front.
    rank_layers, top_fifth, rank_assignments: of a method that ranks layers, see `Ranking`; None for others.
    """

    problem: str
    method: str
    passes: int
    regret_mean: float | None
    regret_max: float | None
    hypervolume: float
    uncovered: int
    passes_to_near: int | None
    others_mean: float | None
    others_max: float | None
    rank_layers: float | None
    top_fifth: float | None
    rank_assignments: float | None


def exact_front(problem: Problem) -> NDArray[np.float64]:
    """(m, 2) of quality and cost, on the images that choose, of all assignments that no other one dominates."""
    pairs = np.column_stack([problem.columns[QUALITY], problem.columns[COST]])
    return best_pairs(pairs[~np.isnan(pairs[:, 0])])


def score(submission: Submission) -> Score:
    """Compute the figures of a submission."""
    problem = submission.problem
    exact = exact_front(problem)
    gap = front_gap(best_pairs(points(problem, submission.answers)), exact)
    is_covered = gap.uncovered < len(exact)
    ranking = Ranking() if problem.sensitivities is None else rank_figures(problem, problem.sensitivities)
    held_out_losses = _measure_held_out(problem, submission.answers, exact[:, 1])
    return Score(
        problem.name,
        submission.method,
        submission.passes,
        gap.quality_lost_mean if is_covered else None,
        gap.quality_lost_max if is_covered else None,
        gap.hypervolume_ratio,
        gap.uncovered,
        _passes_to_near(submission, exact),
        float(np.mean(held_out_losses)) if is_covered else None,
        float(np.max(held_out_losses)) if is_covered else None,
        ranking.layers,
        ranking.top_fifth,
        ranking.assignments,
    )


def picks(problem: Problem, answers: Sequence[str], costs: NDArray[np.float64]) -> list[str | None]:
    """Return what would be taken of some answers at each cost.

    It is the best on the images that choose that costs no more, the cheapest of equal ones; None where all cost more.
    """
    measures, picked = points(problem, answers), list[str | None]()
    for cost in costs:
        affordable = measures[:, 1] <= cost
        order = np.lexsort((measures[affordable, 1], -measures[affordable, 0]))
        picked.append(answers[np.flatnonzero(affordable)[order[0]]] if affordable.any() else None)
    return picked


def exact_picks(problem: Problem) -> list[str]:
    """Return what would be taken of the exact front at each of its costs, the dearest first."""
    measured_keys = [key for key, quality in zip(problem.keys, problem.columns[QUALITY], strict=True) if not np.isnan(quality)]
    return [key for key in picks(problem, measured_keys, exact_front(problem)[:, 1]) if key is not None]


def _measure_held_out(problem: Problem, answers: Sequence[str], costs: NDArray[np.float64]) -> list[float]:
    """Regret on the others at each cost that some answer keeps; of a front, against the best that has figures."""
    regrets = []
    for cost, pick in zip(costs, picks(problem, answers, costs), strict=True):
        if pick is not None:
            best = np.nanmax(problem.columns[HELD_OUT_AGREEMENT][problem.columns[COST] <= cost])
            regrets.append(float(best - points(problem, [pick], HELD_OUT_AGREEMENT)[0, 0]))
    return regrets


def _passes_to_near(submission: Submission, exact: NDArray[np.float64]) -> int | None:
    problem = submission.problem
    keys = list(dict.fromkeys([*problem.asked, *submission.answers]))
    pairs = points(problem, keys)

    def is_near(count: int) -> bool:
        gap = front_gap(best_pairs(pairs[:count]), exact)
        return gap.uncovered == 0 and gap.quality_lost_mean <= NEAR_LOSS

    if not is_near(len(keys)):
        return None
    low, high = 1, len(keys)  # more assignments never make it worse
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_near(middle) else (middle + 1, high)
    return low + sum(passes for asked_before, passes, _ in problem.spent if asked_before < low)


@dataclass(frozen=True)
class Progress:
    """The mean regret of a submission by passes spent, as a text of each number of passes.

    passes: spent in all. regrets: on the images that choose, as `Score`, of what is known after so many passes.
    """

    problem: str
    method: str
    passes: int
    regrets: dict[str, float]


def progress(submission: Submission, counts: Sequence[int]) -> Progress:
    """Return the mean regret after each number of passes, all costs of the exact front counted.

    The assignment with everything low counts as known from the beginning, so that every cost has an answer. Answers that were
    not asked for cost a pass each at the end; where only some of them fit, these are spread evenly.
    """
    problem, exact = submission.problem, exact_front(submission.problem)
    asked = list(problem.asked)
    unasked = [key for key in submission.answers if key not in problem.asked]
    ends = [
        number + sum(passes for before, passes, _ in problem.spent if before < number) for number in range(1, len(asked) + 1)
    ]
    regrets = {}
    for count in counts:
        keys = asked[: int(np.searchsorted(ends, count, side="right"))]
        remaining = min(len(unasked), count - problem.passes)
        if remaining > 0:
            keys += [unasked[row] for row in np.unique(np.linspace(0, len(unasked) - 1, remaining).round().astype(int))]
        pairs = best_pairs(points(problem, [problem.lowest, *keys]))
        regrets[str(count)] = front_gap(pairs, exact).quality_lost_mean
    return Progress(problem.name, submission.method, submission.passes, regrets)


def main(arguments: list[str]) -> int:
    """Run the command. Result: exit code."""
    counts: list[int] = []
    if "--after" in arguments:
        first = arguments.index("--after")
        counts = [int(word) for word in arguments[first + 1 :] if word.isdecimal()]
        arguments = [word for word in arguments if word != "--after" and word not in map(str, counts)]
    paths = [Path(argument) for argument in arguments if argument not in ("--json", "--measure")]
    is_measured = "--measure" in arguments
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    if counts:
        return print_rows(
            lambda: [progress(read_submission(path, loader_of(is_measured)), counts) for path in paths],
            _progress_table,
            "--json" in arguments,
        )
    return print_rows(
        lambda: [score(read_submission(path, loader_of(is_measured))) for path in paths], _table, "--json" in arguments
    )


def print_rows(
    compute_rows: Callable[[], Sequence[Any]], table: Callable[[Sequence[Any]], Iterable[str]], as_json: bool
) -> int:
    """Print the dataclasses that a command finds: lines of a table, or a document. Result: exit code."""
    try:
        rows = compute_rows()
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in [json.dumps([asdict(row) for row in rows], indent=1)] if as_json else table(rows):
        print(line)
    return 0


def points_text(points: float | None) -> str:
    """Write points of agreement, '-' for none."""
    return "-" if points is None else f"{points:.2f}"


def _progress_table(rows: Sequence[Progress]) -> Iterator[str]:
    counts = list(rows[0].regrets)
    yield "problem          method              passes" + "".join(f"{f'after {count}':>13}" for count in counts)
    for row in rows:
        regrets = "".join(f"{points_text(row.regrets[count]):>13}" for count in counts)
        yield f"{row.problem:16} {row.method:18} {row.passes:7,}{regrets}"


def _table(scores: Sequence[Score]) -> Iterator[str]:
    yield (
        "problem          method              passes  to 0.1  regret  (max)  hypervolume  on others  (max)"
        "  layers  fifth  assignments"
    )
    for row in scores:
        to_near = "-" if row.passes_to_near is None else str(row.passes_to_near)
        yield (
            f"{row.problem:16} {row.method:18} {row.passes:7,} {to_near:>7} {points_text(row.regret_mean):>7} "
            f"{points_text(row.regret_max):>6} {100 * row.hypervolume:11.2f}% {points_text(row.others_mean):>10} "
            f"{points_text(row.others_max):>6} {points_text(row.rank_layers):>7} {points_text(row.top_fifth):>6} "
            f"{points_text(row.rank_assignments):>12}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
