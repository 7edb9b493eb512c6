# SPDX-License-Identifier: MIT
"""`mpnet bench`: every requested combination is measured, products add up, bad requests are one line."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mpnet.demo.project import write_project
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import read_experiment
from mpnet.kernels.isa import usable_levels
from mpnet.report.text.bench import print_bench
from mpnet.speed.bench import bench_key, bench_network, key_of
from mpnet.speed.peak import Peak
from tests.cli.conftest import Mpnet, document_of
from tests.networks import write_experiment


@pytest.fixture
def cfg(tmp_path: Path) -> Path:
    write_experiment(tmp_path)
    return tmp_path / "net.cfg"


@pytest.mark.slow
def test_every_combination_is_measured_whole_and_step_by_step(mpnet: Mpnet, cfg: Path) -> None:
    result = mpnet(
        "bench", cfg, "--precisions", "fp32,int8,mixed", "--threads", "1,2", "--isa", "all", "--repeats", 3, "--json"
    )
    document = document_of(result)
    combinations = {(case["isa"], case["threads"], case["precision"]) for case in document["cases"]}
    assert combinations == {
        (isa, threads, precision) for isa in usable_levels() for threads in (1, 2) for precision in ("fp32", "int8", "mixed")
    }
    assert set(document["peaks"]) == set(usable_levels())
    network = read_cfg(cfg)
    for case in document["cases"]:
        assert case["macs"] == network.macs == sum(step["macs"] for step in case["steps"])
        assert 0 < case["min_ms"] <= case["median_ms"]
        assert {step["layer"] for step in case["steps"] if step["macs"]} == {layer.index for layer in network.convolutions}
        precisions = {step["precision"] for step in case["steps"] if step["macs"]}
        assert precisions == {"fp32": {"fp32"}, "int8": {"int8"}, "mixed": {"fp16", "int8"}}[case["precision"]]


def test_mixed_is_what_the_demo_and_init_begin_with(mpnet: Mpnet, cfg: Path, tmp_path: Path) -> None:
    mixed = bench_key(read_cfg(cfg), "mixed")
    assert mpnet("init", "--cfg", cfg, "--images", "images", "-o", "made.yaml").returncode == 0
    experiment = read_experiment(tmp_path / "made.yaml")
    assert key_of(experiment) == mixed
    project = write_project(tmp_path / "demo", scenes=1)
    assert key_of(read_experiment(project.experiment)) == bench_key(read_cfg(project.folder / "model/demo.cfg"), "mixed")


def test_the_table_names_layers_and_precisions(mpnet: Mpnet, cfg: Path) -> None:
    result = mpnet("bench", cfg, "--precisions", "fp32,int8", "--repeats", 3, "--quiet")
    assert result.returncode == 0
    assert result.stderr == ""
    for layer in read_cfg(cfg).convolutions:
        assert layer.name in result.stdout


@pytest.mark.parametrize("doubt", ["", "other programs kept 1.6 of 2 cores busy"])
def test_what_passes_the_peak_is_not_to_be_believed(cfg: Path, doubt: str) -> None:
    measured = bench_network(cfg, precisions=("fp32", "fp32_winograd"), repeats=3)
    [(level, _)] = measured.peaks.items()

    def printed(share: float) -> str:
        cases = [
            replace(case, share=share, steps=tuple(replace(s, share=None if s.share is None else share) for s in case.steps))
            for case in measured.cases
        ]
        output = io.StringIO()
        print_bench(
            replace(measured, peaks={level: Peak(1.0, 2.0, doubt)}, cases=tuple(cases)), Console(file=output, width=100)
        )
        return output.getvalue()

    beyond, within = printed(8.44), printed(1.004)
    assert "844%?" in beyond
    assert "844% " not in beyond
    assert f"do not believe these shares: {doubt or 'the machine was slower'}" in " ".join(beyond.split())
    assert "?" not in within


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "0"], "--threads 0: must be from 1 to 1024"),
        (["--threads", "two"], "--threads two: use whole numbers with commas, such as 1,2"),
        (["--isa", "sse9"], "unknown ISA level 'sse9'"),
        (["--precisions", "fp12"], "unknown precision 'fp12'"),
        (["--precisions", ","], "nothing to measure"),
        (["--weights", "none.weights"], "none.weights: cannot be read (No such file or directory); check the path"),
    ],
)
def test_impossible_requests_are_one_line(mpnet: Mpnet, cfg: Path, options: list[str], message: str) -> None:
    result = mpnet("bench", cfg, *options)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_random_weights_of_many_layers_without_activation_stay_within_halves(mpnet: Mpnet, tmp_path: Path) -> None:
    """As in networks of narrow linear layers between depthwise ones; `bench` without weights draws its own."""
    linear = "[convolutional]\nbatch_normalize=1\nfilters=4\nsize=1\nactivation=linear\n\n"
    (tmp_path / "net.cfg").write_text("[net]\nwidth=8\nheight=8\nchannels=3\n\n" + 60 * linear, encoding="ascii")
    document = document_of(mpnet("bench", tmp_path / "net.cfg", "--precisions", "fp16", "--repeats", 3, "--json"))
    assert [case["precision"] for case in document["cases"]] == ["fp16"]
