# SPDX-License-Identifier: MIT
"""What a sweep says that a configuration costs is what `mpnet run` says: every cost, on networks of every kind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mpnet.demo.model import model_files
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import LAYER_COSTS, CostModel, plan_cost
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BY_CODE, PRECISIONS
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from tests.engine.conftest import EVERYTHING
from tests.networks import tiny_cfg
from tests.sweep.sweep_data import PER_TENSOR
from tests.sweep.sweep_networks import branches, conv, parse, pool, tiny_yolo, yolo, yolov3_tiny

CFG = Path(__file__).resolve().parent.parent.parent / "cfg"


def sliced() -> NetworkSpec:
    """Return routes of halves (of one layer, of two layers), a shortcut, layers that pass tensors on."""
    return parse(
        16,
        conv(8, 3, 2),
        conv(8),
        "[route]\nlayers=-1,-2\ngroups=2\ngroup_id=1\n",
        conv(8),
        "[dropout]\nprobability=.5\n",
        "[shortcut]\nfrom=-4\nactivation=leaky\n",
        "[route]\nlayers=-1\ngroups=2\ngroup_id=0\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
        "[route]\nlayers=2\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


def passed_on() -> NetworkSpec:
    """Return a pooling behind a dropout and another behind a route of one; an upsampling between a convolution and the next."""
    return parse(
        32,
        conv(6),
        "[dropout]\nprobability=.5\n",
        pool(),
        conv(6),
        "[route]\nlayers=-1\n",
        pool(),
        conv(8),
        "[upsample]\nstride=2\n",
        conv(8),
        pool(1),
        "[avgpool]\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


NETWORKS = {
    "tiny_yolo": tiny_yolo(),
    "branches": branches(),
    "sliced": sliced(),
    "passed_on": passed_on(),
    "yolov3_tiny": yolov3_tiny(64),
    "everything": parse_cfg(EVERYTHING, "t.cfg"),
    "tiny_cfg": parse_cfg(tiny_cfg(), "t.cfg"),
    "demo": read_cfg(model_files().cfg),
    **{path.stem: read_cfg(path) for path in sorted(CFG.glob("*.cfg"))},
}
OPTIONS = {
    "dynamic": PER_TENSOR,
    "calibrated": QuantizationOptions(ActivationOptions(ranges="calibrated")),
    "calibrated MIN_FIRST": QuantizationOptions(ActivationOptions(mode="MIN_FIRST", ranges="calibrated")),
}


def hold(network: NetworkSpec, quantization: QuantizationOptions, unweighted: dict[int, str], keys: list[str]) -> None:
    """Assert that both ways of counting agree on all configurations."""
    ranges = {index: (-2.0, 3.0) for index in range(-1, len(network.layers))}
    options = resolve_options(network, quantization, ranges=ranges)
    model = CostModel(network, options, {index: BY_CODE[code] for index, code in unweighted.items()})
    suffix = "+" + ",".join(f"{index}:{code}" for index, code in sorted(unweighted.items())) if unweighted else ""
    for key in keys:
        expected = plan_cost(build_plan(network, assign_key(network, key + suffix), options))
        del expected["arena_bytes"]  # of the engine's memory, which plans alone have
        assert model.costs(key) == expected, key + suffix
        assert model.costs(key, LAYER_COSTS) == {name: expected[name] for name in LAYER_COSTS}, key + suffix


@pytest.mark.parametrize("options", sorted(OPTIONS))
@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_costs_are_those_of_the_plan(network: str, options: str) -> None:
    spec = NETWORKS[network]
    declared = {
        layer.index: layer.declared.precision.code
        for layer in spec.layers
        if not layer.has_weights and layer.declared is not None and layer.declared.precision is not None
    }
    mute = [layer.index for layer in spec.layers if not layer.has_weights and layer.kind != "yolo"]
    chance = random.Random(1)
    count = len(spec.convolutions)
    keys = ["".join(chance.choices([row.code for row in PRECISIONS.values()], k=count)) for _ in range(40)]
    hold(spec, OPTIONS[options], declared, ["f" * count, "q" * count, "h" * count, *keys[:20]])
    for _ in range(3):
        unweighted = {index: chance.choice("fhq") for index in chance.sample(mute, min(2, len(mute)))}
        hold(spec, OPTIONS[options], declared | unweighted, chance.sample(keys, 10))


def test_a_calibrated_range_lets_the_convolution_before_quantise() -> None:
    """What the first version of sweeps got wrong, in numbers."""
    network = NETWORKS["yolov3-tiny"]
    ranges = {index: (-2.0, 3.0) for index in range(-1, len(network.layers))}
    model = CostModel(network, resolve_options(network, OPTIONS["calibrated"], ranges=ranges), {})
    assert model.costs("fqqqqqqqqfqqf")["peak_activation_bytes"] == 2_768_896
    assert model.costs("q" * 13)["peak_activation_bytes"] == 2_595_840
