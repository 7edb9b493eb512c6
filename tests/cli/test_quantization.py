# SPDX-License-Identifier: MIT
"""Calibration, analysis and verification from the command line, on a tiny network."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import cv2
import pytest
import yaml

from tests.cli.conftest import Mpnet, document_of

CALIBRATED = ("--set", "quantization.activations.ranges=calibrated")


def ranges_files(experiment: Path) -> list[Path]:
    return sorted((experiment.parent / "runs" / "calibration").glob("*"))


@pytest.mark.slow
def test_ranges_are_kept_as_text_and_used_again(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, *CALIBRATED, "--json"))
    assert document["digests"]["calibration"] is not None
    (path,) = ranges_files(experiment)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["images"] == 5
    assert content["tensors"][0]["name"] == "picture"
    modification_time = path.stat().st_mtime_ns
    second_document = document_of(mpnet("run", experiment, *CALIBRATED, "--force", "--json"))
    assert (second_document["id"], second_document["metrics"]) == (document["id"], document["metrics"])
    assert path.stat().st_mtime_ns == modification_time
    document_of(mpnet("run", experiment, *CALIBRATED, "--set", "data.calibration.count=2", "--json"))
    document_of(mpnet("run", experiment, *CALIBRATED, "--set", "quantization.activations.method=mse", "--json"))
    assert len(ranges_files(experiment)) == 3


def test_calibration_on_images_that_are_evaluated_is_said(mpnet: Mpnet, experiment: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (experiment.parent / "images").iterdir())
    overlapping = document_of(mpnet("run", experiment, *CALIBRATED, "--json"))
    [note] = [note for note in overlapping["notes"] if "calibration" in note]
    assert note == (
        f"calibration also used {len(names)} of the evaluated images, so ranges fit these better than other "
        f"images: {', '.join(names[:5])}; name others in data.calibration.images"
    )
    other_images = tmp_path / "others"
    other_images.mkdir()
    for number, name in enumerate(names):
        image = cv2.imread(str(experiment.parent / "images" / name))
        cv2.imwrite(str(other_images / f"{number}.png"), image[::-1])
    # The same bytes under another name are the same image.
    shutil.copy(experiment.parent / "images" / names[2], other_images / "copy.png")
    mixed = document_of(mpnet("run", experiment, *CALIBRATED, "--set", f"data.calibration.images={other_images}", "--json"))
    [note] = [note for note in mixed["notes"] if "calibration" in note]
    assert note.startswith("calibration also used 1 of the evaluated images, so")
    assert "images: copy.png;" in note
    (other_images / "copy.png").unlink()
    apart = document_of(mpnet("run", experiment, *CALIBRATED, "--set", f"data.calibration.images={other_images}", "--json"))
    assert not [note for note in apart.get("notes", []) if "calibration" in note]


def test_dynamic_runs_have_no_calibration(mpnet: Mpnet, experiment: Path) -> None:
    assert document_of(mpnet("run", experiment, "--json"))["digests"]["calibration"] is None
    assert ranges_files(experiment) == []


def test_corrections_change_the_identity_and_the_result(mpnet: Mpnet, experiment: Path) -> None:
    plain = document_of(mpnet("run", experiment, "--json"))
    ids = {plain["id"]}
    for option in ("bias_correction", "equalisation"):
        document = document_of(mpnet("run", experiment, "--set", f"quantization.{option}=true", "--json"))
        assert document["protocol"]["quantization"][option] is True
        assert document["agreement"]["head_sqnr_db"] != plain["agreement"]["head_sqnr_db"]
        ids.add(document["id"])
    assert len(ids) == 3


def test_a_word_that_is_no_way_to_equalise_is_one_line(mpnet: Mpnet, experiment: Path) -> None:
    process = mpnet("run", experiment, "--set", "quantization.equalisation=channels")
    assert process.returncode == 2
    assert "quantization.equalisation is 'channels'; it must be one of true, false, activations" in process.stderr


def test_equalising_by_activations_takes_calibration_images(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--set", "quantization.equalisation=activations", "--json"))
    assert document["protocol"]["quantization"]["equalisation"] == "activations"
    assert document["digests"]["calibration"] is not None
    second_document = document_of(
        mpnet("run", experiment, "--set", "quantization.equalisation=activations", "--json", "--force")
    )
    assert second_document["metrics"] == document["metrics"]
    assert second_document["id"] == document["id"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"max": ', '"max": -9e9, "was": '), "min"),
        (('"tensors"', '"tensor"'), "must be a JSON object with a list 'tensors'"),
        (("{", "{{"), "not valid JSON"),
        (('"network": "', '"network": "0'), "made for other network"),
    ],
)
def test_broken_ranges_are_one_line(mpnet: Mpnet, experiment: Path, change: tuple[str, str], message: str) -> None:
    document_of(mpnet("run", experiment, *CALIBRATED, "--json"))
    (path,) = ranges_files(experiment)
    path.write_text(path.read_text(encoding="utf-8").replace(*change, 1), encoding="utf-8")
    process = mpnet("run", experiment, *CALIBRATED, "--force")
    assert process.returncode == 2
    assert message in process.stderr
    assert process.stderr.strip().count("\n") == 0


@pytest.mark.parametrize(("folder", "message"), [("missing", "cannot be read"), ("empty", "holds no image")])
def test_an_empty_calibration_set_is_one_line(mpnet: Mpnet, experiment: Path, folder: str, message: str) -> None:
    (experiment.parent / "empty").mkdir()
    process = mpnet("run", experiment, *CALIBRATED, "--set", f"data.calibration.images={folder}")
    assert process.returncode == 2
    assert message in process.stderr
    assert process.stderr.strip().count("\n") == 0


def test_impossible_options_are_one_line(mpnet: Mpnet, experiment: Path) -> None:
    process = mpnet("run", experiment, "--set", "quantization.activations={mode: MIN_FIRST, rounding: half_to_even}")
    assert process.returncode == 2
    assert "mode MIN_FIRST does not round half_to_even" in process.stderr
    assert process.stderr.strip().count("\n") == 0


def test_verify_says_that_kernels_and_simulation_agree(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("run", experiment, "--verify", "--json"))
    steps = document["verification"]["steps"]
    assert document["verification"]["images"] == 5
    assert sum(step["operation"] == "Convolve" for step in steps) == 13
    assert all(step["differing"] == 0 for step in steps)
    text = mpnet("run", experiment, "--verify")
    assert "0 differ; 13 int8 convolutions" in text.stdout
    refused = mpnet("run", experiment, "--verify", "--set", "precision.default=fp16")
    assert refused.returncode == 2
    assert "no layer runs in int8" in refused.stderr


def test_analyze_lists_layers_and_steps_worst_first(mpnet: Mpnet, experiment: Path, tmp_path: Path) -> None:
    document = document_of(mpnet("analyze", experiment, "--images", "3", "--csv", tmp_path / "steps.csv", "--json"))
    assert document["images"] == 3
    assert document["precision_key"] == "q" * 13
    noise = [layer["noise_percent"] for layer in document["layers"]]
    assert len(noise) == 13
    assert noise == sorted(noise, reverse=True)
    assert sum(noise) == pytest.approx(100)
    local = [step["local"]["sqnr_db"] for step in document["steps"] if step["local"]]
    assert local == sorted(local)
    quantize = [step for step in document["steps"] if step["operation"] == "Quantize"]
    assert all(0.2 < step["local"]["rmse_per_scale"] < 0.35 for step in quantize)
    assert all(0 <= step["local"]["saturated"] <= 1 for step in quantize)
    with (tmp_path / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [step["step"] for step in document["steps"]]
    assert float(rows[0]["local_sqnr_db"]) == pytest.approx(local[0], rel=1e-8)


def test_what_analyze_says_to_keep_can_be_pasted(mpnet: Mpnet, experiment: Path) -> None:
    keep = document_of(mpnet("analyze", experiment, "--keep-macs", "30", "--json"))["keep"]
    assert keep["layers"]
    key, _, value = keep["yaml"].partition(": ")
    assert key == "precision"
    run = document_of(mpnet("run", experiment, "--set", f"precision={value}", "--json"))
    kept_layers = [layer["index"] for layer in run["precision"]["layers"] if layer["precision"] == "fp16" and layer["macs"]]
    assert kept_layers == keep["layers"]
    assert run["cost"]["int8_macs"] >= 0.7 * run["cost"]["macs"]


@pytest.mark.slow
def test_what_analyze_proposes_stays_within_its_share_and_agrees_no_less(mpnet: Mpnet, experiment: Path) -> None:
    for share in (0, 3, 30):
        document = document_of(mpnet("analyze", experiment, "--keep-macs", share, "--json"))
        keep, rows = document["keep"], {row["layer"]: row for row in document["layers"]}
        assert keep["raised"]["macs_percent"] == pytest.approx(sum(rows[index]["macs_percent"] for index in keep["layers"]))
        assert keep["raised"]["macs_percent"] <= share
        for configuration in filter(None, (keep["given"], keep["heads"])):
            assert keep["raised"]["agreement"] >= configuration["agreement"]
        added_share = sum(rows[index]["raised_bit_operations_percent"] for index in keep["layers"]) / 100
        assert keep["raised"]["bit_operations"] == pytest.approx((1 + added_share) * keep["given"]["bit_operations"])


@pytest.mark.slow
def test_analyze_drops_no_choice_of_the_users(mpnet: Mpnet, experiment: Path) -> None:
    precision = "precision={default: int8, layers: {first: fp16, 8: fp16, heads: int8}}"
    process = mpnet("analyze", experiment, "--set", precision, "--keep-macs", "30")
    assert "the given configuration stays: default int8, first: fp16, 8: fp16, heads: int8" in process.stdout
    keep = document_of(mpnet("analyze", experiment, "--set", precision, "--keep-macs", "30", "--json"))["keep"]
    proposed = yaml.safe_load(keep["yaml"])["precision"]
    assert proposed["default"] == "int8"
    assert {"first": "fp16", "heads": "int8"}.items() <= proposed["layers"].items()
    assert proposed["layers"][8] in ("fp16", "fp32")
    run = document_of(mpnet("run", experiment, "--set", keep["yaml"].replace(": ", "=", 1), "--json"))
    precisions = {layer["index"]: layer["precision"] for layer in run["precision"]["layers"]}
    assert {precisions[0], precisions[8]} <= {"fp16", "fp32"}
    for row in keep["over"]:
        assert precisions[row["layer"]] == row["raised"] != row["precision"]
        assert f"this changes a choice of yours: {row['name']} is {row['precision']} by {row['said']}" in process.stdout
    assert {row["said"] for row in keep["over"]} <= {"experiment: first", "experiment: 8", "experiment: heads"}


def test_analyze_prints_tables_and_refuses_fp32(mpnet: Mpnet, experiment: Path) -> None:
    process = mpnet("analyze", experiment, "--rows", "4")
    assert process.returncode == 0
    assert "layers by the noise that they alone bring to the heads" in process.stdout
    assert "... and 9 more layers" in process.stdout
    refused = mpnet("analyze", experiment, "--set", "precision.default=fp32")
    assert refused.returncode == 2
    assert "every layer is fp32" in refused.stderr
