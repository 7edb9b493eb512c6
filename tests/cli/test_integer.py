# SPDX-License-Identifier: MIT
"""Whole numbers alone from the command line: runs, sweeps, analyses, exports, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.sweep.store import TrialStore
from tests.cli.conftest import Mpnet, document_of

INTEGER_ONLY = ("--set", "quantization={activations: calibrated, integer_only: true}", "--set", "data.calibration.count=3")
SWEEP = (
    "sweep: {strategy: exhaustive, objectives: [agreement_AP, bit_operations], holdout: 0, "
    "space: {tied: [['0..6'], ['8..22']]}}\n"
)


@pytest.mark.slow
def test_a_swept_configuration_is_what_a_run_of_it_gives(mpnet: Mpnet, experiment: Path) -> None:
    with experiment.open("a", encoding="utf-8") as file:
        file.write(SWEEP)
    document = document_of(
        mpnet("sweep", experiment, *INTEGER_ONLY, "--set", "sweep.precisions=[int16, int8]", "--workers", "1", "--json")
    )
    with TrialStore.read(document["store"]) as store:
        trials = {trial.key: (trial.values, store.trial_digest(1, trial.key)) for trial in store.trials(1)}
    assert {key[0] + key[-1] for key in trials} >= {"ii", "iq", "qi", "qq"}
    key = next(key for key in trials if key[0] + key[-1] == "qi")
    layers = "{0..6: int8, 8..22: int16}"
    run = document_of(mpnet("run", experiment, *INTEGER_ONLY, "--json", "--verify", "--set", f"precision.layers={layers}"))
    assert run["precision"]["key"] == key
    assert run["digests"]["trial"] == trials[key][1]
    assert run["metrics"]["AP"] == trials[key][0]["AP"]
    assert run["cost"]["bit_operations"] == trials[key][0]["bit_operations"]
    assert run["protocol"]["quantization"]["integer_only"] is True


@pytest.mark.slow
def test_an_analysis_proposes_int16(mpnet: Mpnet, experiment: Path) -> None:
    answer = mpnet("analyze", experiment, *INTEGER_ONLY, "--set", "precision={default: int8}", "--keep-macs", "50", "--json")
    document = document_of(answer)
    assert "int16" in document["keep"]["yaml"]
    assert "fp16" not in document["keep"]["yaml"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("sweep", "--set", "sweep.precisions=[fp16, int8]"),
            "sweep: layer 0 (conv-1) may be fp16, which is no precision of whole numbers; under",
        ),
        (("run", "--set", "precision={default: int8, layers: {heads: fp16}}"), "fp16 is no precision of whole numbers; under"),
        (("run", "--set", "quantization.activations=dynamic"), "takes no range that is measured on the image; set"),
    ],
)
def test_reals_are_refused_in_one_line(mpnet: Mpnet, experiment: Path, command: tuple[str, ...], message: str) -> None:
    with experiment.open("a", encoding="utf-8") as file:
        file.write(SWEEP)
    name, *options = command
    settings = INTEGER_ONLY if "dynamic" not in str(options) else ("--set", "quantization.integer_only=true")
    answer = mpnet(name, experiment, *settings, *options)
    assert answer.returncode != 0
    assert message in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
