# SPDX-License-Identifier: MIT
"""The rule of the one configuration that a sweep recommends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpnet.evaluation.noninferiority import Loss
from mpnet.report.data.sweep_sentences import recommendation_text
from mpnet.sweep import result as sweep_result
from mpnet.sweep.choose.recommend import Evidence, budget_of, images_to_add, labelled_configurations, with_recommendation
from mpnet.sweep.result import FrontRow, Holdout, LossBounds, NearestRow, Pick, Safety, SweepResult

COST = {"ff": 100.0, "fq": 60.0, "qf": 40.0, "qq": 10.0}
AGREEMENT = {"ff": 100.0, "fq": 99.0, "qf": 98.0, "qq": 90.0}
AP = {"ff": 50.0, "fq": 49.9, "qf": 49.5, "qq": 45.0}


def row(key: str, **changes: Any) -> FrontRow:
    metrics = {"agreement_AP": AGREEMENT[key], "AP": AP[key]}
    figures: dict[str, Any] = {
        "precision": key,
        "trial": key,
        "options": "",
        "metrics": metrics,
        "costs": {"bit_operations": COST[key]},
    }
    return FrontRow(**{**figures, "is_baseline": key == "ff", **changes})


def pick(key: str) -> Pick:
    metrics = {"agreement_AP": AGREEMENT[key], "AP": AP[key]}
    return Pick(precision=key, trial=key, options="", metrics=metrics, costs={"bit_operations": COST[key]}, losses={}, saves={})


def safety(safe: str | None = None, *, is_asked: bool = False, margin: dict[str, float] | None = None, **tested: str) -> Safety:
    rows = tuple(
        sweep_result.TestedRow(key, "", state.replace("_", " "), None, {"AP": LossBounds(0.0, bound, 0.1, 50)})
        for bound, (key, state) in enumerate(tested.items(), start=1)
    )
    points = margin or {"agreement_AP": 3.0, "AP": 1.0}
    return Safety(margin=points, is_asked=is_asked, error=0.05, is_held_out=True, images=50, safe=safe, why="", tested=rows)


def result(**changes: Any) -> SweepResult:
    fields: dict[str, Any] = {
        "trials": 4,
        "space": 4,
        "objectives": ("agreement_AP", "bit_operations"),
        "holdout": Holdout(50, 0),
        "baseline": row("ff"),
        "best": None,
        "front": tuple(row(key) for key in COST),
        "safety": safety(),
    }
    return SweepResult(**{**fields, **changes})


def test_what_is_shown_comes_before_what_is_cheaper() -> None:
    outcome = with_recommendation(result(picks={"safe": pick("fq"), "smallest": pick("qq")}, safety=safety("fq")))
    assert outcome.recommended is not None
    assert (outcome.recommended.precision, outcome.recommended.is_shown) == ("fq", True)
    assert outcome.recommended.reason == "shown to lose at most 3 agreement AP and 1 AP"
    assert outcome.recommended.saves == {"bit_operations": 40.0}
    assert [label for label, _ in labelled_configurations(outcome)] == ["recommended, safe", "smallest"]


def test_beside_a_shown_but_dear_one_stands_the_cheapest_that_is_found() -> None:
    evidence = Evidence({}, 120)
    outcome = with_recommendation(result(picks={"safe": pick("fq")}, safety=safety("fq")), judge=lambda row, budget: evidence)
    assert outcome.recommended is not None
    assert outcome.recommended.precision == "fq"
    assert outcome.best_found is not None
    assert (outcome.best_found.precision, outcome.best_found.is_shown, outcome.best_found.more_images) == ("qf", False, 120)
    assert recommendation_text(outcome) == (
        "Recommended is fq: shown to lose at most 3 agreement AP and 1 AP. Cheaper is qf, which saves 60 % of the bit "
        "operations instead of 40 %: best found, not shown: the cheapest that loses at most 3 agreement AP and 1 AP on the "
        "images at hand; about 120 more images would tell."
    )
    assert with_recommendation(result(picks={"safe": pick("qf")}, safety=safety("qf"))).best_found is None
    assert with_recommendation(result()).best_found is None


def test_without_a_shown_one_it_is_the_cheapest_within_the_budget_and_says_how_many_images_would_tell() -> None:
    outcome = with_recommendation(result(), judge=lambda row, budget: Evidence({}, 120))
    assert outcome.recommended is not None
    assert (outcome.recommended.precision, outcome.recommended.is_shown) == ("qf", False)
    assert outcome.recommended.reason == (
        "best found, not shown: the cheapest that loses at most 3 agreement AP and 1 AP on the images at hand; about 120 more "
        "images would tell"
    )
    assert outcome.recommended.more_images == 120


def test_images_that_did_not_choose_count_by_their_number() -> None:
    rows = [row("ff", held_out={"agreement_AP": 100.0, "AP": 50.0}), row("fq", held_out={"agreement_AP": 99.0, "AP": 50.0})]
    rows.append(row("qf", held_out={"agreement_AP": 92.0, "AP": 50.0}))  # 3.5 points on average
    sweep_result = result(front=tuple(rows), baseline=rows[0], holdout=Holdout(75, 25))
    outcome = with_recommendation(sweep_result)
    assert outcome.recommended is not None
    assert outcome.recommended.precision == "fq"


def with_losses(losses: dict[str, float], *, first_untested: int = 1) -> Safety:
    """Return tests that showed nothing, of configurations from accurate to cheap.

    losses: of agreement, each with its standard error.
    """
    rows = tuple(
        sweep_result.TestedRow(key, "", "cannot be told", None, {"agreement_AP": LossBounds(0.0, 9.0, loss - 0.25, 50, 0.25)})
        for key, loss in losses.items()
    )
    return replace(safety(), tested=rows[:first_untested], untested=rows[first_untested:])


def test_what_is_shown_to_lose_more_is_not_recommended() -> None:
    outcome = with_recommendation(result(safety=with_losses({"fq": 1.0, "qf": 3.5, "qq": 1.0}, first_untested=3)))
    assert outcome.recommended is not None
    assert outcome.recommended.precision == "fq"


def test_of_what_was_tested_the_last_before_the_first_that_loses_more_is_found() -> None:
    # By the images at hand alone qf would be found in all three: its loss there is 2 points.
    for losses, key in (({"fq": 1.0, "qf": 2.5}, "qf"), ({"fq": 1.0}, "fq"), ({"fq": 3.1, "qf": 1.0}, "fq")):
        outcome = with_recommendation(result(safety=with_losses(losses)), judge=lambda row, budget: Evidence({}, 120))
        assert outcome.recommended is not None
        assert (outcome.recommended.precision, outcome.recommended.is_shown) == (key, False)
        reasons = {
            False: "the cheapest that loses at most 3 agreement AP and 1 AP, a standard error included, on the images that "
            "test",
            True: "the cheapest that loses at most 3 agreement AP and 1 AP on the images at hand",
        }
        reason = reasons[losses["fq"] > 3]  # where the first loses more, only what costs no less is left
        assert outcome.recommended.reason == f"best found, not shown: {reason}; about 120 more images would tell"


def test_a_budget_of_the_user_ends_the_walk_at_its_own_first_that_loses_more() -> None:
    tests = with_losses({"fq": 1.0, "qf": 2.5}, first_untested=2)
    outcome = with_recommendation(result(limits={"agreement_AP_drop": 2.4}, safety=tests))
    assert outcome.recommended is not None
    assert outcome.recommended.precision == "fq"


@pytest.mark.parametrize(
    ("limits", "budget", "key"),
    [
        ({"ap_drop": 6.0}, {"AP": 6.0}, "qq"),
        ({"ap_drop_relative": 0.01}, {"AP": 0.5}, "qf"),
        ({"agreement_AP_drop": 1.5}, {"agreement_AP": 1.5}, "fq"),
        ({"bit_operations": 50.0}, {"agreement_AP": 3.0, "AP": 1.0}, "qf"),
    ],
)
def test_limits_of_the_user_are_the_budget(limits: dict[str, float], budget: dict[str, float], key: str) -> None:
    sweep_result = result(limits=limits)
    assert budget_of(sweep_result) == budget
    outcome = with_recommendation(sweep_result)
    assert outcome.recommended is not None
    assert (outcome.recommended.precision, outcome.recommended.budget) == (key, budget)


def test_a_limit_is_shown_by_the_tests_of_the_margins() -> None:
    # Bounds of AP are 1, 2 and 3 points, from accurate to cheap.
    outcome = with_recommendation(result(limits={"ap_drop": 2.0}, safety=safety("qq", fq="met", qf="met", qq="met")))
    assert outcome.recommended is not None
    assert (outcome.recommended.precision, outcome.recommended.is_shown) == ("qf", True)


def test_the_baseline_is_recommended_only_where_everything_else_loses_more() -> None:
    outcome = with_recommendation(result(safety=safety(is_asked=True, margin={"agreement_AP": 0.5})))
    assert outcome.recommended is not None
    assert outcome.recommended.is_baseline
    assert (
        outcome.recommended.reason == "the baseline, because everything cheaper that was tried loses more than 0.5 agreement AP"
    )


def test_nothing_is_recommended_where_nothing_was_seen() -> None:
    unseen = {key: row(key, metrics={"agreement_AP": -1.0, "AP": -1.0}) for key in COST}
    sweep_result = result(front=tuple(unseen.values()), baseline=unseen["ff"], picks={"smallest": pick("qq")})
    outcome = with_recommendation(replace(sweep_result, picks={}))
    assert outcome.recommended is None
    assert "no image has labels, and the baseline finds nothing to agree with" in outcome.not_recommended
    requested = with_recommendation(replace(sweep_result, picks={}, safety=safety(is_asked=True, margin={"AP": 1.0})))
    assert requested.not_recommended.startswith("no image has labels, without which 1 AP cannot be judged")


def test_where_no_limit_is_kept_nothing_is_recommended() -> None:
    figures = {"precision": "qq", "trial": "qq", "options": "", "metrics": {}, "costs": {}}
    outcome = with_recommendation(result(limits={"bit_operations": 5.0}, nearest=NearestRow(**figures, beyond={})))  # type: ignore[arg-type]
    assert outcome.recommended is None
    assert outcome.not_recommended == "nothing meets the limits (bit_operations 5)"


def test_images_to_add_are_of_all_images_in_two_digits() -> None:
    loss = Loss(50, 1.0, 1.0, 30.0, 0.0, share=True)
    enough = loss.images_to_tell(3.0)
    assert enough is not None
    additional_images = images_to_add({"agreement_AP": loss}, {"agreement_AP": 3.0, "AP": 1.0}, 0.05, 50, 100)
    assert additional_images is not None
    assert 0 <= additional_images - 2 * (enough - 50) < 10
    assert images_to_add({}, {"agreement_AP": 3.0}, 0.05, 50, 100) is None
