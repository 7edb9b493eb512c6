# SPDX-License-Identifier: MIT
"""Ranges of a network's tensors from calibration images."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.observe import observe_tensors
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, DataError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import CALIBRATION_METHODS, ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.networks import SIDE, tiny_cfg

NETWORK: NetworkSpec = parse_cfg(tiny_cfg(), "tiny.cfg")


def make_quantization(method: str = "min_max", mode: str = "affine", ranges: str = "calibrated") -> QuantizationOptions:
    return QuantizationOptions(ActivationOptions(mode=mode, ranges=ranges, method=method))


def options(*layers: tuple[str, QuantizationOptions], **keywords: str) -> EngineOptions:
    return resolve_options(NETWORK, make_quantization(**keywords), layers)


def images(count: int = 3) -> np.ndarray:
    print("seed 8")
    return np.random.default_rng(8).uniform(0, 1, (count, SIDE, SIDE, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return Prepared(NETWORK, random_weights(NETWORK, 3), kernels(None))


def test_min_max_is_what_the_fp32_pass_holds(prepared: Prepared) -> None:
    observed: dict[int, list[np.ndarray]] = {}
    observe_tensors(prepared, [images()], [lambda t, x: observed.setdefault(t, []).append(x.copy())])
    calibration = calibrate(prepared, [images()[:2], images()[2:]], range_requests(NETWORK, options()), {"network": "x"})
    assert calibration.images == 3
    assert calibration.digests == {"network": "x"}
    names = {-1: "picture", **{layer.index: layer.name for layer in NETWORK.layers}}
    for tensor in calibration.tensors:
        values = np.concatenate(observed[tensor.tensor])
        assert (tensor.minimum, tensor.maximum) == (float(values.min()), float(values.max()))
        assert tensor.name == names[tensor.tensor]
    read_tensors = {layer.inputs[0] for layer in NETWORK.convolutions}
    passed_on = {route.index for route in NETWORK.layers if route.kind == "route" and len(route.inputs) == 1}
    assert read_tensors - passed_on <= {tensor.tensor for tensor in calibration.tensors}


@pytest.mark.parametrize("mode", ["affine", "symmetric", "MIN_FIRST"])
def test_ranges_of_one_image_are_its_dynamic_ranges(prepared: Prepared, mode: str) -> None:
    """For the first layer only: behind it, the tensors of int8 and fp32 passes differ."""
    image = images(1)
    engine_options = options(mode=mode)
    calibration = calibrate(prepared, [image], range_requests(NETWORK, engine_options), {})
    results = []
    for ranges in ("calibrated", "dynamic"):
        engine = resolve_options(NETWORK, make_quantization(mode=mode, ranges=ranges), ranges=calibration.by_tensor())
        only_first = assign(NETWORK, "fp32", layers={"first": "int8"})
        results.append(Session(prepared, build_plan(NETWORK, only_first, engine)).forward(image))
    for calibrated, dynamic in zip(*results, strict=True):
        np.testing.assert_array_equal(calibrated, dynamic)


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_every_method_runs_a_network(prepared: Prepared, method: str) -> None:
    engine_options = options(method=method)
    calibration = calibrate(prepared, [images()], range_requests(NETWORK, engine_options), {})
    assert all(t.seen_minimum <= t.maximum and t.minimum <= t.seen_maximum for t in calibration.tensors)
    engine = resolve_options(NETWORK, make_quantization(method=method), ranges=calibration.by_tensor())
    heads = Session(prepared, build_plan(NETWORK, assign(NETWORK, "int8"), engine)).forward(images())
    exact = Session(prepared, build_plan(NETWORK, assign(NETWORK, "fp32"))).forward(images())
    for head, reference in zip(heads, exact, strict=True):
        noise = float(np.square(head.astype(np.float64) - reference).sum())
        assert noise < 0.1 * float(np.square(reference.astype(np.float64)).sum())


def test_readers_of_one_tensor_must_ask_for_the_same() -> None:
    route = next(layer for layer in NETWORK.layers if layer.kind == "route" and len(layer.inputs) == 1)
    shared = route.inputs[0]
    readers = [
        layer.index
        for layer in NETWORK.layers
        if shared in layer.inputs or (layer.kind == "convolutional" and route.index in layer.inputs)
    ]
    assert len(readers) > 1
    last_reader = str(max(readers))
    with pytest.raises(ConfigError, match=r"read one tensor, but ask for calibration by .*mse.*; give both the same"):
        range_requests(NETWORK, options((last_reader, make_quantization(method="mse"))))
    # min-max does not depend on the scheme, so there is nothing to disagree about.
    range_requests(NETWORK, options((last_reader, make_quantization(mode="symmetric"))))


def test_dynamic_layers_ask_for_nothing() -> None:
    assert range_requests(NETWORK, options(ranges="dynamic")) == {}
    some = range_requests(NETWORK, options(("first", make_quantization()), ranges="dynamic"))
    assert list(some) == [-1]


def test_no_image_is_an_error(prepared: Prepared) -> None:
    with pytest.raises(DataError, match=r"tensor -1 \(picture\): the calibration set is empty"):
        calibrate(prepared, [], range_requests(NETWORK, options()), {})
