# SPDX-License-Identifier: MIT
"""Configurations whose values are not finite: they have no figures, are known by their layer, and stop nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping

import numpy as np
import pytest

from mpnet.errors import EngineError, StoreError
from mpnet.model.weights import ConvolutionWeights
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import InlineExecutor
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.problem.front import Rivals
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.failed import FailedTrials
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import STRATEGIES, strategy
from mpnet.sweep.store import FailedTrial, Subject, Trial, TrialStore
from mpnet.sweep.store.salvage import salvage
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import conv, parse, tiny_yolo, yolo
from tests.sweep.synthetic import SyntheticRecipe, interacting_quality, run, trial
from tests.sweep.test_evaluator import direct
from tests.sweep.test_strategies import THREE_PRECISIONS, problem

SUBJECT = Subject("n", "w", "d", "p")


def with_layers(sweep_context: SweepContext, layers: Mapping[int, ConvolutionWeights]) -> SweepContext:
    """Return the context with other weights under all option sets."""
    weights = replace(sweep_context.options[0].weights, layers=layers, digest="")
    return replace(sweep_context, options=tuple(replace(option_set, weights=weights) for option_set in sweep_context.options))


def overflowing(images: int = 5, **changes: object) -> SweepContext:
    """Return a context in which the results of all layers with weights but the heads are beyond fp16, in the images from the
    third on. The heads have small weights, which take that back."""
    sweep_context = context(tiny_yolo(), images=images, **changes)
    layers = {
        index: replace(layer_weights, weights=layer_weights.weights * np.float32(1e-6 if index in (5, 11) else 1))
        for index, layer_weights in sweep_context.options[0].weights.layers.items()
    }
    pixels = np.array(sweep_context.images)
    pixels[2:] *= np.float32(1e6)
    return replace(with_layers(sweep_context, layers), images=pixels)


def reason(sweep_context: SweepContext, key: str) -> str | None:
    """Return why a direct run of a configuration ends in an error; None: it does not."""
    try:
        direct(sweep_context, key)
    except EngineError as error:
        return str(error)
    return None


@pytest.mark.parametrize("group", [1, 64])
def test_what_fails_is_what_a_direct_run_refuses(group: int) -> None:
    sweep_context = with_baseline(overflowing(group=group))
    keys = tuple(build_space(sweep_context.network, THREE_PRECISIONS).all_keys())[::5]
    result = Evaluator(sweep_context).evaluate(WorkChunk(0, keys))
    reasons = {
        failed_trial.key: f"{sweep_context.network.source}: {failed_trial.reason}" for failed_trial in result.failed_trials
    }
    assert 10 < len(reasons) < len(keys) - 10
    assert {key: text for key in keys if (text := reason(sweep_context, key))} == reasons
    layers = {failed_trial.key: failed_trial.layer for failed_trial in result.failed_trials}
    assert {key: layers[key] for key in layers if key.find("h") == 2} == {key: 4 for key in keys if key.find("h") == 2}
    assert [t.key for t in result.trials] == [key for key in keys if key not in reasons]
    assert result.ruled_out == ()
    # Those that fail change nothing for their neighbours.
    alone = Evaluator(sweep_context)
    assert all(alone.evaluate(WorkChunk(0, (t.key,))).trials == (t,) for t in result.trials[::9])


def test_a_stem_that_fails_fails_all() -> None:
    result = Evaluator(with_baseline(overflowing())).evaluate(WorkChunk(0, ("ffhfff", "ffhqqq")))
    assert (result.trials, [failed_trial.key for failed_trial in result.failed_trials]) == ((), ["ffhfff", "ffhqqq"])


def test_outputs_that_no_convolution_checks_are_checked() -> None:
    """A sum of two finite tensors that overflows, in cells where no box is."""
    layer = conv(24, activation="linear")
    network = parse(16, layer, layer, "[shortcut]\nfrom=-2\nactivation=linear\n", yolo("0,1,2"))
    sweep_context = context(network)
    layers = {
        index: replace(layer_weights, weights=np.zeros_like(layer_weights.weights), biases=np.full(24, -4e4, np.float32))
        for index, layer_weights in sweep_context.options[0].weights.layers.items()
    }
    sweep_context = with_layers(sweep_context, layers)
    assert (reason(sweep_context, "ff"), reason(sweep_context, "hh")) == (
        None,
        "test.cfg: layer 3 (yolo-1): Cast: a value is NaN or infinite",
    )
    result = Evaluator(sweep_context).evaluate(WorkChunk(0, ("ff", "hh")))
    assert [failed_trial.key for failed_trial in result.failed_trials] == ["hh"]


@pytest.mark.parametrize("few_left", [True, False])
def test_a_race_leaves_out_what_fails(few_left: bool) -> None:
    sweep_context = with_baseline(overflowing(images=12))
    keys = tuple(build_space(sweep_context.network, THREE_PRECISIONS).all_keys())[::9]
    evaluator = Evaluator(sweep_context)
    unraced = evaluator.evaluate(WorkChunk(0, keys))
    evaluator._few_survived = few_left
    raced = evaluator.evaluate(WorkChunk(0, keys, Rivals(("agreement_AP", "weight_bytes"), ((-99.5, 1.0),))))
    failed_keys = {failed_trial.key for failed_trial in raced.failed_trials}
    assert failed_keys
    assert failed_keys <= {failed_trial.key for failed_trial in unraced.failed_trials}
    assert {t.key for t in raced.trials} | {*raced.ruled_out} | failed_keys == {*keys}
    assert all(t in unraced.trials for t in raced.trials)
    assert not failed_keys & {*raced.ruled_out}


def test_the_baseline_says_which_layer_fails() -> None:
    with pytest.raises(EngineError, match=r"^test\.cfg: layer 4 \(conv-3\): .* NaN or infinite$"):
        Evaluator(overflowing()).baseline("ffhfff")


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("fails", ["third", "lowest", "two"])
def test_every_strategy_goes_on_beside_what_fails(name: str, fails: str) -> None:
    task = problem(precisions=THREE_PRECISIONS, trials=None if STRATEGIES[name].prunes else 300)
    quality = interacting_quality(1, 6)
    failing = {
        "third": lambda key: key[2] == "h",
        "lowest": lambda key: key.count("q") > 2,
        "two": lambda key: key[0] in "hq" or key[4] == "q",
    }[fails]

    def measure(configuration: Assignment) -> Trial | None:
        return None if failing(configuration.key) else trial(task.space, task.macs, quality, configuration.key)

    trials = run(strategy(name).walk(task), measure)
    assert Assignment(task.baseline) in trials
    assert not [c for c in trials if failing(c.key)]
    if STRATEGIES[name].is_exact:
        assert {c.key for c in trials} == {key for key in task.space.all_keys() if not failing(key)}
    elif name == "greedy" and fails == "third":
        assert Assignment(task.space.highest()) in trials
        assert min(task.cost(t) for t in trials.values()) == task.cost(trial(task.space, task.macs, quality, "qqqqqq"))


@dataclass(frozen=True)
class Overflowing(SyntheticRecipe):
    """Fails where the third layer is at fp16, or the fourth at int8."""

    def evaluate(self, unit: WorkChunk) -> ChunkResult:
        layers = {key: 4 if key[2] == "h" else 5 if key[3] == "q" else -1 for key in unit.keys}
        finite = tuple(key for key in unit.keys if layers[key] < 0)
        result = super().evaluate(replace(unit, keys=finite)) if finite else ChunkResult(unit, (), 0)
        if self.log:
            with open(self.log, "a", encoding="ascii") as file:
                file.writelines(f"x{key}\n" for key in unit.keys if layers[key] >= 0)
        failed_trials = tuple(FailedTrial(key, layer, f"layer {layer}: NaN") for key, layer in layers.items() if layer >= 0)
        return replace(result, chunk=unit, failed_trials=failed_trials)


def sweep(path: Path, name: str, recipe: Overflowing, **changes: object) -> SweepState:
    task = replace(recipe.problem, **changes)  # type: ignore[arg-type]
    with TrialStore.open(path, SUBJECT) as store:
        context = store.context({})
        pool = WorkerPool(InlineExecutor(recipe), seconds_per_pass=1e6)
        return Sweep(task, tiny_yolo(), store, [context], lambda: pool).run(STRATEGIES[name].walk)


def test_no_pass_is_made_for_what_fails_like_another(tmp_path: Path) -> None:
    task, log = problem(precisions=THREE_PRECISIONS), tmp_path / "log"
    recipe = Overflowing(task, log=str(log))
    state = sweep(tmp_path / "a.sqlite", "exhaustive", recipe)
    failing = {key for key in task.space.all_keys() if key[2] == "h" or key[3] == "q"}
    assert {c.key for c in state.failed_trials} == failing
    assert (len(state.trials), state.finished_count, state.total) == (729 - len(failing), 729, 729)
    attempts = [line[1:] for line in log.read_text().splitlines() if line.startswith("x")]
    # One part for each assignment of the layers up to the failing one, of which parts have a few configurations.
    assert len(attempts) < len(failing) / 2
    log.unlink()
    with TrialStore.read(tmp_path / "a.sqlite") as store:
        failing_layers = {failed_trial.key: failed_trial.layer for failed_trial in store.failed_trials(1)}
    assert failing_layers == {key: 4 if key[2] == "h" else 5 for key in failing}
    for name in ("exhaustive", "greedy", "additive"):  # nothing is computed again
        second = sweep(tmp_path / "a.sqlite", name, recipe)
        assert (second.computed, log.exists()) == (0, False)
    assert len(second.failed_trials) < len(failing)


def test_a_budget_of_trials_counts_what_failed(tmp_path: Path) -> None:
    recipe = Overflowing(problem(precisions=THREE_PRECISIONS))
    first = sweep(tmp_path / "a.sqlite", "greedy", recipe, trials=30)
    second = sweep(tmp_path / "a.sqlite", "greedy", recipe, trials=30)
    assert len(first.trials) + len(first.failed_trials) == 30
    assert first.exhausted_budget == second.exhausted_budget == "trials"
    assert (list(second.trials), {*second.failed_trials}, second.computed) == (list(first.trials), {*first.failed_trials}, 0)


def test_a_baseline_that_fails_ends_the_sweep_each_time(tmp_path: Path) -> None:
    recipe = Overflowing(problem(precisions=("fp16", "int8")))
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^test\.cfg: layer 4: NaN, in the configuration hhhhhh that all others"):
            sweep(tmp_path / "a.sqlite", "exhaustive", recipe)


def test_option_sets_fail_by_themselves() -> None:
    failed_trials = FailedTrials(tiny_yolo())
    failed_trials.learn(1, [FailedTrial("ffhfff", 4, "why"), FailedTrial("ffffff", 99, "of another network")])
    assert failed_trials.infer(0, ["ffhqqq"]) == []
    assert failed_trials.infer(1, ["ffhqqq", "qfhfff", "ffffff"]) == [FailedTrial("ffhqqq", 4, "why")]
    assert len(failed_trials) == 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "a.sqlite"
    sweep(path, "one_at_a_time", Overflowing(problem(precisions=THREE_PRECISIONS)))
    return path


@pytest.mark.parametrize(
    "damage", ["layer = 3", "reason = 'another'", "key = 'qqqqqqqqqqqq'", "key = 5", "reason = x'00'", "layer = 'x'"]
)
def test_a_damaged_row_is_named(store: Path, damage: str) -> None:
    with TrialStore.open(store, SUBJECT) as damaged_store:
        damaged_store._db.execute(f"UPDATE failed SET {damage} WHERE key = (SELECT min(key) FROM failed)")
    with TrialStore.read(store) as damaged_store, pytest.raises(StoreError, match=r"the store is damaged: .*failed"):
        list(damaged_store.failed_trials(1))
    assert salvage(store, store.with_name("b.sqlite")).losses == ("some configurations that failed",)


def test_salvage_keeps_what_failed(store: Path) -> None:
    assert salvage(store, store.with_name("b.sqlite")).losses == ()
    with TrialStore.read(store) as original, TrialStore.read(store.with_name("b.sqlite")) as salvaged:
        assert [*salvaged.failed_trials(1)] == [*original.failed_trials(1)]
        assert [*original.failed_trials(1)]
