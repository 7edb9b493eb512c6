# SPDX-License-Identifier: MIT
"""Shared prefixes: every layer once per distinct assignment of its ancestors, and the bits of a direct run."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.operations import Convolve
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import ConfigError, EngineError
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import INT8
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.graph import Node, SharedGraph
from mpnet.sweep.evaluate.sharing import ancestors, forward_equivalents, forward_equivalents_of, restricted
from mpnet.sweep.evaluate.trie import build_graph, join_tensors, run_graph, run_stem
from mpnet.sweep.problem.space import build_space
from tests.sweep.sweep_data import PER_TENSOR
from tests.sweep.sweep_networks import branches, conv, parse, tiny_yolo, yolo

THREE = ("fp32", "fp16", "int8")


def layers_of(node: Node) -> list[int]:
    """Return the layers of each node; a pooling stands in the node of the convolution before it."""
    main = node.lowering.main
    return [node.layer, node.layer + 1] if isinstance(main, Convolve) and main.pool is not None else [node.layer]


def shortcuts() -> NetworkSpec:
    """Return depthwise, grouped and strided convolutions, shortcuts, a route of half the channels, one head."""
    return parse(
        16,
        conv(8, 3, 2),
        "[convolutional]\nfilters=8\nsize=3\npad=1\nstride=1\ngroups=8\nactivation=relu\n",
        "[shortcut]\nfrom=-2\nactivation=leaky\n",
        "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n",
        conv(4),
        "[route]\nlayers=-1,-3\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


NETWORKS = {"tiny_yolo": tiny_yolo(), "branches": branches(), "shortcuts": shortcuts()}


Heads = dict[tuple[int, str], np.ndarray]


def run(graph: SharedGraph, network: NetworkSpec, images: np.ndarray, options: EngineOptions) -> Heads:
    heads: Heads = {}
    prepared = Prepared(network, random_weights(network, 3), kernels())

    def on_head(head: int, name: str, tensor: Tensor) -> None:
        assert (head, name) not in heads
        heads[head, name] = tensor.host().copy()

    # The stem image by image, the rest all at once: groups change no bit.
    stems = [run_stem(graph, host_tensor(images[i : i + 1]), prepared) for i in range(len(images))]
    joined = [join_tensors(image_tensors) for image_tensors in zip(*stems, strict=True)]
    run_graph(graph, joined, prepared, on_head, image=host_tensor(images))
    return heads


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("quantization", [None, PER_TENSOR], ids=["per_channel", "per_tensor"])
def test_every_configuration_has_the_bits_of_a_direct_run(name: str, quantization: object) -> None:
    network = NETWORKS[name]
    options = resolve_options(network, quantization) if quantization else resolve_options(network)
    keys = list(build_space(network, THREE).all_keys())
    graph = build_graph(network, keys, options)
    images = np.random.default_rng(4).random((3, *network.in_shape), np.float32)
    heads = run(graph, network, images, options)
    prepared = Prepared(network, random_weights(network, 3), kernels())
    for key in random.Random(5).sample(keys, 40):
        direct = Session(prepared, build_plan(network, assign_key(network, key), options)).forward(images)
        for number, (head, tensor) in enumerate(zip(graph.head_names(key), direct, strict=True)):
            assert np.array_equal(heads[number, head].view(np.uint32), tensor.view(np.uint32)), (key, number)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_what_is_computed_is_what_the_theory_says(name: str) -> None:
    network = NETWORKS[name]
    space = build_space(network, THREE)
    graph = build_graph(network, space.all_keys(), resolve_options(network))
    assert Fraction(graph.macs, network.macs) == forward_equivalents(network, space)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("seed", range(3))
def test_any_list_of_configurations_shares_all_it_can(name: str, seed: int) -> None:
    network = NETWORKS[name]
    keys = random.Random(seed).sample(list(build_space(network, THREE).all_keys()), 25)
    graph = build_graph(network, keys, resolve_options(network))
    assert Fraction(graph.macs, network.macs) == forward_equivalents_of(network, keys)
    positions = ancestors(network)
    computed = Counter(layer for node in graph.nodes for layer in layers_of(node))
    for layer in network.layers:
        assert computed[layer.index] == len({restricted(key, positions[layer.index]) for key in keys})


def test_tensors_go_when_nothing_needs_them() -> None:
    """Memory grows with the depth of the trie, not with the number of configurations."""
    network = tiny_yolo()
    options = resolve_options(network)
    single_peak = build_graph(network, ["ffffff"], options).peak_bytes(stem=True)
    everything = build_graph(network, build_space(network, THREE).all_keys(), options)
    assert len(everything.nodes) > 20 * len(network.layers)
    assert everything.peak_bytes(stem=False) < 3 * single_peak


def test_layers_with_a_precision_of_their_own_keep_it() -> None:
    network = tiny_yolo()
    options = resolve_options(network)
    graph = build_graph(network, ["ffqfqf", "ffffff"], options, {1: INT8})
    images = np.random.default_rng(4).random((2, *network.in_shape), np.float32)
    heads = run(graph, network, images, options)
    prepared = Prepared(network, random_weights(network, 3), kernels())
    for key in graph.keys:
        plan = build_plan(network, assign_key(network, key + "+1:q"), options)
        for number, tensor in enumerate(Session(prepared, plan).forward(images)):
            assert np.array_equal(heads[number, graph.head_names(key)[number]], tensor)


@pytest.mark.parametrize(
    ("keys", "stem"),
    [
        (["ffffff", "qfffff"], []),
        (["ffffff", "fqffff"], [0, 1]),
        (["fqffff", "fqqfff"], [0, 1, 2, 3]),
        (["fqhffq", "fqhqfq"], [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12]),
        (["ffffff"], list(range(13))),
    ],
)
def test_the_stem_is_what_all_configurations_share(keys: list[str], stem: list[int]) -> None:
    network = tiny_yolo()
    options = resolve_options(network)
    graph = build_graph(network, keys, options, {1: INT8})
    assert sorted({graph.nodes[number].layer for number in graph.stem}) == stem
    images = np.random.default_rng(4).random((3, *network.in_shape), np.float32)
    heads = run(graph, network, images, options)
    prepared = Prepared(network, random_weights(network, 3), kernels())
    for key in keys:
        plan = build_plan(network, assign_key(network, key + "+1:q"), options)
        for number, tensor in enumerate(Session(prepared, plan).forward(images)):
            assert np.array_equal(heads[number, graph.head_names(key)[number]], tensor)


def test_an_image_that_is_not_finite_names_the_layer() -> None:
    network = tiny_yolo()
    options = resolve_options(network)
    images = np.full((1, *network.in_shape), np.nan, np.float32)
    with pytest.raises(EngineError, match=r"test.cfg: .*conv-1"):
        run(build_graph(network, ["qfffff"], options), network, images, options)


def test_keys_of_another_network_are_an_error() -> None:
    with pytest.raises(ConfigError, match="has 6 codes"):
        build_graph(tiny_yolo(), ["fff"], resolve_options(tiny_yolo()))
