# SPDX-License-Identifier: MIT
"""A tiny network whose weights are at hand."""

from __future__ import annotations

import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.export import Configuration
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.weights import random_weights
from tests.networks import NAMES, tiny_cfg


@pytest.fixture
def prepared_tiny() -> Configuration:
    """Return the tiny network, all int8, dynamic ranges."""
    network = parse_cfg(tiny_cfg(), "net.cfg")
    prepared = Prepared(network, random_weights(network), kernels())
    return Configuration.from_prepared(
        prepared, assign_key(network, "q" * 13), resolve_options(network), content=tiny_cfg().encode(), names=NAMES
    )
