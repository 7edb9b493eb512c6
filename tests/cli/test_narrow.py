# SPDX-License-Identifier: MIT
"""Weights of fewer than eight bits: runs and sweeps agree, every level gives the same, exports say what they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpnet.config.measures import trial_costs
from mpnet.export import targets
from mpnet.kernels.isa import usable_levels
from mpnet.sweep.store import TrialStore
from tests.cli.conftest import Mpnet, document_of

MIXED = ("--set", "precision={default: int4, layers: {3x3: int5, first: fp32, heads: int6}}")
DATA = "--set", "data.calibration.count=3"


@pytest.mark.slow
def test_every_level_and_any_number_of_threads_give_the_same(mpnet: Mpnet, experiment: Path) -> None:
    documents = [
        document_of(mpnet("run", experiment, *MIXED, *DATA, "--json", "--force", "--isa", level, "--threads", threads))
        for level, threads in [*((level, 1) for level in usable_levels()), (usable_levels()[0], 3)]
    ]
    assert {code for code in documents[0]["precision"]["key"]} == set("f456")
    assert documents[0]["digests"]["lessons"]
    assert documents[0]["calibration"] == {"count": 3, "seed": 0}
    for document in documents[1:]:
        for section in ("metrics", "agreement", "digests", "per_class"):
            assert document[section] == documents[0][section]


@pytest.mark.slow
def test_a_swept_configuration_is_what_a_run_of_it_gives(mpnet: Mpnet, experiment: Path) -> None:
    with experiment.open("a", encoding="utf-8") as file:
        file.write("sweep: {strategy: exhaustive, objectives: [agreement_AP, bit_operations], holdout: 0}\n")
    document = document_of(
        mpnet(
            "sweep",
            experiment,
            *DATA,
            "--set",
            "sweep.precisions=[int8, int4]",
            "--workers",
            "1",
            "--set",
            "sweep.space.tied=[['0..6'], ['8..22']]",
            "--json",
        )
    )
    with TrialStore.read(document["store"]) as store:
        trials = {trial.key: (trial.values, store.trial_digest(1, trial.key)) for trial in store.trials(1)}
    assert sorted({key[0] + key[-1] for key in trials}) == ["44", "4q", "q4", "qq"]
    for key, (values, digest) in trials.items():
        names = {"4": "int4", "q": "int8"}
        layers = {"0..6": names[key[0]], "8..22": names[key[-1]]}
        run = document_of(mpnet("run", experiment, *DATA, "--json", "--set", f"precision.layers={json.dumps(layers)}"))
        assert run["precision"]["key"] == key
        assert run["digests"]["trial"] == digest
        assert ("lessons" in run["digests"]) == ("4" in key)
        assert run["metrics"]["AP"] == values["AP"]
        assert [run["cost"][name] for name in trial_costs() if name != "latency_ms"] == [
            values[name] for name in trial_costs() if name != "latency_ms"
        ]


@pytest.mark.slow
def test_options_of_narrow_weights_decide_the_identity(mpnet: Mpnet, experiment: Path) -> None:
    option_texts = (
        "narrow={}",
        "narrow=nearest",
        "narrow.bias_correction=false",
        "narrow.method=min_max",
        "narrow.granularity=per_group",
    )
    trials = [
        document_of(
            mpnet("run", experiment, *DATA, "--json", "--set", "precision.default=int4", "--set", f"quantization.{text}")
        )
        for text in option_texts
    ]
    assert len({trial["digests"]["trial"] for trial in trials}) == len(option_texts)
    assert len({tuple(trial["agreement"]["head_sqnr_db"]) for trial in trials}) == len(option_texts)


def test_other_images_are_another_trial(mpnet: Mpnet, experiment: Path) -> None:
    a, b = (
        document_of(
            mpnet("run", experiment, "--json", "--set", "precision.default=int4", "--set", f"data.calibration.count={count}")
        )["digests"]
        for count in (2, 3)
    )
    assert a["lessons"] != b["lessons"]
    assert a["trial"] != b["trial"]


@pytest.mark.parametrize(("target", "bits"), [("onnx", 5), ("ncnn", 4), ("tflite", 6)])
def test_exports_that_lack_them_name_the_layer_and_the_nearest(mpnet: Mpnet, experiment: Path, target: str, bits: int) -> None:
    experiment.write_text(experiment.read_text().replace("default: int8", f"default: fp32, layers: {{last: int{bits}}}"))
    process = mpnet("export", experiment, "--to", target, "-o", "out")
    assert process.returncode == 2
    assert f"(conv-13/yolo-2) as int{bits}: it has no weights of {bits} bits" in process.stderr
    assert "the nearest configuration that can be exported is ffffffffffff" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "package"), [("onnx", "onnx"), ("tflite", "ai_edge_litert"), ("bundle", "mpnet"), ("yaml", "mpnet")]
)
def test_exports_that_have_them_say_so(mpnet: Mpnet, experiment: Path, target: str, package: str) -> None:
    pytest.importorskip(package)
    experiment.write_text(experiment.read_text().replace("default: int8", "default: fp32, layers: {last: int4}"))
    exported_path = experiment.with_suffix(f".out{targets()[target].suffix}")
    document = document_of(mpnet("export", experiment, "--to", target, "-o", exported_path, "--json"))
    assert exported_path.stat().st_size > 0
    requested_layers = [layer for layer in document["layers"] if layer["asked"] == "int4"]
    assert {layer["written"] for layer in requested_layers} == (set() if target == "yaml" else {"int4"})


def test_commands_without_calibration_images_round_to_nearest(mpnet: Mpnet, experiment: Path) -> None:
    cfg, weights = experiment.parent / "net.cfg", experiment.parent / "net.weights"
    image = next(path for path in experiment.parent.rglob("*.png"))
    process = mpnet("detect", "--cfg", cfg, "--weights", weights, image, "--default", "int4")
    assert process.returncode == 0, process.stderr
    assert "rounded to nearest" in process.stderr


def test_a_result_says_that_its_images_calibrated(mpnet: Mpnet, experiment: Path) -> None:
    calibrated = document_of(mpnet("run", experiment, *DATA, "--json", "--set", "precision.default=int4"))
    assert any(
        "calibration also used 3 of the evaluated images, so weights fit these better" in note for note in calibrated["notes"]
    )
    plain = document_of(mpnet("run", experiment, *DATA, "--json"))
    assert not any("calibration also used" in note for note in plain["notes"])
