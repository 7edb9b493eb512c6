# SPDX-License-Identifier: MIT
"""Times of what a sweep offers: measured once on a machine, again where they cannot be believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Sequence

import pytest

from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.typed import as_json
from mpnet.speed.clock import Times
from mpnet.sweep.choose import timing
from mpnet.sweep.result import SweepResult
from mpnet.sweep.run import run_sweep
from mpnet.sweep.store import TrialStore
from tests.networks import write_experiment

SWEEP = "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0.4}"


class Stopwatch:
    """Times that are made up: the n-th pass of a round takes n milliseconds."""

    def __init__(self, upper_ratio: float = 1.0) -> None:
        self.rounds, self.upper_ratio = 0, upper_ratio

    def __call__(self, passes: Sequence[Any], threads: int) -> list[Times]:
        self.rounds += 1
        for forward in passes:
            forward()
        return [Times((number, number * self.upper_ratio, number * self.upper_ratio)) for number in range(1, len(passes) + 1)]


def sweep(folder: Path, **options: Any) -> SweepResult:
    path = folder / "experiment.yaml"
    return run_sweep(read_experiment(path if path.exists() else write_experiment(folder), [SWEEP]), workers=1, **options)


def test_baseline_and_picks_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch()
    monkeypatch.setattr(timing, "passes_in_turn", watch)
    result = sweep(tmp_path, timed=True)
    assert result.times.keys() == {"baseline", "int8", *result.picks}
    assert result.times["baseline"].median_ms == 1.0
    repeated = sweep(tmp_path, timed=True)
    assert (repeated.computed, repeated.times, watch.rounds) == (0, result.times, 1)
    with TrialStore.read(Path(result.store)) as store:
        assert json.loads(store.note("findings") or "")["times"] == as_json(result)["times"]


def test_what_cannot_be_believed_is_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch(upper_ratio=1.5)
    monkeypatch.setattr(timing, "passes_in_turn", watch)
    assert "1.5 times the least" in (sweep(tmp_path, timed=True).times["baseline"].doubt or "")
    sweep(tmp_path, timed=True)
    assert watch.rounds == 2


def test_nothing_is_timed_unasked(tmp_path: Path) -> None:
    assert sweep(tmp_path).times == {}
