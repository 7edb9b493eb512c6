# SPDX-License-Identifier: MIT
"""Sums over a part that configurations share: the bits of a direct run, whichever part decides what codes mean."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import host_tensor
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import NarrowOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.graph import SharedGraph
from mpnet.sweep.evaluate.trie import build_graph, run_graph, run_stem
from mpnet.sweep.problem.space import build_space
from tests.sweep.sweep_networks import conv, parse, yolo

NETWORK = parse(
    16,
    conv(32, 3, 1, "linear"),
    conv(40, 3, 1, "logistic"),
    "[route]\nlayers=-1,-2\n",
    conv(48),
    conv(24, 1, 1, "linear"),
    yolo("0,1,2"),
)
"""Results of the second layer lie in [0, 1], those of the first grow with the image."""


READ_AGAIN = parse(
    16,
    conv(8, 3, 1, "linear"),
    conv(8),
    "[route]\nlayers=-1,-2\n",
    conv(16),
    "[route]\nlayers=-1,-2\n",
    "[shortcut]\nfrom=-1\nactivation=linear\n",
    "[route]\nlayers=-4,-1\n",
    conv(24, 1, 1, "linear"),
    yolo("0,1,2"),
)
"""The first concatenation is read by a convolution, and beside other tensors as the first and as the second of two."""


def assert_direct(graph: SharedGraph, images: np.ndarray, options: EngineOptions) -> None:
    """Assert that all configurations of the graph have the bits of direct runs."""
    network = graph.network
    prepared = Prepared(network, random_weights(network, 3), kernels())
    outputs: dict[str, bytes] = {}
    run_graph(
        graph,
        run_stem(graph, host_tensor(images), prepared),
        prepared,
        lambda head, name, tensor: outputs.update({name: tensor.host().tobytes()}),
        image=host_tensor(images),
    )
    for key in graph.keys:
        [direct] = Session(prepared, build_plan(network, assign_key(network, key), options)).forward(images)
        assert outputs[graph.head_names(key)[0]] == direct.tobytes(), key


def test_other_layers_read_the_concatenation_whole() -> None:
    options = resolve_options(READ_AGAIN)
    keys = list(build_space(READ_AGAIN, ("fp32", "int8")).all_keys())
    graph = build_graph(READ_AGAIN, keys, options)
    assert {graph.nodes[number].layer for number in graph.split} >= {2}
    images = np.random.default_rng(4).random((2, *READ_AGAIN.in_shape), np.float32)
    assert_direct(graph, images, options)


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["per_channel", "per_group"])
@pytest.mark.parametrize("sizes", [(40, 40, 40), (1e-3, 1e-3), (40, 1e-3, 40)], ids=["shared", "own", "both"])
def test_whichever_part_decides_the_scale(sizes: tuple[float, ...], granularity: str) -> None:
    options = resolve_options(
        NETWORK, QuantizationOptions(narrow=NarrowOptions(granularity, rounding="nearest", bias_correction=False))
    )
    keys = list(build_space(NETWORK, ("fp32", "int8", "int5")).all_keys())
    graph = build_graph(NETWORK, keys, options)
    assert sorted(graph.split) == [number for number, node in enumerate(graph.nodes) if node.layer == 2]
    images = np.random.default_rng(4).random((len(sizes), *NETWORK.in_shape), np.float32)
    images *= np.array(sizes, np.float32)[:, None, None, None]
    assert_direct(graph, images, options)
