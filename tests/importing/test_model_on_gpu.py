# SPDX-License-Identifier: MIT
"""Imported networks on a GPU: attention, layer norm and shuffled channels have the bits of the CPU."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.weights import parse_weights
from mpnet.importing import Imported
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from tests.importing.graphs import Builder
from tests.importing.test_attention import by_heads
from tests.importing.test_channels_last import build_model, convnext
from tests.importing.test_onnx import build_small_model
from tests.kernels.gpus import gpu_kernels


def shuffle(b: Builder, x: str) -> str:
    """Build convolutions around channels that change their order."""
    groups = b.reshape(b.conv(x, 24), [1, 4, 6, 8, 8])
    x = b.reshape(b.node("Transpose", [groups], perm=[0, 2, 1, 3, 4]), [1, 24, 8, 8])
    b.channels[x] = 24
    return str(b.conv(x, 8, 3))


MODELS: dict[str, Callable[[], Any]] = {
    "attention": lambda: build_small_model(add_layers=by_heads),
    "layer_norm": lambda: build_model(convnext),
    "shuffle": lambda: build_small_model(add_layers=shuffle),
}


def heads_on(table: Kernels, imported: Imported, precision: str) -> list[bytes]:
    """Return the bits of the heads of two images, with every layer at one precision."""
    network = imported.network
    prepared = Prepared(network, parse_weights(imported.weights, network, "w"), table)
    session = Session(prepared, build_plan(network, assign(network, precision), resolve_options(network)))
    return [head.tobytes() for head in session.forward(np.random.default_rng(7).random((2, *network.in_shape), np.float32))]


@pytest.mark.parametrize("name", list(MODELS))
def test_imported_networks_have_the_same_bits(name: str, importing: Callable[..., tuple[Any, Imported]]) -> None:
    gpu = gpu_kernels()
    _, imported = importing(MODELS[name]())
    assert name.replace("_", "") in {layer.kind.replace("_", "") for layer in imported.network.layers}
    for precision in ("fp32", "int8", "fp16"):
        assert heads_on(gpu, imported, precision) == heads_on(kernels(), imported, precision)
