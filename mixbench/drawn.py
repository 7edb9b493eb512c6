# SPDX-License-Identifier: MIT
"""Agreement of assignments on images that did not choose, and on these drawn again; what ran is kept in runs/mixbench/drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.measure import sweep_of
from mixbench.problem import QUALITY, Problem
from mpnet.engine.assign import assign_key
from mpnet.errors import ConfigError, EngineError
from mpnet.formats.files.atomic import atomic_path
from mpnet.sweep.setup import SweepSetup
from mpnet.trial.inference import run_each

KEPT = Path("runs/mixbench/drawn")
AT_ONCE = 4
"""Assignments that run in one walk through the images."""


def drawn_agreement(
    asked: Problem, images_of: Path, which: Callable[[SweepSetup], NDArray[np.intp]], keys: Sequence[str], kept: Path
) -> dict[str, NDArray[np.float64]]:
    """Of each key of a problem, its agreement with the highest precision, in percent, and after it that on images drawn again:
    (1 + draws,), the same draws for all keys.

    images_of: the experiment file that has the images. which: of its images, by position. kept: the file of what ran already.
    Raises: ConfigError for a file with another network, MpnetError.
    """
    known: dict[str, NDArray[np.float64]] = {}
    if kept.exists():
        with np.load(kept, allow_pickle=False) as stored:
            if str(stored["table"]) == asked.digest:
                known = dict(zip(stored["keys"].tolist(), stored["drawn"], strict=True))
    missing = [key for key in keys if key not in known]
    if not missing:
        return known
    setup, sweep = sweep_of(images_of)
    if sweep.macs != asked.macs:
        raise ConfigError(f"{images_of}: has another network than {asked.name}, whose assignments cannot run there")
    bench = setup.bench.of_images(which(setup).tolist())

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
