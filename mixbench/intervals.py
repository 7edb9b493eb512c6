# SPDX-License-Identifier: MIT
"""What methods pick, on the images that judge, against what the exact front of the others picks, with 95 % intervals.

python -m mixbench.intervals SUBMISSION.json...     # a table; --json: a document; needs the files that the problems name

At each cost of the exact front a method's pick, the best of its answers on the images that choose, is compared with the
front's. Both run on the images that judge; these are drawn again, the same draws for both. The figure is the mean over the
costs: an interval that does not reach 0 tells the method from the exact front. What ran is kept in runs/mixbench/drawn.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.measure import sweep_of
from mixbench.problem import HERE, QUALITY, Problem
from mixbench.score import exact_front, picks
from mixbench.submission import Submission, read_submission
from mpnet.engine.assign import assign_key
from mpnet.errors import EngineError, MpnetError
from mpnet.formats.files.atomic import atomic_path
from mpnet.trial.inference import run_each

KEPT = Path("runs/mixbench/drawn")
AT_ONCE = 4
"""Assignments that run in one walk through the images."""


@dataclass(frozen=True)
class Row:
    """Points of agreement that a method's picks lack of those of the exact front, mean over its costs, on the images that
    judge: as measured, and the ends of the 95 % interval over images. Below 0: they are better there."""

    problem: str
    method: str
    lost: float
    low: float
    high: float


def rows(submissions: Sequence[Submission], problem: Path, kept: Path) -> list[Row]:
    """Of submissions to one problem, an experiment file. kept: the file of agreement on images drawn again.

    Raises: MpnetError.
    """
    asked = submissions[0].problem
    costs = exact_front(asked)[:, 1]
    measured = [key for key, quality in zip(asked.keys, asked.columns[QUALITY], strict=True) if not np.isnan(quality)]
    exact = picks(asked, measured, costs)
    chosen = [picks(submission.problem, submission.answers, costs) for submission in submissions]
    wanted = dict.fromkeys(key for keys in (exact, *chosen) for key in keys if key is not None)
    drawn = _drawn(problem, asked, list(wanted), kept)
    result = []
    for submission, keys in zip(submissions, chosen, strict=True):
        pairs = [(best, key) for best, key in zip(exact, keys, strict=True) if best is not None and key is not None]
        lost = np.mean([drawn[best] - drawn[key] for best, key in pairs], axis=0)
        low, high = np.nanpercentile(lost[1:], [2.5, 97.5])
        result.append(Row(asked.name, submission.method, float(lost[0]), float(low), float(high)))
    return result


def _drawn(problem: Path, asked: Problem, keys: Sequence[str], kept: Path) -> dict[str, NDArray[np.float64]]:
    """Of each key its agreement on the images that judge, in percent, and after it that on the images drawn again."""
    known: dict[str, NDArray[np.float64]] = {}
    if kept.exists():
        with np.load(kept, allow_pickle=False) as stored:
            if str(stored["table"]) == asked.digest:
                known = dict(zip(stored["keys"].tolist(), stored["drawn"], strict=True))
    missing = [key for key in keys if key not in known]
    if not missing:
        return known
    setup, sweep = sweep_of(problem)
    bench = setup.bench.of_images(setup.report.tolist())

    def found(part: Sequence[str]) -> Iterator[Any]:
        plans = [bench.plan(assign_key(bench.network, sweep.space.key_of(key))) for key in part]
        for key, outcome in zip(part, run_each(bench, plans), strict=True):
            if isinstance(outcome, str):
                raise EngineError(f"{asked.name} {key}: {outcome}")
            yield outcome.predictions

    baseline = next(found([asked.highest]))
    meter, loss = bench.kit.meter(bench.dataset, baseline), bench.kit.loss(bench.dataset, baseline)
    for start in range(0, len(missing), AT_ONCE):
        part = missing[start : start + AT_ONCE]
        for key, predictions in zip(part, found(part), strict=True):
            known[key] = np.concatenate([[meter.values(predictions, ())[QUALITY]], loss(predictions).drawn])
        print(f"\r{asked.name}: {start + len(part):,} of {len(missing):,} assignments", end="", file=sys.stderr, flush=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(kept) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                table=np.array(asked.digest),
                keys=np.array([*known]),
                drawn=np.array([*known.values()]),
            )
    print(file=sys.stderr)
    return known


def main(arguments: Sequence[str]) -> int:
    """The command. Result: exit code."""
    paths = [Path(argument) for argument in arguments if argument != "--json"]
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    found: list[Row] = []
    try:
        submissions = [read_submission(path) for path in paths]
        for name in dict.fromkeys(submission.problem.name for submission in submissions):
            of_it = [submission for submission in submissions if submission.problem.name == name]
            found += rows(of_it, HERE / "problems" / f"{name}.yaml", KEPT / f"{name}.npz")
    except MpnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "--json" in arguments:
        print(json.dumps([asdict(row) for row in found], indent=1))
        return 0
    print("problem          method              lost on others  95 % interval")
    for row in found:
        print(f"{row.problem:16} {row.method:18} {row.lost:15.2f}  {row.low:6.2f} to {row.high:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
