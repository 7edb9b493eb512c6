# SPDX-License-Identifier: MIT
"""The table of docs/import.md, "How close the results are": mpnet and ONNX Runtime against each other and against float64.

Usage: python -m tests.importing.exactness [--images FOLDER] [DRAWS [NETWORK...]]. Prints Markdown, the worst of so many
random weights and images. NETWORK may be an ONNX file, whose weights stay, on random images or the folder's first ones.
Of boxes, decoded from the three in one way, the largest differences are given as parts of the image's side.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry, preprocess
from mpnet.formats.images.read import decode, read_bytes
from mpnet.formats.images.unlabelled import read_unlabelled
from mpnet.importing import Imported, import_model
from mpnet.model.layers import DecodedSpec
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import MODELS, Builder

Heads = Sequence[NDArray[np.generic]]


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same graph with float64 in place of float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    attributes = [attribute for node in wide.graph.node for attribute in node.attribute]
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
    for tensor in [
        *wide.graph.initializer,
        *(tensor_attribute.t for tensor_attribute in attributes if tensor_attribute.HasField("t")),
    ]:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    wide.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    del wide.graph.value_info[:]
    return wide


def exact_heads(model: onnx.ModelProto, imported: Imported, x: NDArray[np.float32]) -> list[NDArray[np.float64]]:
    """Return the heads of (n, h, w, c) from 0 to 1, with every constant and every step in double."""
    wide = in_double(model)
    names = [name for head in imported.heads for name in head]
    del wide.graph.output[:]
    wide.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names)
    network_input = x.transpose(0, 3, 1, 2)[:, :: -1 if imported.pixels.bgr else 1] * np.float32(255 / imported.pixels.std[0])
    outputs = ReferenceEvaluator(wide).run(names, {wide.graph.input[0].name: network_input.astype(np.float64)})
    values = dict(zip(names, outputs, strict=True))
    return [
        np.concatenate(
            [values[name].reshape(*values[name].shape[:2], *(values[name].shape[2:] or (1, 1))) for name in head], 1
        ).transpose(0, 2, 3, 1)
        for head in imported.heads
    ]


def boxes(imported: Imported, heads: Heads) -> NDArray[np.float32]:
    """Return (cells, 4): what yolov8's decoders make of heads, as parts of the image; empty for other decoders."""
    network, head_boxes = imported.network, [np.zeros((0, 4), np.float32)]
    layers = [layer for layer in network.layers if isinstance(layer, DecodedSpec)]
    if layers and layers[0].decoder.startswith("yolov8"):
        geometry = plan_geometry(network.width, network.height, network.width, network.height, "stretch")
        for head, decoding, layer in zip(heads, yolo_heads(network), layers, strict=False):
            even = head.astype(np.float32)
            even[..., 4 * layer.reg_max :][..., : decoding.classes] = 0  # scores that are all alike leave cells in their order
            decoded = decode_head(even, decoding, [geometry])
            head_boxes.append(decoded.box[decoded.category == 0])
    return np.concatenate(head_boxes)


def read_input(folder: str, imported: Imported, draw: int) -> NDArray[np.float32]:
    """Return (1, h, w, 3): the folder's picture of that number, or random values where no folder is named."""
    shape = imported.network.in_shape
    if not folder:
        return np.random.default_rng(1 + draw).random((1, *shape), np.float32)
    path = Path(read_unlabelled(folder)[draw].path)
    return preprocess(decode(read_bytes(path), path), shape[1], shape[0], "letterbox_opencv")[0]


def row(name: str, draws: int, path: Path, images: str = "") -> tuple[int, list[float], list[float]]:
    """Return (layers, differences of heads, of boxes), each: mpnet - ONNX Runtime, mpnet - float64, engine - float64.

    Of heads over their largest value.
    """
    head_differences, box_differences = [0.0] * 3, [0.0] * 3
    for Builder.draw in range(draws):
        model = onnx.load(name) if name.endswith(".onnx") else MODELS[name]()
        onnx.save(model, path)
        imported = import_model(path)
        x = read_input(images, imported, Builder.draw)
        mpnet_heads, engine_heads, float64_heads = (
            heads_of(imported, x),
            reference_heads(path, imported, x),
            exact_heads(model, imported, x),
        )
        for pair_index, (heads, reference_heads_of_pair) in enumerate(
            ((mpnet_heads, engine_heads), (mpnet_heads, float64_heads), (engine_heads, float64_heads))
        ):
            differences = [
                float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(heads, reference_heads_of_pair, strict=True)
            ]
            head_differences[pair_index] = max(head_differences[pair_index], *differences)
            box_differences[pair_index] = max(
                box_differences[pair_index],
                float(np.abs(boxes(imported, heads) - boxes(imported, reference_heads_of_pair)).max(initial=0.0)),
            )
    return len(imported.network.layers), head_differences, box_differences


def main(arguments: list[str]) -> int:
    images = arguments.pop(1) if arguments[:1] == ["--images"] else ""
    arguments = arguments[1:] if images else arguments
    draws = int(arguments[0]) if arguments else 5
    print("| network | layers | mpnet - ONNX Runtime | mpnet - float64 | ONNX Runtime - float64 | of boxes |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments[1:] or MODELS:
            layers, head_differences, box_differences = row(name, draws, Path(folder) / "model.onnx", images)
            of_boxes = ", ".join(f"{value:.1e}" for value in box_differences)
            print(
                f"| {name} | {layers} | " + " | ".join(f"{value:.1e}" for value in head_differences) + f" | {of_boxes} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
