# SPDX-License-Identifier: MIT
"""`mpnet show`: the table, its JSON document, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.formats.cfg.read import read_cfg
from tests.cli.conftest import Mpnet, document_of
from tests.networks import write_network


def test_what_falls_back_is_said_once(mpnet: Mpnet, experiment: Path) -> None:
    chosen = ("--set", "runtime.backends=[gpu, cpu]", "--set", "runtime.device=opencl:99")
    shown = mpnet("show", experiment, "--steps", *chosen)
    assert shown.stdout == mpnet("show", experiment, "--steps").stdout
    [line] = " ".join(shown.stderr.split()).split("; all operations fall back to cpu (")[:-1]
    assert line.startswith("runtime.backends")
    assert "opencl:99" in line


@pytest.fixture
def cfg(tmp_path: Path) -> Path:
    write_network(tmp_path)
    return tmp_path / "net.cfg"


def test_the_document_adds_up(mpnet: Mpnet, cfg: Path) -> None:
    document = document_of(mpnet("show", cfg, "--json", "--default", "int8", "--layer", "heads=fp16"))
    network = read_cfg(cfg)
    assert document["precision_key"] == "qqqqqqqqqhqqh"
    assert document["totals"]["macs"] == sum(row["macs"] for row in document["layers"]) == network.macs
    assert document["totals"]["parameters"] == network.parameters
    assert document["totals"]["weight_bytes"] == sum(row["weight_bytes"] for row in document["layers"])
    assert document["totals"]["conversions"] == sum(len(row["conversions"]) for row in document["layers"])
    assert [row["precision"] for row in document["layers"] if "heads" in row["selectors"]] == ["fp16", "fp16"]


def test_the_table_names_what_selectors_choose(mpnet: Mpnet, cfg: Path) -> None:
    lines = mpnet("show", cfg, "--default", "int8").stdout.splitlines()
    [head] = [line for line in lines if "conv-10/yolo-1" in line]
    assert "heads" in head
    assert "fp32 -> int8" in head
    assert any(line.startswith("24 layers, precision qqqqqqqqqqqqq; ") for line in lines)
    assert not any("\x1b" in line or "…" in line for line in lines)


@pytest.mark.parametrize(
    ("layers", "words"), [({}, " (scales per tensor), "), ({"first": "per_tensor"}, " (scales per tensor in 1 layer), ")]
)
def test_weights_with_one_scale_a_tensor_are_told(mpnet: Mpnet, experiment: Path, layers: dict[str, str], words: str) -> None:
    default = "per_channel" if layers else "per_tensor"
    section = {"weights": default, "layers": {name: {"weights": value} for name, value in layers.items()}}
    options = ("--set", f"quantization={json.dumps(section)}", "--set", "precision={default: int8}")
    text = mpnet("show", experiment, *options).stdout
    assert f" of weights{words}" in text
    document = document_of(mpnet("show", experiment, *options, "--json"))
    assert (document["coded_layers"], document["per_tensor_layers"]) == (13, len(layers) or 13)
    per_channel = mpnet(
        "show", experiment, "--set", "quantization={weights: per_channel}", "--set", "precision={default: int8}"
    )
    assert " of weights, " in per_channel.stdout


def test_an_experiment_shows_its_own_precisions(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("show", experiment, "--json", "--set", "precision.layers.first=fp32"))
    assert document["precision_key"] == "f" + "q" * 12


def test_calibrated_ranges_need_not_be_there(mpnet: Mpnet, experiment: Path) -> None:
    result = mpnet("show", experiment, "--steps", "--set", "quantization.activations=calibrated")
    assert result.returncode == 0
    assert "Quantize (affine, calibrated) for conv-1" in result.stdout


def test_steps_are_listed_one_a_line(mpnet: Mpnet, cfg: Path) -> None:
    lines = mpnet("show", cfg, "--steps").stdout.splitlines()
    assert sum("Convolve (fp32)" in line for line in lines) == 13
    assert sum("MaxPool" in line for line in lines) == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["--layer", "first"],
        ["--layer", "first=int9"],
        ["--layer", "=int8"],
        ["--layer", "conv-77=int8"],
        ["--layer", "yolo-1=int8"],
        ["--set", "detection.nms=0.5"],
    ],
)
def test_impossible_choices_are_one_line(mpnet: Mpnet, cfg: Path, arguments: list[str]) -> None:
    result = mpnet("show", cfg, *arguments)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def in_terminal(cfg: Path, columns: int, **environment: str) -> str:
    """Return what `mpnet show` writes to a terminal of so many columns."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mpnet", "show", str(cfg), "--default", "int8"],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **environment},
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    assert process.wait() == 0
    return b"".join(chunks).decode()


def test_a_terminal_gets_colours(cfg: Path) -> None:
    environment = {name: "" for name in ("NO_COLOR",)}
    assert "\x1b[32mint8" in in_terminal(cfg, 200, **environment)


def test_no_color_is_respected(cfg: Path) -> None:
    assert "\x1b[32m" not in in_terminal(cfg, 200, NO_COLOR="1")


def test_a_narrow_terminal_loses_columns_but_no_characters(cfg: Path) -> None:
    text = in_terminal(cfg, 80, NO_COLOR="1")
    assert "…" not in text
    assert "fp32 -> int8" in text
    assert "activations" not in text.splitlines()[0]
