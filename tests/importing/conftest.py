# SPDX-License-Identifier: MIT
"""Importing a graph and running it, here and in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.weights import parse_weights
from mpnet.importing import Choices, Imported, import_model
from mpnet.kernels.isa import kernels

onnx = pytest.importorskip("onnx")


def heads_of(imported: Imported, x: NDArray[np.float32], default: str | None = None) -> list[NDArray[np.float32]]:
    """Return what mpnet gives for (n, h, w, c) from 0 to 1."""
    network = imported.network
    prepared = Prepared(network, parse_weights(imported.weights, network, "w"), kernels())
    plan = build_plan(network, assign(network, default), resolve_options(network))
    return [tensor.copy() for tensor in Session(prepared, plan).forward(x)]


def reference_heads(path: Path, imported: Imported, x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return what ONNX Runtime gives for the same, without its optimiser, which moves the zeros of Pad before MaxPool."""
    ort = pytest.importorskip("onnxruntime")
    model = onnx.load(path)
    names = [name for head in imported.heads for name in head]
    del model.graph.output[:]
    for name in names:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    network_input = x.transpose(0, 3, 1, 2)
    if imported.pixels.bgr:
        network_input = network_input[:, ::-1]
    network_input = network_input * np.float32(255 / imported.pixels.std[0])
    output_of = dict(
        zip(names, session.run(names, {model.graph.input[0].name: np.ascontiguousarray(network_input)}), strict=True)
    )
    return [np.concatenate([_four(output_of[name]) for name in head], 1).transpose(0, 2, 3, 1) for head in imported.heads]


def _four(x: NDArray[Any]) -> NDArray[Any]:
    return x.reshape(*x.shape[:2], *(x.shape[2:] or (1, 1)))


@pytest.fixture
def importing(tmp_path: Path) -> Callable[..., tuple[Path, Imported]]:
    """Save a model and import it."""

    def imported(model: Any, **choices: Any) -> tuple[Path, Imported]:
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path, import_model(path, Choices(**choices))

    return imported
