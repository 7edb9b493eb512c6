# SPDX-License-Identifier: MIT
"""Sweeps over int8 and int16 in whole numbers alone: a direct run and a sweep give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.cost import CostModel, plan_cost
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.trie import build_graph, run_graph, run_stem
from mpnet.sweep.problem.space import build_space
from tests.engine.test_integer import EVERYTHING, options_of

HEAD = "[yolo]\nmask=0,1\nnum=2\nclasses=2\nanchors=2,3, 4,5\n"
# What one head's layers read is read by the other's as well.
TWO_HEADS = EVERYTHING + "[route]\nlayers=-4\n[convolutional]\nfilters=14\nsize=1\nactivation=linear\n" + HEAD


@pytest.mark.parametrize(("text", "count"), [(EVERYTHING, 17), (TWO_HEADS, 33)], ids=["one head", "two heads"])
def test_all_configurations_and_the_baseline_are_as_they_run_alone(text: str, count: int) -> None:
    network = parse_cfg(text, "net.cfg")
    options, images = options_of(network), np.random.default_rng(4).random((2, *network.in_shape), np.float32)
    keys = [*build_space(network, ("int16", "int8")).all_keys(), "f" * len(network.convolutions)]
    assert len(keys) == count
    prepared, costs = Prepared(network, random_weights(network, 3), kernels()), CostModel(network, options)
    graph = build_graph(network, keys, options)
    heads: dict[tuple[int, str], bytes] = {}

    def keep(head: int, name: str, tensor: Tensor) -> None:
        heads[head, name] = tensor.host().tobytes()

    run_graph(graph, run_stem(graph, host_tensor(images), prepared), prepared, keep, image=host_tensor(images))
    for key in graph.keys:
        plan = build_plan(network, assign_key(network, key), options)
        swept = [heads[head, name] for head, name in enumerate(graph.head_names(key))]
        assert [tensor.tobytes() for tensor in Session(prepared, plan).forward(images)] == swept
        layer_costs = costs.costs(key)
        assert layer_costs == {name: value for name, value in plan_cost(plan).items() if name in layer_costs}
