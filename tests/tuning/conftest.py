# SPDX-License-Identifier: MIT
"""A small network with random weights, ready to run, and images for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import Weights, random_weights
from tests.networks import small_cfg


@pytest.fixture
def network() -> NetworkSpec:
    return parse_cfg(small_cfg(), "net.cfg")


@pytest.fixture
def weights(network: NetworkSpec) -> Weights:
    return random_weights(network, 3)


@pytest.fixture
def images(network: NetworkSpec) -> list[NDArray[np.float32]]:
    """Return two batches of two images."""
    random = np.random.default_rng(4)
    return [random.random((2, *network.in_shape), np.float32) for _ in range(2)]
