# SPDX-License-Identifier: MIT
"""Every strategy on spaces whose exact front is known by listing them."""

from __future__ import annotations

import sys

import pytest

from mpnet.config.experiment import STRATEGIES as NAMES
from mpnet.config.experiment import ConstraintSection, OptionRange, SpaceSection
from mpnet.errors import ConfigError
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import QuantizationOptions, WeightOptions
from mpnet.sweep.problem.front import front_gap
from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.strategies import STRATEGIES, strategy
from mpnet.sweep.search.strategies.additive import predicted_front
from mpnet.sweep.search.strategies.one_at_a_time import only_lowered
from mpnet.sweep.store import Trial
from tests.sweep.sweep_networks import tiny_yolo, yolov3_tiny
from tests.sweep.synthetic import additive_quality, interacting_quality, measure_of, run

TWO_PRECISIONS, THREE_PRECISIONS = ("fp32", "int8"), ("fp32", "fp16", "int8")
OPTIONS = SpaceSection(
    quantization=(
        OptionRange(
            "weights.granularity",
            ("per_channel", "per_tensor"),
            tuple(QuantizationOptions(weights=WeightOptions(granularity=g)) for g in ("per_channel", "per_tensor")),
        ),
    )
)


def problem(
    network: NetworkSpec | None = None,
    precisions: tuple[str, ...] = TWO_PRECISIONS,
    section: SpaceSection | None = None,
    **keywords: object,
) -> Problem:
    network = network or tiny_yolo()
    return Problem(
        build_space(network, precisions, section),
        tuple(c.macs for c in network.convolutions),
        objectives_of(("AP", "bit_operations")),
        **keywords,
    )


def test_every_strategy_of_the_experiment_file_exists() -> None:
    assert set(STRATEGIES) == set(NAMES)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize(
    "section", [SpaceSection(), OPTIONS, SpaceSection(tied=(("3x3",),)), SpaceSection(layers=(("first", ("fp32",)),))]
)
def test_every_strategy_stays_in_the_space_and_ends(name: str, section: SpaceSection) -> None:
    task = problem(precisions=THREE_PRECISIONS, section=section, trials=None if STRATEGIES[name].prunes else 60)
    trials = run(strategy(name).walk(task), measure_of(task, interacting_quality(1, 6)))
    assert trials
    assert all(key in task.space and 0 <= options < len(task.space.option_sets) for key, options in trials)
    assert Assignment(task.baseline, 0) in trials
    assert len(trials) <= task.space.size


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_asks_the_same_again(name: str) -> None:
    task = problem(precisions=THREE_PRECISIONS, trials=None if STRATEGIES[name].prunes else 50, seed=4)
    measure = measure_of(task, interacting_quality(2, 6))
    first, second = (list(run(strategy(name).walk(task), measure)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_of_several_batches_each_says_what_it_is_a_part_of(name: str) -> None:
    task = problem(precisions=THREE_PRECISIONS, trials=None if STRATEGIES[name].prunes else 50)
    walk, batches = strategy(name).walk(task), list[Batch]()

    def observed() -> Walk:
        results: Results | None = None
        while True:
            try:
                batch = walk.send(results) if results is not None else next(walk)
            except StopIteration:
                return
            batches.append(batch)
            results = yield batch

    run(observed(), measure_of(task, interacting_quality(2, 6)))
    measuring = [batch for batch in batches if batch.configurations and not batch.screen and not batch.prune]
    assert measuring
    assert len(measuring) == 1 or all(batch.stage for batch in measuring)
    assert not any(batch.stage for batch in batches if batch.prune or len(measuring) == 1)


@pytest.mark.parametrize("name", ["exhaustive", "grid"])
def test_exact_strategies_try_everything(name: str) -> None:
    task = problem(section=OPTIONS)
    trials = run(strategy(name).walk(task), measure_of(task, additive_quality(3, 6)))
    assert {key for key, _ in trials} == set(task.space.all_keys())
    assert len(trials) == task.space.size == 128


def test_a_grid_says_when_it_is_none() -> None:
    task = problem(yolov3_tiny(), THREE_PRECISIONS)
    with pytest.raises(ConfigError, match=r"grid is for up to 4,096 configurations, this space has 1,594,323; tie"):
        next(strategy("grid").walk(task))


def test_one_at_a_time_goes_both_ways() -> None:
    task = problem()
    keys = [key for key, _ in next(strategy("one_at_a_time").walk(task)).configurations]
    assert keys[:7] == ["ffffff", "qfffff", "fqffff", "ffqfff", "fffqff", "ffffqf", "fffffq"]
    assert set(keys[7:]) >= {"qqqqqq", "fqqqqq", "qfqqqq", "qqfqqq", "qqqfqq", "qqqqfq", "qqqqqf"}


def test_three_precisions_are_each_tried_alone() -> None:
    keys = {key for key, _ in next(strategy("one_at_a_time").walk(problem(precisions=THREE_PRECISIONS))).configurations}
    assert keys == (
        {"ffffff", "hhhhhh", "qqqqqq"}
        | {"ffffff"[:i] + c + "ffffff"[i + 1 :] for i in range(6) for c in "hq"}
        | {c * i + "f" + c * (5 - i) for i in range(6) for c in "hq"}
    )


@pytest.mark.parametrize("seed", range(5))
def test_harms_that_add_up_are_predicted_exactly(seed: int) -> None:
    task = problem(precisions=THREE_PRECISIONS)
    quality = additive_quality(seed, 6)
    measure = measure_of(task, quality)
    results = {c: measure(c) for c in only_lowered(task, 0)}
    predicted = predicted_front(task, 0, results, limit=10_000)
    exact = task.front(trials := [measure(Assignment(key)) for key in task.space.all_keys()])
    costs = {round(task.cost(trials[i])) for i in exact}
    assert {round(task.cost(measure(Assignment(key)))) for key in predicted} == costs
    assert (
        front_gap(
            task.points([measure(Assignment(key)) for key in predicted]), task.points([trials[i] for i in exact])
        ).quality_lost_max
        < 1e-9
    )


def test_a_long_prediction_is_thinned_with_its_ends() -> None:
    task = problem(yolov3_tiny(), THREE_PRECISIONS)
    measure = measure_of(task, additive_quality(1, 13))
    trials = {c: measure(c) for c in only_lowered(task, 0)}
    predicted = predicted_front(task, 0, trials, limit=40)
    assert len(predicted) == 40
    assert predicted[0] == "q" * 13
    assert predicted[-1] == "f" * 13


def test_a_prediction_fills_the_budget_from_end_to_end() -> None:
    task = problem(yolov3_tiny(), THREE_PRECISIONS, trials=60)
    measure = measure_of(task, additive_quality(1, 13))
    trials = run(strategy("additive").walk(task), measure)
    alone = len(only_lowered(task, 0))
    assert alone < len(trials) <= 60
    predicted = predicted_front(task, 0, trials, limit=60 - alone)
    assert {key for key, _ in trials} == {key for key, _ in only_lowered(task, 0)} | set(predicted)
    small_problem = problem(yolov3_tiny(), THREE_PRECISIONS, trials=10)
    assert len(run(strategy("additive").walk(small_problem), measure)) == alone


def test_greedy_lowers_the_cheapest_harm_first() -> None:
    task = problem()
    # Layer 1 harms nothing, layer 3 a great deal: the walk down takes one first and the other last.
    harms = (0.5, 0.0, 0.4, 40.0, 0.3, 0.2)
    trials = run(
        strategy("greedy").walk(task),
        measure_of(task, lambda key: 50 - sum(h for h, c in zip(harms, key, strict=True) if c == "q")),
    )
    path = [key for key, _ in trials]
    assert "fqffff" in path
    assert path.index("fqffff") < path.index("fqqfff")
    assert "qqqfqq" in path
    assert "qfffff" in path  # a neighbour of the start


def test_greedy_finds_most_of_a_front_at_a_fraction_of_the_work() -> None:
    task = problem(yolov3_tiny(), TWO_PRECISIONS)
    measure = measure_of(task, additive_quality(8, 13))
    trials = run(strategy("greedy").walk(task), measure)
    everything = [measure(Assignment(key)) for key in task.space.all_keys()]
    values = list(trials.values())
    gap = front_gap(
        task.points([values[i] for i in task.front(values)]), task.points([everything[i] for i in task.front(everything)])
    )
    assert len(trials) < 200
    assert gap.hypervolume_ratio > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nsga2", "tpe"])
def test_pareto_keeps_to_its_budget_and_finds_the_corners(sampler: str) -> None:
    task = problem(yolov3_tiny(), THREE_PRECISIONS, trials=70, sampler=sampler)
    trials = run(strategy("pareto").walk(task), measure_of(task, additive_quality(8, 13)))
    assert len(trials) == 70
    assert {("f" * 13, 0), ("q" * 13, 0)} <= set(trials)


def test_pareto_without_optuna_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"needs Optuna, which is not installed; pip install 'mpnet\[search\]'"):
        next(strategy("pareto").walk(problem()))


def test_an_unknown_strategy_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown strategy 'annealing'; known are additive, auto, deep, exact_front"):
        strategy("annealing")


def test_constraints_choose_the_cheapest_that_keeps_them() -> None:
    task = problem(constraints=ConstraintSection(ap_drop=0.5))
    trials = [measure_of(task, additive_quality(5, 6))(Assignment(key)) for key in task.space.all_keys()]
    baseline = trials[0]
    best = task.best(trials, baseline)
    assert best is not None
    fitting = [t for t in trials if t.values["AP"] >= baseline.values["AP"] - 0.5]
    assert best.values["bit_operations"] == min(t.values["bit_operations"] for t in fitting)


def test_a_relative_drop_and_a_limit_on_bytes_both_hold() -> None:
    limits = ConstraintSection(ap_drop_relative=0.05, at_most={"weight_bytes": 150})
    task = problem(constraints=limits)
    trials = [measure_of(task, additive_quality(5, 6))(Assignment(key)) for key in task.space.all_keys()]
    fitting = [t for t in trials if task.meets(t, trials[0])]
    assert 0 < len(fitting) < len(trials)
    assert all(t.values["weight_bytes"] <= 150 and t.values["AP"] >= 0.95 * trials[0].values["AP"] for t in fitting)


def test_nothing_may_fit() -> None:
    task = problem(constraints=ConstraintSection(at_most={"bit_operations": 1}))
    trials = [measure_of(task, additive_quality(5, 6))(Assignment(key)) for key in task.space.all_keys()]
    assert task.best(trials, trials[0]) is None
    nearest = task.nearest(trials, trials[0])
    assert nearest is not None
    assert nearest.values["bit_operations"] == min(t.values["bit_operations"] for t in trials)


def test_a_constraint_is_about_the_measure_that_it_names() -> None:
    """Whatever the first objective is: ap_drop limits AP, agreement_AP_drop agreement."""
    limits = ConstraintSection(ap_drop=1.0, drops={"agreement_AP_drop": 5.0})
    task = Problem(
        build_space(tiny_yolo(), TWO_PRECISIONS), (1,) * 6, objectives_of(("agreement_AP", "bit_operations")), limits
    )
    baseline, trial = (
        Trial(key, {"AP": ap, "agreement_AP": agreement, "bit_operations": 1.0})
        for key, ap, agreement in (("ffffff", 40.0, 100.0), ("qqqqqq", 39.5, 94.0))
    )
    assert task.excesses(trial, baseline) == [("ap_drop", -0.5), ("agreement_AP_drop", 1.0)]
    assert not task.meets(trial, baseline)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("AP", "AP"), "names one twice"),
        (("AP", "AP50"), "at least one cost"),
        (("bit_operations", "weight_bytes"), "at least one measure of accuracy"),
    ],
)
def test_objectives_need_both_sides(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Problem(build_space(tiny_yolo(), TWO_PRECISIONS), (1,) * 6, objectives_of(names))


def test_an_objective_that_was_not_measured_says_what_to_do() -> None:
    task = problem()
    trial = measure_of(task, additive_quality(5, 6))(Assignment("ffffff"))
    with pytest.raises(ConfigError, match=r"latency_ms was not measured for ffffff; make a table with `mpnet profile`"):
        task.value(trial, "latency_ms")
