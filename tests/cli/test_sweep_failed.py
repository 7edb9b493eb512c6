# SPDX-License-Identifier: MIT
"""Sweeps of a network of which layers overflow in fp16: such configurations are counted, named and left out everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of
from tests.networks import overflow_first, small_cfg, write_experiment

SWEEP = "sweep: {precisions: [fp32, fp16, int8], objectives: [agreement_AP, bit_operations], holdout: 0, strategy: exhaustive}"
OPTIONS = ("--workers", "1", "--set", "detection.confidence=0.3")
REASON = "layer 0 (conv-1): ConvolvePool: a value is NaN or infinite"


@pytest.fixture
def overflowing(tmp_path: Path) -> Path:
    """Return an experiment over 81 configurations, of which those with one of the first two layers in fp16 overflow."""
    path = write_experiment(tmp_path, small_cfg())
    overflow_first(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write(SWEEP)
    return path


def fails(key: str) -> bool:
    return "h" in key[:2]


@pytest.mark.slow
def test_a_sweep_goes_on_beside_configurations_that_overflow(mpnet: Mpnet, overflowing: Path) -> None:
    document = document_of(mpnet("sweep", overflowing, *OPTIONS, "--json"))
    assert (document["trials"], document["space"]) == (36, 81)
    assert [(row["layer"], row["configurations"]) for row in document["failed"]] == [(0, 27), (2, 18)]
    assert document["failed"][0]["reason"] == REASON
    offered = [entry["precision"] for entry in (*document["front"], *document["picks"].values(), document["baseline"])]
    assert not [key for key in offered if fails(key)]
    assert document["gap"]["hypervolume_ratio"] == 1  # the whole space is known

    second_process = mpnet("sweep", overflowing, *OPTIONS, "-q")
    assert "36 of 81 configurations (0 computed now)" in second_process.stdout
    assert f"45 of 81 configurations failed and have no figures: {REASON} (27); layer 2 (conv-2)" in second_process.stdout

    store = Path(document["store"])
    assert "45 configurations failed" in mpnet("sweep", "--status", store).stdout
    refused = mpnet("export", f"{store}:hfff", "-o", "mixed.cfg")
    assert (refused.returncode, f"configuration hfff failed: {REASON}; choose another one" in refused.stderr) == (2, True)
    assert mpnet("export", store, "--to", "csv", "-o", "trials.csv").returncode == 0
    assert len((overflowing.parent / "trials.csv").read_text().splitlines()) == 1 + 36
    assert mpnet("report", store, "-o", "page.html").returncode == 0
    assert f"45 configurations failed and have no figures: {REASON} (27)" in (overflowing.parent / "page.html").read_text()

    run_process = mpnet("run", overflowing, "--set", "precision={default: fp16}", "--set", "detection.confidence=0.3")
    assert (run_process.returncode, run_process.stderr) == (2, f"error: {overflowing.parent / 'net.cfg'}: {REASON}\n")


@pytest.mark.slow
def test_other_strategies_end_on_the_same_front(mpnet: Mpnet, overflowing: Path) -> None:
    """With images held out; each strategy in a store of its own."""
    fronts = {}
    for name in ("exhaustive", "exact_front", "greedy"):
        strategy = ("--set", f"sweep.strategy={name}", "--set", "sweep.holdout=0.4", "--store", f"{name}.sqlite")
        document = document_of(mpnet("sweep", overflowing, *OPTIONS, *strategy, "--json"))
        assert document["failed"]
        second_document = document_of(mpnet("sweep", overflowing, *OPTIONS, *strategy, "--json"))
        assert (second_document["computed"], second_document["forward_equivalents"], second_document["failed"]) == (
            0,
            0,
            document["failed"],
        )
        fronts[name] = [(entry["precision"], entry["metrics"], entry["held_out"]) for entry in document["front"]]
    assert fronts["exact_front"] == fronts["exhaustive"]
    assert {key for key, *_ in fronts["greedy"]} & {key for key, *_ in fronts["exhaustive"]}


def test_a_baseline_that_overflows_is_an_error(mpnet: Mpnet, overflowing: Path) -> None:
    for _ in range(2):
        process = mpnet("sweep", overflowing, *OPTIONS, "-q", "--set", "sweep.precisions=[fp16, int8]")
        assert process.returncode == 2
        assert process.stderr == (
            f"error: {overflowing.parent / 'net.cfg'}: {REASON}, in the configuration hhhh that all others are compared with; "
            "give that layer other precisions in sweep.space.layers\n"
        )


def test_a_forecast_leaves_out_what_overflows(mpnet: Mpnet, overflowing: Path) -> None:
    forecast = ("sweep", overflowing, *OPTIONS, "-q", "--forecast", "--unlabelled", "images")
    document = document_of(mpnet(*forecast, "--json", "--set", "sweep.precisions=[fp32, fp16]"))
    assert [row["precision"] for row in document["configurations"]] == ["ffhh"]
    assert document["failed"] == [
        {"precision": "hhhh", "words": "fp16 everywhere", "reason": REASON},
        {"precision": "hhhf", "words": "fp16, but fp32 in last", "reason": REASON},
        {"precision": "hhff", "words": "fp16, but fp32 in heads", "reason": REASON},
    ]
    text = mpnet(*forecast, "--set", "sweep.precisions=[fp32, fp16]").stdout
    assert f"fp16 everywhere (hhhh) has no figures: {REASON}\n" in text


@pytest.mark.slow
def test_what_overflows_under_a_condition_alone_has_no_figures_under_it(mpnet: Mpnet, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, small_cfg())
    overflow_first(tmp_path, 4.1e4)  # noise adds 13 % to the largest value of the first layer, which is just within fp16
    text = path.read_text()
    section = SWEEP.replace("holdout: 0", "holdout: 0, conditions: [noise:5, dark]").replace("fp16, int8", "fp16")
    path.write_text(text + section)
    document = document_of(mpnet("sweep", path, *OPTIONS, "--json"))
    conditions = document["conditions"]
    assert document["failed"] == []
    failing = [row for row in conditions["rows"] if fails(row["precision"])]
    assert 0 < len(failing) < len(conditions["rows"])
    for row in conditions["rows"]:
        assert set(row["under"]) == {"clean", "dark:3", *(() if row in failing else ("noise:5", "mean", "worst"))}
    reasons = {(failure["condition"], failure["precision"]): failure["reason"] for failure in conditions["failed"]}
    assert {key for _, key in reasons} == {row["precision"] for row in failing}
    assert {reason for (_, key), reason in reasons.items() if key[0] == "h"} == {REASON}
    for name in ("mean", "worst"):
        assert not [key for key in (*conditions["front"][name], *conditions["picks"][name].values()) if fails(key)]
    process = mpnet("sweep", path, *OPTIONS, "-q")
    assert f"under noise:5 {failing[0]['precision']} has no figures: layer " in process.stdout
    store = Path(document["store"])
    assert document_of(mpnet("sweep", path, *OPTIONS, "--json"))["conditions"] == conditions
    assert mpnet("report", store, "-o", "page.html").returncode == 0
    assert "under noise:5 " in (tmp_path / "page.html").read_text()
