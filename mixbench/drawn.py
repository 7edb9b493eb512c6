# SPDX-License-Identifier: MIT
"""Agreement of assignments on images that did not choose, and on these drawn again; what ran is kept in runs/mixbench/drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.errors import BenchmarkError
from mixbench.measure import group_macs, sweep_of
from mixbench.problem import QUALITY, Problem
from mpnet.engine.assign import assign_key
from mpnet.errors import EngineError
from mpnet.formats.files.atomic import atomic_path
from mpnet.sweep.setup import SweepSetup
from mpnet.trial.inference import run_each

CACHE = Path("runs/mixbench/drawn")
AT_ONCE = 4
"""Assignments that run in one walk through the images."""


def drawn_agreement(
    problem: Problem,
    images_of: Path,
    image_indices_of: Callable[[SweepSetup], NDArray[np.intp]],
    keys: Sequence[str],
    cache_path: Path,
) -> dict[str, NDArray[np.float64]]:
    """Return the agreement of each key of a problem with the highest precision, in percent.

    (1 + draws,): after it stands that on images drawn again, the same draws for all keys.

    images_of: the experiment file that has the images. image_indices_of: gives the positions of those that are used.
    cache_path: the file of agreements that were computed before.
    Raises: BenchmarkError for a file with another network, MpnetError.
    """
    agreements: dict[str, NDArray[np.float64]] = {}
    if cache_path.exists():
        with np.load(cache_path, allow_pickle=False) as archive:
            if str(archive["table"]) == problem.digest:
                agreements = dict(zip(archive["keys"].tolist(), archive["drawn"], strict=True))
    missing_keys = [key for key in keys if key not in agreements]
    if not missing_keys:
        return agreements
    setup, sweep = sweep_of(images_of)
    if group_macs(sweep) != problem.macs:
        raise BenchmarkError(f"{images_of}: has another network than {problem.name}, whose assignments cannot run there")
    bench = setup.bench.of_images(image_indices_of(setup).tolist())

    def predictions_of(batch_keys: Sequence[str]) -> Iterator[Any]:
        plans = [bench.plan(assign_key(bench.network, sweep.space.key_of(key))) for key in batch_keys]
        for key, outcome in zip(batch_keys, run_each(bench, plans), strict=True):
            if isinstance(outcome, str):
                raise EngineError(f"{problem.name} {key}: {outcome}")
            yield outcome.predictions

    baseline = next(predictions_of([problem.highest]))
    meter, loss = bench.kit.meter(bench.dataset, baseline), bench.kit.loss(bench.dataset, baseline)
    for start in range(0, len(missing_keys), AT_ONCE):
        batch_keys = missing_keys[start : start + AT_ONCE]
        for key, predictions in zip(batch_keys, predictions_of(batch_keys), strict=True):
            agreements[key] = np.concatenate([[meter.values(predictions, ())[QUALITY]], loss(predictions).drawn])
        print(
            f"\r{problem.name}: {start + len(batch_keys):,} of {len(missing_keys):,} assignments",
            end="",
            file=sys.stderr,
            flush=True,
        )
        cache_path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(cache_path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                table=np.array(problem.digest),
                keys=np.array([*agreements]),
                drawn=np.array([*agreements.values()]),
            )
    print(file=sys.stderr)
    return agreements
