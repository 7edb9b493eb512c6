# SPDX-License-Identifier: MIT
"""`mpnet run --engine`: the same images, decoding and metrics, forward passes by another engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpnet.backends import Backend
from mpnet.backends.deployment import slower_note
from mpnet.config.measures import measure
from mpnet.progress import silent
from mpnet.report.collect.report import collect
from tests.classifier.conftest import shapes  # noqa: F401
from tests.cli.conftest import Mpnet, document_of

pytestmark = pytest.mark.usefixtures("scalar_backends")


def test_an_engine_with_mpnets_arithmetic_gives_mpnets_result(mpnet: Mpnet, experiment: Path) -> None:
    reference = document_of(mpnet("run", experiment, "--json"))
    document = document_of(mpnet("run", experiment, "--engine", "scalar", "--json"))
    assert document["id"] != reference["id"]
    for section in ("metrics", "agreement", "per_class", "cost", "precision", "protocol"):
        assert document[section] == reference[section]
    deployed = document["deployed"]
    assert (deployed["engine"], deployed["version"], deployed["reference"]) == ("scalar", "1.0", reference["id"])
    assert deployed["head_error"] == 0
    assert (deployed["AP"], deployed["agreement_AP"]) == (reference["metrics"]["AP"], reference["agreement"]["AP"])
    assert deployed["latency_ms"] > 0 < deployed["mpnet_latency_ms"]
    assert deployed["fp32_latency_ms"] > 0  # all of it in int8 is what was run
    assert "int8_latency_ms" not in deployed
    assert [layer["executed"] for layer in deployed["layers"]] == ["int8"] * 13
    second_document = document_of(mpnet("run", experiment, "--engine", "scalar", "--json"))
    assert (second_document["reused"], second_document["id"]) == (True, document["id"])
    assert "deployed" not in document_of(mpnet("run", experiment, "--json"))


def test_with_another_baseline_both_are_compared_with_that(mpnet: Mpnet, experiment: Path) -> None:
    def sides(*options: str) -> list[dict[str, Any]]:
        document = document_of(mpnet("run", experiment, "--engine", "rough", "--json", *options))
        reference_path = Path(document["folder"]).parent / document["deployed"]["reference"] / "result.json"
        return [document, json.loads(reference_path.read_text())]

    fp32_sides, fp16_sides = sides(), sides("--set", "baseline=fp16")
    assert [side["id"] for side in fp32_sides] == [side["id"] for side in fp16_sides]
    assert (
        len({side["agreement"]["baseline"] for side in fp32_sides})
        == len({side["agreement"]["baseline"] for side in fp16_sides})
        == 1
    )
    assert fp32_sides[0]["agreement"]["baseline"] != fp16_sides[0]["agreement"]["baseline"]


@pytest.mark.slow
def test_engines_do_not_mix_and_say_how_far_they_are(mpnet: Mpnet, experiment: Path) -> None:
    exact, rough = (document_of(mpnet("run", experiment, "--engine", name, "--json")) for name in ("scalar", "rough"))
    assert exact["id"] != rough["id"]
    assert rough["deployed"]["head_error"] > 0
    compared = mpnet("compare", exact["folder"], rough["folder"], "--draws", 100)
    assert "in scalar" in compared.stdout
    assert "in rough" in compared.stdout
    assert "head error to mpnet's own" in compared.stdout
    data = collect([Path(rough["folder"])], progress=silent, draws=100)
    assert len(data.configurations) == 3  # baseline, mpnet's own, the engine's
    assert data.configurations.value(2, "deployed_AP") == rough["deployed"]["AP"]
    assert any("rough 1.0" in note for note in data.notes)


@pytest.mark.slow
def test_a_classifiers_figures_in_an_engine_are_measures(mpnet: Mpnet, shapes: Path, tmp_path: Path) -> None:
    document = document_of(mpnet("run", shapes / "shapes.yaml", "--engine", "rough", "--set", f"output={tmp_path}", "--json"))
    data = collect([Path(document["folder"])], progress=silent, draws=100)
    columns = {name: data.configurations.value(2, name) for name in ("deployed_top1", "deployed_agreement_top1")}
    assert columns == {
        "deployed_top1": document["deployed"]["top1"],
        "deployed_agreement_top1": document["deployed"]["agreement_top1"],
    }
    assert "top-1 in the engine" in {measure(name).label for name in columns}


def test_another_mode_is_said(mpnet: Mpnet, experiment: Path) -> None:
    arguments = ("run", experiment, "--engine", "scalar", "--json")
    assert not any("quantises in another mode" in note for note in document_of(mpnet(*arguments))["notes"])
    document = document_of(mpnet(*arguments, "--set", "quantization.activations.mode=symmetric"))
    [note] = [note for note in document["notes"] if "quantises in another mode" in note]
    assert "activations.mode is symmetric" in note
    assert "--set quantization.activations.mode=affine" in note


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, "engine 'qqq' is unknown; known are"), ({"packages": ("no-such-engine>=3",)}, "pip install --upgrade 'mpnet[")],
)
def test_what_cannot_run_is_one_line(
    mpnet: Mpnet, experiment: Path, scalar_backends: dict[str, Backend], changes: dict[str, object], message: str
) -> None:
    for name, value in changes.items():
        object.__setattr__(scalar_backends["scalar"], name, value)
    process = mpnet("run", experiment, "--engine", "scalar" if changes else "qqq")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert message in process.stderr


def test_a_stored_result_of_another_machine_is_timed_again_beside_the_others(mpnet: Mpnet, experiment: Path) -> None:
    first = document_of(mpnet("run", experiment, "--engine", "scalar", "--json"))
    path = Path(first["folder"]) / "result.json"
    result_document = json.loads(path.read_text())
    result_document["latency"]["cpu"] = "another"
    path.write_text(json.dumps(result_document))
    second = document_of(mpnet("run", experiment, "--engine", "scalar", "--json"))
    assert second["reused"]
    assert second["latency"]["cpu"] == first["latency"]["cpu"]
    assert second["deployed"]["latency_ms"] == second["latency"]["median_ms"]
    reference = json.loads((Path(second["folder"]).parent / second["deployed"]["reference"] / "result.json").read_text())
    assert reference["latency"]["median_ms"] == second["deployed"]["mpnet_latency_ms"]
    unchanged = ("metrics", "agreement", "id", "created", "precision")
    assert {name: second[name] for name in unchanged} == {name: first[name] for name in unchanged}


def test_a_mix_stands_beside_the_engines_own_fp32_and_int8(mpnet: Mpnet, experiment: Path) -> None:
    mix = ("--set", "precision.layers.heads=fp16")
    text = mpnet("run", experiment, "--engine", "scalar", *mix).stdout
    deployed = document_of(mpnet("run", experiment, "--engine", "scalar", "--json", *mix))["deployed"]
    assert {"latency_ms", "mpnet_latency_ms", "fp32_latency_ms", "int8_latency_ms"} <= deployed.keys()
    assert "all layers in fp32" in text
    assert "all layers in int8" in text


@pytest.mark.parametrize(
    ("mix", "note"), [(8.8, "scalar takes longer than with all layers in fp32: 8.80 against 7.20 ms"), (7.2, "")]
)
def test_one_line_says_that_a_mix_is_slower_than_fp32(mix: float, note: str) -> None:
    assert slower_note("scalar", mix, {"fp32": 7.2, "int8": 4.9}) == note
    assert slower_note("scalar", mix, {}) == ""
