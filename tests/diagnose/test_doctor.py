# SPDX-License-Identifier: MIT
"""What `mpnet doctor` finds in networks with something wrong, and that it finds nothing in sound ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest

from mpnet.deploy import export_source
from mpnet.diagnose.doctor import CHECKS, Diagnosis, DoctorFiles, Finding, examine, open_patient
from mpnet.diagnose.doctor.input_fit import put_in_form
from mpnet.formats.documents.experiment import read_experiment
from mpnet.importing.file_metadata import Pixels
from tests.classifier.conftest import shapes as shapes
from tests.conftest import DemoModel, shared_folder
from tests.diagnose.patients import (
    change_nothing,
    expect_bytes,
    kill_channels,
    scale_channels,
    write_bands,
    write_brightness_classifier,
    write_changed,
    write_colour_classifier,
)
from tests.importing.graphs import yolov8n
from tests.networks import DEPTHWISE_CFG, small_cfg, tiny_cfg, write_experiment

IMAGES = 12


def diagnose(source: Path, folder: Path, *overrides: str, engine: str = "", **files: Path) -> Diagnosis:
    experiment = read_experiment(source, overrides) if source.suffix == ".yaml" else None
    workplace = folder / "work"
    workplace.mkdir(exist_ok=True)
    return examine(open_patient(str(source), experiment, DoctorFiles(**files), workplace, IMAGES, engine))


def only(diagnosis: Diagnosis) -> Finding:
    [finding] = diagnosis.findings
    assert "" not in (finding.place, finding.remedy)
    assert all(np.isfinite(value) for value in finding.evidence.values())
    return finding


# ---------------------------------------------------------------- something is wrong


@pytest.mark.slow
def test_values_from_0_to_255_are_found_with_labels(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, expect_bytes)
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert finding.kind == "input"
    assert "enter as 0 to 1; 0 to 255 fits better" in finding.text
    assert finding.evidence["best"] > 0.7 > 0.3 > finding.evidence["given"]
    assert "import net.onnx --mean 0 --std 1 --resize stretch" in finding.remedy


@pytest.mark.slow
def test_values_from_0_to_255_are_found_without_labels_by_the_first_batch_norm(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, expect_bytes)
    shutil.rmtree(tmp_path / "labels")
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images"))
    assert (finding.kind, "trained on 0 to 255" in finding.text) == ("input", True)
    assert finding.evidence["variance_ratio_given"] > 10_000 > 4 > finding.evidence["variance_ratio_best"]


def test_values_around_zero_are_found(tmp_path: Path) -> None:
    cfg = write_brightness_classifier(tmp_path)
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert "enter as 0 to 1; -1 to 1 fits better" in finding.text
    assert "--mean 127.5 --std 127.5" in finding.remedy


def test_the_order_of_colours_is_found(tmp_path: Path) -> None:
    cfg = write_colour_classifier(tmp_path, is_bgr=True)
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert "colours enter in the order RGB; BGR fits better" in finding.text
    assert "--bgr" in finding.remedy


@pytest.mark.slow
def test_the_way_to_fit_images_in_is_found(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, change_nothing)
    write_bands(tmp_path)
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert "images are fitted in by stretch; letterbox fits better" in finding.text
    assert finding.remedy == "--set detection.resize=letterbox"


@pytest.mark.slow
def test_channels_of_very_different_ranges_are_found(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, scale_channels(300, slice(0, 1), slice(0, 1), 12, 13))
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert (finding.kind, finding.place) == ("channel_ranges", "layer 13 (conv-8)")
    assert finding.evidence["largest_over_median"] > 100
    assert finding.evidence["head_sqnr_db"] < 20
    assert finding.remedy == "precision: {layers: {13: fp16}}"


@pytest.mark.slow
def test_a_part_of_a_concatenation_that_one_scale_rounds_away_is_found(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, scale_channels(1e-4, slice(None), slice(0, 32), 18, 21))
    findings = diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names").findings
    finding = next(finding for finding in findings if finding.kind == "shared_scale")
    assert finding.place.startswith("layer 20 ")
    assert finding.evidence["levels"] < 1
    assert finding.remedy == "precision: {layers: {21: fp16}}"


def test_scores_that_vanish_by_the_scale_of_one_output_are_found(tmp_path: Path) -> None:
    model = yolov8n(64, classes=3, w=4)
    [output] = model.graph.output
    for name, value in (("scale", np.float32(1.9)), ("zero", np.uint8(0))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    model.graph.node.append(onnx.helper.make_node("QuantizeLinear", [output.name, "scale", "zero"], ["integers"]))
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", ["integers", "scale", "zero"], ["rounded"]))
    output.name = "rounded"
    onnx.save(model, tmp_path / "net.onnx")
    write_experiment(tmp_path, small_cfg())
    finding = next(f for f in diagnose(tmp_path / "net.onnx", tmp_path, images=tmp_path / "images").findings)
    assert (finding.kind, finding.evidence["step"]) == ("shared_scale", pytest.approx(1.9))


@pytest.mark.slow
def test_dead_channels_are_found(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, kill_channels(8, 48))
    findings = diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names").findings
    [finding] = [finding for finding in findings if finding.kind == "dead_channels"]
    assert finding.place == "layer 8 (conv-5)"
    assert finding.evidence == {"dead": 48, "channels": 96}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return the folder of a small random network with images and labels."""
    write_experiment(tmp_path, small_cfg())
    return tmp_path


def test_a_number_of_names_that_differs_is_found(tiny: Path) -> None:
    (tiny / "net.names").write_text("a\nb\n", encoding="utf-8")
    finding = only(diagnose(tiny / "net.cfg", tiny, images=tiny / "images", names=tiny / "net.names"))
    assert finding.kind == "labels"
    assert finding.evidence == {"classes": 3, "names": 2, "largest_label": 2}
    assert "3 lines" in finding.remedy


def test_a_label_beyond_the_classes_is_found(tiny: Path) -> None:
    (tiny / "labels" / "scene-1.txt").write_text("79 0.5 0.5 0.2 0.2\n", encoding="utf-8")
    finding = only(diagnose(tiny / "experiment.yaml", tiny))
    assert finding.evidence == {"classes": 3, "names": 3, "largest_label": 79}
    assert "scene-1.txt:1" in finding.text
    assert finding.remedy == "write labels from 0 to 2, in the order of the network's classes"


@pytest.mark.slow
def test_labels_that_count_classes_from_1_are_found(demo_model: DemoModel, tmp_path: Path) -> None:
    cfg = write_changed(demo_model, tmp_path, change_nothing)
    count = len(demo_model.names.read_text(encoding="utf-8").split())
    for label in (tmp_path / "labels").iterdir():
        moved = [f"{(int(line.split()[0]) + 1) % count} {line.split(maxsplit=1)[1]}" for line in label.read_text().splitlines()]
        label.write_text("\n".join(moved) + "\n", encoding="utf-8")
    finding = only(diagnose(cfg, tmp_path, images=tmp_path / "images", names=tmp_path / "net.names"))
    assert finding.kind == "labels"
    assert finding.evidence["same_class"] < 0.2 < 0.8 < finding.evidence["after_renumbering"]
    assert "1→0" in finding.remedy


def test_images_that_repeat_and_that_calibrate_are_found(tiny: Path) -> None:
    shutil.copy(tiny / "images" / "scene-0.png", tiny / "images" / "other.png")
    (tiny / "calibration").mkdir()
    shutil.copy(tiny / "images" / "scene-3.png", tiny / "calibration" / "a.png")
    first, second = diagnose(tiny / "experiment.yaml", tiny, calibration=tiny / "calibration").findings
    assert {first.kind, second.kind} == {"repeated_images"}
    assert (first.evidence, second.evidence) == ({"repeated": 1, "images": 6}, {"shared": 1, "calibration_images": 1})


def test_layers_that_an_engine_runs_wider_are_found(tiny: Path) -> None:
    heads = "precision={default: int8, layers: {heads: fp16}}"
    finding = only(diagnose(tiny / "experiment.yaml", tiny, heads, engine="onnxruntime"))
    assert (finding.kind, finding.place, finding.evidence["layers"]) == ("fallbacks", "onnxruntime", 2)
    assert finding.remedy.startswith("mpnet init --target onnxruntime")


# ---------------------------------------------------------------- nothing is wrong

Write = Callable[[DemoModel, Path], Path]


def _write_cfg(text: str) -> Write:
    def write(_: DemoModel, folder: Path) -> Path:
        return write_experiment(folder, text)

    return write


def _write_plain(demo: DemoModel, folder: Path) -> Path:
    return write_changed(demo, folder, change_nothing)


def _write_unlabelled(demo: DemoModel, folder: Path) -> Path:
    cfg = write_changed(demo, folder, change_nothing)
    shutil.rmtree(folder / "labels")
    return cfg


def _export(suffix: str, to: str) -> Write:
    def write(demo: DemoModel, folder: Path) -> Path:
        cfg = write_changed(demo, folder, change_nothing)
        export_source(str(cfg), folder / f"net{suffix}", to=to, is_timed=False)
        return folder / f"net{suffix}"

    return write


def _write_balanced(demo: DemoModel, folder: Path) -> Path:
    """Write channels of ranges that differ as much as those of depthwise networks do."""
    return write_changed(demo, folder, scale_channels(6, slice(0, 8), slice(0, 8), 12, 13))


def _write_classifier(_: DemoModel, folder: Path) -> Path:
    return write_colour_classifier(folder, is_bgr=False)


GOOD: dict[str, Write] = {
    "trained": _write_plain,
    "without labels": _write_unlabelled,
    "as onnx": _export(".onnx", "onnx"),
    "as tflite": _export(".tflite", "tflite"),
    "uneven channels": _write_balanced,
    "random": _write_cfg(tiny_cfg()),
    "random, small": _write_cfg(small_cfg()),
    "random, swish": _write_cfg(small_cfg().replace("leaky", "swish")),
    "random, depthwise": _write_cfg(
        DEPTHWISE_CFG.decode().replace("classes=2", "classes=3").replace("filters=14", "filters=16")
    ),
    "classifier of colours": _write_classifier,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_invented(name: str, demo_model: DemoModel, tmp_path: Path) -> None:
    source = GOOD[name](demo_model, tmp_path)
    files = {} if source.suffix == ".yaml" else {"images": tmp_path / "images"}
    if source.suffix == ".cfg" and name != "without labels":
        files["names"] = tmp_path / "net.names"
    diagnosis = diagnose(source, tmp_path, **files)
    assert diagnosis.findings == ()
    assert [outcome.kind for outcome in diagnosis.checks] == [check.name for check in CHECKS]


@pytest.mark.slow
def test_nothing_is_invented_in_the_demo_and_a_trained_classifier(demo_model: DemoModel, shapes: Path, tmp_path: Path) -> None:
    for experiment in (demo_model.experiment, shapes / "shapes.yaml"):
        assert diagnose(experiment, tmp_path).findings == ()


REAL = {
    "aix": ("aix2022/yolov3-tiny-aix2022.cfg", "aix2022/images", "aix2022/yolohw.names"),
    "fastest": ("yolo-fastest/yolo-fastest-1.1.cfg", "coco/images", "yolo-fastest/coco.names"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_nothing_is_invented_in_real_networks(name: str, tmp_path: Path) -> None:
    data = shared_folder("data")
    cfg, images, names = (data / path for path in REAL[name])
    assert diagnose(cfg, tmp_path, images=images, names=names).findings == ()


# ---------------------------------------------------------------- the parts


def test_a_form_of_the_input_is_what_the_files_own_network_sees() -> None:
    images = np.random.default_rng(0).random((1, 2, 2, 3), np.float32)
    as_given = Pixels((103.0,), (2.0,), bgr=True)
    assert put_in_form(images, as_given, as_given) == pytest.approx(images, abs=1e-6)
    seen = put_in_form(images, Pixels((0.0,), (1.0,)), as_given)
    assert (seen[..., ::-1] * 255 - 103) / 2 == pytest.approx(images * 255, abs=1e-3)


def test_every_check_is_described_where_commands_are(repository: Path) -> None:
    text = (repository / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [check.name for check in CHECKS]
