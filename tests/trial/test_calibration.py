# SPDX-License-Identifier: MIT
"""What calibration images give a workbench: ranges that are kept, channel means, and a digest that names both."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import open_workbench
from mpnet.trial.identity import calibration_images, notes_of
from mpnet.trial.workbench import Workbench

RANGES = "quantization={activations: {ranges: calibrated}}"


def open_calibrated(experiment: Path, *overrides: str) -> Workbench:
    return open_workbench(read_experiment(experiment, overrides))


def test_dynamic_ranges_need_no_calibration(bench: Workbench) -> None:
    assert bench.calibration.digest is None
    assert bench.options.ranges == {}
    assert calibration_images(bench, ()) is None


def test_ranges_are_written_once_and_read_again(experiment: Path) -> None:
    first = open_calibrated(experiment, RANGES)
    [path] = (experiment.parent / "runs" / "calibration").iterdir()
    content = path.read_bytes()
    second = open_calibrated(experiment, RANGES)
    assert first.calibration.digest == second.calibration.digest is not None
    assert first.options.ranges == second.options.ranges != {}
    assert path.read_bytes() == content


def test_other_images_give_another_digest(experiment: Path) -> None:
    two_images = open_calibrated(experiment, RANGES, "data.calibration.count=2")
    other_seed = open_calibrated(experiment, RANGES, "data.calibration.count=2", "data.calibration.seed=1")
    assert two_images.calibration.digest != other_seed.calibration.digest
    images = calibration_images(two_images, ())
    assert images is not None
    assert (images.images, images.count, images.seed) == (None, 2, 0)


def test_images_that_are_evaluated_as_well_are_noted(experiment: Path) -> None:
    bench = open_calibrated(experiment, RANGES, "data.calibration.count=2")
    assert len(bench.calibration.evaluated_images) == 2
    [note] = notes_of(bench, ())
    assert note.startswith("calibration also used 2 of the evaluated images, so ranges fit these better")


def test_bias_correction_measures_channel_means(experiment: Path) -> None:
    bench = open_calibrated(experiment, "quantization={bias_correction: true}")
    means = bench.calibration.channel_means
    assert means is not None
    assert means.keys() == set(bench.weighted_layers)
    for index in bench.weighted_layers:
        assert means[index].shape == (bench.network.layers[index].in_shape[2],)
        assert np.isfinite(means[index]).all()


def test_an_empty_folder_of_calibration_images_is_refused(experiment: Path) -> None:
    (experiment.parent / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no image to calibrate on"):
        open_calibrated(experiment, RANGES, "data.calibration.images=empty")


@pytest.mark.parametrize("value", [0, 255])
def test_calibration_images_of_one_value_are_said(experiment: Path, value: int) -> None:
    (experiment.parent / "flat").mkdir()
    cv2.imwrite(str(experiment.parent / "flat" / "a.png"), np.full((64, 64, 3), value, np.uint8))
    for _ in range(2):  # found, and read again
        bench = open_calibrated(experiment, RANGES, "data.calibration.images=flat")
        [note] = notes_of(bench, ())
        assert note.startswith(f"the calibration images have values from {value / 255:.2f} to {value / 255:.2f} alone")


def test_limits_that_lower_ap_are_said(experiment: Path) -> None:
    """AP of the best boxes alone, or of few in each image, is comparable with nobody else's."""
    [confidence] = notes_of(open_calibrated(experiment, "detection.confidence=0.25"), ())
    assert confidence.startswith("AP is of detections with a score above 0.25 (detection.confidence) alone and lower for it")
    [kept] = notes_of(open_calibrated(experiment, "detection.max_detections=10"), ())
    assert kept.startswith("AP is of the best 10 detections of each image (detection.max_detections) alone")
    assert notes_of(open_calibrated(experiment, "detection.max_detections=100"), ()) == []
