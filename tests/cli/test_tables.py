# SPDX-License-Identifier: MIT
"""What commands print fits: no table is wider than the terminal, or than a hundred columns, whatever the network."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from mpnet.formats.documents.typed import build
from mpnet.report.text.sweep import print_sweep
from mpnet.sweep.result import SweepResult
from tests.cli.conftest import Mpnet, document_of

SWEEP = (
    "sweep={strategy: one_at_a_time, precisions: [fp32, int8], objectives: [agreement_AP, AP, bit_operations], holdout: 0.4}"
)


def printed(document: dict[str, object], columns: int) -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=stream, width=columns, force_terminal=True, color_system=None, legacy_windows=False)
    print_sweep(build(SweepResult, document), console)
    stream.flush()
    return stream.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]


@pytest.fixture
def swept(mpnet: Mpnet, experiment: Path) -> dict[str, object]:
    return dict(document_of(mpnet("sweep", experiment, "--set", SWEEP, "--workers", 1, "-q", "--json")))


def test_a_sweep_fits_eighty_columns(swept: dict[str, object]) -> None:
    lines = printed(swept, 80)
    # Two lines end in what somebody copies, whole: a command and a path.
    assert [line for line in lines if cell_len(line) > 80 and str(swept["store"]) not in line] == []
    text = "\n".join(lines)
    for row in swept["front"]:  # type: ignore[attr-defined]
        assert row["precision"] in text
    for heading in ("agreement", "held", "operations", "baseline", "smallest"):
        assert heading in text


def test_a_sweep_says_how_many_images_ruling_out_took(swept: dict[str, object]) -> None:
    swept |= {"ruled_out": 70, "ruled_out_after": {"2": 30, "5": 20, "9": 20}, "holdout": {"selecting": 40, "held_out": 0}}
    text = " ".join("\n".join(printed(swept, 80)).split())
    assert "70 more cannot be on the front, as a part of the images proves, half of them 5, the last 9 of 40" in text
    swept["ruled_out_after"] = {"0": 30, "5": 20, "9": 20}
    text = " ".join("\n".join(printed(swept, 80)).split())
    assert "proves, 30 of them by costs alone, half of the others 5, the last 9 of 40" in text
    swept["ruled_out_after"] = {}  # a store of a version that did not count them
    assert "as a part of the images proves) in" in " ".join("\n".join(printed(swept, 80)).split())


def test_a_sweep_that_screened_lists_layers_by_noise(swept: dict[str, object]) -> None:
    row = {"layers": [4], "names": ["conv-5"], "precision": "int8", "mac_share": 0.25, "noise": 0.01, "saved_percent": 12.5}
    other = {**row, "layers": [0], "names": ["conv-1"], "noise": 0.003}
    swept["layers_by_noise"] = [{**row, "noise_percent": 61.25}, {**other, "noise_percent": 38.75}]
    lines = [line.split() for line in printed(swept, 80)]
    rows = [line for line in lines if line[5:8] in (["61.2", "%", "12.5"], ["38.8", "%", "12.5"])]
    assert [line[:9] for line in rows] == [
        ["4", "conv-5", "25.0", "%", "int8", "61.2", "%", "12.5", "%"],
        ["0", "conv-1", "25.0", "%", "int8", "38.8", "%", "12.5", "%"],
    ]


def test_keys_of_large_networks_are_shortened(swept: dict[str, object]) -> None:
    entries = [*swept["front"], swept["baseline"], swept["best"], *swept["picks"].values()]  # type: ignore[attr-defined]
    for entry in {id(entry): entry for entry in entries}.values():
        entry["precision"] = entry["precision"] * 9  # 117 layers
    lines = printed(swept, 80)
    assert [line for line in lines if cell_len(line) > 80 and str(swept["store"]) not in line] == []
    assert "f*117" in "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "show experiment.yaml",
        "targets",
        "bench experiment.yaml --precisions fp32,fp16,int8,mixed --repeats 3 -q",
        "run experiment.yaml -q",
    ],
)
def test_a_pipe_gets_a_hundred_columns_at_most(mpnet: Mpnet, experiment: Path, command: str) -> None:
    lines = mpnet(*command.split()).stdout.splitlines()
    rules = [len(line) for line in lines if set(line) == {"─"}]
    assert rules
    assert max(rules) <= 100


@pytest.mark.slow
def test_a_boards_latency_stands_in_the_summary(mpnet: Mpnet, experiment: Path) -> None:
    assert mpnet(
        "profile", "net.cfg", "-o", "board.json", "--repeats", 3, "-q", "--precisions", "fp32,int8", "--threads", 1
    ).returncode in (0, 1)  # 1: the machine is busy
    options = ("--set", "sweep.latency=board.json", "--set", "sweep.latency_error=100000", "--workers", 1, "-q")
    process = mpnet("sweep", experiment, "--set", SWEEP, *options)
    assert process.returncode == 0, process.stderr
    assert "latency: predicted by a table of" in process.stdout
    assert "latency saved" in " ".join(process.stdout.split())
    # Whoever says nothing of objectives pays in the board's milliseconds first.
    open_ = "sweep={strategy: greedy, budget: {trials: 3}}"
    document = document_of(mpnet("sweep", experiment, "--set", open_, *options, "--json"))
    assert document["objectives"] == ["AP", "latency_ms"]
    assert document["table"].startswith("a table of ")
    assert all(row["costs"]["latency_ms"] > 0 for row in document["front"])
