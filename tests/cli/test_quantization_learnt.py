# SPDX-License-Identifier: MIT
"""int8 weights whose rounding calibration images decide: every level, sweeps and exports give the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.kernels.isa import usable_levels
from mpnet.sweep.store import TrialStore
from tests.cli.conftest import Mpnet, document_of

DATA = "--set", "data.calibration.count=3"
LEARNT = "--set", "quantization.weights.rounding=learnt"
INTEGER_ONLY = (
    "--set",
    "quantization={activations: calibrated, integer_only: true, bias_correction: true, weights: {rounding: learnt}}",
)


@pytest.mark.slow
def test_every_level_gives_the_same_and_it_is_another_trial(mpnet: Mpnet, experiment: Path) -> None:
    levels = usable_levels()
    documents = [document_of(mpnet("run", experiment, *LEARNT, *DATA, "--json", "--force", "--isa", level)) for level in levels]
    plain = document_of(mpnet("run", experiment, *DATA, "--json"))
    assert documents[0]["digests"]["lessons"]
    assert "lessons" not in plain["digests"]
    assert documents[0]["digests"]["trial"] != plain["digests"]["trial"]
    assert documents[0]["agreement"]["head_sqnr_db"] != plain["agreement"]["head_sqnr_db"]
    for document in documents[1:]:
        for section in ("metrics", "agreement", "digests"):
            assert document[section] == documents[0][section]


def test_other_images_are_another_trial(mpnet: Mpnet, experiment: Path) -> None:
    a, b = (
        document_of(mpnet("run", experiment, "--json", *LEARNT, "--set", f"data.calibration.count={count}"))["digests"]
        for count in (2, 3)
    )
    assert a["lessons"] != b["lessons"]
    assert a["trial"] != b["trial"]


@pytest.mark.slow
def test_a_swept_configuration_is_what_a_run_of_it_gives(mpnet: Mpnet, experiment: Path) -> None:
    with experiment.open("a", encoding="utf-8") as file:
        file.write(
            "sweep: {strategy: exhaustive, objectives: [agreement_AP, bit_operations], holdout: 0, "
            "space: {tied: [['0..6'], ['8..22']]}}\n"
        )
    document = document_of(
        mpnet("sweep", experiment, *INTEGER_ONLY, *DATA, "--set", "sweep.precisions=[int16, int8]", "--workers", "1", "--json")
    )
    with TrialStore.read(document["store"]) as store:
        trials = {trial.key: (trial.values, store.trial_digest(1, trial.key)) for trial in store.trials(1)}
    key = next(key for key in trials if key[0] + key[-1] == "qi")
    layers = "{0..6: int8, 8..22: int16}"
    run = document_of(
        mpnet("run", experiment, *INTEGER_ONLY, *DATA, "--json", "--verify", "--set", f"precision.layers={layers}")
    )
    assert run["precision"]["key"] == key
    assert run["digests"]["trial"] == trials[key][1]
    assert run["metrics"]["AP"] == trials[key][0]["AP"]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "package"), [("onnx", "onnx"), ("tflite", "ai_edge_litert"), ("bundle", "mpnet")])
def test_exports_have_them(mpnet: Mpnet, experiment: Path, target: str, package: str) -> None:
    pytest.importorskip(package)
    document = document_of(mpnet("export", experiment, *LEARNT, *DATA, "--to", target, "-o", "out.file", "--json"))
    requested_layers = [layer for layer in document["layers"] if layer["asked"] == "int8"]
    assert {layer["written"] for layer in requested_layers} == {"int8"}


def test_one_scale_per_tensor_is_refused(mpnet: Mpnet, experiment: Path) -> None:
    answer = mpnet("run", experiment, *LEARNT, "--set", "quantization.weights.granularity=per_tensor")
    assert answer.returncode != 0
    assert "weights: rounding learnt has no per_tensor; use per_channel" in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
