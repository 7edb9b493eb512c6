# SPDX-License-Identifier: MIT
"""Whole runs on real networks and images against the numbers that the reference programs gave (skipped without them).

Images are decoded and resized to the reference's bits, and the references print two decimals, so fp32 agrees to half of
the last one. 0.1 AP is what fp16 may differ from fp32.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from mpnet.api import run_experiment
from mpnet.config.experiment import DataSection, Experiment, PrecisionSection
from mpnet.trial.result import Result

TOLERANCE = 0.0051
RunExperiment = Callable[[Experiment], Result]


@pytest.fixture
def run(output: Path) -> RunExperiment:
    """Run an experiment, unless another test did."""
    return lambda experiment: run_experiment(replace(experiment, output=output)).result


def set_precision(experiment: Experiment, precision: str) -> Experiment:
    """Return the experiment with every layer at one precision."""
    return replace(experiment, precision=PrecisionSection(precision))


def test_fp32_stretched(aix: Experiment, run: RunExperiment) -> None:
    metrics = run(aix).metrics
    expected = {"AP": 44.58, "AP50": 84.24, "AP75": 41.82, "AR100": 52.47, "darknet_mAP50": 83.34}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_fp32_letterboxed(aix: Experiment, run: RunExperiment) -> None:
    metrics = run(replace(aix, detection=replace(aix.detection, resize="letterbox"))).metrics
    expected = {"AP": 30.64, "AP50": 68.42, "AP75": 22.13, "AR100": 41.69}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_coco_annotations_give_the_same_as_label_files(aix: Experiment, run: RunExperiment, shared_data: Path) -> None:
    folder = shared_data / "aix2022"
    data = DataSection("coco", folder / "images", annotations=folder / "instances_dev.json")
    metrics, expected = run(replace(aix, data=data)).metrics, run(aix).metrics
    # The JSON holds boxes rounded to its digits.
    assert metrics["AP"] == pytest.approx(expected["AP"], abs=0.02)


def test_fp16_loses_nothing_that_can_be_measured(aix: Experiment, run: RunExperiment) -> None:
    result, expected = run(set_precision(aix, "fp16")), run(aix).metrics
    assert result.metrics["AP"] == pytest.approx(expected["AP"], abs=0.1)
    assert result.document["agreement"]["AP"] >= 99.9


def test_int8_per_channel_dynamic(aix: Experiment, run: RunExperiment) -> None:
    result = run(set_precision(aix, "int8"))
    assert result.document["precision"]["key"] == "q" * 11
    assert result.metrics["AP"] >= 43.0


def test_yolo_fastest_on_coco(fastest: Experiment, run: RunExperiment) -> None:
    metrics = run(fastest).metrics
    expected = {"AP": 15.29, "AP50": 32.32, "AP75": 11.86, "AR100": 29.13}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_yolo_fastest_takes_greedynms_from_its_cfg(fastest: Experiment, run: RunExperiment) -> None:
    with_cfg_nms = run(fastest)
    default = run(replace(fastest, detection=replace(fastest.detection, nms_kind=None)))
    assert default.id == with_cfg_nms.id


def test_yolo_fastest_with_plain_iou(fastest: Experiment, run: RunExperiment) -> None:
    metrics = run(replace(fastest, detection=replace(fastest.detection, nms_kind="default"))).metrics
    expected = {"AP": 15.02, "AP50": 32.49, "AP75": 11.83, "AR100": 27.01}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)
