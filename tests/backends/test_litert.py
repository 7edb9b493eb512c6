# SPDX-License-Identifier: MIT
"""LiteRT runs what mpnet exports, and gives what mpnet gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.backends import Model, backend
from mpnet.errors import ConfigError, EngineError
from mpnet.export import Configuration, Exported, export
from mpnet.model.weights import random_weights
from tests.backends.foreign_cases import (
    CALIBRATED,
    DYNAMIC,
    ODD,
    SHUFFLED,
    WITHOUT_STATISTICS,
    batch_of,
    compute_heads,
    configured,
    head_error,
    one_layer,
    random_keys,
    trained,
    with_key,
)
from tests.networks import tiny_cfg

pytest.importorskip("ai_edge_litert")
pytest.importorskip("flatbuffers")


def _open(configuration: Configuration, flavour: str = "litert") -> Model:
    return backend("litert").load(export("tflite", configuration, flavour), 1)


def _error(configuration: Configuration, flavour: str = "litert") -> float:
    batch = batch_of(configuration.network)
    return head_error(_open(configuration, flavour).forward(batch), compute_heads(configuration, batch))


def test_fp32_gives_the_same_bits() -> None:
    configuration = configured(tiny_cfg(), "f")
    batch = batch_of(configuration.network, 3)
    for head, expected in zip(_open(configuration).forward(batch), compute_heads(configuration, batch), strict=True):
        np.testing.assert_array_equal(head, expected)


@pytest.mark.parametrize("flavour", ["litert", "integer"])
@pytest.mark.parametrize(("key", "bound"), [("f", 2e-6), ("q", 2e-2), ("i", 1e-3)])
def test_channel_shuffles_carry_what_they_read(key: str, bound: float, flavour: str) -> None:
    assert _error(configured(SHUFFLED, key, CALIBRATED), flavour) <= bound


@pytest.mark.parametrize("key", ["4", "4qhfq4f4h"])
def test_weights_of_four_bits_give_the_sums_of_eight(key: str) -> None:
    text = ODD.replace("groups=16", "groups=1")  # it has no depthwise convolution of four bits
    configuration = configured(text, key)
    assert _error(configuration) <= 2e-2
    executed = _open(configuration).executed()
    assert executed is not None
    for layer in configuration.network.convolutions:
        if configuration.precisions[layer.index].is_narrow:
            assert executed[layer.index] == ("int8", "a kernel of TensorFlow Lite, not XNNPACK, hybrid")


def test_a_depthwise_convolution_of_four_bits_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"layer 1 .* as int4: LiteRT has no depthwise .* by weights of 4 bits.*can be exported is 4q44"
    ):
        export("tflite", configured(ODD, "4"), "litert")


def test_groups_of_channels_are_refused() -> None:
    text = one_layer("[convolutional]\nfilters=4\nsize=1\nactivation=linear\n")
    configuration = configured(text, "4", narrow=replace(WITHOUT_STATISTICS, granularity="per_group"))
    with pytest.raises(
        ConfigError, match=r"layer 0 .* narrow\.granularity to per_channel; .* configuration that can be exported is q$"
    ):
        export("tflite", configuration, "litert")


@pytest.mark.parametrize(
    "head",
    [
        "[region]\nanchors=1,2, 3,4\nclasses=2\ncoords=4\nnum=2\nsoftmax=1\n",
        "[yolo]\nmask=0,1\nanchors=2,3, 4,5\nclasses=2\nnum=2\n",
    ],
)
def test_heads_of_the_family_are_outputs(head: str) -> None:
    configuration = configured(one_layer("[convolutional]\nfilters=14\nsize=1\nactivation=linear\n" + head), "f")
    batch = batch_of(configuration.network)
    heads, expected = _open(configuration).forward(batch), compute_heads(configuration, batch)
    np.testing.assert_array_equal(heads[0], expected[0])


@pytest.mark.parametrize(("key", "bound"), [("f", 2e-6), ("w", 2e-6), ("h", 2e-3), ("q", 2e-2)])
@pytest.mark.parametrize("flavour", ["litert", "armnn"])
def test_every_kind_of_layer_at_every_precision(key: str, bound: float, flavour: str) -> None:
    text = ODD if flavour == "litert" else ODD.replace("size=3\nstride=2\npadding=1", "size=2\nstride=2")
    if flavour == "armnn" and key == "q":
        assert _error(configured(text, key, CALIBRATED), flavour) <= 6e-2
    else:
        assert _error(configured(text, key), flavour) <= bound


def test_a_hybrid_convolution_measures_the_image_and_not_the_pixel() -> None:
    # Exact but for roundings of float32: both de-scale the same sums of the same codes.
    for section in (
        "[convolutional]\nfilters=9\nsize=1\nactivation=linear\n",
        "[convolutional]\nfilters=9\nsize=3\npad=1\nactivation=linear\n",
    ):
        assert _error(configured(one_layer(section), "q")) <= 1e-6


@pytest.mark.parametrize("key", ["f", "h", "q"])
def test_a_mean_over_everything_and_what_follows(key: str) -> None:
    text = one_layer(
        "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n[avgpool]\n"
        "[convolutional]\nfilters=6\nsize=1\nactivation=linear\n"
    )
    assert _error(configured(text, key, DYNAMIC)) <= (2e-3 if key == "h" else 2e-6)


def test_mixed_configurations_stay_within_what_is_promised() -> None:
    base = configured(tiny_cfg(), "f")
    assert max(_error(with_key(base, key)) for key in random_keys(base, 6)) <= 2e-2


@pytest.mark.parametrize("flavour", ["litert", "armnn"])
def test_calibrated_int8_stays_near(flavour: str) -> None:
    # LiteRT measures ranges anew; for ArmNN sums have 8 bits: of 13 layers, each at most 2 / 255 / sqrt(12) of its largest.
    assert _error(configured(tiny_cfg(), "q", CALIBRATED), flavour) <= 6e-2


@pytest.mark.parametrize("text", [tiny_cfg(), ODD], ids=["tiny", "odd"])
@pytest.mark.parametrize("flavour", ["litert", "integer"])
def test_int16_stays_nearer_than_halves(text: str, flavour: str) -> None:
    # LiteRT cuts factors to 16 bits, so that each layer's largest results are a code off.
    configuration = configured(text, "i", CALIBRATED)
    assert _error(configuration, flavour) <= 1e-3
    executed = _open(configuration, flavour).executed()
    assert executed is not None
    assert {precision for precision, _ in executed.values()} == {"int16"}


@pytest.mark.parametrize("flavour", ["litert", "integer"])
@pytest.mark.parametrize("keys", ["qi", "iq", "fi", "hi"])
def test_int16_beside_other_precisions(flavour: str, keys: str) -> None:
    layers = len(configured(ODD, "f").network.convolutions)
    assert _error(configured(ODD, (keys * layers)[:layers], CALIBRATED), flavour) <= 6e-2


def test_clamps_stay_in_int8_to_the_code() -> None:
    # A convolution with a clamp gives its reader's codes at once, with one rounding as in mpnet; the bias has been rounded
    # to a whole number of steps of the sums, which moves a code here and there.
    text = one_layer(
        "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=relu\n[convolutional]\nfilters=6\nsize=1\nactivation=linear\n"
    )
    assert _error(configured(text, "q", CALIBRATED), "armnn") <= 1e-3


def test_a_channel_that_means_nothing_beside_its_bias() -> None:
    configuration = configured(tiny_cfg(), "q", CALIBRATED)
    weights = random_weights(configuration.network, 3)
    for own_weights in weights.layers.values():
        own_weights.weights[0] *= np.float32(1e-20)
        own_weights.biases[0] = 3.0
    for flavour, key in (("litert", "q"), ("armnn", "q"), ("litert", "i")):
        assert np.isfinite(_error(configured(tiny_cfg(), key, CALIBRATED, weights), flavour))


def test_it_says_what_runs_and_where() -> None:
    network = configured(tiny_cfg(), "f").network
    key = "fhq" + "f" * (len(network.convolutions) - 3)
    executed = _open(configured(tiny_cfg(), key)).executed()
    assert executed is not None
    indices = [layer.index for layer in network.convolutions]
    assert sorted(executed) == indices
    assert [executed[index][0] for index in indices[:3]] == ["fp32", "fp32", "int8"]
    assert executed[indices[2]][1] == "XNNPACK, hybrid"


def test_groups_are_executed_as_one_layer() -> None:
    text = one_layer("[convolutional]\nfilters=16\nsize=3\npad=1\ngroups=4\nactivation=leaky\n")
    executed = _open(configured(text, "q")).executed()
    assert executed is not None
    assert executed[0][0] == "int8"


def test_what_is_no_model_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"^LiteRT .* refuses the model: [^\n]*$"):
        backend("litert").load(Exported({".tflite": b"TFL3" * 20}), 1)


@pytest.mark.parametrize("name", ["aix", "fastest"])
def test_trained_networks(shared_data: Path, name: str) -> None:
    configuration, batch = trained(shared_data, name, "f", DYNAMIC)
    # XNNPACK sums a depthwise window column by column, mpnet row by row.
    bound = 0.0 if name == "aix" else 2e-6
    assert head_error(_open(configuration).forward(batch), compute_heads(configuration, batch)) <= bound
    for key in random_keys(configuration, 2):
        mixed = with_key(configuration, key)
        assert head_error(_open(mixed).forward(batch), compute_heads(mixed, batch)) <= 2e-2


@pytest.mark.parametrize("name", ["aix", "fastest"])
def test_trained_networks_in_int16(shared_data: Path, name: str) -> None:
    configuration, batch = trained(shared_data, name, "i", CALIBRATED)
    assert head_error(_open(configuration).forward(batch), compute_heads(configuration, batch)) <= 1e-3
