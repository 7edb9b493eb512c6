# SPDX-License-Identifier: MIT
"""A sweep without a network: trials whose values follow from their keys, with interactions between layers."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from typing import Callable, Iterable

from mpnet.errors import EngineError
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.problem.problem import Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment, Space
from mpnet.sweep.store import Trial


def additive_quality(seed: int, layers: int) -> Callable[[str], float]:
    """Return 50 minus a harm per lowered layer, larger for fewer bits."""
    rng = random.Random(seed)
    harms = [rng.random() for _ in range(layers)]
    return lambda key: 50.0 - sum(h * (32 - BY_CODE[c].weight_bits) / 24 for h, c in zip(harms, key, strict=True))


def interacting_quality(seed: int, layers: int) -> Callable[[str], float]:
    """Return the same, with harms that neighbours lower or raise, and int8 that can beat fp32."""
    base = additive_quality(seed, layers)

    def quality(key: str) -> float:
        return base(key) + random.Random(f"{seed}{key}").gauss(0, 0.4)

    return quality


def trial(space: Space, macs: Iterable[int], quality: Callable[[str], float], key: str) -> Trial:
    codes, _ = split_key(key)
    bits = [BY_CODE[code].weight_bits for code in codes]
    return Trial(
        key,
        {
            "AP": quality(codes),
            "head_sqnr_db": quality(codes),
            "bit_operations": float(sum(m * b * b for m, b in zip(macs, bits, strict=True))),
            "weight_bytes": float(sum(bits)),
        },
    )


def run(walk: Walk, measure: Callable[[Assignment], Trial | None]) -> Results:
    """Drive a strategy to its end. measure: a trial, None for a configuration that fails."""
    trials: dict[Assignment, Trial] = {}
    try:
        batch = next(walk)
        while True:
            outcomes = {c: measure(c) for c in batch.configurations if c not in trials}
            if batch.screen:
                batch = walk.send({c: trial for c in batch.configurations if (trial := measure(c)) is not None})
                continue
            trials |= {configuration: trial for configuration, trial in outcomes.items() if trial is not None}
            batch = walk.send(trials)
    except StopIteration:
        return trials


def measure_of(problem: Problem, quality: Callable[[str], float]) -> Callable[[Assignment], Trial]:
    return lambda configuration: trial(problem.space, problem.macs, quality, configuration.key)


@dataclass(frozen=True)
class SyntheticRecipe:
    """Workers that compute trials from keys alone.

    die: a file; a worker that finds it removes it and is gone. seconds: what a key is said to take.
    """

    problem: Problem
    seed: int = 1
    die: str = ""
    fail: str = ""
    log: str = ""
    seconds: float = 0.0

    def __call__(self) -> SyntheticRecipe:
        return self

    def known_pass(self) -> str:
        return ""

    def evaluate(self, unit: WorkChunk) -> ChunkResult:
        if self.die and (self.die.endswith("always") or remove_file(self.die)):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fail:
            raise EngineError(self.fail)
        if self.log:
            with open(self.log, "a", encoding="ascii") as file:
                file.writelines(f"{unit.options}{key}\n" for key in unit.keys)
        quality = interacting_quality(self.seed, len(split_key(unit.keys[0])[0]))
        trials = tuple(trial(self.problem.space, self.problem.macs, quality, key) for key in unit.keys)
        return ChunkResult(unit, trials, 1000 * len(unit.keys), seconds=self.seconds * len(unit.keys))


def remove_file(path: str) -> bool:
    """Remove a file. Result: whether it was there and this worker, of several at once, removed it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
