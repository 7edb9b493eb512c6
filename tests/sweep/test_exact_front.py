# SPDX-License-Identifier: MIT
"""The exact front without measuring everything: the same front as that of an exhaustive sweep, whatever interrupts it."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Sequence

import numpy as np
import pytest

from mpnet.config.experiment import ConstraintSection, SpaceSection
from mpnet.errors import ConfigError
from mpnet.sweep import setup
from mpnet.sweep.choose.findings import front_of
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.executor import InlineExecutor
from mpnet.sweep.evaluate.race import Survivors, predict_additively, rounds
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.problem.front import Rivals, dominated
from mpnet.sweep.problem.problem import Batch, Problem, Walk, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.setup import with_image_order
from mpnet.sweep.store import Subject, Trial, TrialStore
from mpnet.sweep.store.ruled_out import RuledOut
from mpnet.sweep.store.salvage import salvage
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import tiny_yolo

NETWORK = tiny_yolo()
IMAGES = 16


def _labelled(sweep_context: SweepContext) -> SweepContext:
    """Return the context with what the network finds in fp16 as truth, so that AP says something of random weights."""
    predictions = Evaluator(sweep_context).predictions(0, "h" * len(NETWORK.convolutions))
    box = predictions.box.astype(np.float64)
    data = replace(
        sweep_context.dataset,
        image_index=predictions.image_index,
        category=predictions.category,
        box=box,
        area=box[:, 2] * box[:, 3],
        crowd=np.zeros(len(box), bool),
    )
    return replace(sweep_context, dataset=data)


CONTEXT = _labelled(with_baseline(context(NETWORK, images=IMAGES, group=4)))
SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)


class Remembering(Evaluator):
    """Of CONTEXT: a unit that any test had evaluated before is not computed again."""

    results: ClassVar[dict[bytes, ChunkResult]] = {}

    def evaluate(self, unit: WorkChunk) -> ChunkResult:
        key = pickle.dumps(unit)
        if key not in self.results:
            self.results[key] = super().evaluate(unit)
        return self.results[key]


def problem(names: tuple[str, ...] = ("agreement_AP", "weight_bytes"), **keywords: object) -> Problem:
    space = build_space(NETWORK, ("fp32", "fp16", "int8"), SpaceSection(layers=(("first", ("fp32",)),)))
    return Problem(space, tuple(c.macs for c in NETWORK.convolutions), objectives_of(names), **keywords)


def sweep(task: Problem, store: TrialStore, name: str, worker: object = None, **keywords: object) -> SweepState:
    pool = WorkerPool(InlineExecutor(worker or Remembering(CONTEXT)), costs=Evaluator(CONTEXT).costs)
    return Sweep(task, NETWORK, store, [store.context({"arithmetic": "1"})], lambda: pool, **keywords).run(strategy(name).walk)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> SweepState:
    with TrialStore.open(tmp_path_factory.mktemp("all") / "all.sqlite", SUBJECT) as store:
        return sweep(problem(), store, "exhaustive")


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore.open(tmp_path / "sweep.sqlite", SUBJECT)


@pytest.mark.parametrize(
    "names", [("agreement_AP", "weight_bytes"), pytest.param(("AP", "agreement_AP", "bit_operations"), marks=pytest.mark.slow)]
)
def test_the_front_is_the_exact_one(store: TrialStore, everything: SweepState, names: tuple[str, ...]) -> None:
    task = problem(names)
    state = sweep(task, store, "exact_front")
    assert front_of(task, state.trials) == front_of(task, everything.trials)
    assert all(trial.values == everything.trials[c].values for c, trial in state.trials.items())
    assert state.finished_count == state.total == task.space.size
    assert state.ruled_out == len(list(store.all_ruled_out(1, task.front_name)))


@pytest.mark.parametrize("direction", [1, -1])
def test_no_order_of_images_changes_the_front(store: TrialStore, everything: SweepState, direction: int) -> None:
    task = problem()
    order, macs = Evaluator(CONTEXT).images_by_loss(task.names, task.space.drawn_keys(5))
    assert macs > 0
    assert sorted(order) == list(range(IMAGES))
    sweep_context = replace(CONTEXT, order=order[::direction])
    state = sweep(task, store, "exact_front", Evaluator(sweep_context))
    assert front_of(task, state.trials) == front_of(task, everything.trials)
    assert state.ruled_out


def test_the_order_of_images_is_found_once(store: TrialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    task, number = problem(), store.context({"arithmetic": "1"})
    assert with_image_order(CONTEXT, task, store, number, 1) == (CONTEXT, 0)  # the space is small
    monkeypatch.setattr(setup, "SAMPLED_FROM", task.space.size)
    first, macs = with_image_order(CONTEXT, task, store, number, 1)
    second, nothing = with_image_order(CONTEXT, task, store, number, 1)
    assert (macs > 0, nothing) == (True, 0)
    np.testing.assert_array_equal(second.order, first.order)
    store.set_note(f"order/{number}:agreement_AP,weight_bytes", '{"images": [0, 0, 1]}')
    assert with_image_order(CONTEXT, task, store, number, 1)[1] == macs


def test_what_is_ruled_out_is_dominated(store: TrialStore, everything: SweepState) -> None:
    task = problem()
    assert sweep(task, store, "exact_front").ruled_out > task.space.size // 10
    rivals = task.rivals(everything.trials.values())
    for key in store.all_ruled_out(1, task.front_name):
        trial = next(t for c, t in everything.trials.items() if c.key == key)
        assert rivals.beat(np.array([[-task.quality(trial), task.cost(trial)]]))[0]


def test_the_front_grows_by_what_came_later(everything: SweepState) -> None:
    task, trials = problem(), list(everything.trials.values())
    for count in (0, 1, len(trials) // 2, len(trials)):
        assert task.rivals(trials[count:], task.rivals(trials[:count])) == task.rivals(trials)


@pytest.mark.slow
def test_what_was_ruled_out_stays_so(store: TrialStore) -> None:
    task = problem()
    first = sweep(task, store, "exact_front")
    image_counts = store.ruled_out_after([1], task.front_name)
    assert sum(image_counts.values()) == first.ruled_out
    assert 0 < image_counts[0] < first.ruled_out  # these cost more than one that loses nothing: no image need be looked at
    assert max(image_counts) < IMAGES
    second = sweep(task, store, "exact_front")
    assert (second.computed, second.ruled_out, second.trials) == (0, first.ruled_out, first.trials)
    assert store.ruled_out_after([1], task.front_name) == image_counts
    everything = sweep(task, store, "exhaustive")  # another strategy measures it all the same
    assert len(everything.trials) == task.space.size


def test_what_is_ruled_out_twice_counts_once(store: TrialStore) -> None:
    context, front = store.context({"arithmetic": "1"}), problem().front_name
    for keys in (("ccc", "ddd"), ("aaa", "bbb", "ccc"), ("bbb", "eee"), ("fff",), ("fff",)):
        store.add(context, (), ruled_out=RuledOut(front, keys))
    assert sorted(store.all_ruled_out(context, front)) == ["aaa", "bbb", "ccc", "ddd", "eee", "fff"]
    assert store.count_ruled_out([context], front) == 6
    assert store.ruled_out(context, front, {"ccc", "fff", "xxx"}) == {"ccc", "fff"}


def test_what_is_ruled_out_is_known_for_objectives_in_any_order(store: TrialStore) -> None:
    first = sweep(problem(), store, "exact_front")
    second = sweep(problem(("weight_bytes", "agreement_AP")), store, "exact_front")
    assert (second.computed, second.ruled_out) == (0, first.ruled_out)


def test_a_part_of_a_space_has_a_front_of_its_own(store: TrialStore, everything: SweepState) -> None:
    def race_all(task: Problem) -> Walk:
        yield Batch([Assignment(key) for key in task.space.all_keys()], prune=True)

    wide = problem()
    subproblem = replace(wide, space=build_space(NETWORK, ("fp32", "int8"), SpaceSection(layers=(("first", ("fp32",)),))))
    context, executor = store.context({"arithmetic": "1"}), InlineExecutor(Remembering(CONTEXT))
    assert sweep(wide, store, "exact_front").ruled_out
    # As if configurations with fp16 beat everything in the part.
    store.add(context, (), ruled_out=RuledOut(wide.front_name, tuple(sorted(subproblem.space.all_keys()))))
    state = Sweep(subproblem, NETWORK, store, [context], lambda: WorkerPool(executor)).run(race_all)
    trials = {c: trial for c, trial in everything.trials.items() if c.key in subproblem.space}
    assert front_of(subproblem, state.trials) == front_of(subproblem, trials)
    assert state.finished_count == subproblem.space.size


def test_an_interrupted_one_goes_on(store: TrialStore, everything: SweepState) -> None:
    class Stops(Exception):
        pass

    class Dying(Remembering):
        remaining_calls = 9

        def evaluate(self, unit: object) -> object:  # type: ignore[override]
            Dying.remaining_calls -= 1
            if Dying.remaining_calls < 0:
                raise Stops
            return super().evaluate(unit)

    task = problem()
    for _ in range(40):
        Dying.remaining_calls = 1
        try:
            state = sweep(task, store, "exact_front", Dying(CONTEXT))
            break
        except Stops:
            continue
    assert front_of(task, state.trials) == front_of(task, everything.trials)
    assert state.finished_count == task.space.size


def test_a_salvaged_store_knows_what_was_ruled_out(store: TrialStore, tmp_path: Path) -> None:
    task = problem()
    first = sweep(task, store, "exact_front")
    image_counts = store.ruled_out_after([1], task.front_name)
    store.close()
    salvage(store.path, tmp_path / "saved.sqlite")
    with TrialStore.open(tmp_path / "saved.sqlite", SUBJECT) as salvaged:
        second = sweep(task, salvaged, "exact_front")
        assert salvaged.ruled_out_after([1], task.front_name) == image_counts
    assert (second.computed, second.ruled_out) == (0, first.ruled_out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 5}, "budget.trials"),
        ({"constraints": ConstraintSection(ap_drop=1.0)}, "AP"),
        ({"names": ("head_sqnr_db", "weight_bytes")}, "head_sqnr_db"),
        ({"names": ("AP50", "weight_bytes")}, "AP50"),
    ],
)
def test_what_cannot_be_proven_is_refused(store: TrialStore, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(problem(**changes), store, "exact_front")
    assert store.count() == 0


@pytest.mark.slow
def test_only_images_that_select_rule_out(store: TrialStore) -> None:
    sweep_context = replace(CONTEXT, select=np.arange(0, IMAGES, 2), report=np.arange(1, IMAGES, 2))
    task = problem()
    state = sweep(task, store, "exact_front", Evaluator(sweep_context))
    with TrialStore.open(store.path.parent / "all.sqlite", SUBJECT) as exhaustive_store:
        exact = sweep(task, exhaustive_store, "exhaustive", Evaluator(sweep_context))
    assert front_of(task, state.trials) == front_of(task, exact.trials)


def test_equal_configurations_do_not_rule_each_other_out() -> None:
    rivals = Rivals(("agreement_AP", "weight_bytes"), ((-90.0, 5.0), (-80.0, 3.0)))
    best = np.array([[-90.0, 5.0], [-90.0, 6.0], [-89.0, 5.0], [-91.0, 9.0], [-80.0, 2.0], [-79.0, 3.0]])
    assert rivals.beat(best).tolist() == [False, True, True, False, False, True]


def test_survivors_of_a_race_rule_each_other_out() -> None:
    """b and d could be as good as 98 and 97, but a has more for less; where a fails, or disappoints, b has to be measured."""
    survivors = Survivors(
        ("a", "b", "c", "d"),
        ("agreement_AP", "weight_bytes"),
        np.array([[99.0, 1.0], [98.0, 2.0], [100.0, 3.0], [97.0, 4.0]]),
        images=5,
    )

    def find_measured_keys(agreement_of: dict[str, float]) -> list[str]:
        def measure(keys: Sequence[str]) -> list[Trial]:
            costs = dict(zip("abcd", (1.0, 2.0, 3.0, 4.0), strict=True))
            return [
                Trial(key, {"agreement_AP": agreement_of[key], "weight_bytes": costs[key]})
                for key in keys
                if key in agreement_of
            ]

        return [trial.key for trial in survivors.measure_non_dominated(measure)]

    assert find_measured_keys({"a": 98.5, "b": 0.0, "c": 99.0, "d": 0.0}) == ["a", "c"]
    assert find_measured_keys({"a": 97.5, "b": 90.0, "c": 99.0, "d": 0.0}) == ["a", "c", "b"]
    assert find_measured_keys({"b": 98.0, "c": 99.0, "d": 0.0}) == ["c", "b"]


def test_what_survivors_rule_out_is_dominated_by_what_was_measured() -> None:
    evaluator, names = Evaluator(CONTEXT), ("agreement_AP", "weight_bytes")
    keys = tuple("".join(codes) for codes in itertools.product("fq", repeat=len(NETWORK.convolutions)))
    result = evaluator.evaluate(WorkChunk(0, keys, Rivals(names, ((-50.0, 1.0),))))
    everything = {trial.key: trial for trial in evaluator.evaluate(WorkChunk(0, keys)).trials}
    assert all(trial == everything[trial.key] for trial in result.trials)
    assert {*result.ruled_out} == {*keys} - {trial.key for trial in result.trials}
    measured_points = np.array([[-trial.values[names[0]], trial.values[names[1]]] for trial in result.trials])
    excluded_points = np.array(
        [[-everything[key].values[names[0]], everything[key].values[names[1]]] for key in result.ruled_out]
    )
    assert dominated(excluded_points, np.vstack([measured_points, [[-50.0, 1.0]]])).all()
    assert sum(count for _, count in result.image_counts) == len(result.ruled_out) > len(result.trials)


def test_what_adds_up_is_foretold() -> None:
    harm = {"f": 0.0, "h": 0.5, "q": 2.0}
    keys = ["".join(codes) for codes in itertools.product("fhq", repeat=4)]
    exact = np.array([[90.0 - sum((index + 1) * harm[code] for index, code in enumerate(key)), 99.0] for key in keys])
    np.testing.assert_allclose(predict_additively(keys[::4], exact[::4], keys), exact)


@pytest.mark.parametrize("images", [1, 2, 5, 24, 115, 5000])
def test_rounds_follow_each_other_and_leave_some_images(images: int) -> None:
    ends = list(rounds(images))
    assert all(start < end for start, end in ends)
    assert [start for start, _ in ends][1:] == [end for _, end in ends][:-1]
    assert not ends or (ends[0][0] == 0 and ends[-1][1] < images)
