# SPDX-License-Identifier: MIT
"""`mpnet list`: everything that was computed, by the names that other commands take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of

SWEEP = ("--workers", "1", "-q", "--json", "--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0}")


@pytest.mark.slow
def test_results_and_sweeps_are_listed_by_name(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "-q", "--json"))
    first = document_of(mpnet("sweep", experiment, *SWEEP))
    second = document_of(
        mpnet(
            "sweep",
            experiment,
            *SWEEP,
            "--set",
            "sweep.strategy=greedy",
            "--set",
            "sweep.budget.trials=20",
            "--set",
            "quantization.weights=per_tensor",
        )
    )
    assert first["store"] == second["store"]
    document = document_of(mpnet("list", "--json"))
    assert {row["id"]: row["latest"] for row in document["results"]}[run["id"]] is True
    assert {row["precision"] for row in document["results"]} == {"f" * 13, "q" * 13}
    rows = [(row["sweep"], row["strategy"], row["trials"], row["latest"], row["contexts"]) for row in document["sweeps"]]
    assert rows == [(1, "one_at_a_time", 28, False, [1]), (2, "greedy", 20, True, [2])]
    text = mpnet("list").stdout
    for name in ("one_at_a_time", "greedy", run["id"], "sweep-"):
        assert name in text
    # What is listed is what others take.
    [latest] = [row["folder"] for row in document["results"] if row["id"] == run["id"]]
    assert document_of(mpnet("show", latest, "--json"))["precision_key"] == "q" * 13
    assert document_of(mpnet("show", f"{document['sweeps'][0]['store']}:1/{'q' * 13}", "--json"))["precision_key"] == "q" * 13


def test_damaged_files_are_named_and_the_rest_is_listed(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "--no-baseline", "-q", "--json"))
    folder = Path(run["folder"])
    (folder.parent / "0000000000000000").mkdir()
    (folder.parent / "0000000000000000" / "result.json").write_text("{")
    (folder.parent / "broken.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 100)
    document = document_of(mpnet("list", "runs", "--json"))
    assert [row["id"] for row in document["results"]] == [run["id"]]
    assert len(document["unreadable"]) == 2
    assert mpnet("list", "runs").stdout.count("cannot be read: ") == 2


def test_nothing_to_list_is_said(mpnet: Mpnet, tmp_path: Path) -> None:
    process = mpnet("list", "none")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    (tmp_path / "empty").mkdir()
    assert mpnet("list", "empty").stdout == "empty: holds no results and no sweeps\n"
