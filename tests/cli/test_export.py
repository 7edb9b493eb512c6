# SPDX-License-Identifier: MIT
"""`mpnet export` for other engines, from everything that names a configuration; `mpnet targets`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cv2
import pytest

from mpnet.backends import flavour_here
from mpnet.export import target
from tests.cli.conftest import Mpnet, document_of

pytest.importorskip("onnx", reason="pip install 'mpnet[onnx]' runs the exports to ONNX")
CALIBRATED = (
    "--set",
    "quantization.activations={ranges: calibrated, mode: affine}",
    "--set",
    "data.calibration.count=3",
    "--set",
    "data.calibration.seed=5",
)


@pytest.mark.slow
def test_every_source_names_the_same_configuration(mpnet: Mpnet, experiment: Path) -> None:
    sweep = "sweep={strategy: greedy, precisions: [fp32, int8], budget: {trials: 3}}"
    sweep_document = document_of(mpnet("sweep", experiment, "--set", sweep, *CALIBRATED, "--workers", 1, "-q", "--json"))
    run = document_of(mpnet("run", experiment, *CALIBRATED, "--json"))
    sources = {
        "experiment.onnx": (experiment, *CALIBRATED),
        "run.onnx": (run["folder"],),
        "store.onnx": (f"{sweep_document['store']}:{sweep_document['front'][0]['precision']}",),
    }
    exported = {
        name: document_of(mpnet("export", *arguments, "--to", "onnx", "--flavour", "openvino", "-o", name, "--json"))
        for name, arguments in sources.items()
    }
    assert exported["run.onnx"]["precision"] == exported["experiment.onnx"]["precision"] == run["precision"]["key"]
    assert exported["store.onnx"]["precision"] == sweep_document["front"][0]["precision"]
    for name, document in exported.items():
        assert list(document["files"]) == [name]
        assert (experiment.parent / name).stat().st_size == document["files"][name]
        assert [layer["asked"] for layer in document["layers"] if "conv" in layer["name"]]

    def constants(name: str) -> list[bytes]:
        import onnx

        graph = onnx.load(str(experiment.parent / name)).graph
        return sorted(tensor.SerializeToString() for tensor in graph.initializer)

    # Ranges, codes and biases: those of the run were calibrated again on the images that its record names.
    assert constants("run.onnx") == constants("experiment.onnx")


def test_a_cfg_takes_the_weights_beside_it(mpnet: Mpnet, experiment: Path) -> None:
    folder = experiment.parent
    document = document_of(mpnet("export", "net.cfg", "--to", "onnx", "-o", "net.onnx", "--json"))
    assert document["precision"] == "f" * 13
    (folder / "net.weights").rename(folder / "moved.weights")
    process = mpnet("export", "net.cfg", "--to", "onnx", "-o", "other.onnx")
    assert (process.returncode, process.stderr) == (2, "error: net.weights: no such file; name the weights with --weights\n")
    assert not (folder / "other.onnx").exists()
    assert mpnet("export", "net.cfg", "--to", "onnx", "--weights", "moved.weights", "-o", "other.onnx").returncode == 0
    assert mpnet("export", "net.cfg", "--to", "cfg").returncode == 0


@pytest.mark.parametrize(
    ("missing_packages", "flavour"), [((), "openvino"), (("openvino",), "onnxruntime"), (("onnx",), "openvino")]
)
def test_a_file_is_for_the_engine_that_is_here(
    missing_packages: tuple[str, ...], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpnet.packages.version_of", lambda package: None if package in missing_packages else "9999")
    flavour_taken, reason = flavour_here("onnx", target("onnx").flavours)
    assert (flavour_taken, reason.startswith("the first")) == (flavour, "onnx" in missing_packages)


def test_export_says_which_flavour_it_took(mpnet: Mpnet, experiment: Path) -> None:
    errors = mpnet("export", "net.cfg", "--to", "onnx", "-o", "net.onnx", "--no-time").stderr
    assert re.search(r"--flavour (openvino|onnxruntime) is taken \(.+\); others are ", errors)
    assert "--flavour" not in mpnet("export", "net.cfg", "--to", "onnx", "--flavour", "openvino", "-o", "net.onnx").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "onnx"), "name a file with -o"),
        (("--to", "onnx", "-o", "x.onnx", "--flavour", "no"), "known are openvino"),
        (("--to", "cfg", "--set", "name=x"), "--set changes an experiment file"),
        (("--to", "tflite", "-o", "x.onnx"), ".onnx is a file of --to onnx; name it x.tflite"),
    ],
)
def test_what_cannot_be_exported_is_one_line(mpnet: Mpnet, experiment: Path, arguments: tuple[str, ...], message: str) -> None:
    process = mpnet("export", "net.cfg", *arguments)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert message in process.stderr


def test_every_name_of_targets_is_one_that_export_takes(mpnet: Mpnet, experiment: Path) -> None:
    lines = mpnet("targets").stdout.splitlines()[3:]
    names = [line.split()[0] for line in lines[: lines.index("")]]
    assert {"onnx/openvino", "tflite/armnn", "cfg"} <= {*names}
    for name in names:
        # Only text is written without a file; the others ask for one.
        process = mpnet("export", experiment, "--to", name)
        assert process.returncode == 0 or f"--to {name.split('/')[0]}: writes" in process.stderr
    by_one_name = document_of(mpnet("export", "net.cfg", "--to", "onnx/openvino", "-o", "net.onnx", "--no-time", "--json"))
    assert (by_one_name["target"], by_one_name["flavour"]) == ("onnx", "openvino")
    contradiction = mpnet("export", "net.cfg", "--to", "onnx/openvino", "--flavour", "onnxruntime", "-o", "net.onnx")
    assert (contradiction.returncode, contradiction.stderr.count("\n")) == (2, 1)
    assert "leave one of the two out" in contradiction.stderr


@pytest.mark.slow
def test_targets_says_what_each_can_hold(mpnet: Mpnet) -> None:
    document = document_of(mpnet("targets", "--json"))
    reasons_of = {(row["operation"], row["precision"]): row["reasons"] for row in document["support"]}
    assert reasons_of["conv 3x3", "int8"]["onnx/openvino"] == reasons_of["conv 3x3", "int8"]["ncnn"] == ""
    assert "half" in reasons_of["conv 3x3", "fp16_half"]["onnx/openvino"]
    names = list(reasons_of["conv 3x3", "int8"])
    assert [line.split()[0] for line in mpnet("targets").stdout.splitlines()[3 : 3 + len(names)]] == names
    for name in ("ncnn", "onnx", "tflite/litert"):
        printed = mpnet("targets", name).stdout
        for reason in {
            column_reason
            for reasons in reasons_of.values()
            for column, column_reason in reasons.items()
            if column.startswith(name)
        }:
            assert reason in printed
    unknown = mpnet("targets", "caffe")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "unknown target 'caffe'" in unknown.stderr
    assert set(document["engines"]) >= {"onnxruntime", "openvino", "litert", "ncnn"}


@pytest.mark.parametrize("has_names", [True, False])
def test_names_are_those_that_detect_prints(mpnet: Mpnet, experiment: Path, has_names: bool) -> None:
    """Those of model.names, where a data set spells them in another way; else the data set's."""
    import onnx

    folder = experiment.parent
    images = [{"id": i, "file_name": f"scene-{i}.png", "height": 48, "width": 64} for i in range(5)]
    for image in images:
        image["height"], image["width"] = cv2.imread(str(folder / "images" / str(image["file_name"]))).shape[:2]
    categories = [{"id": 3 + i, "name": name} for i, name in enumerate(("disc", "box", "bar"))]
    (folder / "instances.json").write_text(json.dumps({"images": images, "categories": categories, "annotations": []}))
    text = experiment.read_text()
    data = "data: {format: coco, images: images, annotations: instances.json}"
    text = re.sub(r"^data: .*$", data, text, flags=re.MULTILINE)
    experiment.write_text(text if has_names else re.sub(r", names: [^}]*", "", text))
    mpnet("export", experiment, "--to", "onnx", "-o", folder / "net.onnx")
    properties = {entry.key: entry.value for entry in onnx.load(folder / "net.onnx").metadata_props}
    document = document_of(mpnet("detect", experiment, folder / "images", "--confidence", "0.01", "--json"))
    printed = {(box["category"], box["name"]) for file in document["files"] for box in file["detections"]}
    names = json.loads(properties["names"])
    assert names == (["circle", "square", "bar"] if has_names else ["disc", "box", "bar"])
    assert printed
    assert printed <= set(enumerate(names))


@pytest.mark.slow
def test_the_engines_own_fp32_and_int8_are_timed_beside_the_mix(mpnet: Mpnet, experiment: Path) -> None:
    pytest.importorskip("openvino")
    mix = (*CALIBRATED, "--set", "precision.layers.heads=fp16", "--to", "onnx", "-o", experiment.parent / "net.onnx")
    document = document_of(mpnet("export", experiment, *mix, "--json"))
    assert document["times_ms"].keys() == {"mix", "fp32", "int8"}
    assert "times_ms" not in document_of(mpnet("export", experiment, *mix, "--no-time", "--json"))
    assert "with all layers in int8" in mpnet("export", experiment, *mix).stdout
