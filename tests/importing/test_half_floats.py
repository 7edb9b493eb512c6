# SPDX-License-Identifier: MIT
"""Files in float16 are imported as those in float32, whoever made them so."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import onnx
import pytest

from mpnet.importing import Imported
from tests.importing.graphs import mobilenet_v2_ssdlite, yolov5n, yolov8n, yolox_nano

float16 = pytest.importorskip("onnxruntime.transformers.float16")

DETECTORS: dict[str, Callable[[], onnx.ModelProto]] = {
    "yolov5": lambda: yolov5n(64, 4, w=4),
    "yolov8": lambda: yolov8n(64, classes=4, w=4),
    "yolox": lambda: yolox_nano(64, 4),
    "ssd": lambda: mobilenet_v2_ssdlite(classes=5),
}


@pytest.mark.parametrize("keeps_float32_input", [True, False])
@pytest.mark.parametrize("decoder", DETECTORS)
def test_a_detector_in_float16_has_the_heads_of_that_in_float32(
    decoder: str, keeps_float32_input: bool, importing: Callable[..., tuple[Any, Imported]]
) -> None:
    model = DETECTORS[decoder]()
    _, expected = importing(model)
    _, imported = importing(float16.convert_float_to_float16(model, keep_io_types=keeps_float32_input))
    assert [len(head) for head in imported.heads] == [len(head) for head in expected.heads]
    for head, expected_head in zip(imported.network.yolos, expected.network.yolos, strict=True):
        assert (head.decoder, head.classes) == (expected_head.decoder, expected_head.classes) == (decoder, 4)  # type: ignore[attr-defined]
        np.testing.assert_allclose(head.anchors, expected_head.anchors, rtol=2**-10)  # type: ignore[attr-defined]
