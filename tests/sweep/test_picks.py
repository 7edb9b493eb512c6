"""What a sweep recommends: three configurations by stated rules."""

from __future__ import annotations

from typing import Mapping, Sequence

import pytest

from mpnet.config.experiment import ConstraintSection
from mpnet.evaluation.compare import Interval
from mpnet.sweep.picks import Judged, Loss, Losses, pick
from mpnet.sweep.problem import Problem, objectives_of
from mpnet.sweep.space import Configuration, build_space
from mpnet.sweep.store import Trial
from tests.sweep.sweep_networks import tiny_yolo

COST = {"ffffff": 100.0, "fffffq": 80.0, "ffffqq": 60.0, "fffqqq": 40.0, "ffqqqq": 20.0, "qqqqqq": 10.0}
QUALITY = {"ffffff": 50.0, "fffffq": 49.9, "ffffqq": 49.5, "fffqqq": 47.0, "ffqqqq": 40.0, "qqqqqq": 20.0}
KNOWN = {Configuration(key): Trial(key, {"AP": QUALITY[key], "bit_operations": COST[key]}) for key in COST}


def problem(limits: ConstraintSection | None = None) -> Problem:
    return Problem(
        build_space(tiny_yolo(), ("fp32", "int8")),
        (1,) * 6,
        objectives_of(("AP", "bit_operations")),
        limits or ConstraintSection(),
    )


def judged_with(width: float, held_out: Mapping[str, float]) -> Judged:
    """Losses as they were measured on the images that select, and those given on held-out ones; all of one width."""

    def judged(configurations: Sequence[Configuration]) -> Mapping[Configuration, Losses]:
        def loss(difference: float) -> Loss:
            return Loss(10, Interval(difference, difference - width, difference + width))

        return {c: {"selecting": loss(QUALITY[c.key] - 50), "held_out": loss(held_out.get(c.key, 0.0))} for c in configurations}

    return judged


def keys(found: Mapping[str, Configuration]) -> dict[str, str]:
    return {name: configuration.key for name, configuration in found.items()}


def test_the_three_rules() -> None:
    assert keys(pick(problem(), KNOWN, judged_with(2.0, {}))) == {"safe": "ffffqq", "balanced": "fffqqq", "smallest": "qqqqqq"}


def test_a_loss_on_held_out_images_alone_is_not_safe() -> None:
    assert keys(pick(problem(), KNOWN, judged_with(2.0, {"ffffqq": -2.5})))["safe"] == "fffffq"


@pytest.mark.parametrize(
    ("width", "safe"), [(2.0, "ffffqq"), (5.0, "ffffqq"), (6.0, "fffqqq"), (19.0, "fffqqq"), (20.0, "ffqqqq")]
)
def test_a_loss_that_only_few_images_hide_is_not_safe(width: float, safe: str) -> None:
    """fffqqq loses 3, ffqqqq 10: within the interval from 3 and 10 on, within one standard error from 6 and 20 on."""
    assert keys(pick(problem(), KNOWN, judged_with(width, {})))["safe"] == safe


def test_limits_hold_for_all_three() -> None:
    found = keys(pick(problem(ConstraintSection(ap_drop=0.6)), KNOWN, judged_with(2.0, {})))
    assert found["smallest"] == found["safe"] == "ffffqq"
    assert QUALITY[found["balanced"]] >= 49.4


@pytest.mark.parametrize("limits", [ConstraintSection(at_most={"bit_operations": 1}), ConstraintSection(ap_drop=0.0)])
def test_nothing_is_picked_where_nothing_fits(limits: ConstraintSection) -> None:
    known = {c: t for c, t in KNOWN.items() if limits.ap_drop is None or c.key != "ffffff"}
    if limits.ap_drop is None:
        assert pick(problem(limits), known, judged_with(2.0, {})) == {}
    else:  # without the baseline nothing can be compared, so nothing is called safe
        assert "safe" not in pick(problem(limits), known, judged_with(2.0, {}))
