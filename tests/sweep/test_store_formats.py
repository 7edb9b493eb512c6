# SPDX-License-Identifier: MIT
"""Stores of other versions: those of every format are read, resumed and reported; a measure more or less breaks none."""

from __future__ import annotations

import itertools
import math
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.config import measures
from mpnet.config.experiment import ConstraintSection
from mpnet.config.measures import Measure
from mpnet.errors import ConfigError, StoreError
from mpnet.report.collect.report import collect
from mpnet.report.html.page import render
from mpnet.sweep.choose.findings import SweepFacts, choose_result, find_candidates
from mpnet.sweep.evaluate.executor import InlineExecutor
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import build_space
from mpnet.sweep.result import SweepResult
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.store import Subject, Trial, TrialStore
from tests.sweep.sweep_networks import tiny_yolo
from tests.sweep.synthetic import SyntheticRecipe

SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)
NETWORK = tiny_yolo()
FULL = "hhhqqq+1:q"  # the old store's trial that has a value of nearly everything
MOOD = Measure("mood", "mood", "", "accuracy", "How it feels.")


FORMATS = ("0.1.0", "0.2.0-named-columns", "0.2.0-checksums")
"""Every format of stores: columns known by place, by name (still without checksums), and rows with checksums."""


@pytest.fixture(params=FORMATS)
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return what a version left of a sweep with a budget of 20 trials, and one trial more."""
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as direct:
        direct.executescript((Path(__file__).parent / f"store-{request.param}.sql").read_text(encoding="utf-8"))
    direct.close()
    return path


def trials_of(path: Path) -> dict[str, Trial]:
    with TrialStore.read(path) as store:
        return {trial.key: trial for trial in store.trials(1)}


def problem(*objectives: str) -> Problem:
    space = replace(build_space(NETWORK, ("fp32", "fp16", "int8")), suffix="+1:q")
    return Problem(space, tuple(c.macs for c in NETWORK.convolutions), objectives_of(objectives or ("AP", "bit_operations")))


def resume(path: Path, task: Problem) -> tuple[int, SweepResult]:
    """Return how much was computed, and the sweep's result."""
    with TrialStore.open(path, SUBJECT) as store:
        sweep = Sweep(task, NETWORK, store, [1], lambda: WorkerPool(InlineExecutor(SyntheticRecipe(task))))
        state = sweep.run(strategy("exhaustive").walk)
        facts = SweepFacts("old", "exhaustive", images=1, selecting=1, macs_per_pass=1000, passes_in_theory=1.0)
        candidates = find_candidates(task, store, (1,), state.trials)
        return state.computed, choose_result(candidates, state, facts, lambda configurations: {})


def test_a_store_of_every_format_is_read_as_it_is(old_store: Path) -> None:
    content = old_store.read_bytes()
    trials = trials_of(old_store)
    assert len(trials) == 21
    assert trials["qfffff+1:q"].values == {"AP": 50.1493850414587498658, "weight_bytes": 168.0, "bit_operations": 210501632.0}
    assert trials[FULL].values == {
        "AP": 41.5,
        "AP50": -1.0,
        "AR100": 50.25,
        "agreement_AP": 97.125,
        "head_sqnr_db": 150.0,
        "held_out_AP": 40.75,
        "held_out_head_sqnr_db": 31.5,
        "weight_bytes": 96.0,
        "peak_activation_bytes": 4096.0,
        "bit_operations": 1e6,
        "int8_macs": 500.0,
        "latency_ms": 2.5,
    }
    assert old_store.read_bytes() == content


def test_a_store_of_every_format_is_resumed(old_store: Path) -> None:
    old_trials = trials_of(old_store)
    computed, result = resume(old_store, problem())
    assert computed == 3**6 - 21
    trials = trials_of(old_store)
    assert trials.keys() == {"".join(codes) + "+1:q" for codes in itertools.product("fhq", repeat=6)}
    assert {key: trials[key] for key in old_trials} == old_trials
    assert result.gap is not None
    assert result.gap.hypervolume_ratio == 1
    with TrialStore.read(old_store) as store:
        assert store.note("version") == "2"
        assert store.work().macs == 1000 * (20 + computed)


def test_a_store_of_every_format_is_reported(old_store: Path) -> None:
    data = collect([old_store], progress=lambda task, total: nullcontext(lambda count: None), compute=False)
    table = data.configurations
    row = table.keys.index(FULL)
    assert (len(table), table.keys[table.baseline or 0]) == (21, "ffffff+1:q")
    assert (table.value(row, "AP"), table.value(row, "head_sqnr_db")) == (41.5, math.inf)
    assert math.isnan(table.value(row, "AP50"))
    assert "int8_macs" not in table.columns
    assert FULL in render(data)


def test_a_new_measure_is_a_row_of_the_table(old_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored and read back, in an old store too; offered by documents and reports."""
    mood = {"AP": 60.0, "mood": 7.5, "held_out_mood": 6.5, "bit_operations": 1.0, "weight_bytes": 1.0}
    with monkeypatch.context() as patch:
        patch.setattr(measures, "MEASURES", (MOOD, *measures.MEASURES))
        assert "mood" not in trials_of(old_store)[FULL].values
        with TrialStore.open(old_store, SUBJECT) as store:
            store.add(1, [Trial("qqqqqq+1:q", mood)])
        trials = trials_of(old_store)
        assert trials["qqqqqq+1:q"].values == mood
        assert "mood" not in trials[FULL].values
        assert len(trials) == 22
        _, result = resume(old_store, problem())
        best = result.front[0]
        assert (best.metrics, best.held_out) == ({"mood": 7.5, "AP": 60.0}, {"mood": 6.5})
        with pytest.raises(ConfigError, match="mood was not measured for"):
            resume(old_store, problem("mood", "bit_operations"))
        data = collect([old_store], progress=lambda task, total: nullcontext(lambda count: None), compute=False)
        assert data.configurations.value(data.configurations.keys.index("qqqqqq+1:q"), "mood") == 7.5
    # A program that does not know the measure goes on with the same store.
    other_measures = {name: value for name, value in mood.items() if "mood" not in name}
    assert trials_of(old_store)["qqqqqq+1:q"].values == other_measures
    with TrialStore.open(old_store, SUBJECT) as store:
        with pytest.raises(StoreError, match="no column for"):
            store.add(1, [Trial("other", mood)])
        assert store.add(1, [Trial("other", other_measures)]) == 1
    assert trials_of(old_store)["other"].values == other_measures


def test_a_new_cost_may_be_an_objective_and_limited() -> None:
    """Experiment files offer what the table has when the program starts."""
    program = """
from mpnet.config import measures
measures.MEASURES += (measures.Measure("energy_mj", "energy", "mJ", "cost", "Energy for one image."),)
from mpnet.formats.documents.experiment import parse_experiment
sweep = parse_experiment("{name: x, model: {cfg: a, weights: b}, sweep: {strategy: grid, "
                         "objectives: [AP, energy_mj], constraints: {energy_mj: 2.5}}}").sweep
print(sweep.objectives, sweep.constraints.at_most)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "('AP', 'energy_mj') {'energy_mj': 2.5}\n"


def test_limits_of_costs_hold() -> None:
    task = replace(problem("AP", "bit_operations"), constraints=ConstraintSection(at_most={"bit_operations": 2.5}))
    cheap, dear = (Trial(key, {"AP": 40.0, "bit_operations": bits}) for key, bits in (("a", 2.5), ("b", 2.6)))
    assert [task.meets(trial, cheap) for trial in (cheap, dear)] == [True, False]


@pytest.mark.parametrize("version", ["3", "12", "x", ""])
def test_a_newer_store_is_one_clear_line(old_store: Path, version: str) -> None:
    with sqlite3.connect(old_store) as direct:
        direct.execute("UPDATE meta SET value = ? WHERE name = 'version'", (version,))
    direct.close()
    content = old_store.read_bytes()
    for opener in (TrialStore.read, lambda path: TrialStore.open(path, SUBJECT)):
        with pytest.raises(
            StoreError,
            match=rf"old.sqlite: a store of format version {version}, this mpnet reads 1 to 2; "
            r"use the newer mpnet that wrote it, or choose another --store$",
        ):
            opener(old_store)
    assert old_store.read_bytes() == content
