# SPDX-License-Identifier: MIT
"""ncnn runs what mpnet exports, and gives what mpnet gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.backends import Model, backend
from mpnet.backends.placement import placements
from mpnet.errors import EngineError
from mpnet.export import Configuration, Exported, export
from tests.backends.foreign_cases import (
    ODD,
    SHUFFLED,
    SYMMETRIC,
    Floats,
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

pytest.importorskip("ncnn")


def _open(configuration: Configuration) -> Model:
    return backend("ncnn").load(export("ncnn", configuration), 1)


def _error(configuration: Configuration) -> float:
    batch = batch_of(configuration.network)
    return head_error(_open(configuration).forward(batch), compute_heads(configuration, batch))


def _same_bits(configuration: Configuration, batch: Floats) -> None:
    for head, expected in zip(_open(configuration).forward(batch), compute_heads(configuration, batch), strict=True):
        np.testing.assert_array_equal(head, expected)


@pytest.mark.parametrize(("key", "bound"), [("f", 2e-6), ("w", 2e-6), ("h", 2e-3), ("q", 2e-2)])
def test_every_kind_of_layer_at_every_precision(key: str, bound: float) -> None:
    assert _error(configured(ODD, key, SYMMETRIC)) <= bound


@pytest.mark.parametrize(
    "lines",
    [
        "filters=16\nsize=1\n",
        "filters=16\nsize=3\npad=1\nstride=2\n",
        "filters=16\nsize=3\npad=1\ngroups=2\n",
        "filters=8\nsize=3\npad=1\ngroups=8\n",
        "filters=16\nsize=3\ndilation=2\npadding=2\n",
        "filters=5\nsize=5\npad=1\n",
    ],
)
@pytest.mark.parametrize("activation", ["linear", "leaky", "relu6"])
def test_int8_layers_give_the_same_bits(lines: str, activation: str) -> None:
    # The same codes, the same whole numbers, then one fused product and sum (which every CPU with FMA has). Depthwise ones and
    # those with groups are where ncnn's own de-scaling is coarse, or wrong.
    configuration = configured(one_layer(f"[convolutional]\nactivation={activation}\n{lines}"), "q", SYMMETRIC)
    _same_bits(configuration, batch_of(configuration.network))


def test_a_chain_of_int8_layers_gives_the_same_bits() -> None:
    # One bit of difference in a layer is another code in one behind it, sooner or later.
    layers = "".join(
        f"[convolutional]\nfilters=16\nsize={size}\npad=1\ngroups={groups}\nactivation=leaky\n"
        for size, groups in ((3, 1), (1, 1), (3, 16), (1, 1), (3, 2), (1, 1))
    )
    configuration = configured(one_layer(layers, 40, 40), "q", SYMMETRIC)
    _same_bits(configuration, batch_of(configuration.network, 4))


@pytest.mark.parametrize("key", ["f", "h", "q"])
def test_a_mean_over_everything_and_what_follows(key: str) -> None:
    text = one_layer(
        "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n[avgpool]\n"
        "[convolutional]\nfilters=6\nsize=1\nactivation=linear\n"
    )
    assert _error(configured(text, key, SYMMETRIC)) <= (2e-3 if key == "h" else 2e-6)


def test_mixed_configurations_stay_within_what_is_promised() -> None:
    base = configured(tiny_cfg(), "q", SYMMETRIC)
    assert max(_error(with_key(base, key)) for key in random_keys(base, 6)) <= 2e-2


@pytest.mark.parametrize("own_precision", ["", "int8=1\n"])
def test_channel_shuffles(own_precision: str) -> None:
    assert _error(configured(SHUFFLED.replace("groups=3\n", "groups=3\n" + own_precision), "f", SYMMETRIC)) <= 2e-6
    _same_bits(configured(SHUFFLED, "q", SYMMETRIC), batch_of(configured(SHUFFLED, "q", SYMMETRIC).network))


def test_int8_tensors_between_layers_without_weights_mean_their_codes() -> None:
    text = one_layer("[maxpool]\nsize=2\nstride=2\nint8=1\n[convolutional]\nfilters=6\nsize=1\nactivation=linear\n")
    assert _error(configured(text, "f", SYMMETRIC)) <= 2e-6


def test_images_of_a_batch_do_not_meet() -> None:
    configuration = configured(tiny_cfg(), "q", SYMMETRIC)
    batch, model = batch_of(configuration.network, 3), _open(configuration)
    together = model.forward(batch)
    for number in range(3):
        for head, alone in zip(together, model.forward(batch[number : number + 1]), strict=True):
            np.testing.assert_array_equal(head[number : number + 1], alone)


def test_it_says_what_runs() -> None:
    network = configured(tiny_cfg(), "f").network
    key = "fhq" + "f" * (len(network.convolutions) - 3)
    executed = _open(configured(tiny_cfg(), key, SYMMETRIC)).executed()
    assert executed is not None
    assert sorted(executed) == [layer.index for layer in network.convolutions]
    assert [executed[layer.index][0] for layer in network.convolutions[:3]] == ["fp32", "fp32", "int8"]


def test_depthwise_codes_in_fp32_are_a_fallback_that_is_named() -> None:
    configuration = configured(one_layer("[convolutional]\nfilters=8\nsize=3\npad=1\ngroups=8\n"), "q", SYMMETRIC)
    exported = export("ncnn", configuration)
    (layer,) = placements(configuration, exported, backend("ncnn").load(exported, 1).executed())
    assert (layer.asked, layer.written, layer.executed, layer.falls_back) == ("int8", "fp32", "fp32", True)
    assert layer.why.startswith("the same codes and sums")


def test_what_is_no_network_is_one_line() -> None:
    files = {".param": b"nonsense\n", ".bin": b"", ".json": b'{"heads": []}'}
    with pytest.raises(EngineError, match=r"^ncnn .* refuses the \.param file$"):
        backend("ncnn").load(Exported(files), 1)


def test_trained_network(shared_data: Path) -> None:
    configuration, batch = trained(shared_data, "aix", "q", SYMMETRIC)
    full = with_key(configuration, "f" * 11)
    assert head_error(_open(full).forward(batch), compute_heads(full, batch)) <= 2e-6
    for key in ("q" * 11, *random_keys(configuration, 3)):
        mixed = with_key(configuration, key)
        assert head_error(_open(mixed).forward(batch), compute_heads(mixed, batch)) <= 2e-2


@pytest.mark.parametrize("name", ["aix", "fastest"])
def test_trained_networks_in_int8_give_the_same_bits(shared_data: Path, name: str) -> None:
    _same_bits(*trained(shared_data, name, "q", SYMMETRIC))
