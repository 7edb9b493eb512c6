# SPDX-License-Identifier: MIT
"""A budget of loss in the user's words, and what a sweep says when its images show nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Mpnet, document_of

SWEEP = ("--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0.4}", "--workers", "1")


@pytest.mark.slow
def test_five_images_show_nothing(mpnet: Mpnet, experiment: Path) -> None:
    process = mpnet("sweep", experiment, *SWEEP, "--max-loss", "1 agreement", "--json")
    document = json.loads(process.stdout)
    assert process.returncode == 1
    assert document["safety"]["margin"] == {"agreement_AP": 1.0}
    assert document["safety"]["safe"] is None
    assert {row["state"] for row in document["safety"]["tested"]} <= {"cannot be told", "not met"}
    assert "safe" not in document["picks"]
    text = mpnet("sweep", experiment, *SWEEP, "--max-loss", "1 agreement").stdout
    assert "Nothing is called safe" in text
    refused = mpnet("export", f"{document['store']}:safe", "--to", "cfg", "-o", experiment.parent / "out")
    assert refused.returncode == 2
    assert "has no configuration that is safe" in refused.stderr


def test_a_budget_that_everything_keeps_takes_the_cheapest(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--max-loss", "100 agreement", "--json"))
    tested = document["safety"]["tested"]
    assert document["safety"]["safe"] == tested[-1]["precision"] == document["picks"]["safe"]["precision"]
    assert {row["state"] for row in tested} == {"met"}
    assert "agreement_AP" in document["picks"]["safe"]["losses"]["held_out"]
    # Another budget judges nothing again, and computes nothing.
    second_document = json.loads(mpnet("sweep", experiment, *SWEEP, "--max-loss", "0 agreement", "--json").stdout)
    assert second_document["computed"] == 0


@pytest.mark.slow
def test_stability_is_of_the_judged_ones(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--json"))
    stable = document["stability"]
    assert stable["judged"] == len(stable["front"])
    assert all(0 <= row["percent"] <= 100 for row in stable["front"])
    assert set(stable["picks"]) == set(document["picks"])


@pytest.mark.parametrize("budget", ["much", "3", "-1 AP", "1 top1"])
def test_what_is_no_budget_ends_in_one_line(mpnet: Mpnet, experiment: Path, budget: str) -> None:
    refused = mpnet("sweep", experiment, *SWEEP, "--max-loss", budget)
    assert refused.returncode == 2
    assert "is no budget" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "sweep.conditions=[nothing]",
        "backends=[../x]",
        "sweep.verify={engine: os}",
        "sweep.verify={}",
        "sweep.precisions=[int8]",
        "sweep.constraints={milliseconds: 3}",
        "sweep.objectives=[milliseconds, AP]",
    ],
)
def test_a_forecast_refuses_what_the_sweep_refuses(mpnet: Mpnet, experiment: Path, wrong: str) -> None:
    refusals = [mpnet("sweep", experiment, *SWEEP[:2], "--set", wrong, *extra) for extra in ((), ("--forecast",))]
    assert [(refused.returncode, refused.stdout, refused.stderr.count("\n")) for refused in refusals] == [(2, "", 1)] * 2
    assert refusals[0].stderr == refusals[1].stderr


@pytest.mark.slow
def test_a_forecast_says_how_surely_losses_will_be_known_and_stores_nothing(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP[:2], "--forecast", "--json"))
    assert document["testing"] == document["labelled"] > 0
    assert document["margin"] == {"agreement_AP": 3.0, "AP": 1.0}
    keys = [row["precision"] for row in document["configurations"]]
    assert keys == ["q" * 13, "q" * 12 + "f", "q" * 6 + "f" * 7, "f" * 6 + "q" * 7]
    for row in document["configurations"]:
        for measure_losses in row["losses"].values():
            assert measure_losses["half_widths"] == sorted(measure_losses["half_widths"], reverse=True)
    text = mpnet("sweep", experiment, *SWEEP[:2], "--forecast", "-q").stdout
    assert "A forecast from" in text
    assert re.search(f"int8 everywhere +{'q' * 13} +agreement AP", text)
    assert not list((experiment.parent / "runs").rglob("*.sqlite"))
    assert mpnet("sweep", experiment, "--forecast").returncode == 2  # it has no sweep section


def test_a_sweep_says_what_twice_as_many_images_would_bring(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--json"))
    twice = document["safety"]["twice"]
    assert twice["images"] == 2 * document["safety"]["images"]
    assert all(half_width["twice"] <= half_width["now"] for half_width in twice["half_widths"].values())
    status = mpnet("sweep", "--status", document["store"], "--json")
    assert json.loads(status.stdout)["findings"]["safety"]["twice"] == twice


def test_budgets_of_costs_are_constraints_in_the_users_words(mpnet: Mpnet, experiment: Path) -> None:
    def swept(*options: str) -> Any:
        return json.loads(mpnet("sweep", experiment, *SWEEP, "--no-time", *options, "--json").stdout)

    plain = swept()
    rows = {row["precision"]: row["costs"]["weight_bytes"] for row in (*plain["front"], plain["baseline"])}
    int8, fp32 = rows["q" * 13], rows["f" * 13]
    for text, limit in (("1x", int8), ("1.5 x", int(1.5 * int8)), ("60%", int(0.6 * fp32)), ("8kB", 8000)):
        document = swept("--max-bytes", text)
        assert document["limits"] == {"weight_bytes": limit}
        assert document["computed"] == 0
        chosen = document["recommended"] or document["nearest"]
        assert chosen["costs"]["weight_bytes"] <= limit or document["recommended"] is None
    document = swept("--set", "sweep.max_bytes=1x", "--set", "sweep.max_loss='100 agreement, 100 %'")
    assert document["limits"] == {"weight_bytes": int8}
    assert document["safety"]["margin"] == {"agreement_AP": 100.0, "AP": document["baseline"]["metrics"]["AP"]}
    printed = mpnet("sweep", experiment, *SWEEP, "--no-time", "--max-loss", "100 agreement, 100 %").stdout
    assert "agreement AP lost" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        (("--max-bytes", "2 apples"), "sweep.max_bytes: '2 apples' is no budget; write a number and a unit (kB, MB, x, %)"),
        (("--max-time", "1.2x"), "nothing says the time of a configuration before it is chosen; name a table"),
        (("--max-bytes", "2x", "--set", "sweep.constraints.weight_bytes=9000"), "limits the same; leave one of the two out"),
        (("--max-loss", "1 AP, 2 %"), "limits one measure twice"),
        (("--max-loss", "101 AP"), "at most 100 points"),
        (("--max-loss", "2 %", "--forecast"), "is not known to a forecast"),
    ],
)
def test_budgets_that_nothing_can_keep_end_in_one_line(
    mpnet: Mpnet, experiment: Path, budgets: tuple[str, ...], words: str
) -> None:
    refused = mpnet("sweep", experiment, *SWEEP, *budgets)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert words in refused.stderr
