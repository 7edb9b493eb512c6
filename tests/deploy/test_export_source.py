# SPDX-License-Identifier: MIT
"""The command and the Python API export by one function, and tell the same of what was written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from mpnet.api import ExportReport, export
from mpnet.deploy import export_source
from mpnet.errors import ConfigError
from tests.cli.conftest import Mpnet, document_of, mpnet  # noqa: F401
from tests.networks import write_experiment


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a mix with calibrated ranges, in the folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(write_experiment(tmp_path).read_text())
    document |= {"precision": {"default": "int8", "layers": {"heads": "fp16"}}}
    document |= {"quantization": {"activations": {"ranges": "calibrated", "mode": "affine"}}}
    document["data"]["calibration"] = {"count": 3}
    path = tmp_path / "mix.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("target", "file_name", "package"),
    [("onnx", "net.onnx", "onnxruntime"), ("tflite", "net.tflite", "ai_edge_litert"), ("cfg", "m.cfg", "")],
)
def test_command_and_api_give_the_same_report(
    target: str, file_name: str, package: str, experiment: Path, mpnet: Mpnet
) -> None:
    if package:
        pytest.importorskip(package)
    document = document_of(mpnet("export", experiment.name, "--to", target, "-o", file_name, "--no-time", "--json"))
    content = Path(file_name).read_bytes()
    report = export(experiment.name, file_name, target, timed=False)
    assert report.as_json() == document
    assert Path(file_name).read_bytes() == content
    assert list(report) == [Path(path) for path in document["files"]]
    assert [{**asdict(layer), "falls_back": layer.falls_back} for layer in report.layers] == document["layers"]
    assert report.table.columns.get("executed", []) == [layer["executed"] for layer in document["layers"]]


def test_warnings_name_layers_that_fall_back(experiment: Path) -> None:
    pytest.importorskip("onnxruntime")
    report = export(experiment.name, "net.onnx", flavour="onnxruntime")
    assert report.engine == "onnxruntime"
    assert report.engine_version
    assert {layer.asked for layer in report.layers} == {"int8", "fp16"}
    assert set(report.times_ms) <= {"mix", "fp32", "int8"}
    assert any(layer.falls_back for layer in report.layers) == any("wanted in" in line for line in report.warnings)


def test_a_target_without_weights_writes_nothing_where_no_file_is_named(experiment: Path) -> None:
    report = export_source(experiment.name, None, to="cfg")
    assert isinstance(report, ExportReport)
    assert (list(report), report.as_json()["written"]) == ([], None)
    assert report.as_json()["text"].startswith("[net]")
    with pytest.raises(ConfigError, match="which is no text; name a file with -o"):
        export_source(experiment.name, None, to="onnx")
