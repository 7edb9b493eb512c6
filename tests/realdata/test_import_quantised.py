# SPDX-License-Identifier: MIT
"""A trained detector that ONNX Runtime quantised, imported: its AP is the engine's own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
import pytest

from mpnet.detection.decode import decode_head, join_images, yolo_heads
from mpnet.detection.images import image
from mpnet.detection.nms import suppress
from mpnet.detection.preprocess import preprocess
from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.evaluation.metrics import CocoEvaluator
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.weights import parse_weights, read_weights
from mpnet.importing import Choices, Imported, import_model
from mpnet.kernels.environment import int8_sums_saturate
from mpnet.kernels.isa import kernels

Floats = np.ndarray[Any, Any]


class Calibration:
    """The first 32 images."""

    def __init__(self, inputs: list[Floats]) -> None:
        self._remaining: Iterator[Any] = iter([{"picture": x.transpose(0, 3, 1, 2)} for x in inputs[:32]])

    def get_next(self) -> Any:
        return next(self._remaining, None)


def test_ap_of_a_quantised_file_is_the_engines(shared_data: Path, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    import onnxruntime

    folder = shared_data / "aix2022"
    network = read_cfg(folder / "yolov3-tiny-aix2022.cfg")
    prepared = Prepared(network, read_weights(folder / "yolov3-tiny-aix2022.weights", network), kernels())
    names = tuple((folder / "yolohw.names").read_text(encoding="utf-8").split("\n"))[: network.classes]
    configuration = Configuration.from_prepared(prepared, assign(network, "fp32"), resolve_options(network), names=names)
    plain, path = tmp_path / "plain.onnx", tmp_path / "quantised.onnx"
    plain.write_bytes(export("onnx", configuration, "openvino", {}).content)
    dataset = load_dataset("coco", folder / "images", annotations=folder / "instances_dev.json", names=names)
    ready = [preprocess(image(record), network.width, network.height) for record in dataset.images]
    logging.disable(logging.WARNING)
    quantization.quantize_static(
        plain,
        path,
        Calibration([x for x, _ in ready]),
        per_channel=True,
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    logging.disable(logging.NOTSET)
    imported = import_model(path, Choices(rounded=True))
    assert len(imported.network.convolutions) == len(network.convolutions)
    assert any("weights keep their integers" in note for note in imported.notes)

    def ap(forward: Callable[[Floats], list[Floats]], heads: Any) -> float:
        head_candidates = [
            [decode_head(head, kind, [geometry], 0.005) for head, kind in zip(forward(x), heads, strict=True)]
            for x, geometry in ready
        ]
        joined = [join_images(image_candidates) for image_candidates in zip(*head_candidates, strict=True)]
        return CocoEvaluator(dataset).evaluate(suppress(joined, dataset.sizes)).summary["AP"]

    engine = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    outputs = [value.name for value in onnx.load(path).graph.output]
    theirs = ap(
        lambda x: [
            y.transpose(0, 2, 3, 1) for y in engine.run(outputs, {"picture": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})
        ],
        yolo_heads(network),
    )

    def compute_ap(imported: Imported) -> float:
        network = imported.network
        session = Session(
            Prepared(network, parse_weights(imported.weights, network, "w"), kernels()),
            build_plan(network, assign(network), resolve_options(network)),
        )
        return ap(lambda x: [y.copy() for y in session.forward(x)], yolo_heads(network))

    mine, fewer = compute_ap(imported), compute_ap(import_model(path))
    print(f"AP {mine:.2f}, rounded by int8 layers alone {fewer:.2f}, ONNX Runtime {theirs:.2f}")
    # Where this engine's sums of bytes saturate its figure is another one, by up to a point.
    apart = 1.0 if int8_sums_saturate() else 0.3
    assert mine == pytest.approx(theirs, abs=apart)
    assert fewer > theirs - apart
