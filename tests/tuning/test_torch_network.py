# SPDX-License-Identifier: MIT
"""The network that PyTorch trains beside mpnet's own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, NarrowOptions, QuantizationOptions, WeightOptions
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.measure import sqnr_db
from mpnet.tuning.write import tuned_weights
from tests.networks import tiny_cfg

pytest.importorskip("torch", reason="the stage end-to-end is tested where torch is: pip install 'mpnet[tune]'")

from mpnet.tuning.torch_network import TorchNetwork

KINDS = """[net]
width=8
height=8
channels=3
[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
activation=mish
[convolutional]
filters=8
size=3
pad=1
groups=8
activation=relu6
[shortcut]
from=-2
activation=leaky
[route]
layers=-1
groups=2
group_id=1
[maxpool]
size=3
stride=1
[reorg]
stride=2
[convolutional]
filters=8
size=1
activation=swish
[upsample]
stride=2
[avgpool]
[connected]
output=5
activation=linear
[softmax]
"""


def made(network: NetworkSpec, options: QuantizationOptions = QuantizationOptions()) -> tuple[Prepared, EngineOptions]:  # noqa: B008
    resolved = resolve_options(network, options)
    return Prepared.under(resolved, network, random_weights(network, 5), kernels()), resolved


def heads(prepared: Prepared, plan: PrecisionPlan, options: EngineOptions, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = Session(prepared, build_plan(prepared.network, plan, options))
    return np.concatenate([head.reshape(-1) for head in session.forward(images)])


def trained_heads(
    prepared: Prepared, plan: PrecisionPlan, options: EngineOptions, images: NDArray[np.float32]
) -> NDArray[np.float32]:
    return np.concatenate([head.reshape(-1) for head in TorchNetwork(prepared, plan, options).forward(images)])


def distance_db(wanted: NDArray[np.float32], given: NDArray[np.float32]) -> float:
    return sqnr_db(float((wanted**2).sum()), float(((wanted - given) ** 2).sum()))


@pytest.mark.parametrize("text", [KINDS, tiny_cfg()], ids=["kinds", "tiny"])
def test_fp32_is_mpnets_own(text: str, images: list[NDArray[np.float32]]) -> None:
    network = parse_cfg(text, "net.cfg")
    prepared, options = made(network)
    image = np.random.default_rng(0).random((2, *network.in_shape), np.float32)
    plan = assign(network, "fp32")
    wanted = heads(prepared, plan, options, image)
    # Sums in another order: a few roundings of float32 in each of up to 13 layers, 2^-24 each.
    assert distance_db(wanted, trained_heads(prepared, plan, options, image)) > 100


@pytest.mark.parametrize(
    "options",
    [
        QuantizationOptions(),
        QuantizationOptions(ActivationOptions(mode="symmetric"), WeightOptions("per_tensor")),
        QuantizationOptions(ActivationOptions(mode="power_of_two", rounding="half_to_even")),
    ],
    ids=["affine", "symmetric", "power_of_two"],
)
def test_codes_of_single_layers_are_mpnets_own(options: QuantizationOptions, network: NetworkSpec) -> None:
    """One layer in int8 after layers of fp32 reads the same codes, but for reals half way between two of them."""
    prepared, resolved = made(network, options)
    images = np.random.default_rng(1).random((2, *network.in_shape), np.float32)
    for layer in network.convolutions:
        plan = assign(network, "fp32", {layer.index: "int8"})
        wanted = heads(prepared, plan, resolved, images)
        assert distance_db(wanted, trained_heads(prepared, plan, resolved, images)) > 60, layer.name


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_whole_networks_are_nearer_to_mpnets_own_than_to_fp32(bits: str, network: NetworkSpec) -> None:
    options = QuantizationOptions(narrow=NarrowOptions(method="min_max", rounding="nearest", bias_correction=False))
    prepared, resolved = made(network, options)
    images = np.random.default_rng(2).random((2, *network.in_shape), np.float32)
    plan = assign(network, bits)
    wanted = heads(prepared, plan, resolved, images)
    given = trained_heads(prepared, plan, resolved, images)
    assert distance_db(wanted, given) > distance_db(wanted, heads(prepared, assign(network, "fp32"), resolved, images)) + 6


@pytest.mark.parametrize("method", ["min_max", "mse"])
def test_what_is_written_runs_as_it_was_trained(method: str, network: NetworkSpec, weights: Weights) -> None:
    """Codes whose steps were searched for are found again from the reals that they stand for."""
    options = QuantizationOptions(weights=WeightOptions(method=method))
    prepared, resolved = made(network, options)
    plan = assign(network, "int8")
    trained = TorchNetwork(prepared, plan, resolved)
    random = np.random.default_rng(3)
    for _, moves in trained.moves():
        moves.data += trained.moves()[0][1].new_tensor(random.uniform(-1, 1, tuple(moves.shape)))
    images = random.random((2, *network.in_shape), np.float32)
    wanted = np.concatenate([head.reshape(-1) for head in trained.forward(images)])
    written = tuned_weights(network, random_weights(network, 5), trained.folded(), resolved.batch_norm)
    least = resolve_options(network, QuantizationOptions(weights=WeightOptions(method="min_max")))
    given = heads(Prepared.under(least, network, written, kernels()), plan, least, images)
    assert distance_db(wanted, given) > 45


def test_layers_without_a_gradient_are_named(network: NetworkSpec) -> None:
    text = "[net]\nwidth=4\nheight=4\nchannels=3\n[convolutional]\nfilters=3\nsize=1\nactivation=linear\n[l2norm]\n[softmax]\n"
    other = parse_cfg(text, "net.cfg")
    with pytest.raises(ConfigError, match=r"layer 1 \(l2norm-1\) cannot be trained: the normalisation l2 has no gradient"):
        TorchNetwork(made(other)[0], assign(other, "int8"), made(other)[1])
    prepared, options = made(network, QuantizationOptions(ActivationOptions(mode="SCALED")))
    with pytest.raises(ConfigError, match=r"layer 0 \(conv-1\) cannot be trained: activations of mode SCALED"):
        TorchNetwork(prepared, assign(network, "int8"), options)
