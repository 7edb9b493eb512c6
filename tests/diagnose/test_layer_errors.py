# SPDX-License-Identifier: MIT
"""Error of steps and layers against fp32."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.diagnose.layer_errors import Analysis, analyze
from mpnet.engine.assign import assign
from mpnet.engine.options import EngineOptions, LayerQuantization
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, DataError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.weights import random_weights
from mpnet.quantization.measure import ErrorMeter, sqnr_db
from mpnet.quantization.scheme import ActivationScheme, dequantize_activation, quantize_activation, range_to_params
from tests.engine.conftest import EVERYTHING
from tests.networks import SIDE, tiny_cfg


@pytest.fixture(scope="module")
def network() -> NetworkSpec:
    return parse_cfg(tiny_cfg(), "tiny.cfg")


@pytest.fixture(scope="module")
def prepared(network: NetworkSpec) -> Prepared:
    return Prepared(network, random_weights(network, 3), kernels(None))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    print("seed 5")
    return np.random.default_rng(5).uniform(0, 1, (3, SIDE, SIDE, 3)).astype(np.float32)


def analysed(prepared: Prepared, plan: Plan, images: np.ndarray) -> Analysis:
    return analyze(prepared, plan, [images[:2], images[2:]])


def heads_sqnr(prepared: Prepared, plan: Plan, images: np.ndarray) -> list[float]:
    exact = Session(prepared, build_plan(plan.network, assign(plan.network, "fp32"))).forward(images)
    heads = Session(prepared, plan).forward(images)
    return [
        sqnr_db(float((e.astype(np.float64) ** 2).sum()), float(((f.astype(np.float64) - e) ** 2).sum()))
        for e, f in zip(exact, heads, strict=True)
    ]


@pytest.mark.parametrize("default", ["int8", "fp16"])
def test_cumulative_error_is_that_of_the_run(
    network: NetworkSpec, prepared: Prepared, images: np.ndarray, default: str
) -> None:
    plan = build_plan(network, assign(network, default))
    analysis = analysed(prepared, plan, images)
    assert analysis.images == 3
    assert analysis.head_db == pytest.approx(heads_sqnr(prepared, plan, images), abs=1e-6)
    heads = [step for step in analysis.steps if step.name.endswith(("yolo-1", "yolo-2")) and step.operation == "Convolve"]
    if default == "int8":
        assert [step.cumulative.sqnr_db for step in heads] == pytest.approx(list(analysis.head_db))
    assert sorted(layer.layer for layer in analysis.layers) == [layer.index for layer in network.convolutions]
    assert sum(layer.noise for layer in analysis.layers) == pytest.approx(1.0)
    noises = [layer.noise for layer in analysis.layers]
    assert noises == sorted(noises, reverse=True)


@pytest.mark.parametrize("mode", ["affine", "symmetric", "MIN_COMBINED"])
def test_the_first_quantize_step_is_measured_on_the_image(
    network: NetworkSpec, prepared: Prepared, images: np.ndarray, mode: str
) -> None:
    scheme = ActivationScheme(mode)
    options = EngineOptions(default=LayerQuantization(scheme))
    analysis = analysed(prepared, build_plan(network, assign(network, "int8"), options), images)
    meter = ErrorMeter()
    for image in images:
        params = range_to_params(float(image.min()), float(image.max()), scheme)
        codes = quantize_activation(image, params)
        meter.observe(
            dequantize_activation(codes, params), image, scale=params.scale, codes=codes, low=params.low, high=params.high
        )
    first_step = analysis.steps[0]
    assert first_step.operation == "Quantize"
    assert first_step.local is not None
    for name, value in vars(meter.result()).items():
        assert getattr(first_step.local, name) == pytest.approx(value, rel=1e-9), name
        assert getattr(first_step.cumulative, name) == pytest.approx(value, rel=1e-9), name
    assert sum(first_step.histogram) == images.size


def test_a_layer_alone_is_the_run_in_which_only_it_is_lowered(
    network: NetworkSpec, prepared: Prepared, images: np.ndarray
) -> None:
    everything = analysed(prepared, build_plan(network, assign(network, "int8")), images)
    for layer in (0, 8, 18):
        plan_of_layer = build_plan(network, assign(network, "fp32", overrides={layer: PRECISIONS["int8"]}))
        analysis = analysed(prepared, plan_of_layer, images)
        assert [row.layer for row in analysis.layers] == [layer]
        assert analysis.layers[0].noise == 1.0
        assert analysis.layers[0].alone_db == analysis.head_db
        row = next(row for row in everything.layers if row.layer == layer)
        assert row.alone_db == pytest.approx(analysis.head_db, abs=1e-9)
        assert row.local.sqnr_db == pytest.approx(analysis.layers[0].cumulative.sqnr_db, abs=1e-9)


def test_exact_steps_have_no_local_error(network: NetworkSpec, prepared: Prepared, images: np.ndarray) -> None:
    plan = build_plan(network, assign(network, "fp32", overrides={8: PRECISIONS["int8"]}))
    analysis = analysed(prepared, plan, images)
    rounding = [(step.operation, step.layer) for step in analysis.steps if step.local is not None]
    assert rounding == [("Quantize", 8), ("Convolve", 8)]
    earlier_steps = [step for step in analysis.steps if step.number < 8 and step.layer < 8]
    assert all(step.cumulative.sqnr_db == np.inf for step in earlier_steps)


@pytest.mark.parametrize(
    ("default", "layers"),
    [
        ("int8", {}),
        ("fp16", {}),
        ("fp16_half", {}),
        ("int8", {0: "fp16", "*/yolo-1": "fp32"}),
        ("int8", {"maxpool-*": "int8", "route-*": "int8", "upsample-1": "int8", "shortcut-1": "int8"}),
    ],
)
def test_every_kind_of_layer_is_analysed(default: str, layers: dict[str | int, str]) -> None:
    net = parse_cfg(EVERYTHING, "t.cfg")
    ready = Prepared(net, random_weights(net, 1), kernels(None))
    x = np.random.default_rng(9).uniform(0, 1, (2, *net.in_shape)).astype(np.float32)
    plan = build_plan(net, assign(net, default, layers))
    analysis = analyze(ready, plan, [x])
    assert analysis.head_db == pytest.approx(heads_sqnr(ready, plan, x), abs=1e-6)
    assert len(analysis.steps) == sum(step.operation.name != "Yolo" for step in plan.steps)
    for step in analysis.steps:
        if step.local is not None:
            assert step.local.sqnr_db > 15, step


def test_nothing_to_analyse_is_an_error(network: NetworkSpec, prepared: Prepared, images: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="every layer is fp32, so there is no error to analyse"):
        analysed(prepared, build_plan(network, assign(network, "fp32")), images)
    with pytest.raises(DataError, match="no image to analyse on"):
        analyze(prepared, build_plan(network, assign(network, "int8")), [])


def test_the_fp32_reference_is_not_touched_by_the_configuration(
    network: NetworkSpec, prepared: Prepared, images: np.ndarray
) -> None:
    int8_analysis = analysed(prepared, build_plan(network, assign(network, "int8")), images)
    fp16_analysis = analysed(prepared, build_plan(network, assign(network, "fp16")), images)
    ranges = [
        {
            step.layer: (step.cumulative.minimum, step.cumulative.maximum)
            for step in analysis.steps
            if step.operation == "Convolve"
        }
        for analysis in (int8_analysis, fp16_analysis)
    ]
    assert ranges[0] == ranges[1]
