# SPDX-License-Identifier: MIT
"""Experiments written as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.formats.documents.experiment import parse_experiment, read_experiment
from mpnet.formats.documents.experiment_text import experiment_text

EVERYTHING = """\
name: all
model: {cfg: "a b/net.cfg", weights: net.weights, batch_norm: alexeyab, parent: old.weights, tuning: tuned.json}
data: {format: coco, images: images, annotations: a.json, limit: 7, calibration: {images: more, count: 3}}
detection: {nms: 0.3, max_detections: 10}
precision: {default: int8, layers: {"first, heads": fp16, 2..4: fp32}}
quantization:
  activations: {ranges: calibrated, method: percentile, percentile: 99.5}
  weights: per_tensor
  bias_correction: true
  equalisation: activations
  layers: {depthwise: {weights: {rounding: learnt}, equalisation: false}}
sweep:
  strategy: auto
  precisions: [fp32, int8]
  space: {layers: {heads: [fp16]}, tied: [[first, last], [heads]], quantization: {activations.percentile: [99.9, 99.99]}}
  objectives: [AP, bit_operations]
  constraints: {ap_drop: 1.5, agreement_AP_drop: 2, latency_ms: 3}
  budget: {seconds: 4}
  margin: {AP: 2}
  conditions: [fog, "noise:2"]
  verify: {}
runtime: {threads: 3}
output: elsewhere
baseline: none
backends: [openvino, mpnet]
"""


@pytest.mark.parametrize(
    "text",
    [EVERYTHING, "name: n\nmodel: {cfg: c, weights: w}\n", EVERYTHING.replace("tied: [[first, last], [heads]]", "tied: auto")],
)
def test_the_text_reads_back_as_the_same(text: str, tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    experiment = parse_experiment(text, base=tmp_path / "there")
    written = experiment_text(experiment, tmp_path / "here")
    read = parse_experiment(written, base=tmp_path / "here")
    assert replace(read, source=experiment.source) == experiment


def test_what_has_its_default_is_left_out(tmp_path: Path) -> None:
    experiment = parse_experiment("name: n\nmodel: {cfg: c, weights: w}\nruntime: {threads: auto}\n", base=tmp_path)
    written = experiment_text(experiment, tmp_path)
    assert written.startswith("name: n\nmodel: {cfg: c, weights: w}\n")
    assert "runtime" not in written


def test_the_projects_own_experiments_read_back(repository: Path, tmp_path: Path) -> None:
    for path in sorted((repository / "experiments").glob("*.yaml")):
        experiment = read_experiment(path)
        read = parse_experiment(experiment_text(experiment, tmp_path), base=tmp_path)
        assert replace(read, source=experiment.source) == experiment
