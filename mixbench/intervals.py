# SPDX-License-Identifier: MIT
"""What methods pick, on the images that judge, against what the exact front of the others picks, with 95 % intervals.

python -m mixbench.intervals SUBMISSION.json...     # a table; --json: a document; needs the files that the problems name

At each cost of the exact front a method's pick, the best of its answers on the images that choose, is compared with the
front's. Both run on the images that judge; these are drawn again, the same draws for both. The figure is the mean over the
costs: an interval that does not reach 0 tells the method from the exact front. What ran is kept in runs/mixbench/drawn.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence

import numpy as np

from mixbench.drawn import CACHE, drawn_agreement
from mixbench.errors import BenchmarkError, benchmark_errors
from mixbench.problem import FOLDER
from mixbench.score import exact_front, exact_picks, picks, print_rows
from mixbench.submission import Submission, read_submission


@dataclass(frozen=True)
class Row:
    """Points of agreement that a method's picks lack of those of the exact front, mean over its costs.

    They are of the images that judge: as measured, and the ends of the 95 % interval over images. Below 0: they are better
    there.
    """

    problem: str
    method: str
    quality_loss: float
    low: float
    high: float


def rows(submissions: Sequence[Submission], problem: Path, cache_path: Path) -> list[Row]:
    """Return the rows of submissions to one problem, an experiment file. cache_path: the file of agreements computed before.

    Raises: BenchmarkError, MpnetError.
    """
    table = submissions[0].problem
    costs = exact_front(table)[:, 1]
    exact = exact_picks(table)
    picked_keys = [picks(submission.problem, submission.answers, costs) for submission in submissions]
    needed_keys = dict.fromkeys([*exact, *(key for keys in picked_keys for key in keys if key is not None)])
    agreements = drawn_agreement(table, problem, lambda setup: setup.report, list(needed_keys), cache_path)
    result = []
    for submission, keys in zip(submissions, picked_keys, strict=True):
        pairs = [(best, key) for best, key in zip(exact, keys, strict=True) if key is not None]
        if not pairs:
            raise BenchmarkError(
                f"{submission.method}: every answer costs more than the whole exact front; answer a cheaper one"
            )
        losses = np.mean([agreements[best] - agreements[key] for best, key in pairs], axis=0)
        low, high = np.nanpercentile(losses[1:], [2.5, 97.5])
        result.append(Row(table.name, submission.method, float(losses[0]), float(low), float(high)))
    return result


def main(arguments: Sequence[str]) -> int:
    """Run the command. Result: exit code."""
    paths = [Path(argument) for argument in arguments if argument != "--json"]
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2

    def compute_rows() -> list[Row]:
        submissions = [read_submission(path) for path in paths]
        of_problem = {submission.problem.name: list[Submission]() for submission in submissions}
        for submission in submissions:
            of_problem[submission.problem.name].append(submission)
        with benchmark_errors():
            return [
                row
                for name, of_it in of_problem.items()
                for row in rows(of_it, FOLDER / "problems" / f"{name}.yaml", CACHE / f"{name}.npz")
            ]

    return print_rows(compute_rows, _table, "--json" in arguments)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "problem          method              lost on others  95 % interval"
    for row in rows:
        yield f"{row.problem:16} {row.method:18} {row.quality_loss:15.2f}  {row.low:6.2f} to {row.high:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
