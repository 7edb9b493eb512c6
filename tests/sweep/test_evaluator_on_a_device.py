# SPDX-License-Identifier: MIT
"""Sweeps on kernels of another device: tensors of shared layers stay there, and figures have the bits of the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.trie import build_graph, join_tensors, run_graph, run_stem
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.front import Rivals
from tests.engine.remote import RemoteKernels
from tests.kernels.gpus import gpu_kernels
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import branches, tiny_yolo
from tests.sweep.test_partial_sums import NETWORK

Heads = dict[tuple[int, str], bytes]
KEYS = ("ffffff", "hhhhhh", "qhfqfq", "qqqqqq", "qqqqqf")


def heads_of(network: NetworkSpec, keys: list[str], table: Kernels) -> Heads:
    """Return the heads of configurations on four images, whose stem goes through image by image."""
    prepared = Prepared(network, random_weights(network, 3), table)
    images = (
        np.random.default_rng(4).random((4, *network.in_shape), np.float32) * np.float32([1, 0.1, 2, 5])[:, None, None, None]
    )
    graph, heads = build_graph(network, keys, EngineOptions()), {}

    def on_head(head: int, name: str, tensor: Tensor) -> None:
        heads[head, name] = tensor.host().tobytes()

    stems = [run_stem(graph, host_tensor(images[i : i + 1]), prepared) for i in range(len(images))]
    joined = [join_tensors(tensors) for tensors in zip(*stems, strict=True)]
    run_graph(graph, joined, prepared, on_head, image=host_tensor(images))
    return heads


@pytest.mark.parametrize("unsupported", [(), ("maxpool",), ("value_range",), (("conv", "int8"),)], ids=str)
@pytest.mark.parametrize("network", [tiny_yolo(), branches(), NETWORK], ids=["tiny_yolo", "branches", "split"])
def test_shared_layers_have_the_same_bits(network: NetworkSpec, unsupported: tuple[Any, ...]) -> None:
    count = len(network.convolutions)
    keys = ["q" * count, "f" * count, "q" * (count - 1) + "h", "qf" * (count // 2) + "q" * (count % 2), "f" + "q" * (count - 1)]
    remote = RemoteKernels(kernels(), unsupported)
    assert heads_of(network, keys, remote) == heads_of(network, keys, kernels())
    assert remote.call_counts["conv"] > count


@pytest.mark.slow
@pytest.mark.parametrize("network", [tiny_yolo(), NETWORK], ids=["tiny_yolo", "split"])
def test_shared_layers_have_the_same_bits_on_a_gpu(network: NetworkSpec) -> None:
    count = len(network.convolutions)
    keys = ["q" * count, "f" * count, "q" * (count - 1) + "h", "qf" * (count // 2) + "q" * (count % 2), "f" + "q" * (count - 1)]
    assert heads_of(network, keys, gpu_kernels()) == heads_of(network, keys, kernels())


@pytest.mark.slow
def test_the_evaluator_gives_the_same_figures_on_a_gpu() -> None:
    prepared = with_baseline(context(tiny_yolo(), images=12))
    rivals = Rivals(("agreement_AP", "weight_bytes"), ((-99.5, 1.0),))
    local, remote = Evaluator(prepared), Evaluator(prepared)
    remote.passes._kernels = gpu_kernels()
    for chunk in (WorkChunk(0, KEYS), WorkChunk(0, KEYS, rivals), WorkChunk(0, KEYS, rivals)):
        assert replace(remote.evaluate(chunk), seconds=0.0) == replace(local.evaluate(chunk), seconds=0.0)


def test_the_evaluator_needs_no_change() -> None:
    """Races, likely heads and kept stems included."""
    prepared = with_baseline(context(tiny_yolo(), images=12))
    rivals = Rivals(("agreement_AP", "weight_bytes"), ((-99.5, 1.0),))
    local, remote_evaluator = Evaluator(prepared), Evaluator(prepared)
    remote = RemoteKernels(kernels())
    remote_evaluator.passes._kernels = remote
    for chunk in (WorkChunk(0, KEYS), WorkChunk(0, KEYS, rivals), WorkChunk(0, KEYS, rivals)):
        assert replace(remote_evaluator.evaluate(chunk), seconds=0.0) == replace(local.evaluate(chunk), seconds=0.0)
    assert remote.call_counts["conv"] > 100
