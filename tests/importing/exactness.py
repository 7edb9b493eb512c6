# SPDX-License-Identifier: MIT
"""The table of docs/import.md, "How close": mpnet and ONNX Runtime against each other and against float64.

Usage: python -m tests.importing.exactness [DRAWS [NETWORK...]]. Prints Markdown, the worst of so many random
weights and images.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mpnet.importing import Imported, import_model
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import MODELS, Builder


def exact_heads(model: onnx.ModelProto, imported: Imported, x: NDArray[np.float32]) -> list[NDArray[np.float64]]:
    """The heads of (n, h, w, c) from 0 to 1, with every constant and every step in double."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    names = [name for head in imported.heads for name in head]
    del wide.graph.output[:]
    wide.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names)
    wide.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    given = x.transpose(0, 3, 1, 2)[:, :: -1 if imported.pixels.bgr else 1] * np.float32(255 / imported.pixels.std[0])
    found = ReferenceEvaluator(wide).run(names, {wide.graph.input[0].name: given.astype(np.float64)})
    values = dict(zip(names, found, strict=True))
    return [
        np.concatenate(
            [values[name].reshape(*values[name].shape[:2], *(values[name].shape[2:] or (1, 1))) for name in head], 1
        ).transpose(0, 2, 3, 1)
        for head in imported.heads
    ]


def row(name: str, draws: int, path: Path) -> tuple[int, list[float]]:
    """(layers, largest differences over the heads' largest values: mpnet - ONNX Runtime, mpnet - float64, engine - float64)."""
    worst = [0.0] * 3
    for Builder.draw in range(draws):
        model = MODELS[name]()
        onnx.save(model, path)
        imported = import_model(path)
        x = np.random.default_rng(1 + Builder.draw).random((1, *imported.network.in_shape), np.float32)
        own, engine, exact = heads_of(imported, x), reference_heads(path, imported, x), exact_heads(model, imported, x)
        for at, (found, other) in enumerate(((own, engine), (own, exact), (engine, exact))):
            apart = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, other, strict=True)]
            worst[at] = max(worst[at], *apart)
    return len(imported.network.layers), worst


def main(arguments: list[str]) -> int:
    draws = int(arguments[0]) if arguments else 5
    print("| network | layers | mpnet - ONNX Runtime | mpnet - float64 | ONNX Runtime - float64 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments[1:] or MODELS:
            layers, worst = row(name, draws, Path(folder) / "model.onnx")
            print(f"| {name} | {layers} | " + " | ".join(f"{value:.1e}" for value in worst) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
