# SPDX-License-Identifier: MIT
"""Weights: folded by either convention, packed once, corrected on request."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.observe import channel_factors, channel_means
from mpnet.engine.operations import Convolve
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, EngineError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import CODE16, FP16, FP32, INT8, PRECISIONS, Precision
from mpnet.model.quantization import QuantizationOptions
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.weights import WeightScheme
from tests.networks import DEPTHWISE_CFG


def test_unknown_convention(network: NetworkSpec, weights: Weights) -> None:
    with pytest.raises(ConfigError, match=r"^batch_norm 'keras' is unknown; known are auto, darknet, alexeyab$"):
        Prepared(network, weights, kernels(), batch_norm="keras")


def test_packed_once_and_shared_between_threads(network: NetworkSpec, weights: Weights) -> None:
    prepared = Prepared(network, weights, kernels())
    schemes = (WeightScheme(), WeightScheme("per_tensor"))
    operations = [Convolve(0, FP32), Convolve(2, FP16), *(Convolve(0, INT8, scheme) for scheme in schemes)]
    ids_of_threads: list[list[int]] = []

    def pack() -> None:
        ids_of_threads.append([id(prepared.convolution(operation)) for operation in operations])

    workers = [threading.Thread(target=pack) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(ids == ids_of_threads[0] for ids in ids_of_threads)
    assert len(set(ids_of_threads[0])) == 4


@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.is_narrow and row.stored is CODE16], ids=str)
def test_narrow_weights_are_the_same_codes_whatever_activations_are(
    network: NetworkSpec, weights: Weights, row: Precision
) -> None:
    [reference] = [
        candidate
        for candidate in PRECISIONS.values()
        if candidate.multiplies_bytes and candidate.weight_bits == row.weight_bits
    ]
    prepared, scheme = Prepared(network, weights, kernels()), WeightScheme("per_group", "mse", bits=row.weight_bits)
    for layer in network.convolutions[:4]:
        constants, expected = (prepared.constants(Convolve(layer.index, candidate, scheme)) for candidate in (row, reference))
        assert constants.weights.tobytes() == expected.weights.tobytes()
        np.testing.assert_array_equal(constants.weight_scale, expected.weight_scale)
        sizes = {Convolve(layer.index, candidate, scheme).weight_bytes(layer) for candidate in (row, reference)}
        assert len(sizes) == 1


def test_stored_bytes(network: NetworkSpec) -> None:
    layer = network.convolutions[0]  # 16 filters of 3x3x3
    count = 16 * 27
    assert Convolve(0, FP32).weight_bytes(layer) == 4 * count + 64
    assert Convolve(0, FP16).weight_bytes(layer) == 2 * count + 64
    assert Convolve(0, INT8, WeightScheme()).weight_bytes(layer) == count + 64 + 64
    assert Convolve(0, INT8, WeightScheme("per_tensor")).weight_bytes(layer) == count + 64 + 4


def test_equalising_changes_no_fp32_result(network: NetworkSpec, weights: Weights) -> None:
    batch = np.random.Generator(np.random.PCG64(5)).random((2, 12, 20, 3), np.float32)
    plan = build_plan(network, assign(network))
    plain, equalised = (Prepared(network, weights, kernels(), equalise=flag) for flag in (False, True))
    for a, b in zip(Session(plain, plan).forward(batch), Session(equalised, plan).forward(batch), strict=True):
        assert np.array_equal(a, b)
    assert resolve_options(network, QuantizationOptions(equalisation=True)).equalise
    assert not resolve_options(network).equalise


def test_equalising_by_activations_needs_images_and_changes_no_fp32_result() -> None:
    network = parse_cfg(DEPTHWISE_CFG, "depthwise.cfg")
    weights = random_weights(network, seed=5)
    batch = np.random.Generator(np.random.PCG64(5)).random((2, 12, 20, 3), np.float32)
    options = resolve_options(network, QuantizationOptions(equalisation="activations"))
    with pytest.raises(EngineError, match=r"^equalisation by activations needs calibration images"):
        _ = options.equalise
    plain = Prepared(network, weights, kernels())
    factors = channel_factors(plain, [batch])
    assert list(factors) == [0]
    equalised = Prepared(network, weights, kernels(), equalise=replace(options, channel_factors=factors).equalise)
    # Powers of two: readers take back what writers lose, bit for bit.
    assert set(np.frexp(factors[0])[0]) == {0.5}
    assert np.array_equal(equalised.folded[0].weights * factors[0][:, None, None, None], plain.folded[0].weights)
    for name, equal in (("fp32", True), ("int8", False)):
        plan = build_plan(network, assign(network, default=name))
        (a,), (b,) = Session(plain, plan).forward(batch), Session(equalised, plan).forward(batch)
        assert np.array_equal(a, b) == equal


def test_bias_correction_needs_and_uses_the_means(network: NetworkSpec, weights: Weights) -> None:
    batch = np.random.Generator(np.random.PCG64(6)).random((2, 12, 20, 3), np.float32)
    options = resolve_options(network, QuantizationOptions(bias_correction=True))
    plan = build_plan(network, assign(network, layers={0: "int8"}), options)
    bare = Prepared(network, weights, kernels())
    with pytest.raises(EngineError, match=r"^layer 0 \(conv-1\) asks for bias correction, which needs the means"):
        Session(bare, plan).forward(batch)
    means = channel_means(bare, [batch])
    assert sorted(means) == [0, 1, 2, 7, 10, 13]
    assert means[0] == pytest.approx(batch.mean(axis=(0, 1, 2), dtype=np.float64), rel=1e-12)
    corrected = Prepared(network, weights, kernels(), channel_means=means)
    operation = Convolve(0, INT8, WeightScheme(), True)
    shift = corrected.convolution(operation).bias - corrected.convolution(Convolve(0, INT8, WeightScheme())).bias
    assert np.abs(shift).max() > 0
    Session(corrected, plan).forward(batch)
