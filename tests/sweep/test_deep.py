# SPDX-License-Identifier: MIT
"""The search of deep networks: screening, its chain on all images, and that it takes the same way again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mpnet.sweep.choose.layer_ranking import rank_by_noise
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import InlineExecutor
from mpnet.sweep.evaluate.likely_heads import LikelyHeads
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.loop import Sweep, SweepState, WorkerPool
from mpnet.sweep.search.screening import SCREENING_IMAGES, split_screening
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.store import Subject, TrialStore
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import tiny_yolo, yolov3_tiny
from tests.sweep.synthetic import SyntheticRecipe, additive_quality, measure_of, run

NETWORK = tiny_yolo()
SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)


def problem(**keywords: object) -> Problem:
    space = build_space(NETWORK, ("fp32", "fp16", "int8"))
    return Problem(space, tuple(c.macs for c in NETWORK.convolutions), objectives_of(("AP", "bit_operations")), **keywords)


def sweep(store: TrialStore, task: Problem) -> SweepState:
    pool = WorkerPool(InlineExecutor(SyntheticRecipe(task)))
    return Sweep(task, NETWORK, store, [store.context({"arithmetic": "1"})], lambda: pool).run(strategy("deep").walk)


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore.open(tmp_path / "sweep.sqlite", SUBJECT)


def test_what_is_screened_is_noise_and_cost_of_the_trial() -> None:
    sweep_context = replace(with_baseline(context(NETWORK)), screening=np.arange(5))
    keys = ("ffffff", "fhqqff", "qqqqqq")
    worker = Evaluator(sweep_context)
    screened_trials, full_trials = (worker.evaluate(WorkChunk(0, keys, is_screening=flag)).trials for flag in (True, False))
    assert [trial.key for trial in screened_trials] == list(keys)
    for screened_trial, full_trial in zip(screened_trials, full_trials, strict=True):
        assert screened_trial.values == {name: full_trial.values[name] for name in screened_trial.values}
        assert {"head_sqnr_db", "bit_operations"} <= screened_trial.values.keys()


def test_screening_decodes_no_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_context = replace(with_baseline(context(NETWORK)), screening=np.arange(5))
    decoded: list[object] = []
    monkeypatch.setattr(LikelyHeads, "decode", lambda *arguments: decoded.append(arguments))
    result = Evaluator(sweep_context).evaluate(WorkChunk(0, ("ffffff", "qqqqqq"), is_screening=True))
    assert len(result.trials) == 2
    assert decoded == []


def test_few_images_are_those_that_the_context_names() -> None:
    sweep_context = with_baseline(context(NETWORK))
    two_images, one_image = (
        Evaluator(replace(sweep_context, screening=np.array(image_indices))).evaluate(
            WorkChunk(0, ("qqqqqq",), is_screening=True)
        )
        for image_indices in ([0, 1], [3])
    )
    assert two_images.macs == 2 * one_image.macs
    assert two_images.trials[0].values["head_sqnr_db"] != one_image.trials[0].values["head_sqnr_db"]


def test_what_is_screened_is_spread_over_all_workers() -> None:
    assignments = [Assignment(key, options) for key in "abcde" for options in (1, 0)]
    units = split_screening(assignments, 2)
    assert [(unit.options, unit.keys) for unit in units] == [
        (0, ("a", "c", "e")),
        (0, ("b", "d")),
        (1, ("a", "c", "e")),
        (1, ("b", "d")),
    ]
    assert all(unit.is_screening for unit in units)


def test_screening_is_not_done_again_and_a_stopped_sweep_takes_the_same_way(store: TrialStore, tmp_path: Path) -> None:
    interrupted = sweep(store, problem(trials=12))
    assert (len(interrupted.trials), interrupted.exhausted_budget) == (12, "trials")
    complete = sweep(store, problem())
    assert complete.computed == len(complete.trials) - 12
    with TrialStore.open(tmp_path / "other.sqlite", SUBJECT) as uninterrupted_store:
        assert dict(sweep(uninterrupted_store, problem()).trials) == dict(complete.trials)
    assert sweep(store, problem()).macs == 0


def test_every_trial_of_the_chain_has_more_layers_lowered() -> None:
    network = yolov3_tiny()
    space = build_space(network, ("fp16", "int8"))
    task = Problem(space, tuple(c.macs for c in network.convolutions), objectives_of(("AP", "bit_operations")))
    trials = run(strategy("deep").walk(task), measure_of(task, additive_quality(4, 13)))
    # Harm adds up here, so that the chain is best at its costs and nothing around it is better.
    chain = [c.key for c in sorted(trials, key=lambda c: -task.cost(trials[c]))]
    lowered = [{i for i, code in enumerate(key) if code == "q"} for key in chain]
    assert lowered[0] == set()
    assert lowered[-1] == set(range(13))
    nested = [lower for lower, higher in pairwise(lowered) if lower <= higher]
    assert len(nested) >= 12


def test_a_small_problem_is_solved_exactly() -> None:
    task = problem(is_small=True)
    trials = run(strategy("auto").walk(task), measure_of(task, additive_quality(4, 6)))
    assert len(trials) == task.space.size == 3**6


def test_layers_that_feed_outputs_are_measured_raised_too() -> None:
    task = problem(outputs=frozenset({5}))
    trials = run(strategy("deep").walk(task), measure_of(task, additive_quality(4, 6)))
    low = [c.key for c in trials if c.key[5] == "q" and c.key.count("q") > 1]
    assert low
    assert any(key[:5] + "h" in {c.key for c in trials} for key in low)


def test_layers_are_ranked_by_the_noise_that_was_screened(store: TrialStore) -> None:
    task = problem()
    context_number = store.context({"arithmetic": "1"})
    assert rank_by_noise(task, store, [context_number], NETWORK) == ()
    sweep(store, task)
    rows = rank_by_noise(task, store, [context_number], NETWORK)
    assert sorted((row.layers, row.precision) for row in rows) == sorted(
        ((layer,), precision) for layer in task.space.layers for precision in ("fp16", "int8")
    )
    assert [row.noise for row in rows] == sorted((row.noise for row in rows), reverse=True)
    assert sum(row.noise_percent for row in rows if row.noise > 0) == pytest.approx(100)
    assert sum(row.saved_percent for row in rows) == pytest.approx(100 * (1 - 8 * 8 / 32 / 32))
    # The first step was measured from all high, by the trial that the store has.
    values = store.document(f"screened/{context_number}:{SCREENING_IMAGES}")
    high, single = (10 ** (-values[key]["head_sqnr_db"] / 10) for key in ("ffffff", "hfffff"))
    first = next(row for row in rows if (row.names[0], row.precision) == (NETWORK.convolutions[0].name, "fp16"))
    assert first.noise == single - high


def test_a_sweep_that_stopped_while_it_screened_ranks_no_layer(store: TrialStore) -> None:
    task = problem(trials=1)
    context_number = store.context({"arithmetic": "1"})
    sweep(store, task)
    assert rank_by_noise(task, store, [context_number], NETWORK) == ()
