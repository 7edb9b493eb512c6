# SPDX-License-Identifier: MIT
"""A small network with every kind of layer, and weights for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.prepare import Prepared
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import Weights, random_weights

EVERYTHING = """[net]
width=20
height=12
channels=3
[convolutional]
batch_normalize=1
filters=16
size=3
stride=2
pad=1
activation=leaky
[convolutional]
batch_normalize=1
filters=16
size=3
pad=1
groups=16
activation=relu6
[convolutional]
filters=16
size=1
activation=linear
[shortcut]
from=0
activation=leaky
[dropout]
[maxpool]
size=2
stride=2
[maxpool]
size=3
stride=1
[convolutional]
filters=14
size=1
activation=linear
[yolo]
mask=0,1
num=4
classes=2
anchors=2,3, 4,5, 6,7, 8,9
[route]
layers=-3
groups=2
group_id=1
[convolutional]
filters=24
size=3
pad=1
activation=mish
[upsample]
stride=2
[route]
layers=-1,4
[convolutional]
batch_normalize=1
filters=14
size=1
activation=leaky
[yolo]
mask=2,3
num=4
classes=2
anchors=2,3, 4,5, 6,7, 8,9
"""


@pytest.fixture(scope="session")
def network() -> NetworkSpec:
    """Return a network of convolutions 0 (strided), 1 (depthwise), 2 (1x1), 7 and 13 (heads), 10; every other kind of layer
    between."""
    return parse_cfg(EVERYTHING, "t.cfg")


@pytest.fixture(scope="session")
def weights(network: NetworkSpec) -> Weights:
    return random_weights(network, seed=1)


@pytest.fixture(scope="session")
def prepared(network: NetworkSpec, weights: Weights) -> Prepared:
    return Prepared(network, weights, kernels())


@pytest.fixture(scope="session")
def batch() -> NDArray[np.float32]:
    """Return three images of different ranges."""
    random = np.random.Generator(np.random.PCG64(2))
    scale = np.array([1.0, 0.2, 0.7], np.float32)[:, None, None, None]
    return random.random((3, 12, 20, 3), np.float32) * scale
