# SPDX-License-Identifier: MIT
"""`mpnet detect` on cameras and videos: how fast, how long, and what is drawn over one another."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.api.network import Box
from mpnet.cli.side_by_side import SideBySide
from mpnet.cli.videos import detect_from_camera
from mpnet.report.collect.draw import DrawnBox, class_colour, draw_labels
from tests.cli.conftest import Mpnet, document_of

MODEL = ("--cfg", "net.cfg", "--weights", "net.weights", "--names", "net.names", "--threads", "1", "--conf", "0.1")


@pytest.fixture
def stream(experiment: Path) -> Path:
    """Write eight frames to a file, which OpenCV reads as it does a network camera's stream."""
    path = experiment.parent / "stream.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (96, 64))
    for number in range(8):
        image = cv2.imread(str(experiment.parent / "images" / f"scene-{number % 5}.png"))
        writer.write(cv2.resize(image, (96, 64)))
    writer.release()
    return path


def test_a_camera_that_is_not_there_is_one_line(mpnet_program: Mpnet, experiment: Path) -> None:
    refused = mpnet_program("detect", *MODEL, "--camera", "997", cwd=experiment.parent)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith("error: camera 997: cannot be opened; this machine has ")


def test_a_stream_is_looked_at_until_enough(mpnet: Mpnet, stream: Path) -> None:
    document = document_of(mpnet("detect", *MODEL, "--camera", stream, "--frames", 5, "--out", "seen", "--json"))
    [file] = document["files"]
    assert (file["kind"], len(file["frames"]), file["out"]) == ("camera", 5, "seen/camera.mp4")
    assert 0 < file["looked_at_per_second"] <= file["network_per_second"]
    reader = cv2.VideoCapture(str(stream.parent / file["out"]))
    assert int(reader.get(cv2.CAP_PROP_FRAME_COUNT)) == 5
    text = mpnet("detect", *MODEL, "--camera", stream).stdout
    assert "8 frames, " in text
    assert "frames per second" in text


def test_a_video_says_how_fast_it_was(mpnet: Mpnet, stream: Path) -> None:
    text = mpnet("detect", *MODEL, "stream.avi", "--frames", 3, "--beside", "int8", "--out", "seen").stdout
    assert text.startswith("stream.avi: 3 frames, ")
    assert "frames per second with reading and drawing" in text
    reader = cv2.VideoCapture(str(stream.parent / "seen" / "stream.mp4"))
    assert reader.get(cv2.CAP_PROP_FRAME_WIDTH) == 2 * 96


def test_ctrl_c_ends_a_camera_and_keeps_what_was_seen(stream: Path) -> None:
    frame_count = 0

    def find(image: NDArray[np.uint8]) -> list[Box]:
        nonlocal frame_count
        frame_count += 1
        if frame_count == 4:
            raise KeyboardInterrupt
        return []

    target = stream.parent / "camera.mp4"
    document = detect_from_camera(str(stream), target, SideBySide("detections", (("fp32", find),)), lambda *_: None)
    assert len(document["frames"]) == 3
    assert int(cv2.VideoCapture(str(target)).get(cv2.CAP_PROP_FRAME_COUNT)) == 3


@pytest.mark.parametrize(
    "boxes",
    [
        [(100.0, 60.0, 80.0, 60.0)] * 8,
        [(0.0, 0.0, 40.0, 30.0)] * 6,
        [(280.0, 200.0, 40.0, 40.0)] * 6,
        [(60.0 + 12 * n, 80.0 + 3 * n, 50.0, 40.0) for n in range(9)],
    ],
)
def test_texts_do_not_cover_each_other(boxes: list[tuple[float, float, float, float]]) -> None:
    labels = [DrawnBox(box, number, f"class {number} 90%") for number, box in enumerate(boxes)]
    drawing = draw_labels(np.full((240, 320, 3), 7, np.uint8), labels)
    alone = draw_labels(np.full((240, 320, 3), 7, np.uint8), labels[:1])
    ground = np.count_nonzero((alone == class_colour(0)).all(axis=2))
    for label in labels:
        # The ground of each text is there; a line of another box may cross it, letters are as many as in the first.
        assert np.count_nonzero((drawing == class_colour(label.category)).all(axis=2)) > 0.4 * ground
