# SPDX-License-Identifier: MIT
"""What a sweep recommends: three configurations by stated rules, one of them shown to be safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence

import pytest

from mpnet.config.experiment import ConstraintSection, MarginSection, SpaceSection, SweepSection
from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import Loss
from mpnet.formats.documents.typed import as_json
from mpnet.model.task import DETECTION
from mpnet.sweep.choose.margins import Margins, margins_of
from mpnet.sweep.choose.picks import Judge, Judgement, SetLoss, pick, rule_of
from mpnet.sweep.choose.safe import MOST_TESTED, SafetyTests, check_safety, describe_safety, sequence
from mpnet.sweep.choose.stability import stability
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.result import FrontRow, HalfWidths, Holdout, LayerShare, Pick, SafetyWithTwice, Stability, SweepResult
from mpnet.sweep.store import Trial
from tests.sweep.sweep_networks import tiny_yolo

COST = {"ffffff": 100.0, "fffffq": 80.0, "ffffqq": 60.0, "fffqqq": 40.0, "ffqqqq": 20.0, "qqqqqq": 10.0}
QUALITY = {"ffffff": 50.0, "fffffq": 49.9, "ffffqq": 49.5, "fffqqq": 47.0, "ffqqqq": 40.0, "qqqqqq": 20.0}
AGREEMENT = {"ffffff": 100.0, "fffffq": 99.9, "ffffqq": 99.0, "fffqqq": 98.0, "ffqqqq": 97.5, "qqqqqq": 80.0}
TRIALS = {
    Assignment(key): Trial(key, {"AP": QUALITY[key], "bit_operations": COST[key], "agreement_AP": AGREEMENT[key]})
    for key in COST
}
MARGINS = Margins({"agreement_AP": 3.0, "AP": 1.0})


def problem(limits: ConstraintSection | None = None) -> Problem:
    return Problem(
        build_space(tiny_yolo(), ("fp32", "int8")),
        (1,) * 6,
        objectives_of(("AP", "bit_operations")),
        limits or ConstraintSection(),
    )


def agreement(loss: float, images: int = 200, error: float = 0.5) -> Loss:
    """Return a loss of agreement with a standard error."""
    return Loss(images, loss, error**2, 30.0, 0.3, share=True)


def judged_with(held_out: Mapping[str, Mapping[str, Loss]]) -> Judge:
    """Return the losses on images that did not choose, by key."""

    def judged(configurations: Sequence[Assignment]) -> Mapping[Assignment, Judgement]:
        return {c: Judgement({"held_out": SetLoss(200, 100, None, held_out.get(c.key, {}))}) for c in configurations}

    return judged


def judge(losses: Mapping[str, float], margins: Margins = MARGINS, images: int = 500, selecting: int = 300) -> SafetyTests:
    """Return what tests say of losses of agreement that are the same for all images."""
    judged = judged_with({key: {"agreement_AP": agreement(loss)} for key, loss in losses.items()})
    return check_safety(problem(), TRIALS, judged, margins, DETECTION, images, selecting)


def find_safe_key(safety: SafetyTests) -> str | None:
    return None if safety.safe is None else safety.safe.key


def keys(picks: Mapping[str, Assignment]) -> dict[str, str]:
    return {name: configuration.key for name, configuration in picks.items()}


def test_the_three_rules() -> None:
    safe = Assignment("ffffqq")
    assert keys(pick(problem(), TRIALS, safe)) == {"safe": "ffffqq", "balanced": "fffqqq", "smallest": "qqqqqq"}
    assert "safe" not in pick(problem(), TRIALS)


def test_safe_is_the_cheapest_that_is_shown_to_keep_the_margin() -> None:
    safety = judge({"fffffq": 0.1, "ffffqq": 1.0, "fffqqq": 1.5, "ffqqqq": 2.9})
    assert find_safe_key(safety) == "fffqqq"
    assert [row.state for row in safety.tested] == ["met", "met", "met", "unclear"]
    assert [row.configuration.key for row in safety.tested] == ["fffffq", "ffffqq", "fffqqq", "ffqqqq"]


def test_what_follows_one_that_is_not_shown_is_not_called_safe() -> None:
    """Else each of many configurations would have a chance of its own to pass by luck."""
    assert find_safe_key(judge({"fffffq": 0.1, "ffffqq": 2.9, "fffqqq": 1.0, "ffqqqq": 1.0})) == "fffffq"


def test_the_images_that_choose_decide_the_order_alone() -> None:
    order = [c.key for c in sequence(problem(), TRIALS, "agreement_AP", MARGINS)]
    assert order == ["fffffq", "ffffqq", "fffqqq", "ffqqqq"]  # all int8 loses more than the margin there already
    trials = {
        Assignment(key): Trial(key, {"AP": 1.0, "bit_operations": 100.0 - i, "agreement_AP": 100.0 - i / 100})
        for i, key in enumerate(["ffffff", *(f"{i:06b}".replace("0", "f").replace("1", "q") for i in range(1, 60))])
    }
    tested = sequence(problem(), trials, "agreement_AP", MARGINS)
    assert len(tested) == MOST_TESTED
    assert tested[-1] == list(trials)[-1]


def test_without_a_holdout_it_is_harder_to_show() -> None:
    losses = {"fffffq": 0.1, "ffffqq": 1.0, "fffqqq": 1.7, "ffqqqq": 2.9}
    with_holdout = judge(losses)

    def judged(configurations: Sequence[Assignment]) -> Mapping[Assignment, Judgement]:
        return {
            c: Judgement({"all": SetLoss(500, 500, None, {"agreement_AP": agreement(losses[c.key])})}) for c in configurations
        }

    without_holdout = check_safety(problem(), TRIALS, judged, MARGINS, DETECTION, 500, 500)
    assert (find_safe_key(with_holdout), find_safe_key(without_holdout)) == ("fffqqq", "ffffqq")
    assert without_holdout.error == with_holdout.error / len(TRIALS)


def test_nothing_is_safe_because_little_was_seen() -> None:
    """One image, no labels, or a baseline that finds nothing."""
    single_image = {key: {"agreement_AP": Loss(1, 0.0, float("inf"), 30.0, share=True)} for key in COST}
    for losses in ({}, single_image, {key: {"AP": Loss(50, 0.0, 0.01, 10.0)} for key in COST}):
        safety = check_safety(problem(), TRIALS, judged_with(losses), MARGINS, DETECTION, 2, 1)
        assert safety.safe is None
        assert "no configuration is shown to lose at most 3 agreement AP" in describe_safety(safety, ["", ""]).why


def test_few_images_say_how_many_more_would_tell() -> None:
    few_images = {key: {"agreement_AP": agreement(1.0, images=40, error=1.5)} for key in COST}
    safety = check_safety(problem(), TRIALS, judged_with(few_images), MARGINS, DETECTION, 100, 60)
    assert safety.safe is None
    described = describe_safety(safety, ["", ""])
    additional_images = described.tested[0].more_images
    assert additional_images is not None
    assert f"about {additional_images:,} more images would decide it" in described.why
    enough = {
        key: {"agreement_AP": agreement(1.0, images=40, error=1.5).with_images(40 + additional_images * 40 // 100)}
        for key in COST
    }
    assert (
        check_safety(problem(), TRIALS, judged_with(enough), MARGINS, DETECTION, 100 + additional_images, 60).safe is not None
    )


def test_twice_as_many_images_are_foreseen() -> None:
    """Each is what the same losses on twice as many images show."""
    safety = judge({"fffffq": 0.1, "ffffqq": 1.5, "fffqqq": 2.0, "ffqqqq": 2.9})
    assert safety.twice is not None
    assert (find_safe_key(safety), find_safe_key(safety.twice), safety.twice.twice) == ("ffffqq", "fffqqq", None)
    assert describe_safety(safety, ["", ""]).twice == SafetyWithTwice(
        images=400,
        safe="fffqqq",
        half_widths={"agreement_AP": HalfWidths(agreement(1.5).half_width(), agreement(1.5).with_images(400).half_width())},
    )


def test_accuracy_counts_where_labels_are_enough() -> None:
    def losses(ap: Loss) -> dict[str, dict[str, Loss]]:
        return {key: {"agreement_AP": agreement(0.5), "AP": ap} for key in COST}

    few_labels, large_loss, small_loss = Loss(30, 0.2, 4.0, 30.0), Loss(2000, 0.9, 0.04, 30.0), Loss(2000, 0.2, 0.04, 30.0)
    worse = Loss(30, 9.0, 4.0, 30.0)
    results = [
        check_safety(problem(), TRIALS, judged_with(losses(ap)), MARGINS, DETECTION, 500, 300)
        for ap in (few_labels, large_loss, small_loss, worse)
    ]
    assert [find_safe_key(safety) for safety in results] == ["ffqqqq", None, "ffqqqq", None]
    assert "too few labels to say anything about AP" in describe_safety(results[0], ["", ""]).why
    assert results[3].tested[0].state == "not met"  # few labels cannot show a small loss, but they do show a large one
    # A budget that the user names has to be shown.
    requested_margins = Margins({"AP": 1.0}, asked=True)
    safety = check_safety(problem(), TRIALS, judged_with(losses(few_labels)), requested_margins, DETECTION, 500, 300)
    assert safety.safe is None
    assert safety.tested[0].state == "unclear"


def test_agreement_has_to_be_shown_with_the_classes_in_one_list_too() -> None:
    """Few images have one object of most classes, which hardly shows in the mean over the classes."""
    losses = {key: {"agreement_AP": agreement(0.5), "agreement_AP_pooled": agreement(0.5)} for key in COST}
    losses["fffqqq"]["agreement_AP_pooled"] = agreement(3.5)
    safety = check_safety(problem(), TRIALS, judged_with(losses), MARGINS, DETECTION, 500, 300)
    assert (find_safe_key(safety), [row.state for row in safety.tested]) == ("ffffqq", ["met", "met", "unclear", "met"])
    text = describe_safety(safety, ["", ""]).why
    assert text.startswith("shown to lose at most 3 agreement AP of all classes in one list; agreement AP loses 0.50")
    assert "agreement AP of all classes in one list loses 0.50" in text


def test_of_the_mean_over_classes_one_standard_error_has_to_keep_the_margin() -> None:
    """Its interval hangs on classes of one object, so that hardly anything would be shown; that of all objects shows it."""
    wide = agreement(1.0, error=1.9)
    losses = {key: {"agreement_AP": wide, "agreement_AP_pooled": agreement(0.5)} for key in COST}
    losses["fffqqq"]["agreement_AP"] = agreement(1.0, error=2.1)
    safety = check_safety(problem(), TRIALS, judged_with(losses), MARGINS, DETECTION, 500, 300)
    assert [row.state for row in safety.tested] == ["met", "met", "unclear", "met"]
    # It is no test of the sequence: what is cheaper may be shown all the same.
    assert find_safe_key(safety) == "ffqqqq"
    losses_per_class = {key: {"agreement_AP": wide} for key in COST}
    assert find_safe_key(check_safety(problem(), TRIALS, judged_with(losses_per_class), MARGINS, DETECTION, 500, 300)) is None


def test_what_was_lucky_is_not_tested_before_what_has_less_noise() -> None:
    """Noise falls with the cost but for one configuration, which agrees by luck."""
    lowered = ["f" * (6 - n) + "q" * n for n in range(7)]
    decibels = [150.0, 60.0, 54.0, 48.0, 42.0, 36.0, 30.0]
    trials = {
        Assignment(key): Trial(
            key, {"AP": 1.0, "bit_operations": 100.0 - 10 * n, "agreement_AP": 100.0 - n * n / 12, "head_sqnr_db": decibels[n]}
        )
        for n, key in enumerate(lowered)
    }
    lucky = Assignment("qqffqq")
    trials[lucky] = Trial(lucky.key, {"AP": 1.0, "bit_operations": 65.0, "agreement_AP": 99.6, "head_sqnr_db": 33.0})
    order = [c.key for c in sequence(problem(), trials, "agreement_AP", MARGINS)]
    assert order == [*lowered[1:4], lucky.key, *lowered[4:]]
    trials_without_noise = {
        c: Trial(t.key, {n: v for n, v in t.values.items() if n != "head_sqnr_db"}) for c, t in trials.items()
    }
    by_agreement = [c.key for c in sequence(problem(), trials_without_noise, "agreement_AP", MARGINS)]
    assert by_agreement == [*lowered[1:3], lucky.key, *lowered[4:]]


def test_of_those_that_lose_nothing_two_are_tested() -> None:
    trials = {
        Assignment(key): Trial(key, {"AP": 1.0, "bit_operations": 100.0 - i, "agreement_AP": 100.0 - max(0, i - 10) / 2})
        for i, key in enumerate(f"{i:06b}".replace("0", "f").replace("1", "q") for i in range(15))
    }
    for i, configuration in enumerate(list(trials)[1:11], 1):
        trials[configuration].values["agreement_AP"] = 100.0 - i / 1000  # type: ignore[index]
    order = [c.key for c in sequence(problem(), trials, "agreement_AP", MARGINS)]
    assert order == [list(trials)[i].key for i in (1, 10, 11, 12, 13, 14)]


def test_what_comes_after_the_first_that_is_not_shown_is_not_run() -> None:
    keys_of = [f"{i:06b}".replace("0", "f").replace("1", "q") for i in range(1, 25)]
    trials = {
        Assignment(key): Trial(key, {"AP": 1.0, "bit_operations": 100.0 - i, "agreement_AP": 100.0 - i / 10})
        for i, key in enumerate(["ffffff", *keys_of])
    }
    run: list[str] = []

    def judged(configurations: Sequence[Assignment]) -> Mapping[Assignment, Judgement]:
        run.extend(c.key for c in configurations)
        return judged_with({key: {"agreement_AP": agreement(9.0 if key in keys_of[5:] else 0.5)} for key in keys_of})(
            configurations
        )

    safety = check_safety(problem(), trials, judged, MARGINS, DETECTION, 500, 300)
    assert find_safe_key(safety) == keys_of[4]
    assert run == keys_of[:8]


def test_what_is_likely_is_measured_on_until_the_first_that_loses_more() -> None:
    keys_of = [f"{i:06b}".replace("0", "f").replace("1", "q") for i in range(1, 25)]
    trials = {
        Assignment(key): Trial(key, {"AP": 1.0, "bit_operations": 100.0 - i, "agreement_AP": 100.0 - i / 10})
        for i, key in enumerate(["ffffff", *keys_of])
    }
    run: list[str] = []

    def judged(configurations: Sequence[Assignment]) -> Mapping[Assignment, Judgement]:
        run.extend(c.key for c in configurations)
        losses = {key: 0.5 if i < 2 else 2.4 if i < 9 else 2.6 for i, key in enumerate(keys_of)}
        return judged_with({key: {"agreement_AP": agreement(loss)} for key, loss in losses.items()})(configurations)

    safety = check_safety(problem(), trials, judged, MARGINS, DETECTION, 500, 300)
    assert find_safe_key(safety) == keys_of[1]
    assert [test.configuration.key for test in safety.tested] == keys_of[:4]
    assert [test.configuration.key for test in safety.likely] == keys_of[:9]
    assert run == keys_of[:12]
    described = describe_safety(safety, ["", ""])
    assert [row.precision for row in described.untested] == keys_of[4:9]


def test_limits_hold_for_all_three() -> None:
    limits = ConstraintSection(ap_drop=0.6)
    judged = judged_with({key: {"agreement_AP": agreement(0.1)} for key in COST})
    safe = check_safety(problem(limits), TRIALS, judged, MARGINS, DETECTION, 500, 300).safe
    picked = keys(pick(problem(limits), TRIALS, safe))
    assert picked["smallest"] == picked["safe"] == "ffffqq"
    assert QUALITY[picked["balanced"]] >= 49.4


def test_the_smallest_says_which_limits_it_keeps_and_that_they_rule_a_cheaper_one_out() -> None:
    front = tuple(
        FrontRow(
            precision="fq",
            trial="",
            options="",
            metrics={"AP": ap, "agreement_AP": 90.0},
            costs={"bit_operations": cost, "weight_bytes": 5e6},
        )
        for cost, ap in ((1.0, 45.0), (2.0, 48.0), (9.0, 50.0))
    )
    picks = [Pick(**{**vars(row), "losses": {}, "saves": {}}) for row in front]
    result = SweepResult(
        trials=3,
        space=3,
        objectives=("AP", "bit_operations"),
        holdout=Holdout(5, 0),
        baseline=front[2],
        best=None,
        front=front,
        picks={"smallest": picks[1]},
    )
    assert rule_of("smallest", result) == rule_of("smallest", None) == "the cheapest of all"
    limited = replace(result, limits={"ap_drop": 3.0})
    rule = "the cheapest of those that keep the limits (ap_drop 3)"
    assert rule_of("smallest", limited) == f"{rule}; cheaper ones of the front break ap_drop"
    for limit, breaks in (
        ({"ap_drop_relative": 0.05}, True),
        ({"agreement_AP_drop": 3.0}, False),
        ({"weight_bytes": 4e6}, True),
        ({"weight_bytes": 6e6}, False),
    ):
        sentence = rule_of("smallest", replace(result, limits={"ap_drop": 3.0, **limit}))
        assert sentence.endswith(" and ".join(["break ap_drop", *(limit if breaks else ())]))
    assert rule_of("smallest", replace(limited, picks={"smallest": picks[0]})) == rule
    assert "limits" not in rule_of("safe", limited)


@pytest.mark.parametrize("limits", [ConstraintSection(at_most={"bit_operations": 1}), ConstraintSection(ap_drop=0.0)])
def test_nothing_is_picked_where_nothing_fits(limits: ConstraintSection) -> None:
    trials = {c: t for c, t in TRIALS.items() if limits.ap_drop is None or c.key != "ffffff"}
    if limits.ap_drop is None:
        assert pick(problem(limits), trials) == {}
    else:  # without the baseline nothing can be compared, so nothing is called safe
        safety = check_safety(problem(limits), trials, judged_with({}), MARGINS, DETECTION, 500, 300)
        assert (safety.safe, safety.tested) == (None, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3 agreement", {"agreement_AP": 3.0}), ("1 AP", {"AP": 1.0}), (" 0.5  agreement_ap", {"agreement_AP": 0.5})],
)
def test_a_budget_in_the_users_words(text: str, expected: Mapping[str, float]) -> None:
    assert margins_of(SweepSection("grid", max_loss=text), DETECTION) == Margins(expected, asked=True)


def test_percent_of_the_baselines_ap_becomes_points() -> None:
    margins = margins_of(SweepSection("grid", max_loss="2 agreement, 2.5 %"), DETECTION)
    assert margins.of_baseline({"AP": 40.0}) == Margins({"agreement_AP": 2.0, "AP": 1.0}, asked=True)
    assert margins.of_baseline({"AP": -1.0}).points["AP"] == 0.0  # nothing has labels


@pytest.mark.parametrize("text", ["AP", "three agreement", "-1 AP", "nan AP", "1 top1", "1", "101 AP"])
def test_what_is_no_budget_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no budget; (write a number and a unit .agreement, AP, %|at most 100 points)"):
        margins_of(SweepSection("grid", max_loss=text), DETECTION)


def test_margins_of_a_file() -> None:
    section = SweepSection("grid", margin=MarginSection({"AP": 2.0}))
    assert margins_of(section, DETECTION) == Margins({"agreement_AP": 3.0, "AP": 2.0})
    with pytest.raises(ConfigError, match=r"sweep\.margin: top1 is not of a detector"):
        margins_of(SweepSection("grid", margin=MarginSection({"top1": 2.0})), DETECTION)


def test_a_layer_without_a_choice_is_not_called_raised() -> None:
    space = build_space(tiny_yolo(), ("fp32", "int8"), SpaceSection(layers=(("first", ("int8",)),)))
    fixed = Problem(space, (1,) * 6, objectives_of(("AP", "bit_operations")), ConstraintSection())
    trials = {Assignment(key): TRIALS[Assignment("ffqqqq")] for key in ("qfffff", "qqqqqq", "qqqqqf")}
    resampled_scores = {Assignment("qqqqqq"): [90.0], Assignment("qqqqqf"): [99.0]}
    layers = stability(fixed, trials, resampled_scores, {"smallest": Assignment("qqqqqq")}).layers
    assert layers == {"smallest": (LayerShare(space.layers[5], 100.0),)}


def test_stability_counts_draws() -> None:
    """Two configurations at one cost share the draws; the layer that both keep is in all of them."""
    trials = {
        Assignment(key): Trial(key, {"AP": 1.0, "bit_operations": cost, "agreement_AP": 99.0})
        for key, cost in (("ffffff", 100.0), ("fqqqqf", 40.0), ("qfqqqf", 40.0), ("qqqqqq", 10.0))
    }
    resampled_scores = {
        Assignment("fqqqqf"): [99.0, 99.0, 99.0, 97.0],
        Assignment("qfqqqf"): [98.0, 98.0, 98.0, 98.0],
        Assignment("qqqqqq"): [90.0, 98.0, 90.0, 90.0],
    }
    picks = {"safe": Assignment("fqqqqf"), "smallest": Assignment("qqqqqq")}
    shares = stability(problem(), trials, resampled_scores, picks)
    assert (shares.draws, shares.judged) == (4, 3)
    assert {row.precision: row.percent for row in shares.front} == {"fqqqqf": 75.0, "qfqqqf": 25.0, "qqqqqq": 100.0}
    assert shares.picks == {"smallest": 100.0}  # a test decides what is safe, no front does
    layers = problem().space.layers
    assert {row.layer: row.percent for row in shares.layers["safe"]} == {layers[0]: 75.0, layers[1]: 25.0, layers[5]: 100.0}
    assert stability(problem(), trials, {}, picks) == Stability()
    assert as_json(Stability()) == {}


def test_a_measure_without_labels_is_no_margin_unless_it_was_asked_for() -> None:
    unlabelled = {c: Trial(c.key, {**trial.values, "AP": -1.0}) for c, trial in TRIALS.items()}
    losses = judged_with({key: {"agreement_AP": agreement(50.0)} for key in COST})
    for margins, margin_text in ((MARGINS, "3 agreement AP on"), (Margins({"AP": 1.0}, asked=True), "1 AP on")):
        safety = check_safety(problem(), unlabelled, losses, margins, DETECTION, 100, 60)
        assert (
            f"no configuration is shown to lose at most {margin_text} 40 held-out images"
            in describe_safety(safety, ["", ""]).why
        )
