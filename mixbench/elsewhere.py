# SPDX-License-Identifier: MIT
"""The exact front of a problem on the images of another one, with 95 % intervals.

python -m mixbench.elsewhere NAME OTHER     # a table; --json: a document; needs the files that the problems name

Each assignment of NAME's exact front runs on all images of OTHER, which has the same network; agreement is with the highest
precision of NAME. Intervals are over images, drawn again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence

import numpy as np

from mixbench.drawn import CACHE, drawn_agreement
from mixbench.errors import benchmark_errors
from mixbench.problem import FOLDER, HELD_OUT_AGREEMENT, QUALITY, load_problem
from mixbench.score import exact_picks, print_rows


@dataclass(frozen=True)
class Row:
    """An assignment of the exact front.

    cost: its share of the highest precision's bit operations. Agreement in percent: on the
    images that chose it, on those that judge, and on the other problem's with the ends of the 95 % interval.
    """

    key: str
    cost: float
    chose: float
    judge: float
    elsewhere: float
    low: float
    high: float


def rows(name: str, images_of: Path, cache_path: Path) -> list[Row]:
    """Return the rows of a problem's exact front, cheapest last.

    images_of: the experiment file of the other one. cache_path: the file of agreements computed before.
    Raises: BenchmarkError, MpnetError.
    """
    problem = load_problem(name)
    keys = exact_picks(problem)
    agreements = drawn_agreement(problem, images_of, lambda setup: np.arange(len(setup.bench.dataset.images)), keys, cache_path)
    result = []
    for key in keys:
        number, share = problem.number(key), problem.cost(key) / problem.cost(problem.highest)
        low, high = np.nanpercentile(agreements[key][1:], [2.5, 97.5])
        chose, judge = (float(problem.columns[column][number]) for column in (QUALITY, HELD_OUT_AGREEMENT))
        result.append(Row(key, share, chose, judge, float(agreements[key][0]), float(low), float(high)))
    return result


def main(arguments: Sequence[str]) -> int:
    """Run the command. Result: exit code."""
    names = [argument for argument in arguments if argument != "--json"]
    if len(names) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    images_of, cache_path = FOLDER / "problems" / f"{names[1]}.yaml", CACHE / f"{names[0]}-on-{names[1]}.npz"

    def compute_rows() -> list[Row]:
        with benchmark_errors():
            return rows(names[0], images_of, cache_path)

    return print_rows(compute_rows, _table, "--json" in arguments)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    width = max(len("assignment"), len(rows[0].key))
    yield f"{'assignment':{width}}   cost  chose  judge  elsewhere  95 % interval"
    for row in rows:
        figures = f"{row.chose:5.1f}  {row.judge:5.1f}  {row.elsewhere:9.1f}  {row.low:5.1f} to {row.high:.1f}"
        yield f"{row.key:{width}} {row.cost:6.1%}  {figures}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
