# SPDX-License-Identifier: MIT
"""The two networks that reference programs measured, each with its images and its protocol."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Callable

import pytest

from mpnet.config.experiment import (
    DataSection,
    DetectionSection,
    Experiment,
    ModelSection,
    PrecisionSection,
    QuantizationSection,
)
from mpnet.diagnose.analyze import AnalysisReport, analyze_experiment
from mpnet.model.quantization import QuantizationOptions

Analyzed = Callable[[Experiment, QuantizationOptions], AnalysisReport]


@pytest.fixture(scope="session")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where results go: one folder for all tests, whichever process runs them, so that equal trials run once."""
    base_folder = tmp_path_factory.getbasetemp()
    return (base_folder.parent if "PYTEST_XDIST_WORKER" in os.environ else base_folder) / "realdata"


@pytest.fixture(scope="session")
def aix(shared_data: Path) -> Experiment:
    folder = shared_data / "aix2022"
    return Experiment(
        "aix",
        ModelSection(folder / "yolov3-tiny-aix2022.cfg", folder / "yolov3-tiny-aix2022.weights", folder / "yolohw.names"),
        DataSection("yolo", folder / "images", labels=folder / "labels"),
        DetectionSection("stretch", 0.005, 0.45),
    )


@pytest.fixture(scope="session")
def tiny(shared_data: Path, repository: Path) -> Experiment:
    folder, coco = shared_data / "yolov3-tiny", shared_data / "coco"
    return Experiment(
        "tiny",
        ModelSection(repository / "cfg" / "yolov3-tiny.cfg", folder / "yolov3-tiny.weights"),
        DataSection("coco", coco / "images", annotations=coco / "instances_dev.json"),
        DetectionSection("letterbox", 0.005, 0.45),
    )


@pytest.fixture(scope="session")
def fastest(shared_data: Path) -> Experiment:
    folder, coco = shared_data / "yolo-fastest", shared_data / "coco"
    return Experiment(
        "fastest",
        # Its authors' program adds epsilon inside the root.
        ModelSection(folder / "yolo-fastest-1.1.cfg", folder / "yolo-fastest-1.1.weights", None, "alexeyab"),
        DataSection("coco", coco / "images", annotations=coco / "instances_dev.json"),
        DetectionSection("stretch", 0.001, 0.45, "greedynms"),
    )


@pytest.fixture(scope="session")
def analyzed(output: Path) -> Analyzed:
    """Return what `analyze` says of an experiment in int8, once in a process; tests that ask for the same lie side by side."""

    @cache
    def call(experiment: Experiment, options: QuantizationOptions) -> AnalysisReport:
        section = QuantizationSection(options)
        return analyze_experiment(replace(experiment, precision=PrecisionSection("int8"), quantization=section, output=output))

    return call
