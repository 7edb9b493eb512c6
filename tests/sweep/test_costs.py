"""Costs without plans, against plans: on every configuration of small networks."""

from __future__ import annotations

import random

import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.spec.network import NetworkSpec
from mpnet.spec.precision import BASE_NAMES, INT8
from mpnet.sweep.costs import CostModel
from mpnet.sweep.space import build_space
from tests.sweep.sweep_data import PER_TENSOR
from tests.sweep.sweep_networks import branches, conv, parse, tiny_yolo, yolo, yolov3_tiny

NAMES = ("weight_bytes", "peak_activation_bytes", "bit_operations", "int8_macs")


def sliced() -> NetworkSpec:
    """Routes of halves (of one layer, of two layers), a shortcut, layers that pass tensors on."""
    return parse(
        16, conv(8, 3, 2), conv(8), "[route]\nlayers=-1,-2\ngroups=2\ngroup_id=1\n", conv(8),
        "[dropout]\nprobability=.5\n", "[shortcut]\nfrom=-4\nactivation=leaky\n",
        "[route]\nlayers=-1\ngroups=2\ngroup_id=0\n", conv(24, 1, 1, "linear"), yolo("0,1,2"),
        "[route]\nlayers=2\n", conv(24, 1, 1, "linear"), yolo("0,1,2"),
    )


TINY, BRANCHES, SLICED, WHOLE = tiny_yolo(), branches(), sliced(), yolov3_tiny(64)


@pytest.mark.parametrize(("network", "own"), [
    (TINY, ""), (TINY, "+1:q"), (BRANCHES, ""), (BRANCHES, "+2:q"), (SLICED, ""), (SLICED, "+2:q"),
    pytest.param(WHOLE, "", marks=pytest.mark.slow), pytest.param(WHOLE, "+1:q", marks=pytest.mark.slow),
])
def test_costs_are_those_of_the_plan(network: NetworkSpec, own: str) -> None:
    """own: the precision of a layer without weights."""
    index = int(own[1]) if own else -1
    options = resolve_options(network, PER_TENSOR)
    model = CostModel(network, options, {index: INT8} if own else {})
    keys = list(build_space(network, BASE_NAMES).all_keys())
    for key in random.Random(1).sample(keys, min(300, len(keys))):
        cost = plan_cost(build_plan(network, assign_key(network, key + own), options))
        assert model.costs(key) == {name: float(getattr(cost, name)) for name in NAMES}, key
