# SPDX-License-Identifier: MIT
"""A trained TensorFlow Lite detector that a package ships (MediaPipe's face detector, Apache-2.0), on real images."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from mpnet.detection.decode import decode_head, join_images, yolo_heads
from mpnet.detection.images import read_image
from mpnet.detection.preprocess import preprocess
from mpnet.importing import Choices, import_model
from mpnet.importing.file_metadata import PixelOptions
from tests.importing.conftest import heads_of

CHOICES = Choices(
    decoder="ssd",
    anchors=(",".join(["128"] * 4), ",".join(["128"] * 12)),
    pixels=PixelOptions((127.5,), (127.5,), resize="letterbox"),
    keys=(("coords", "16"), ("softmax", "0"), ("linear", "1"), ("variances", ",".join(["0.0078125"] * 4))),
)
CONFIDENCE, BOUND = 0.3, 2e-6


def model() -> Path:
    spec = find_spec("mediapipe")
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    for location in locations:
        path = Path(location) / "modules/face_detection/face_detection_short_range.tflite"
        if path.is_file():
            return path
    pytest.skip("the package mediapipe (0.10), whose face detector is tried, is not installed")


def test_a_trained_face_detector_finds_what_litert_finds(shared_data: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    path = model()
    imported = import_model(path, CHOICES)
    network = imported.network
    engine = interpreter.Interpreter(model_path=str(path), num_threads=1)
    engine.allocate_tensors()
    details = {output["name"]: output["index"] for output in engine.get_output_details()}
    images = sorted((shared_data / "coco/images").iterdir())
    faces, worst = 0, 0.0
    for file in images:
        x, geometry = preprocess(read_image(file), network.width, network.height, "letterbox")
        engine.set_tensor(engine.get_input_details()[0]["index"], x * 2 - 1)
        engine.invoke()
        raw, scores = (engine.get_tensor(details[name])[0] for name in ("regressors", "classificators"))
        heads = heads_of(imported, x)
        # 16 x 16 cells of two boxes, then 8 x 8 of six: boxes before classes in a head of mpnet's.
        theirs = [
            np.concatenate([values[rows].reshape(side, side, -1) for values in (raw, scores)], -1)
            for rows, side in ((slice(0, 512), 16), (slice(512, None), 8))
        ]
        for mine, reference_head in zip(heads, theirs, strict=True):
            # XNNPACK sums depthwise convolutions in another order.
            assert np.abs(mine[0] - reference_head).max() <= BOUND * np.abs(reference_head).max()
            worst = max(worst, float(np.abs(mine[0] - reference_head).max() / np.abs(reference_head).max()))
        candidates = [
            decode_head(head, kind, [geometry], CONFIDENCE) for head, kind in zip(heads, yolo_heads(network), strict=True)
        ]
        assert all(len(values.offsets) == 2 for values in candidates)
        boxes = np.concatenate([values.box for values in candidates])
        expected, is_confident = _mediapipe(raw, scores), 1 / (1 + np.exp(-scores[:, 0].astype(float))) > CONFIDENCE
        left, top, width, height = geometry.relative
        expected = (expected[is_confident] - [left, top, 0, 0]) / [width, height, width, height]
        assert len(boxes) == len(expected)
        ordered = boxes[np.lexsort(boxes.T)], expected[np.lexsort(expected.T)]
        np.testing.assert_allclose(*ordered, atol=2e-5)
        faces += len(boxes)
    assert faces > 3
    print(f"{faces} boxes, heads differ by {worst:.2g}")
    assert join_images(candidates).image_count == len(candidates)


def _mediapipe(raw: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return boxes relative to the input, as MediaPipe's calculators make them: anchors of the whole input in the middle of
    cells."""
    centres = np.concatenate(
        [
            np.repeat((np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1).reshape(-1, 2) + 0.5) / n, count, 0)
            for n, count in ((16, 2), (8, 6))
        ]
    )
    values = raw[:, :4].astype(float) / 128
    return np.concatenate([centres + values[:, :2], values[:, 2:]], 1)
