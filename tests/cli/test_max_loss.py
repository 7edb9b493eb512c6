# SPDX-License-Identifier: MIT
"""A budget of loss in the user's words, and what a sweep says when its images show nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of

SWEEP = ("--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0.4}", "--workers", "1")


def test_five_images_show_nothing(mpnet: Mpnet, experiment: Path) -> None:
    told = mpnet("sweep", experiment, *SWEEP, "--max-loss", "1 agreement", "--json")
    document = json.loads(told.stdout)
    assert told.returncode == 1
    assert document["safety"]["margin"] == {"agreement_AP": 1.0}
    assert document["safety"]["safe"] is None
    assert {row["state"] for row in document["safety"]["tested"]} <= {"cannot be told", "not met"}
    assert "safe" not in document["picks"]
    text = mpnet("sweep", experiment, *SWEEP, "--max-loss", "1 agreement").stdout
    assert "No configuration is called safe" in text
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
    again = json.loads(mpnet("sweep", experiment, *SWEEP, "--max-loss", "0 agreement", "--json").stdout)
    assert again["computed"] == 0


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
