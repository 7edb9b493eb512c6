# SPDX-License-Identifier: MIT
"""`sweep.verify`: what of a front survives in another engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mpnet.report.collect.sweep_store import from_store
from mpnet.report.data.report_data import Status
from mpnet.resolve.stored import find_configuration
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.sweep.choose.verify import RULE
from tests.cli.conftest import Mpnet, document_of

pytestmark = pytest.mark.usefixtures("scalar_backends")
SWEEP = "sweep={strategy: greedy, precisions: [fp32, int8], objectives: [agreement_AP, bit_operations], budget: {trials: 4}}"


def _swept(mpnet: Mpnet, experiment: Path, verify: str, *options: object) -> Any:
    return document_of(
        mpnet(
            "sweep",
            experiment,
            "--set",
            SWEEP,
            "--set",
            f"sweep.verify={verify}",
            "--set",
            "sweep.holdout=0",
            "--workers",
            1,
            "-q",
            "--json",
            *options,
        )
    )


def test_a_front_survives_in_an_engine_with_mpnets_arithmetic(mpnet: Mpnet, experiment: Path) -> None:
    document = _swept(mpnet, experiment, "{engine: scalar}")
    verified = document["verified"]
    assert [row["precision"] for row in verified["rows"]] == [row["precision"] for row in document["front"]]
    for row, entry in zip(verified["rows"], document["front"], strict=True):
        assert row["survived"]
        assert row["head_error"] == 0
        assert row["deployed_AP"] == row["AP"] == entry["metrics"]["AP"]
        assert row["deployed_agreement_AP"] == row["agreement_AP"]
    second_verified = _swept(mpnet, experiment, "{engine: scalar}")["verified"]
    assert second_verified == verified  # times as well: nothing was run again


def test_what_does_not_survive_is_marked_in_terminal_and_report(mpnet: Mpnet, experiment: Path) -> None:
    arguments = ("--set", SWEEP, "--set", "sweep.verify={engine: rough}", "--workers", 1, "-q")
    printed = mpnet("sweep", experiment, *arguments).stdout
    assert "does not survive: agreement_AP" in printed
    table = printed[printed.index("configurations survive") :]
    assert f"\nfp32, but int8 in first  q{'f' * 12} " in table
    store = next((experiment.parent / "runs" / "tiny").glob("sweep-*.sqlite"))
    data = from_store(read_sweep(store), store, Status("finished", 4))
    loss_notes = [note for note in data.notes if note.startswith("Does not survive in rough 1.0: ")]
    assert loss_notes
    assert any(RULE in note for note in data.notes)
    key = loss_notes[0].split(": ")[1].split(" ")[0]
    assert find_configuration(f"{store}:{key}").values["deployed_agreement_AP"] < 99


def test_what_overflows_in_an_engine_does_not_survive_there(mpnet: Mpnet, experiment: Path) -> None:
    for _ in range(2):
        rows = _swept(mpnet, experiment, "{engine: overflowing}")["verified"]["rows"]
        assert {(row["survived"], "head_error" in row) for row in rows} == {(False, False)}
        assert all(re.fullmatch(r"layer \d+ \(.*\): in overflowing a value is NaN or infinite", row["why"]) for row in rows)
    process = mpnet("run", experiment, "--engine", "overflowing")
    assert (process.returncode, process.stderr.count("error: ")) == (2, 1)
    assert "in overflowing a value is NaN or infinite" in process.stderr
    assert not list((experiment.parent / "runs").glob("*/*/result.json"))


def test_what_cannot_be_exported_does_not_survive_and_an_unknown_engine_stops_before_the_sweep(
    mpnet: Mpnet, experiment: Path
) -> None:
    rows = _swept(mpnet, experiment, "{engine: scalar}", "--set", "sweep.precisions=[fp32, fp16_half]")["verified"]["rows"]
    assert not all(row["survived"] for row in rows)
    for row in rows:
        assert row["survived"] == ("H" not in row["precision"])
        assert row["survived"] or "it has no halves" in row["why"]
    process = mpnet("sweep", experiment, "--set", SWEEP, "--set", "sweep.verify.engine=no-such")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "engine 'no-such' is unknown" in process.stderr


def test_a_sweep_is_verified_in_the_experiments_backends_and_says_so_where_it_is_not(mpnet: Mpnet, experiment: Path) -> None:
    shared = ("--set", "backends=[scalar, mpnet]")
    verified = _swept(mpnet, experiment, "{front: false}", *shared)["verified"]
    assert verified["engine"] == "scalar+mpnet"
    [row] = verified["rows"]
    assert row["survived"]
    assert row["deployed_AP"] == row["AP"]
    errors = mpnet("sweep", experiment, "--set", SWEEP, "--workers", 1, *shared).stderr
    assert "a sweep searches with mpnet's own kernels" in errors
    process = mpnet("sweep", experiment, "--set", SWEEP, "--set", "sweep.verify={}")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "sweep.verify.engine" in process.stderr
