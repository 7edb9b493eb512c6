# SPDX-License-Identifier: MIT
"""`mpnet demo` from end to end on a few scenes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mpnet.trial.result import read_result
from tests.cli.conftest import Mpnet, document_of


@pytest.mark.slow
def test_demo_runs_shown_commands_and_leaves_a_report(mpnet: Mpnet, tmp_path: Path) -> None:
    process = mpnet("demo", "--scenes", "12", "--out", "demo", "--quiet")
    assert process.returncode == 0, process.stderr
    commands = [shlex.split(line[2:]) for line in process.stdout.splitlines() if line.startswith("$ ")]
    # Where mpnet is not on PATH, its commands begin with where it lies.
    assert [[Path(line[0]).name, line[1]] for line in commands] == [
        ["mpnet", "run"],
        ["mpnet", "run"],
        ["mpnet", "run"],
        ["mpnet", "run"],
        ["mpnet", "compare"],
        ["mpnet", "sweep"],
        ["mpnet", "report"],
    ]
    results = [read_result(tmp_path / folder) for folder in commands[4][2:]]
    assert [(r.name, r.document["precision"]["key"]) for r in results] == [
        ("fp32", "f" * 13),
        ("fp16", "h" * 13),
        ("int8", "q" * 13),
        ("mixed", "qqqqqqqqqhqqh"),
    ]
    assert [shlex.split(r.document["command"])[1:4] for r in results] == [line[1:4] for line in commands[:4]]
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    end = process.stdout.partition("mpnet is not on PATH")[0]
    summary = end[end.index("Done in") :]
    summary_text, export = " ".join(summary.split()), end.splitlines()[-1]
    assert "demo/report.html" in summary
    assert process.stdout.count("\n") <= 75

    # What was shown can be typed, and finds everything finished.
    repeated = document_of(mpnet(*commands[0][1:], "--json"))
    assert (repeated["id"], repeated["reused"]) == (results[0].id, True)
    sweep = document_of(mpnet(*commands[5][1:], "--json", "--workers", "1"))
    assert sweep["computed"] == 0
    assert sorted({layer for row in sweep["layers_by_noise"] for layer in row["layers"]}) == [
        layer["index"] for layer in results[0].document["precision"]["layers"] if layer["parameters"]
    ]

    # It ends with a decision: what was found, what that costs, and the command that takes it away.
    recommended = sweep["recommended"]
    assert f"({recommended['precision']}): {recommended['reason']}." in summary_text
    assert "AP changes by" in summary_text
    assert "bit operations" in summary_text
    assert "ms an image" in summary_text
    assert "demo:recommended" in export
    assert mpnet(*shlex.split(export)[1:]).returncode == 0
    shown_cfg = document_of(mpnet("show", "demo/mixed.cfg", "--json"))
    assert shown_cfg["precision_key"] == recommended["precision"]

    # What the demo has in its own experiment file, measured on the same images, can only make the recommendation cheaper.
    by_hand = document_of(
        mpnet(
            *commands[5][1:],
            "--json",
            "--workers",
            "1",
            "--set",
            "sweep.strategy=grid",
            "--set",
            "sweep.space.layers={all: int8, first: [fp16, int8], heads: fp16}",
        )
    )
    assert by_hand["computed"] > 0
    repeated = document_of(mpnet(*commands[5][1:], "--json", "--workers", "1"))
    assert repeated["known"] > sweep["known"]
    costs = [choice["costs"]["bit_operations"] for choice in (repeated["recommended"], recommended)]
    assert costs[0] <= costs[1]
    assert recommended["metrics"]["agreement_AP"] >= 98


def test_demo_names_an_output_that_cannot_be(mpnet: Mpnet, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    process = mpnet("demo", "--scenes", "1", "--out", "taken/below")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.count("\n") == 1
    assert "taken" in process.stderr


@pytest.mark.slow
def test_layers_are_ranked_by_the_noise_that_was_screened(mpnet: Mpnet, tmp_path: Path) -> None:
    process = mpnet("demo", "--scenes", "3", "--out", "demo", "--quiet")
    assert process.returncode == 0, process.stderr
    document = document_of(mpnet("sweep", "demo/demo.yaml", "--json", "--workers", "1"))
    noises = [row["noise"] for row in document["layers_by_noise"]]
    assert noises == sorted(noises, reverse=True)
    assert json.dumps(document["layers_by_noise"]).count('"precision": "int8"') == 13
    assert json.dumps(document["layers_by_noise"]).count('"precision": "fp16"') == 13
