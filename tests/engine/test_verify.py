# SPDX-License-Identifier: MIT
"""Simulated int8 against the integer kernels."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import EngineOptions, LayerQuantization
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.verify import StepCheck, Verifier
from mpnet.errors import ConfigError, DataError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ACTIVATION_MODES
from mpnet.model.weights import random_weights
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.quantization.scheme import ActivationScheme
from mpnet.quantization.weights import WeightScheme
from tests.engine.conftest import EVERYTHING
from tests.networks import SIDE, tiny_cfg

NETWORK: NetworkSpec = parse_cfg(tiny_cfg(), "tiny.cfg")


def images() -> np.ndarray:
    print("seed 6")
    return np.random.default_rng(6).uniform(0, 1, (2, SIDE, SIDE, 3)).astype(np.float32)


def prepare(level: str | None = None) -> Prepared:
    return Prepared(NETWORK, random_weights(NETWORK, 3), kernels(level))


def int8_plan(scheme: ActivationScheme | None = None, weights: WeightScheme | None = None) -> Plan:
    quantization = LayerQuantization(scheme or ActivationScheme(), weights or WeightScheme())
    return build_plan(NETWORK, assign(NETWORK, "int8"), EngineOptions(default=quantization))


def checks(prepared: Prepared, plan: Plan) -> tuple[StepCheck, ...]:
    return Verifier(prepared, plan).run([images()])


@pytest.mark.parametrize("mode", ACTIVATION_MODES)
@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_kernels_do_what_simulation_says(mode: str, granularity: str) -> None:
    all_checks = checks(prepare(), int8_plan(ActivationScheme(mode), WeightScheme(granularity)))
    assert [check for check in all_checks if not check.passed] == []
    convolutions = [check for check in all_checks if check.operation == "Convolve"]
    assert len(convolutions) == len(NETWORK.convolutions)
    assert all(0 < check.share < 1 for check in convolutions)
    quantized = [check for check in all_checks if check.operation == "Quantize"]
    assert sum(check.values for check in quantized) > 2 * SIDE * SIDE * 3


@pytest.mark.parametrize("level", usable_levels())
def test_every_level_agrees(level: str) -> None:
    assert all(check.passed for check in checks(prepare(level), int8_plan()))


def test_every_kind_of_convolution_agrees() -> None:
    net = parse_cfg(EVERYTHING, "t.cfg")
    ready = Prepared(net, random_weights(net, 1), kernels(None))
    x = np.random.default_rng(9).uniform(0, 1, (2, *net.in_shape)).astype(np.float32)
    all_checks = Verifier(ready, build_plan(net, assign(net, "int8"))).run([x])
    assert all(check.passed for check in all_checks)
    assert sum(check.operation == "Convolve" for check in all_checks) == len(net.convolutions)


def test_another_network_s_weights_are_noticed() -> None:
    prepared = prepare()
    plan = int8_plan()
    for step in plan.steps:
        if step.operation.name == "Convolve":
            prepared.convolution(step.operation)  # packed as they should be
    folded = prepared.folded[8]
    prepared.folded[8] = FoldedConvolution(folded.weights * np.float32(1.001), folded.bias)
    failed_checks = [check for check in checks(prepared, plan) if not check.passed]
    assert [check.name for check in failed_checks] == [NETWORK.layers[8].name]
    assert failed_checks[0].differing > 0
    assert failed_checks[0].share > 1


def test_nothing_to_verify_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no layer runs in int8"):
        Verifier(prepare(), build_plan(NETWORK, assign(NETWORK, "fp16")))
    with pytest.raises(DataError, match="no image to verify on"):
        Verifier(prepare(), int8_plan()).run([])
