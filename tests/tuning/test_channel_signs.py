# SPDX-License-Identifier: MIT
"""Channels that change their sign."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.observe import observe_tensors
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.measure import sqnr_db
from mpnet.tuning.channel_signs import ChannelRanges, TurnedChannels, turn_channels, turnable_pairs
from mpnet.tuning.write import tuned_weights

DEPTHWISE = """[net]
width=16
height=16
channels=3
[convolutional]
filters=8
size=1
activation={activation}
[convolutional]
filters=8
size=3
pad=1
groups=8
activation=relu
[convolutional]
filters=4
size=1
activation=linear
"""


def shifted(network: NetworkSpec) -> Weights:
    """Return weights whose first layer has four channels that are negative on every image, far from 0."""
    weights = random_weights(network, 5)
    first = weights.layers[0]
    biases = np.array([-60, -80, -70, -90, 14, 15, 12, 11], np.float32)
    return replace(weights, layers={**weights.layers, 0: replace(first, biases=biases)})


def turned(network: NetworkSpec, weights: Weights, images: NDArray[np.float32]) -> tuple[Prepared, Prepared, TurnedChannels]:
    options = resolve_options(network)
    prepared = Prepared.under(options, network, weights, kernels())
    ranges = ChannelRanges(frozenset(pair.first for pair in turnable_pairs(network)))
    observe_tensors(prepared, [images[:2], images[2:]], [ranges.observe])
    found = turn_channels(network, prepared.folded, ranges)
    changed = tuned_weights(network, weights, found.folded, options.batch_norm)
    return prepared, Prepared.under(options, network, changed, kernels()), found


def result(prepared: Prepared, precision: str, images: NDArray[np.float32]) -> NDArray[np.float32]:
    plan = build_plan(prepared.network, assign(prepared.network, precision), resolve_options(prepared.network))
    return Session(prepared, plan).forward(images)[0]


def distance_db(wanted: NDArray[np.float32], given: NDArray[np.float32]) -> float:
    return sqnr_db(float((wanted**2).sum()), float(((wanted - given) ** 2).sum()))


def test_fp32_stays_and_int8_comes_nearer_to_it() -> None:
    network = parse_cfg(DEPTHWISE.format(activation="leaky"), "net.cfg")
    images = np.random.default_rng(6).random((4, *network.in_shape), np.float32)
    before, after, found = turned(network, shifted(network), images)
    assert found.turned == 4
    wanted = result(before, "fp32", images)
    # Roundings of float32 of values that are a hundred times as large as what they differ by: 2^-24 each.
    assert distance_db(wanted, result(after, "fp32", images)) > 90
    assert distance_db(wanted, result(after, "int8", images)) > distance_db(wanted, result(before, "int8", images)) + 2


@pytest.mark.parametrize(("activation", "count"), [("linear", 4), ("relu", 0)])
def test_linear_channels_turn_and_those_that_stop_at_zero_do_not(activation: str, count: int) -> None:
    network = parse_cfg(DEPTHWISE.format(activation=activation), "net.cfg")
    images = np.random.default_rng(6).random((4, *network.in_shape), np.float32)
    before, after, found = turned(network, shifted(network), images)
    assert found.turned == count
    assert distance_db(result(before, "fp32", images), result(after, "fp32", images)) > 90


def test_nothing_turns_before_a_maximum(network: NetworkSpec) -> None:
    assert turnable_pairs(network) == ()
